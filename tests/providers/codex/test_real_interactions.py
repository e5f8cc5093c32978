"""What a real Codex asks in a Side while its source's turn streams: asked once, settled once, there and only there.

What needs more than one asker, or another kind of question, stands in `test_real_questions`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import Answer, ModelScript, Pause, Reply, Say, run_command
from tutti_side import SessionHandle, SideExpiredError, SideHandle
from tutti_side.contract import InteractionAnswer, InteractionRequested
from tutti_side.runtime.errors import (
    InteractionAlreadyAnsweredError,
    InteractionInvalidError,
    InteractionNotLiveError,
)

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any
Listen = Callable[[trio.Nursery, Any], Any]

TASK = "Refactor the parser"
QUESTION = "What does the tokenizer do?"
PARENT = Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK)
ACCEPT, DECLINE, CANCEL = (InteractionAnswer(option_id=option) for option in ("accept", "decline", "cancel"))
MADE = "made-by-side"

SIDE = Answer(
    replies=(
        Reply(steps=(run_command(f"touch {MADE}", justification="Allow it?"),)),
        Reply(steps=(Say(tokens=("answered",)),)),
    ),
    when=QUESTION,
)
"""The Side's model wants to run a command outside the sandbox, which takes a user's word."""

SIDE_THAT_GOES_ON = Answer(replies=(SIDE.replies[0], Reply(steps=(Pause(gate="never opened"),))), when=QUESTION)
"""The same, and whatever it is told, its turn has no end of its own."""

RESPONDERS = 50


class Beside:
    """A Side of a turn that streams, and everything that both of them say."""

    def __init__(self, bench: Bench, session: SessionHandle, side: SideHandle) -> None:
        self.bench = bench
        self.session = session
        self.side = side
        self.parent_heard: Any = None
        self.heard: Any = None

    @property
    def child(self) -> str:
        """The Side's thread."""
        return self.bench.wire.results("thread/fork")[0]["thread"]["id"]  # type: ignore[no-any-return]

    @property
    def made(self) -> bool:
        """Whether the command ran."""
        return (self.bench.workspace / MADE).exists()  # type: ignore[no-any-return]

    @property
    def answers(self) -> list[Any]:
        """What we answered to the server's requests."""
        return [frame for frame in self.bench.wire.sent if "method" not in frame]

    @property
    def told_to_model(self) -> str:
        """What the Side's model was told of its call."""
        return str(self.bench.model.requests[-1].items[-1])

    async def wait_asked(self) -> InteractionRequested:
        """Wait until the Side has something to ask."""
        await self.bench.wire.wait_for(lambda frame: "method" in frame and "id" in frame)
        await trio.testing.wait_all_tasks_blocked()
        [interaction] = self.side.interactions
        return interaction


@asynccontextmanager
async def beside(lab: Lab, listen: Listen, asked: Answer = SIDE) -> AsyncIterator[Beside]:
    """Ask nothing yet; at the end the parent's turn must be whole, nobody's business but its own, and no rule written.

    Of the Side's stream it is asked that no sequence number is missing or repeated.
    """
    script = ModelScript(answers=(PARENT, asked))
    async with (
        lab.bench(script, approval_policy="on-request", sandbox_mode="read-only") as bench,
        trio.open_nursery() as nursery,
        bench.host() as host,
    ):
        session = await host.start_session(cwd=bench.workspace)
        parent_heard = listen(nursery, session.events())
        turn = await session.send(TASK)
        await bench.wire.wait_said("one ")
        async with session.side(subscribe=True) as side:
            place = Beside(bench, session, side)
            place.parent_heard, place.heard = parent_heard, listen(nursery, side.events())
            yield place
        await trio.testing.wait_all_tasks_blocked()
        assert session.interactions == ()
        assert turn.is_active
        bench.model.gate("parent").set()
        result = await turn.wait()
        assert (result.status, result.answer.text) == ("completed", "one two")
        await trio.testing.wait_all_tasks_blocked()
        assert parent_heard.tokens == ["one ", "two"]
        assert interactions_in(parent_heard) == []
        assert place.heard.sequences == list(range(1, len(place.heard.sequences) + 1))
        assert not (bench.codex_home / "rules").exists()


def interactions_in(heard: Any) -> list[tuple[str, str, str]]:
    """What a stream says of interactions: the kind, the id, and how it was settled."""
    return [
        (type(event).__name__, event.interaction_id, getattr(event, "status", ""))
        for event in heard.events
        if type(event).__name__ in ("InteractionRequested", "InteractionResolved")
    ]


def once(interaction: InteractionRequested, how: str) -> list[tuple[str, str, str]]:
    """Asked once, settled once."""
    interaction_id = interaction.interaction_id
    return [("InteractionRequested", interaction_id, ""), ("InteractionResolved", interaction_id, how)]


@pytest.mark.parametrize(
    ("option", "runs", "status", "told"),
    [
        ("accept", True, "completed", "exited with code 0"),
        ("decline", False, "completed", "rejected by user"),
        ("cancel", False, "canceled", ""),
    ],
)
async def test_an_approval_of_a_side_does_what_its_user_said_and_the_parent_hears_nothing_of_it(
    lab: Lab, listen: Listen, option: str, runs: bool, status: str, told: str
) -> None:
    """R1, R3, R7, R11, R19, T4, T18, F26, F29: accepted, declined (the turn goes on), cancelled."""
    async with beside(lab, listen) as place:
        question = await place.side.send(QUESTION)
        interaction = await place.wait_asked()
        assert (interaction.kind, interaction.turn_id) == ("approval", question.id)
        assert f"touch {MADE}" in interaction.title
        assert interaction.detail == "Allow it?"
        assert not any("Amendment" in offered.id for offered in interaction.options)
        assert not place.made
        place.side.respond(interaction.interaction_id, InteractionAnswer(option_id=option))
        result = await question.wait()
        assert (result.status, place.made) == (status, runs)
        assert result.answer.text == ("answered" if status == "completed" else "")
        if told:
            assert told in place.told_to_model
        assert place.side.interactions == ()
        await place.side.close()
        assert place.answers == [{"id": 0, "result": {"decision": option}}]
    assert interactions_in(place.heard) == once(interaction, "answered")


async def test_an_answer_to_a_turn_that_was_interrupted_meanwhile_is_refused_and_nothing_runs(
    lab: Lab, listen: Listen
) -> None:
    """R11, T7, F28: the server says only after the turn's end that it waits no longer; it would ignore the answer."""
    async with beside(lab, listen) as place:
        question = await place.side.send(QUESTION)
        interaction = await place.wait_asked()
        await question.cancel()
        assert (await question.wait()).status == "canceled"
        assert place.side.interactions == ()
        with pytest.raises(InteractionNotLiveError):
            place.side.respond(interaction.interaction_id, ACCEPT)
        await place.bench.wire.wait_for(lambda frame: frame.get("method") == "serverRequest/resolved")
        with pytest.raises(InteractionNotLiveError):
            place.side.respond(interaction.interaction_id, ACCEPT)
        ended = [
            frame["method"]
            for frame in place.bench.wire.of_thread(place.child)
            if frame["method"] in ("turn/completed", "serverRequest/resolved")
        ]
        assert ended == ["turn/completed", "serverRequest/resolved"]
        await place.side.close()
        assert (place.answers, place.made) == ([], False)
    assert interactions_in(place.heard) == once(interaction, "superseded")
    kinds = place.heard.runs
    assert kinds.index("InteractionResolved") < kinds.index("TurnCanceled")  # what waits, ends before its turn does


async def test_of_many_who_answer_at_once_one_is_heard_and_one_answer_is_on_the_wire(lab: Lab, listen: Listen) -> None:
    """R11, F28: the first one counts, whatever the others say."""
    async with beside(lab, listen) as place:
        question = await place.side.send(QUESTION)
        interaction = await place.wait_asked()
        outcomes: list[str] = []

        async def answer(option: InteractionAnswer) -> None:
            await trio.lowlevel.checkpoint()
            try:
                place.side.respond(interaction.interaction_id, option)
            except InteractionAlreadyAnsweredError:
                outcomes.append("too late")
            else:
                outcomes.append(str(option.option_id))

        async with trio.open_nursery() as nursery:
            for number in range(RESPONDERS):
                nursery.start_soon(answer, DECLINE if number % 2 else ACCEPT)
        [heard] = [outcome for outcome in outcomes if outcome != "too late"]
        assert len(outcomes) == RESPONDERS
        assert (await question.wait()).answer.text == "answered"
        assert place.made is (heard == "accept")
        with pytest.raises(InteractionAlreadyAnsweredError):
            place.side.respond(interaction.interaction_id, CANCEL)
        assert place.answers == [{"id": 0, "result": {"decision": heard}}]
    assert interactions_in(place.heard) == once(interaction, "answered")


async def test_an_answer_that_was_not_offered_leaves_it_open_and_sends_nothing(lab: Lab, listen: Listen) -> None:
    """R11, T18: nor is an amendment of the execution policy taken, or an answer on the parent's side (F29)."""
    async with beside(lab, listen) as place:
        question = await place.side.send(QUESTION)
        interaction = await place.wait_asked()
        with pytest.raises(InteractionInvalidError):
            place.side.respond(interaction.interaction_id, InteractionAnswer(option_id="acceptWithExecpolicyAmendment"))
        with pytest.raises(InteractionInvalidError):
            place.session.respond(interaction.interaction_id, ACCEPT)
        assert [waiting.interaction_id for waiting in place.side.interactions] == [interaction.interaction_id]
        assert place.answers == []
        place.side.respond(interaction.interaction_id, DECLINE)
        assert (await question.wait()).answer.text == "answered"
    assert interactions_in(place.heard) == once(interaction, "answered")


async def test_what_nobody_answered_is_declined_before_the_child_is_let_go(lab: Lab, listen: Listen) -> None:
    """R8, R11, T5, T6: left pending it would outlive the unsubscribe, and could still be accepted. Then: Expired."""
    async with beside(lab, listen, SIDE_THAT_GOES_ON) as place:
        question = await place.side.send(QUESTION)
        interaction = await place.wait_asked()
        await place.side.close()
        assert (await question.wait()).status == "canceled"
        with pytest.raises(SideExpiredError) as caught:
            place.side.respond(interaction.interaction_id, ACCEPT)
        assert caught.value.reason == "closed"
        assert place.answers == [{"id": 0, "result": {"decision": "decline"}}]
        sent = place.bench.wire.sent
        names = [frame.get("method", "the answer") for frame in sent[sent.index(place.answers[0]) :]]
        assert names == ["the answer", "turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"]
        assert not place.made
    assert interactions_in(place.heard) == once(interaction, "superseded")
    assert place.heard.kinds[-1] == "SessionClosed"


TWO = Answer(
    replies=(
        Reply(steps=tuple(run_command(f"touch {name}", justification=name) for name in (MADE, "second"))),
        Reply(steps=(Say(tokens=("answered",)),)),
    ),
    when=QUESTION,
)
"""Two commands at once in one turn."""


@pytest.mark.parametrize("option", ["decline", "cancel"])
async def test_two_questions_of_one_turn_are_answered_in_any_order_and_a_cancelled_turn_ends_both(
    lab: Lab, listen: Listen, option: str
) -> None:
    """R11, T4, T7: answered crosswise; if one answer cancels the turn, the other question is nobody's."""
    async with beside(lab, listen, TWO) as place:
        question = await place.side.send(QUESTION)
        await place.bench.wire.wait_for(lambda frame: frame.get("id") == 1 and "method" in frame)
        await trio.testing.wait_all_tasks_blocked()
        asked = {interaction.detail: interaction for interaction in place.side.interactions}
        first, second = asked[MADE], asked["second"]  # asked in either order
        place.side.respond(second.interaction_id, InteractionAnswer(option_id=option))
        if option == "cancel":
            assert (await question.wait()).status == "canceled"
            with pytest.raises(InteractionNotLiveError):
                place.side.respond(first.interaction_id, ACCEPT)
        else:
            place.side.respond(first.interaction_id, ACCEPT)
            assert (await question.wait()).answer.text == "answered"
        assert place.made is (option == "decline")
        assert not (place.bench.workspace / "second").exists()
        await place.side.close()
        given = [(str(frame["id"]), frame["result"]["decision"]) for frame in place.answers]
        answers = [(second.interaction_id, option), (first.interaction_id, "accept")]
        assert given == answers[: 1 if option == "cancel" else 2]
    settled = "superseded" if option == "cancel" else "answered"
    assert sorted(interactions_in(place.heard)) == sorted([*once(first, settled), *once(second, "answered")])
