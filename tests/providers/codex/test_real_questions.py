"""Every kind of thing that a real Codex asks: in two Sides at once, in a Side and its source, in the source alone."""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import (
    Answer,
    CallTool,
    ModelScript,
    Pause,
    Reply,
    Say,
    ToolServer,
    apply_patch,
    ask_user,
    mcp_server,
    run_command,
)
from tutti_side.contract import InteractionAnswer, InteractionRequested
from tutti_side.runtime.errors import (
    InteractionAlreadyAnsweredError,
    InteractionInvalidError,
    InteractionNotLiveError,
    SessionExpiredError,
)

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any
Handle = Any
Listen = Callable[[trio.Nursery, Any], Any]

ASKING = {"approval_policy": "on-request", "sandbox_mode": "read-only"}
TASK = "Refactor the parser"
PARENT = Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK)
ACCEPT, ALWAYS, DECLINE, CANCEL = (
    InteractionAnswer(option_id=option) for option in ("accept", "accept_for_session", "decline", "cancel")
)


def calls(step: CallTool, when: str) -> Answer:
    """A turn that calls a tool, and says that it is done."""
    return Answer(replies=(Reply(steps=(step,)), Reply(steps=(Say(tokens=(f"{when} is done",)),))), when=when)


def touches(name: str, when: str | None = None) -> Answer:
    """A turn that makes a file, outside the sandbox."""
    return calls(run_command(f"touch {name}", justification=f"Make {name}?"), when or name)


async def wait_asked(handle: Handle) -> InteractionRequested:
    """Wait until a session or Side has something to ask; its subscription is another one than the test's."""
    with handle.events() as subscription:
        if not handle.interactions:
            async for batch in subscription:
                if any(type(event) is InteractionRequested for event in batch.events):
                    break
    [interaction] = handle.interactions
    return interaction  # type: ignore[no-any-return]


async def ask_and_answer(handle: Handle, question: str, *answers: InteractionAnswer) -> str:
    """Ask; answer what comes of it, in order; return what was said in the end."""
    turn = await handle.send(question)
    for answer in answers:
        handle.respond((await wait_asked(handle)).interaction_id, answer)
    return (await turn.wait()).answer.text  # type: ignore[no-any-return]


def asked_of(bench: Bench, thread_id: str) -> list[Any]:
    """The ids of what the server asked in a thread."""
    return [frame["id"] for frame in bench.wire.of_thread(thread_id) if "id" in frame]


def answers_by_id(bench: Bench) -> list[tuple[Any, Any]]:
    """What we answered, with the ids of the requests."""
    return [(frame["id"], frame["result"]) for frame in bench.wire.sent if "method" not in frame]


def kinds_of_interactions(heard: Any) -> list[str]:
    """Asked and settled, in the order in which one stream says so."""
    return [kind for kind in (type(event).__name__ for event in heard.events) if kind.startswith("Interaction")]


ONCE = ["InteractionRequested", "InteractionResolved"]


def thread_of(side: Handle) -> str:
    """A Side's thread at the server."""
    return side.scope.binding.provider_session_id  # type: ignore[no-any-return]


async def test_what_a_side_may_do_without_being_asked_again_its_source_and_its_sibling_are_still_asked(
    lab: Lab,
) -> None:
    """T18, R19, F29: for the session is for that Side alone, and no file of Codex' remembers it."""
    script = ModelScript(answers=(touches("x", "make it"),))
    async with lab.bench(script, **ASKING) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        async with session.side() as side, session.side() as sibling:
            assert await ask_and_answer(side, "make it", ALWAYS) == "make it is done"
            assert await ask_and_answer(side, "make it again") == "make it is done"
            assert await ask_and_answer(sibling, "make it", DECLINE) == "make it is done"
            assert await ask_and_answer(session, "make it", DECLINE) == "make it is done"
            assert [len(asked_of(bench, thread_of(handle))) for handle in (side, sibling)] == [1, 1]
            assert len(asked_of(bench, session.provider_session_id)) == 1
        decisions = [result["decision"] for _, result in answers_by_id(bench)]
        assert decisions == ["acceptForSession", "decline", "decline"]
        assert not (bench.codex_home / "rules").exists()


async def test_two_sides_that_ask_at_once_are_answered_crosswise_each_in_its_own(lab: Lab, listen: Listen) -> None:
    """R1, R3, F29, T4: the second asked is answered first; neither takes the other's answer."""
    script = ModelScript(answers=(PARENT, touches("left"), touches("right")))
    async with lab.bench(script, **ASKING) as bench, bench.host() as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=bench.workspace)
        parent = listen(nursery, session.events())
        turn = await session.send(TASK)
        await bench.wire.wait_said("one ")
        async with session.side(subscribe=True) as left, session.side(subscribe=True) as right:
            heard = [listen(nursery, side.events()) for side in (left, right)]
            turns = [await left.send("left"), await right.send("right")]
            asked = [await wait_asked(left), await wait_asked(right)]
            assert [question.turn_id for question in asked] == [turn.id for turn in turns]
            assert ["left" in asked[0].title, "right" in asked[1].title] == [True, True]
            for side, foreign in ((left, asked[1]), (right, asked[0]), (session, asked[0])):
                with pytest.raises(InteractionInvalidError):
                    side.respond(foreign.interaction_id, ACCEPT)
            right.respond(asked[1].interaction_id, ACCEPT)
            assert (await turns[1].wait()).answer.text == "right is done"
            assert turns[0].is_active
            left.respond(asked[0].interaction_id, DECLINE)
            assert (await turns[0].wait()).answer.text == "left is done"
            assert sorted(path.name for path in bench.workspace.iterdir()) == ["right"]
            [first], [second] = (asked_of(bench, thread_of(side)) for side in (left, right))
            assert answers_by_id(bench) == [(second, {"decision": "accept"}), (first, {"decision": "decline"})]
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "one two"
        await session.close()
    assert [kinds_of_interactions(stream) for stream in (*heard, parent)] == [ONCE, ONCE, []]
    for stream in heard:
        assert stream.sequences == list(range(1, len(stream.sequences) + 1))


@pytest.mark.parametrize("answer", [ACCEPT, DECLINE, CANCEL], ids=lambda answer: answer.option_id)
async def test_what_the_source_asks_is_its_own_and_an_open_side_hears_nothing_of_it(
    lab: Lab, listen: Listen, answer: InteractionAnswer
) -> None:
    """R1, F29: the reverse: an approval of the parent is neither shown nor taken in its Side."""
    script = ModelScript(answers=(touches("file"),))
    async with lab.bench(script, **ASKING) as bench, bench.host() as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=bench.workspace)
        heard = listen(nursery, session.events())
        turn = await session.send("file")
        asked = await wait_asked(session)
        async with session.side(subscribe=True) as side:
            of_side = listen(nursery, side.events())
            assert side.interactions == ()
            with pytest.raises(InteractionInvalidError):
                side.respond(asked.interaction_id, ACCEPT)
            assert (await side.ask("hello")).text == "Done."
            session.respond(asked.interaction_id, answer)
            result = await turn.wait()
        await session.close()
        assert result.status == ("canceled" if answer is CANCEL else "completed")
        assert (bench.workspace / "file").exists() is (answer is ACCEPT)
        assert [given["decision"] for _, given in answers_by_id(bench)] == [answer.option_id]
    assert (kinds_of_interactions(heard), kinds_of_interactions(of_side)) == (ONCE, [])


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("answered", InteractionAlreadyAnsweredError),
        ("interrupted", InteractionNotLiveError),
        ("closed", SessionExpiredError),
    ],
)
async def test_the_source_too_takes_one_answer_and_none_that_comes_too_late(
    lab: Lab, listen: Listen, how: str, error: type[Exception]
) -> None:
    """R11, T5, T6, F28: the same as in a Side; what is pending at its close is declined before the thread is let go."""
    script = ModelScript(answers=(touches("file"),))
    async with lab.bench(script, **ASKING) as bench, bench.host() as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=bench.workspace)
        heard = listen(nursery, session.events())
        turn = await session.send("file")
        asked = await wait_asked(session)
        if how == "answered":
            session.respond(asked.interaction_id, DECLINE)
        elif how == "interrupted":
            await turn.cancel()
            await turn.wait()
        else:
            await session.close()
        with pytest.raises(error):
            session.respond(asked.interaction_id, ACCEPT)
        await turn.wait()
        await session.close()
        sent = [frame.get("method") or frame["result"]["decision"] for frame in bench.wire.sent[-4:]]
        if how == "closed":
            assert sent == ["decline", "turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"]
        assert len(answers_by_id(bench)) == (0 if how == "interrupted" else 1)
        assert list(bench.workspace.iterdir()) == []
    assert kinds_of_interactions(heard) == ONCE


# User input

COLOR = {
    "id": "color",
    "header": "Color",
    "question": "Which color?",
    "options": [{"label": "Blue", "description": "As the sky."}, {"label": "Red", "description": "As a rose."}],
}
ASKS_USER = {"features": {"default_mode_request_user_input": True}}


@pytest.mark.parametrize("how", ["answered", "interrupted", "closed"])
async def test_a_question_of_a_side_is_answered_or_ends_with_its_turn(lab: Lab, listen: Listen, how: str) -> None:
    """R11: user input; it has no refusal, so what nobody answered is answered with nothing."""
    script = ModelScript(answers=(calls(ask_user([COLOR]), "paint"),))
    async with lab.bench(script, **ASKS_USER) as bench, bench.host() as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        async with session.side(subscribe=True) as side:
            heard = listen(nursery, side.events())
            turn = await side.send("paint")
            asked = await wait_asked(side)
            assert (asked.kind, asked.turn_id, session.interactions) == ("question", turn.id, ())
            [question] = asked.questions
            assert (question.text, question.options) == ("Which color?", ("Blue", "Red"))
            if how == "answered":
                with pytest.raises(InteractionInvalidError):
                    side.respond(asked.interaction_id, ACCEPT)
                side.respond(asked.interaction_id, InteractionAnswer(answers={"color": ("Blue",)}))
                assert (await turn.wait()).answer.text == "paint is done"
                assert '{"answers":{"color":{"answers":["Blue"]}}}' in str(bench.model.requests[-1].items[-1])
            elif how == "interrupted":
                await turn.cancel()
                assert (await turn.wait()).status == "canceled"
                with pytest.raises(InteractionNotLiveError):
                    side.respond(asked.interaction_id, InteractionAnswer(answers={"color": ("Blue",)}))
        sent = {
            "answered": [{"answers": {"color": {"answers": ["Blue"]}}}],
            "interrupted": [],
            "closed": [{"answers": {}}],
        }
        assert [result for _, result in answers_by_id(bench)] == sent[how]
        await trio.testing.wait_all_tasks_blocked()
        assert kinds_of_interactions(heard) == ONCE
        resolved = [event.status for event in heard.events if type(event).__name__ == "InteractionResolved"]
        assert resolved == ["answered" if how == "answered" else "superseded"]


# File changes

PATCH = "*** Begin Patch\n*** Add File: {}\n+hello\n*** End Patch\n"


@pytest.mark.parametrize("answer", [ACCEPT, DECLINE, CANCEL], ids=lambda answer: answer.option_id)
async def test_a_file_change_of_a_side_names_its_files_and_is_made_only_when_accepted(
    lab: Lab, answer: InteractionAnswer
) -> None:
    """R19, T7: the request carries no paths; they come from the item that began before it."""
    script = ModelScript(answers=(calls(apply_patch(PATCH.format("side_new.txt")), "patch"),))
    async with lab.bench(script, model="gpt-5.5", **ASKING) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        async with session.side() as side:
            turn = await side.send("patch")
            asked = await wait_asked(side)
            assert asked.kind == "approval"
            assert asked.title == f"change {bench.workspace / 'side_new.txt'}"
            assert not (bench.workspace / "side_new.txt").exists()
            side.respond(asked.interaction_id, answer)
            assert (await turn.wait()).status == ("canceled" if answer is CANCEL else "completed")
            assert (bench.workspace / "side_new.txt").exists() is (answer is ACCEPT)
        assert [result["decision"] for _, result in answers_by_id(bench)] == [answer.option_id]
        assert not (bench.codex_home / "rules").exists()


# Elicitations

ASK_TOOL = CallTool(name="ask", namespace="mcp__docs", arguments='{"message":"Your name?"}')


async def wait_tool_server(bench: Bench, thread_id: str) -> None:
    """Wait until a thread's tool server is ready; before that a real Codex knows none of its tools."""
    await bench.wire.wait_for(
        lambda frame: (
            frame.get("method") == "mcpServer/startupStatus/updated"
            and (frame["params"]["threadId"], frame["params"]["status"]) == (thread_id, "ready")
        )
    )


@pytest.mark.parametrize("option", ["accept", "decline", "cancel", None])
async def test_what_a_tool_server_asks_in_a_side_is_answered_there_and_by_its_close_declined(
    lab: Lab, option: str | None
) -> None:
    """R11, F29, T17: elicitation; none of its answers ends the turn, and none is offered as if."""
    script = ModelScript(answers=(calls(ASK_TOOL, "name"),))
    async with lab.bench(script, tool_servers=[ToolServer()], **ASKING) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        async with session.side() as side:
            await wait_tool_server(bench, thread_of(side))
            turn = await side.send("name")
            asked = await wait_asked(side)
            assert (asked.turn_id, asked.detail, session.interactions) == (turn.id, "Your name?", ())
            assert [question.id for question in asked.questions] == ["name"]
            labels = {offered.id: offered.label for offered in asked.options}
            assert labels == {"accept": "Yes", "decline": "No", "cancel": "Dismiss"}
            answers = {"name": ("Bob",)} if option == "accept" else {}
            if option is not None:
                side.respond(asked.interaction_id, InteractionAnswer(option_id=option, answers=answers))
                assert (await turn.wait()).answer.text == "name is done"
                assert f'"action": "{option}"' in str(bench.model.requests[-1].items[-1]).replace("\\", "")
        [(_, result)] = answers_by_id(bench)
        assert result["action"] == ("decline" if option is None else option)
        assert result.get("content") == ({"name": "Bob"} if option == "accept" else None)
        assert not turn.is_active


def changed_server(path: pathlib.Path, old: str, new: str) -> ToolServer:
    """The same server, with something in its source replaced."""
    source = pathlib.Path(mcp_server.__file__).read_text()
    assert old in source
    path.write_text(source.replace(old, new))
    return ToolServer(command=(sys.executable, "-I", "-S", str(path)))


FORM = {
    "color": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
    "sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "m", "l"]}},
    "count": {"type": "integer"},
    "note": {"type": "string"},
}
"""A field of each kind that is not plain text, and one that may be left out."""


async def test_a_form_is_filled_in_by_title_by_several_choices_and_without_what_is_optional(
    lab: Lab,
) -> None:
    """Required: a real Codex passes such a form on, and the tool server gets what it asked for."""
    fields = f'"properties": {FORM!r}, "required": ["color", "sizes", "count"]'
    plain = '"properties": {"name": {"type": "string"}}, "required": ["name"]'
    tools = [changed_server(lab.directory / "server.py", plain, fields)]
    script = ModelScript(answers=(calls(ASK_TOOL, "order"),))
    async with lab.bench(script, tool_servers=tools, **ASKING) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        async with session.side() as side:
            await wait_tool_server(bench, thread_of(side))
            turn = await side.send("order")
            asked = await wait_asked(side)
            offered = {question.id: question.options for question in asked.questions}
            assert offered == {"color": ("Red", "Blue"), "sizes": ("s", "m", "l"), "count": (), "note": ()}
            assert [question.id for question in asked.questions if question.is_optional] == ["note"]
            answers = {"color": ("Blue",), "sizes": ("s", "l"), "count": ("3",)}
            side.respond(asked.interaction_id, InteractionAnswer(option_id="accept", answers=answers))
            assert (await turn.wait()).answer.text == "order is done"
            content = '"content": {"color": "b", "sizes": ["s", "l"], "count": 3}'
            assert content in str(bench.model.requests[-1].items[-1]).replace("\\", "")


@pytest.mark.parametrize(("option", "told"), [("accept", "as asked"), ("decline", "user rejected MCP tool call")])
async def test_a_tool_that_changes_things_runs_in_a_side_when_allowed_and_is_asked_for_each_time(
    lab: Lab, option: str, told: str
) -> None:
    """R19, T18, F26: an approval in the form of an elicitation; that it be remembered for ever is never offered."""
    # Its tools do not say that they only read.
    tools = [changed_server(lab.directory / "server.py", '"readOnlyHint": True', '"readOnlyHint": False')]
    call = CallTool(name="echo", namespace="mcp__docs", arguments='{"text":"as asked"}')
    script = ModelScript(answers=(calls(call, "change it"),))
    async with lab.bench(script, tool_servers=tools, **ASKING) as bench, bench.host() as host:
        config = (bench.codex_home / "config.toml").read_text()
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        async with session.side() as side:
            await wait_tool_server(bench, thread_of(side))
            for number in (1, 2):
                answer = InteractionAnswer(option_id=option)
                assert await ask_and_answer(side, "change it", answer) == "change it is done"
                assert len(asked_of(bench, thread_of(side))) == number
                assert told in str(bench.model.requests[-1].items[-1])
        assert all("persist" not in str(result) for _, result in answers_by_id(bench))
        assert (bench.codex_home / "config.toml").read_text() == config
        assert not (bench.codex_home / "rules").exists()


MORE = CallTool(
    name="request_permissions",
    arguments='{"reason":"The cache is there.","permissions":{"file_system":{"write":["/var/cache/x"]}}}',
)


@pytest.mark.parametrize("answer", [ACCEPT, ALWAYS, DECLINE], ids=lambda answer: answer.option_id)
async def test_more_permissions_are_the_sources_to_grant_and_a_side_is_refused_them_unasked(
    lab: Lab, listen: Listen, answer: InteractionAnswer
) -> None:
    """R19, R11: a Side is never less restricted than its source; its turn goes on, and an audit event tells of it."""
    script = ModelScript(answers=(calls(MORE, "widen"),))
    features = {"request_permissions_tool": True}
    async with (
        lab.bench(script, features=features, **ASKING) as bench,
        bench.host() as host,
        trio.open_nursery() as nursery,
    ):
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send("widen")
        asked = await wait_asked(session)
        assert (asked.kind, asked.detail) == ("approval", "The cache is there.")
        assert asked.title.startswith("more permissions: ")
        assert "/var/cache/x" in asked.title
        session.respond(asked.interaction_id, answer)
        assert (await turn.wait()).status == "completed"
        granted = str(bench.model.requests[-1].items[-1])
        assert ("/var/cache/x" in granted) is (answer is not DECLINE)
        assert ('"scope":"session"' in granted) is (answer is ALWAYS)

        async with session.side(subscribe=True) as side:
            heard = listen(nursery, side.events())
            assert (await side.ask("widen")).text == "widen is done"
            assert "/var/cache/x" not in str(bench.model.requests[-1].items[-1])
        [_, (_, refused)] = answers_by_id(bench)
        assert refused["permissions"] == {}
        await trio.testing.wait_all_tasks_blocked()
        assert kinds_of_interactions(heard) == []
        audits = [event.subject for event in heard.events if type(event).__name__ == "Audit"]
        assert audits == ["item/permissions/requestApproval"]
