"""Cases: a turn that runs is given more input; that turn, or none."""

from tutti_side.contract import SteeringAdapter, TextContent, TurnNotActiveError
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._hearing import refused
from tutti_side.testing.adapter_suite._stage import Stage
from tutti_side.testing.adapter_suite.bed import HELD_TEXTS, HOLD, SAID, SAY

__all__ = ["SteeringCases"]


class SteeringCases(CaseGroup):
    """A provider that takes more input."""

    @case
    async def test_more_input_is_answered_in_the_turn_that_runs(self, stage: Stage) -> None:
        """Contract, `SteeringAdapter.steer`: read when the agent next turns to its model, in the same turn."""
        turn = await stage.hold_parent()
        side, heard = await stage.open_side()
        held = await side.send(HOLD)
        await stage.bed.wait_held(2)
        await held.steer(SAY)
        stage.bed.let_go()
        result = await held.wait()
        assert (result.status, result.answer.text) == ("completed", SAID)
        assert (await turn.wait()).answer.messages == ("".join(HELD_TEXTS),)
        await side.close()
        await heard.over.wait()
        assert heard.turns == {held.id}

    @case
    async def test_more_input_for_a_turn_that_is_over_reaches_no_other(self, stage: Stage) -> None:
        """Contract, `SteeringAdapter.steer`: that turn, or nothing."""
        side, _ = await stage.open_side()
        over = await side.send(SAY)
        await over.wait()
        held = await side.send(HOLD)
        await stage.bed.wait_held()
        adapter = stage.adapter
        assert isinstance(adapter, SteeringAdapter), (
            "the suite says that its provider steers; the adapter has no `steer`"
        )
        with refused(TurnNotActiveError):
            await adapter.steer(side.scope.ref, over.id, (TextContent(SAY),))
        stage.bed.let_go()
        assert (await held.wait()).answer.messages == ("".join(HELD_TEXTS),)
