"""Cases: a Side is closed, and its parent, its siblings and its provider are as if it had never been."""

from tutti_side.contract import TurnCanceled
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._stage import Stage
from tutti_side.testing.adapter_suite.bed import HELD_TEXTS, HOLD

__all__ = ["ClosingCases"]


class ClosingCases(CaseGroup):
    """A Side that closes."""

    @case
    async def test_closing_a_side_leaves_its_parents_turn_running(self, stage: Stage) -> None:
        """R7; specification: closing a Side cannot close the live parent connection."""
        turn = await stage.hold_parent()
        side, _ = await stage.open_side()
        await stage.is_well(side)
        await side.close()
        assert stage.adapter.liveness(stage.parent.ref) == "live"
        await stage.finish(turn)
        await stage.is_well(stage.parent)

    @case
    async def test_a_close_in_a_sides_own_turn_ends_that_turn_and_no_other(self, stage: Stage) -> None:
        """Contract, `Adapter.close`: decline, interrupt, clean, release; R7."""
        turn = await stage.hold_parent()
        side, heard = await stage.open_side()
        held = await side.send(HOLD)
        await stage.bed.wait_held(2)
        await side.close()
        assert not held.is_active
        await heard.over.wait()
        assert [event.turn_id for event in heard.of(TurnCanceled)] == [held.id]
        await stage.finish(turn)

    @case
    async def test_a_closed_side_is_no_longer_held_by_its_provider(self, stage: Stage) -> None:
        """R6: nothing is left loaded, subscribed or routed."""
        side, _ = await stage.open_side()
        assert stage.bed.loaded() == 2
        await side.close()
        assert stage.bed.loaded() == 1

    @case
    async def test_closing_twice_is_closing_once(self, stage: Stage) -> None:
        """Contract, `Adapter.close`: idempotent, also for what was never opened."""
        side, heard = await stage.open_side()
        await side.close()
        await side.close()
        await stage.adapter.close(side.scope.ref)
        await stage.adapter.close(stage.side_ref("kit-never"))
        await heard.over.wait()
        assert heard.ends == ["closed"]
        await stage.is_well(stage.parent)

    @case
    async def test_closing_one_side_leaves_its_sibling(self, stage: Stage) -> None:
        """R1, R7: siblings share a source and nothing else."""
        (one, _), (other, other_heard) = await stage.open_side(), await stage.open_side()
        await one.close()
        await stage.is_well(other)
        assert other_heard.ends == []
        assert stage.bed.loaded() == 2

    @case
    async def test_a_side_lives_on_when_its_source_is_closed(self, stage: Stage) -> None:
        """Specification: the connection is referenced by both; closing one drops its own reference only."""
        side, heard = await stage.open_side()
        await stage.parent.close()
        await stage.heard.over.wait()
        assert stage.heard.ends == ["closed"]
        await stage.is_well(side)
        assert heard.ends == []
        await side.close()
        assert stage.bed.loaded() == 0

    @case
    async def test_a_sides_turn_goes_on_when_its_source_is_closed(self, stage: Stage) -> None:
        """Specification: as above; also in the middle of what the Side says."""
        side, heard = await stage.open_side()
        held = await side.send(HOLD)
        await stage.bed.wait_held()
        await stage.parent.close()
        assert held.is_active
        stage.bed.let_go()
        assert (await held.wait()).answer.text == "".join(HELD_TEXTS)
        assert heard.ends == []
