"""Cases: what a provider asks its user is asked in one place, answered once, and declined when nobody can answer."""

from tutti_side.contract import (
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    InteractionResolved,
    TurnCanceled,
    TurnCompleted,
)
from tutti_side.runtime import (
    InteractionAlreadyAnsweredError,
    InteractionInvalidError,
    InteractionNotLiveError,
    SessionExpiredError,
    SessionHandle,
    SideExpiredError,
    SideHandle,
)
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._hearing import Heard, refused
from tutti_side.testing.adapter_suite._stage import Stage
from tutti_side.testing.adapter_suite.bed import ASK, QUERY, SAID

__all__ = ["InteractionCases"]

ACCEPT, DECLINE = InteractionAnswer(option_id="accept"), InteractionAnswer(option_id="decline")


class InteractionCases(CaseGroup):
    """A provider that asks."""

    @case
    async def test_what_a_side_asks_is_asked_there_and_not_in_its_parent(self, stage: Stage) -> None:
        """R1: an approval of a Side is no approval of its source."""
        turn = await stage.hold_parent()
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, ASK, heard)
        running = side.active_turn
        assert running is not None
        assert asked.turn_id in (running.id, None)
        assert [option.id for option in asked.options if option.id in ("accept", "decline")] == ["accept", "decline"]
        assert (len(side.interactions), stage.parent.interactions) == (1, ())
        side.respond(asked.interaction_id, ACCEPT)
        assert (await running.wait()).answer.text == SAID
        await stage.finish(turn)
        await stage.heard.wait_for(TurnCompleted)
        assert stage.heard.of(InteractionRequested, InteractionResolved) == []

    @case
    async def test_what_the_parent_asks_is_not_asked_in_its_side(self, stage: Stage) -> None:
        """R1: the other way round."""
        side, heard = await stage.open_side()
        await _ask_and_answer(stage, stage.parent, stage.heard, ACCEPT)
        await stage.is_well(side)
        await heard.wait_for(TurnCompleted)
        assert heard.of(InteractionRequested, InteractionResolved) == []

    @case
    async def test_an_answer_is_taken_once(self, stage: Stage) -> None:
        """R11: one answer for each request; the second finds the first."""
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, ASK, heard)
        side.respond(asked.interaction_id, ACCEPT)
        with refused(InteractionAlreadyAnsweredError):
            side.respond(asked.interaction_id, DECLINE)
        assert stage.adapter.respond(side.scope.ref, asked.interaction_id, DECLINE) is False
        await heard.wait_for(TurnCompleted)
        assert _settled(heard) == [(asked.interaction_id, "answered")]

    @case
    async def test_a_decline_is_an_answer_and_the_turn_goes_on(self, stage: Stage) -> None:
        """R11: declined by its user, once, and told so."""
        side, heard = await stage.open_side()
        asked = await _ask_and_answer(stage, side, heard, DECLINE)
        assert _settled(heard) == [(asked.interaction_id, "answered")]

    @case
    async def test_an_answer_that_does_not_fit_leaves_the_question_open(self, stage: Stage) -> None:
        """Contract, `InteractiveAdapter.respond`: nothing was sent; another answer is taken."""
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, ASK, heard)
        with refused(InteractionInvalidError):
            side.respond(asked.interaction_id, InteractionAnswer(option_id="kit-no-such-option"))
        with refused(InteractionInvalidError):
            side.respond(InteractionId("kit-no-such-question"), ACCEPT)
        assert [open_one.interaction_id for open_one in side.interactions] == [asked.interaction_id]
        side.respond(asked.interaction_id, ACCEPT)
        await heard.wait_for(TurnCompleted)
        assert _settled(heard) == [(asked.interaction_id, "answered")]

    @case
    async def test_a_question_is_answered_by_the_ids_of_its_questions(self, stage: Stage) -> None:
        """Contract, `InteractionAnswer`: question id → what was answered."""
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, QUERY, heard)
        assert asked.kind == "question"
        assert asked.questions
        side.respond(asked.interaction_id, _answer_to(asked))
        await heard.wait_for(TurnCompleted)
        assert SAID in heard.text
        assert _settled(heard) == [(asked.interaction_id, "answered")]
        assert stage.heard.of(InteractionRequested, InteractionResolved) == []

    @case
    async def test_an_option_is_no_answer_to_a_question(self, stage: Stage) -> None:
        """Contract, `InteractiveAdapter.respond`: it does not fit, so the question is still open."""
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, QUERY, heard)
        for wrong in (ACCEPT, InteractionAnswer(answers={"kit-no-such-question": ("yes",)})):
            with refused(InteractionInvalidError):
                side.respond(asked.interaction_id, wrong)
        assert len(side.interactions) == 1
        side.respond(asked.interaction_id, _answer_to(asked))
        await heard.wait_for(TurnCompleted)
        assert _settled(heard) == [(asked.interaction_id, "answered")]

    @case
    async def test_two_that_ask_at_once_are_answered_crosswise_each_in_its_own(self, stage: Stage) -> None:
        """R1, R3: the second asked is answered first; neither takes the other's answer."""
        (left, left_heard), (right, right_heard) = await stage.open_side(), await stage.open_side()
        first = await stage.wait_asked(left, ASK, left_heard)
        second = await stage.wait_asked(right, ASK, right_heard)
        right.respond(second.interaction_id, ACCEPT)
        await right_heard.wait_for(TurnCompleted)
        assert left.active_turn is not None
        assert (len(left.interactions), right.interactions) == (1, ())
        left.respond(first.interaction_id, DECLINE)
        await left_heard.wait_for(TurnCompleted)
        assert _settled(left_heard) == [(first.interaction_id, "answered")]
        assert _settled(right_heard) == [(second.interaction_id, "answered")]

    @case
    async def test_an_interrupted_turn_supersedes_what_it_asked(self, stage: Stage) -> None:
        """R11: settled before its turn's end is told; a late answer is refused."""
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, ASK, heard)
        running = side.active_turn
        assert running is not None
        await running.cancel()
        await heard.wait_for(TurnCanceled)
        assert _settled(heard) == [(asked.interaction_id, "superseded")]
        kinds = [type(event) for event in heard.of(InteractionResolved, TurnCanceled)]
        assert kinds == [InteractionResolved, TurnCanceled]
        with refused(InteractionNotLiveError):
            side.respond(asked.interaction_id, ACCEPT)
        await stage.is_well(side)

    @case
    async def test_a_close_declines_what_is_open(self, stage: Stage) -> None:
        """R11: unanswered means declined, never accepted; told once, and before the end."""
        turn = await stage.hold_parent()
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, ASK, heard)
        await side.close()
        await heard.over.wait()
        assert _settled(heard) == [(asked.interaction_id, "superseded")]
        assert heard.ends == ["closed"]
        await stage.finish(turn)

    @case
    async def test_a_session_that_closes_declines_what_it_asks(self, stage: Stage) -> None:
        """R11: the same for a canonical session."""
        asked = await stage.wait_asked(stage.parent, ASK, stage.heard)
        await stage.parent.close()
        await stage.heard.over.wait()
        assert _settled(stage.heard) == [(asked.interaction_id, "superseded")]
        with refused(SessionExpiredError):
            stage.parent.respond(asked.interaction_id, ACCEPT)

    @case
    async def test_a_host_that_stops_declines_what_is_open(self, stage: Stage) -> None:
        """R11, R13: nobody can answer any more."""
        async with stage.another_host() as host:
            session, _ = await stage.start_parent(host)
            side = await session.open_side(subscribe=True)
            heard = stage.listen(side.events())
            asked = await stage.wait_asked(side, ASK, heard)
        await heard.over.wait()
        assert _settled(heard) == [(asked.interaction_id, "superseded")]
        assert heard.ends == ["host_stopped"]

    @case
    async def test_what_is_open_when_its_provider_is_lost_can_no_longer_be_answered(self, stage: Stage) -> None:
        """R9, R11: nobody waits for an answer any more, and whoever gives one is told so."""
        side, heard = await stage.open_side()
        asked = await stage.wait_asked(side, ASK, heard)
        stage.bed.drop()
        await heard.over.wait()
        assert side.interactions == ()
        assert len(_settled(heard)) <= 1
        with refused(SideExpiredError):
            side.respond(asked.interaction_id, ACCEPT)


def _settled(heard: Heard) -> list[tuple[InteractionId, str]]:
    """Return how each interaction ended, as a subscriber was told."""
    return [(event.interaction_id, event.status) for event in heard.of(InteractionResolved)]


def _answer_to(asked: InteractionRequested) -> InteractionAnswer:
    """Answer every question, with its first option where it has any."""
    return InteractionAnswer(answers={question.id: question.options[:1] or ("kit",) for question in asked.questions})


async def _ask_and_answer(
    stage: Stage, owner: SideHandle | SessionHandle, heard: Heard, answer: InteractionAnswer
) -> InteractionRequested:
    """See a turn that asks, answer it, and see it complete."""
    asked = await stage.wait_asked(owner, ASK, heard)
    running = owner.active_turn
    assert running is not None
    owner.respond(asked.interaction_id, answer)
    result = await running.wait()
    assert (result.status, result.answer.text) == ("completed", SAID)
    await heard.wait_for(TurnCompleted)
    return asked
