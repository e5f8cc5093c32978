"""Cases: every way in which a turn, a Side, a session or an interaction ends, and that each who waits is told once."""

import trio

from tutti_side.contract import StatePatch, TurnCanceled, TurnCompleted, TurnFailed, TurnStarted
from tutti_side.runtime import (
    QUEUE_EVENTS_MAX,
    SessionExpiredError,
    SideExpiredError,
    SideHandle,
    TurnHandle,
)
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._hearing import Heard, refused
from tutti_side.testing.adapter_suite._stage import Stage
from tutti_side.testing.adapter_suite.bed import FAIL, HOLD, SAY

__all__ = ["EndCases"]

CUT_SHORT = ("canceled", "closed", "source_deleted", "host_stopped")
"""What those who wait for a turn are told when it is closed over: that it was interrupted, or why all is over."""

FLOOD_BATCH = 128
"""Events of one delivery of a flood."""


class EndCases(CaseGroup):
    """Ends."""

    # Turns

    @case
    async def test_a_turn_that_completes_is_told_once(self, stage: Stage) -> None:
        """Contract, events: one of completed, failed and canceled comes exactly once for each turn."""
        side, heard = await stage.open_side()
        turn = await side.send(HOLD)
        waiters = stage.waiters(turn.wait)
        await stage.bed.wait_held()
        stage.bed.let_go()
        assert await waiters.told() == "completed"
        await heard.wait_for(TurnCompleted)
        assert _turn_ends(heard) == [("TurnCompleted", turn.id)]

    @case
    async def test_a_turn_that_fails_is_told_once_and_its_side_goes_on(self, stage: Stage) -> None:
        """Contract, events; a failed turn is no failed Side."""
        side, heard = await stage.open_side()
        turn = await side.send(FAIL)
        assert await stage.waiters(turn.wait).told() == "failed"
        await heard.wait_for(TurnFailed)
        assert _turn_ends(heard) == [("TurnFailed", turn.id)]
        await stage.is_well(side)

    @case
    async def test_a_turn_that_is_interrupted_is_told_once_and_its_side_goes_on(self, stage: Stage) -> None:
        """Contract, `Adapter.cancel`: the turn's end is an event."""
        side, heard = await stage.open_side()
        turn = await side.send(HOLD)
        waiters = stage.waiters(turn.wait)
        await stage.bed.wait_held()
        await turn.cancel()
        await turn.cancel()
        assert await waiters.told() == "canceled"
        await heard.wait_for(TurnCanceled)
        assert _turn_ends(heard) == [("TurnCanceled", turn.id)]
        await stage.is_well(side)

    @case
    async def test_a_turn_whose_provider_is_lost_is_told_once(self, stage: Stage) -> None:
        """R9: every pending call ends, with a typed error, when the provider dies."""
        side, heard = await stage.open_side()
        turn = await side.send(HOLD)
        waiters = stage.waiters(turn.wait)
        await stage.bed.wait_held()
        stage.bed.drop()
        assert await waiters.told() == "lost"
        await heard.over.wait()
        assert _turn_ends(heard) == []

    @case
    async def test_a_parents_turn_that_fails_is_told_once_and_its_side_goes_on(self, stage: Stage) -> None:
        """Contract, events; R7 the other way round: a Side is no part of its source's turn."""
        side, heard = await stage.open_side()
        turn = await stage.parent.send(FAIL)
        assert await stage.waiters(turn.wait).told() == "failed"
        await stage.heard.wait_for(TurnFailed)
        assert _turn_ends(stage.heard) == [("TurnFailed", turn.id)]
        await stage.is_well(side)
        assert len(_turn_ends(heard)) <= 1
        await stage.is_well(stage.parent)

    @case
    async def test_a_parents_turn_that_is_interrupted_is_told_once_and_its_sides_turn_goes_on(
        self, stage: Stage
    ) -> None:
        """Specification: exact-turn cancel; the turn of a Side is another one."""
        turn = await stage.hold_parent()
        side, heard = await stage.open_side()
        held = await side.send(HOLD)
        await stage.bed.wait_held(2)
        waiters = stage.waiters(turn.wait)
        await turn.cancel()
        assert await waiters.told() == "canceled"
        await stage.heard.wait_for(TurnCanceled)
        assert _turn_ends(stage.heard) == [("TurnCanceled", turn.id)]
        assert held.is_active
        stage.bed.let_go()
        assert (await held.wait()).status == "completed"
        await heard.wait_for(TurnCompleted)
        assert _turn_ends(heard) == [("TurnCompleted", held.id)]

    @case
    async def test_a_question_whose_asker_has_gone_is_interrupted_and_the_next_is_answered(self, stage: Stage) -> None:
        """R14: a cancelled `ask` leaves no turn behind."""
        side, heard = await stage.open_side()
        asking = trio.CancelScope()

        async def ask() -> None:
            with asking:
                await side.ask(HOLD)

        stage.start_soon(ask)
        await stage.bed.wait_held()
        await heard.wait_for(TurnStarted)
        asking.cancel()
        await heard.wait_for(TurnCanceled)
        await stage.is_well(side)

    # Sides

    @case
    async def test_a_side_that_is_closed_is_told_once(self, stage: Stage) -> None:
        """R9: also to those who wait for its turn."""
        side, heard, turn = await _busy_side(stage)
        waiters = stage.waiters(turn.wait)
        await side.close()
        await heard.over.wait()
        assert heard.ends == ["closed"]
        assert await waiters.told() in CUT_SHORT
        assert stage.seam.calls_of("close") == [side.scope.ref]

    @case
    async def test_a_side_whose_provider_is_lost_expires_and_is_never_resumed(self, stage: Stage) -> None:
        """R8; specification: losing the connection expires the Side; it is never resumed."""
        side, heard = await stage.open_side("kit-side", "kit-request")
        stage.bed.drop()
        await heard.over.wait()
        assert heard.ends == ["lost"]
        with refused(SideExpiredError) as caught:
            await side.send(SAY)
        assert caught.error.reason == "lost"
        await stage.start_parent()
        with refused(SideExpiredError):
            await stage.host.open_side(stage.parent.ref.session, "kit-side", "kit-request")
        assert stage.adapter.liveness(side.scope.ref) != "live"
        assert (len(stage.seam.calls_of("open_side")), stage.seam.calls_of("resume")) == (1, [])

    @case
    async def test_a_side_that_nobody_keeps_up_with_ends_alone(self, stage: Stage) -> None:
        """R12, overflow: its child is released, and its source never notices."""
        turn = await stage.hold_parent()
        side = await stage.parent.open_side(subscribe=True)
        unread = side.events()
        sink = stage.seam.sink(side.scope.ref)
        for _ in range(QUEUE_EVENTS_MAX // FLOOD_BATCH + 1):
            sink.inject(*[StatePatch("active")] * FLOOD_BATCH)
        heard = stage.listen(unread)
        await heard.over.wait()
        assert heard.ends == ["overflow"]
        await side.close()
        assert stage.bed.loaded() == 1
        await stage.finish(turn)

    @case
    async def test_a_side_ends_with_its_source_when_that_is_deleted(self, stage: Stage) -> None:
        """Our choice: a delete is for good, for what was branched of it as well."""
        side, heard, turn = await _busy_side(stage)
        waiters = stage.waiters(turn.wait)
        await stage.host.delete_session(stage.parent.ref.session)
        await heard.over.wait()
        await stage.heard.over.wait()
        assert (heard.ends, stage.heard.ends) == (["source_deleted"], ["source_deleted"])
        assert await waiters.told() in CUT_SHORT
        assert not side.is_open
        assert stage.bed.loaded() == 0

    @case
    async def test_a_host_that_stops_tells_everybody_once(self, stage: Stage) -> None:
        """R13: at the end of the block nothing is left, and nobody waits for ever."""
        async with stage.another_host() as host:
            session, parent_heard = await stage.start_parent(host)
            session_waiters = stage.waiters(session.wait_ended)
            side = await session.open_side(subscribe=True)
            heard = stage.listen(side.events())
            turn = await side.send(HOLD)
            await stage.bed.wait_held()
            turn_waiters = stage.waiters(turn.wait)
        await heard.over.wait()
        await parent_heard.over.wait()
        assert (heard.ends, parent_heard.ends) == (["host_stopped"], ["host_stopped"])
        assert await session_waiters.told() == "host_stopped"
        assert await turn_waiters.told() in CUT_SHORT
        assert stage.bed.loaded() == 1
        await stage.is_well(stage.parent)

    # Sessions

    @case
    async def test_a_session_that_is_closed_is_told_once(self, stage: Stage) -> None:
        """Contract, `Adapter.close`: idempotent; R9."""
        turn = await stage.hold_parent()
        waiters, turn_waiters = stage.waiters(stage.parent.wait_ended), stage.waiters(turn.wait)
        await stage.parent.close()
        await stage.parent.close()
        assert await waiters.told() == "closed"
        assert await turn_waiters.told() in CUT_SHORT
        await stage.heard.over.wait()
        assert stage.heard.ends == ["closed"]
        assert stage.bed.loaded() == 0

    @case
    async def test_a_session_whose_provider_is_lost_is_told_once_and_the_next_one_starts(self, stage: Stage) -> None:
        """R9, R14: a lost provider is no lost host."""
        turn = await stage.hold_parent()
        waiters, turn_waiters = stage.waiters(stage.parent.wait_ended), stage.waiters(turn.wait)
        stage.bed.drop()
        assert await waiters.told() == "lost"
        assert await turn_waiters.told() == "lost"
        await stage.heard.over.wait()
        assert stage.heard.ends == ["lost"]
        with refused(SessionExpiredError):
            await stage.parent.send(SAY)
        assert stage.adapter.liveness(stage.parent.ref) != "live"
        session, _ = await stage.start_parent()
        await stage.is_well(session)
        assert stage.bed.loaded() == 1


def _turn_ends(heard: Heard) -> list[tuple[str, str]]:
    """Return the turns' ends that a subscriber was told of."""
    ends = heard.of(TurnCompleted, TurnFailed, TurnCanceled)
    return [(type(event).__name__, event.turn_id) for event in ends]


async def _busy_side(stage: Stage) -> tuple[SideHandle, Heard, TurnHandle]:
    """Open a Side whose turn waits in its middle."""
    side, heard = await stage.open_side()
    turn = await side.send(HOLD)
    await stage.bed.wait_held()
    return side, heard, turn
