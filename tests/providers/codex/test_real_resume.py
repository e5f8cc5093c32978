"""Sessions of a real Codex that are loaded again, and what the host tells the agent: in its own turns and in Sides."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from tutti_providers.codex import CodexSettings, _closing
from tutti_providers.codex._settling import settle_load
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.errors import RequestRefusedError
from tutti_providers.codex.testing import Answer, ModelRequest, ModelScript, Pause, Say
from tutti_side import InvalidSettingsError, SessionHandle
from tutti_side.runtime.errors import SessionConflictError, SessionExpiredError

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any

TASK = "Refactor the parser"
EARLIER = "Read the parser first"
EARLIER_ANSWER = "It has nine rules."
QUESTION = "What does the tokenizer do?"
SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK),
        Answer.of(Say(tokens=(EARLIER_ANSWER,)), when=EARLIER),
        Answer.of(Say(tokens=("answered",)), when=QUESTION),
    )
)


async def close_beside_a_side(bench: Bench, session: SessionHandle) -> None:
    """Close the session while its Side keeps the process; the server unloads the source's thread."""
    side = await session.open_side(side_id="stays")
    await session.close()
    await bench.wire.wait_for(
        lambda frame: (
            frame.get("method") == "thread/closed" and frame["params"]["threadId"] == session.provider_session_id
        )
    )
    assert (await side.ask(QUESTION)).text == "answered"


async def end(bench: Bench, session: SessionHandle, how: str) -> None:
    """Close the session, or kill its process."""
    if how == "closed":
        await session.close()
        return
    if how == "closed beside a Side":
        await close_beside_a_side(bench, session)
        return
    if how == "killed in a turn":
        await session.send(TASK)
        await bench.wire.wait_said("one ")
    assert bench.adapters[0].liveness(session.ref) == "live"
    os.kill(bench.wire.transport.pid, signal.SIGKILL)
    assert await session.wait_ended() == "lost"


@pytest.mark.parametrize("how", ["closed", "closed beside a Side", "killed", "killed in a turn"])
async def test_a_session_is_loaded_again_with_its_history_and_can_be_branched_at_once(lab: Lab, how: str) -> None:
    """R7, R8, T16: the same thread, also when its process was lost, and Sides of it work before its next turn."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, session_id="main")
        thread_id = session.provider_session_id
        await session.ask(EARLIER)
        with pytest.raises(SessionConflictError):
            await host.resume_session("main")  # it is live
        await end(bench, session, how)
        with pytest.raises(SessionExpiredError):
            await session.ask(EARLIER)
        assert bench.adapters[0].liveness(session.ref) in ("unknown", "lost")

        again = await host.resume_session("main")
        assert again.provider_session_id == thread_id
        assert len(bench.wires) == (1 if "beside" in how else 2)
        assert bench.adapters[0].liveness(again.ref) == "live"
        async with again.side() as side:
            assert (await side.ask(QUESTION)).text == "answered"
            knows(bench.model.requests[-1], EARLIER, EARLIER_ANSWER)
        *_, forked = bench.wire.results("thread/fork")
        assert forked["thread"]["forkedFromId"] == thread_id
        assert (await again.ask(QUESTION)).text == "answered"
        knows(bench.model.requests[-1], EARLIER, EARLIER_ANSWER)
        assert len(list((bench.codex_home / "sessions").rglob("*.jsonl"))) == 1


async def test_a_real_codex_says_whether_a_thread_is_loaded(lab: Lab) -> None:
    """R9: the ground on which a load is doubted, when the thread was perhaps unloaded before its answer."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        keeper = await host.start_session(cwd=bench.workspace)
        session = await host.start_session(cwd=bench.workspace)
        await session.ask(EARLIER)
        live = bench.adapters[0]._live[session.ref]
        await settle_load(live.connection, live.thread)
        assert session.scope.state == "open"
        await close_beside_a_side(bench, session)
        ends: list[str] = []
        sink = SimpleNamespace(emit=lambda events, size_bytes: None, end=ends.append)
        unloaded = CodexThread(sink, live.connection.peer)
        unloaded.thread_id = live.thread.thread_id
        await settle_load(live.connection, unloaded)
        assert ends == ["lost"]
        await keeper.close()


async def test_a_turn_of_before_that_still_runs_is_interrupted_when_its_session_is_loaded_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7, R9: the next question would be put into it. The close here is one whose interrupt came to nothing."""

    async def come_to_nothing(live: Any) -> None:
        del live
        await trio.lowlevel.checkpoint()

    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        keeper = await host.start_session(cwd=bench.workspace)  # keeps the process
        session = await host.start_session(cwd=bench.workspace, session_id="main")
        await session.ask(EARLIER)
        turn = await session.send(TASK)
        await bench.wire.wait_said("one ")
        with monkeypatch.context() as patch:
            patch.setattr(_closing, "_end_turn", come_to_nothing)
            await session.close()
        assert bench.wire.requests("turn/interrupt") == []

        again = await host.resume_session("main")
        *_, opened = bench.wire.results("thread/resume")
        assert opened["thread"]["status"]["type"] == "active"
        [interrupt] = bench.wire.requests("turn/interrupt")
        assert interrupt["params"] == {"threadId": session.provider_session_id, "turnId": turn.id}
        assert (await again.ask(QUESTION)).text == "answered"
        ends = [frame for frame in bench.wire.received if frame.get("method") == "turn/completed"]
        assert [end["params"]["turn"]["status"] for end in ends if end["params"]["turn"]["id"] == turn.id] == [
            "interrupted"
        ]
        await again.close()
        await keeper.close()


ROUNDS = 12


async def test_a_session_is_loaded_again_in_the_moment_of_its_close(lab: Lab) -> None:
    """R8: its thread is still being closed, or the word of that stands before the answer; each was an error before."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        keeper = await host.start_session(cwd=bench.workspace)  # keeps the process
        for number in range(ROUNDS):
            session = await host.start_session(cwd=bench.workspace, session_id=f"s{number}")
            await session.ask(EARLIER)
            await session.close()
            again = await host.resume_session(f"s{number}")
            assert (await again.ask(QUESTION)).text == "answered"
            await again.close()
        assert len(bench.wires) == 1
        await keeper.close()


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_a_session_is_loaded_again_with_the_settings_that_are_asked_for(lab: Lab, how: str) -> None:
    """Contract: `ResumeSession.settings`. The answer shows them, and a Side of it carries them (R19)."""
    settings = CodexSettings(model="mock-two", effort="high", approval_policy="never", sandbox="workspace-write")
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, session_id="main")
        await session.ask(EARLIER)
        await end(bench, session, how)
        again = await host.resume_session("main", settings=settings)
        [opened] = bench.wire.results("thread/resume")
        seen = (opened["model"], opened["reasoningEffort"], opened["approvalPolicy"], opened["sandbox"]["type"])
        assert seen == ("mock-two", "high", "never", "workspaceWrite")
        assert (await again.ask(QUESTION)).text == "answered"
        async with again.side() as side:
            assert (await side.ask(QUESTION)).text == "answered"
        assert [request.model for request in bench.model.requests] == ["mock-model", "mock-two", "mock-two"]


async def test_settings_of_another_provider_are_refused_before_anything_is_loaded(lab: Lab) -> None:
    """Contract: `InvalidSettingsError`; as for a start."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, session_id="main")
        await session.ask(EARLIER)
        await session.close()
        with pytest.raises(InvalidSettingsError):
            await host.resume_session("main", settings={"model": "mock-two"})
        assert bench.wire.requests("thread/resume") == []
        assert (await (await host.resume_session("main")).ask(QUESTION)).text == "answered"


def knows(request: ModelRequest, *texts: str) -> None:
    """The model was sent these texts as messages, in this order."""
    said = [text for _, text in request.messages]
    places = [said.index(text) for text in texts]
    assert places == sorted(places)


async def test_a_session_that_never_had_a_turn_is_not_kept_by_codex_and_says_so(lab: Lab) -> None:
    """T13: what can be loaded has a turn, so a loaded session can always be branched; nothing is left of the try."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, session_id="main")
        await session.close()
        with pytest.raises(RequestRefusedError):
            await host.resume_session("main")
        assert host.statistics().sessions == 0


async def test_a_side_of_a_session_that_is_loaded_again_is_not_loaded_again_itself(lab: Lab) -> None:
    """R8, F23: its words ended with its process; its id stays taken."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, session_id="main")
        await session.ask(EARLIER)
        side = await session.open_side(side_id="aside", request_id="click")
        assert (await side.ask(QUESTION)).text == "answered"
        await end(bench, session, "killed")
        again = await host.resume_session("main")
        with pytest.raises(Exception, match="aside") as caught:
            await again.open_side(side_id="aside", request_id="click")
        assert caught.value.reason == "lost"  # type: ignore[attr-defined]
        assert [frame["params"]["threadId"] for frame in bench.wire.requests("thread/resume")] == [
            session.provider_session_id
        ]
        assert (await again.ask(TASK.lower())).text == "Done."
        assert QUESTION not in str(bench.model.requests[-1].items)


CONTEXTS = ("The host is a terminal.", "The host is an editor.")
INSTRUCTIONS = "You stand beside the main work."


def mode(text: str) -> str:
    """What Codex makes of a turn's instructions."""
    return f"<collaboration_mode>{text}</collaboration_mode>"


def modes(request: ModelRequest) -> list[str]:
    """All instructions of that kind which the model was sent, in order."""
    parts = [part["text"] for item in request.items if item.get("role") == "developer" for part in item["content"]]
    return [text for text in parts if text.startswith("<collaboration_mode>")]


async def test_the_hosts_context_is_in_the_sessions_turns_and_before_the_instructions_in_every_later_side(
    lab: Lab,
) -> None:
    """SC-codex-context, R19: the latest one counts, also after the session was loaded again."""
    first, later = CONTEXTS
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, session_id="main", host_context=first)
        await session.ask(EARLIER)
        assert modes(bench.model.requests[-1]) == [mode(first)]
        async with session.side(instructions=INSTRUCTIONS) as side:
            await side.ask(QUESTION)
            composed = f"{first}\n\n{INSTRUCTIONS}"
            assert modes(bench.model.requests[-1])[-1] == mode(composed)
            assert ("developer", composed) in bench.model.requests[-1].messages
            assert bench.wire.requests("thread/fork")[-1]["params"]["developerInstructions"] == composed

            await session.set_host_context(later)
            await side.ask(QUESTION)  # it keeps what it was opened with
            assert modes(bench.model.requests[-1])[-1] == mode(composed)
        await session.ask(EARLIER)
        assert modes(bench.model.requests[-1]) == [mode(first), mode(later)]
        await session.close()
        again = await host.resume_session("main")
        async with again.side(instructions=INSTRUCTIONS) as side:
            await side.ask(QUESTION)
            assert modes(bench.model.requests[-1])[-1] == mode(f"{later}\n\n{INSTRUCTIONS}")
        await again.ask(EARLIER)
        assert modes(bench.model.requests[-1])[-1] == mode(later)
        assert INSTRUCTIONS not in str(bench.model.requests[-1].items)


@pytest.mark.parametrize("loaded_again", [False, True])
async def test_a_context_that_is_taken_back_is_followed_by_the_servers_own_words_for_the_mode(
    lab: Lab, loaded_again: bool
) -> None:
    """SC-codex-context: the server keeps a turn's instructions for later turns until it is told of others."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, session_id="main", host_context=CONTEXTS[0])
        await session.ask(EARLIER)
        if loaded_again:
            await session.close()
            session = await host.resume_session("main")
        await session.set_host_context(None)
        for _ in range(2):
            await session.ask(EARLIER)
            before, last = modes(bench.model.requests[-1])
            assert before == mode(CONTEXTS[0])
            assert "Collaboration Mode: Default" in last
        async with session.side(instructions=INSTRUCTIONS) as side:
            await side.ask(QUESTION)
            assert modes(bench.model.requests[-1])[-1] == mode(INSTRUCTIONS)


async def test_a_session_that_never_had_a_context_is_told_of_no_mode(lab: Lab) -> None:
    """SC-codex-context, our choice: what its user has configured is left alone."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask(EARLIER)
        assert modes(bench.model.requests[-1]) == []
        assert "collaborationMode" not in bench.wire.requests("turn/start")[-1]["params"]
