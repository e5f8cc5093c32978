"""Cases: an open that fails, or that nobody waits for any more, discards what it made and is quiet afterwards."""

from functools import partial

import trio

from tutti_side.contract import MessageUpdated, TurnCompleted, TurnId, TurnStarted
from tutti_side.runtime import SideHandle
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._stage import Stage

__all__ = ["FailedOpenCases"]

LATE_TURN = TurnId("kit-late-turn")
LATE = (TurnStarted(LATE_TURN), MessageUpdated(LATE_TURN, "kit-item", "kit-late-text"), TurnCompleted(LATE_TURN))
"""What a child that was discarded says, whatever its provider would have let it say."""


class FailedOpenCases(CaseGroup):
    """A Side that never was."""

    @case
    async def test_a_refused_open_leaves_nothing_and_its_parent_untouched(self, stage: Stage) -> None:
        """R6: no child, no route, no registration; R7."""
        turn = await stage.hold_parent()
        stage.bed.refuse_opens()
        await stage.fail_to_open("kit-side")
        assert stage.host.statistics().sides == {}
        assert stage.bed.loaded() == 1
        await stage.finish(turn)

    @case
    async def test_the_id_of_a_refused_open_opens_when_it_is_tried_again(self, stage: Stage) -> None:
        """Our choice: an open that failed used nothing up."""
        stage.bed.refuse_opens()
        await stage.fail_to_open("kit-side", "kit-request")
        stage.bed.refuse_opens(refused=False)
        side, heard = await stage.open_side("kit-side", "kit-request")
        await stage.is_well(side)
        assert heard.sequences[0] == 1

    @case
    async def test_a_cancelled_open_discards_the_child_that_its_provider_answers_with_later(self, stage: Stage) -> None:
        """R6, R14: the answer comes when nobody waits for it; what it made is released all the same."""
        turn = await stage.hold_parent()
        stage.bed.hold_opens()
        await stage.cancel_an_open("kit-side")
        stage.bed.release_opens()
        await stage.wait_gone("kit-side")
        assert stage.bed.loaded() == 1
        await stage.finish(turn)

    @case
    async def test_an_open_that_was_cancelled_is_quiet_whatever_its_provider_says_then(self, stage: Stage) -> None:
        """Specification: `OpenSide` quiesces callbacks before it returns an error."""
        stage.bed.hold_opens()
        await stage.cancel_an_open("kit-side")
        spoken = len(stage.seam.sink(stage.side_ref("kit-side")).events)
        stage.bed.release_opens()
        await stage.wait_gone("kit-side")
        await stage.is_well(stage.parent)
        assert len(stage.seam.sink(stage.side_ref("kit-side")).events) == spoken
        assert stage.seam.violations() == []

    @case
    async def test_an_open_that_is_answered_late_holds_up_neither_its_parent_nor_another_open(
        self, stage: Stage
    ) -> None:
        """R10: one slow answer is nobody else's business."""
        turn = await stage.hold_parent()
        stage.bed.hold_opens()
        opened: list[SideHandle] = []

        async def open_it() -> None:
            side, _ = await stage.open_side("kit-side")
            opened.append(side)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it)
            await stage.bed.wait_open_held()
            await stage.finish(turn)
            await stage.is_well(stage.parent)
            assert opened == []
            stage.bed.release_opens()
        await stage.is_well(opened[0])

    @case
    async def test_an_open_whose_provider_is_lost_meanwhile_fails_for_all_who_wait_for_it(self, stage: Stage) -> None:
        """R9, R4: who joined an open shares its outcome, and nobody waits for a provider that is gone."""
        stage.bed.hold_opens()
        waiters = stage.waiters(partial(stage.parent.open_side, side_id="kit-side", request_id="kit-request"))
        await stage.bed.wait_open_held()
        stage.bed.drop()
        assert await waiters.told() in ("OpenFailedError", "lost")  # whichever the adapter says first
        await stage.heard.over.wait()
        await stage.wait_gone("kit-side")
        assert stage.seam.calls_of("open_side") == [stage.side_ref("kit-side")]
        assert stage.bed.loaded() == 0

    @case
    async def test_one_who_gives_up_an_open_leaves_it_to_the_others(self, stage: Stage) -> None:
        """R14: the last to leave cancels the open, no other."""
        stage.bed.hold_opens()
        opened: list[SideHandle] = []
        leaving = trio.CancelScope()

        async def open_it(scope: trio.CancelScope) -> None:
            with scope:
                opened.append(await stage.parent.open_side(side_id="kit-side", request_id="kit-request"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it, leaving)
            nursery.start_soon(open_it, trio.CancelScope())
            await stage.bed.wait_open_held()
            await _let_others_run()
            leaving.cancel()
            await _let_others_run()
            stage.bed.release_opens()
        assert len(opened) == 1
        await stage.is_well(opened[0])
        assert len(stage.seam.calls_of("open_side")) == 1

    @case
    async def test_the_close_of_a_source_waits_for_an_open_that_branches_it(self, stage: Stage) -> None:
        """R5; specification: source close cannot overtake the live fork."""
        stage.bed.hold_opens()
        order: list[str] = []

        async def open_it() -> None:
            side, _ = await stage.open_side("kit-side")
            order.append("opened")
            await stage.is_well(side)

        async def close_it() -> None:
            await stage.parent.close()
            order.append("closed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it)
            await stage.bed.wait_open_held()
            nursery.start_soon(close_it)
            await _let_others_run()
            assert stage.seam.calls_of("close") == []
            stage.bed.release_opens()
        assert order[0] == "opened"

    @case
    async def test_late_events_of_a_discarded_child_reach_nobody(self, stage: Stage) -> None:
        """Specification: transient routing only; R6: what the kit held back, and more, comes after the failed open."""
        turn = await stage.hold_parent()
        stage.seam.holds_sides, stage.seam.claimed_source = True, "kit-elsewhere"
        await stage.fail_to_open("kit-side", "kit-request")
        discarded = stage.seam.sink(stage.side_ref("kit-side"))
        stage.seam.holds_sides, stage.seam.claimed_source = False, None
        side, heard = await stage.open_side("kit-side", "kit-request")
        discarded.replay()
        discarded.inject(*LATE)
        await stage.is_well(side)
        await stage.finish(turn)
        await stage.heard.wait_for(TurnCompleted)
        for stream in (heard, stage.heard):
            assert "kit-late-text" not in stream.text
            assert LATE_TURN not in stream.turns
        assert stage.bed.loaded() == 2


async def _let_others_run() -> None:
    """Let every task of ours that can run do so, some rounds long."""
    for _ in range(20):
        await trio.lowlevel.checkpoint()
