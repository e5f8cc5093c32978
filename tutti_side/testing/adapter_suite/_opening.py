"""Cases: a Side is opened beside its parent, hears itself only, and says only what is its own."""

import trio

from tutti_side.contract import (
    SessionStarted,
    TurnCompleted,
    TurnNotActiveError,
    TurnStarted,
)
from tutti_side.runtime import SideBusyError, SideHandle
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._hearing import refused
from tutti_side.testing.adapter_suite._stage import Stage
from tutti_side.testing.adapter_suite.bed import HELD_TEXTS, HOLD, SAID, SAY

__all__ = ["OpeningCases"]

JOINERS = 5
"""So many ask for the same Side at once."""


class OpeningCases(CaseGroup):
    """A Side that opens."""

    @case
    async def test_a_side_opens_while_its_parents_turn_runs_and_the_turn_goes_on(self, stage: Stage) -> None:
        """Specification, comparison with Session Fork: the boundary is the live snapshot, an active turn included."""
        turn = await stage.hold_parent()
        side, _ = await stage.open_side()
        assert side.is_open
        await stage.finish(turn)

    @case
    async def test_a_side_answers_while_its_parents_turn_runs(self, stage: Stage) -> None:
        """R1: what is asked beside a turn is answered beside it."""
        turn = await stage.hold_parent()
        side, _ = await stage.open_side()
        await stage.is_well(side)
        await stage.finish(turn)

    @case
    async def test_a_side_opens_on_an_idle_source(self, stage: Stage) -> None:
        """Specification: a Side of a live source, whether or not a turn runs."""
        side, _ = await stage.open_side()
        await stage.is_well(side)
        await stage.is_well(stage.parent)

    @case
    async def test_a_sides_events_begin_with_its_start_and_are_numbered_without_a_gap(self, stage: Stage) -> None:
        """R3: per Side the sequence has no gap and no repeat; the start is number 1."""
        side, heard = await stage.open_side()
        await stage.is_well(side)
        await side.close()
        await heard.over.wait()
        assert isinstance(heard.events[0], SessionStarted)
        assert heard.events[0].provider_session_id == stage.seam.opened[side.scope.ref].provider_session_id
        assert heard.sequences == list(range(1, len(heard.sequences) + 1))

    @case
    async def test_the_turns_that_a_side_inherits_are_not_its_own(self, stage: Stage) -> None:
        """Specification, `excludeTurns`: inherited turns are hidden from the Side's own events."""
        turn = await stage.hold_parent()
        side, heard = await stage.open_side()
        asked = await side.send(SAY)
        await asked.wait()
        await heard.wait_for(TurnCompleted)
        assert heard.turns == {asked.id}
        await stage.finish(turn)

    @case
    async def test_a_sides_model_is_given_what_its_source_has_said(self, stage: Stage) -> None:
        """Specification: hiding inherited turns does not remove them from the model's context."""
        side, _ = await stage.open_side()
        await stage.is_well(side)
        assert SAID in stage.bed.told_model()

    @case
    async def test_two_sides_of_one_source_hear_each_its_own(self, stage: Stage) -> None:
        """R1: a Side's event reaches the subscribers of that Side only."""
        turn = await stage.hold_parent()
        (left, left_heard), (right, right_heard) = await stage.open_side(), await stage.open_side()
        held = await left.send(HOLD)
        await stage.bed.wait_held(2)
        asked = await right.send(SAY)
        await asked.wait()
        await right_heard.wait_for(TurnCompleted)
        assert left.active_turn is not None
        assert right_heard.turns == {asked.id}
        await stage.finish(turn)
        assert (await held.wait()).answer.text == "".join(HELD_TEXTS)
        await left_heard.wait_for(TurnCompleted)
        assert left_heard.turns == {held.id}

    @case
    async def test_many_who_open_the_same_side_at_once_get_one_branch(self, stage: Stage) -> None:
        """R4: one fork for each Side identity, whatever the concurrency."""
        handles: list[SideHandle] = []

        async def join() -> None:
            handles.append(await stage.parent.open_side(side_id="kit-side", request_id="kit-request"))

        async with trio.open_nursery() as nursery:
            for _ in range(JOINERS):
                nursery.start_soon(join)
        assert len(handles) == JOINERS
        assert stage.seam.calls_of("open_side") == [handles[0].scope.ref]
        assert stage.bed.loaded() == 2
        await stage.is_well(handles[-1])

    @case
    async def test_a_second_question_in_a_running_turn_is_refused_and_changes_nothing(self, stage: Stage) -> None:
        """Our choice: turns of one Side come one after the other; a second is never merged into the first."""
        side, heard = await stage.open_side()
        held = await side.send(HOLD)
        await stage.bed.wait_held()
        with refused(SideBusyError):
            await side.send(SAY)
        stage.bed.let_go()
        assert (await held.wait()).answer.text == "".join(HELD_TEXTS)
        await heard.wait_for(TurnCompleted)
        assert len(heard.of(TurnStarted)) == 1

    @case
    async def test_a_cancel_interrupts_exactly_the_turn_that_it_names(self, stage: Stage) -> None:
        """Specification: exact-turn cancel. The id of another scope's turn interrupts neither."""
        turn = await stage.hold_parent()
        side, _ = await stage.open_side()
        held = await side.send(HOLD)
        await stage.bed.wait_held(2)
        with refused(TurnNotActiveError):
            await stage.adapter.cancel(side.scope.ref, turn.id)
        assert held.is_active
        await held.cancel()
        assert (await held.wait()).status == "canceled"
        await stage.finish(turn)
