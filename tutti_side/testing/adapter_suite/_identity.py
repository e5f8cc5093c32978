"""Cases: the provider returns an identity that is somebody else's; whoever that is, it is not closed for it.

The seam bends the result, so the adapter holds a good child under the Side's ref: that one has to go.
"""

from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._stage import Stage

__all__ = ["IdentityCases"]


class IdentityCases(CaseGroup):
    """A result that is not to be believed."""

    @case
    async def test_a_result_that_names_the_parent_closes_nothing_of_the_parent(self, stage: Stage) -> None:
        """R7: a foreign returned identity never closes the parent; the child that was made is released."""
        turn = await stage.hold_parent()
        stage.seam.claimed_child = stage.parent.provider_session_id
        error = await stage.fail_to_open("kit-side")
        assert error.phase == "result"
        assert stage.parent.ref not in stage.seam.calls_of("close")
        assert stage.adapter.liveness(stage.parent.ref) == "live"
        assert stage.adapter.liveness(stage.side_ref("kit-side")) != "live"
        assert stage.bed.loaded() == 1
        await stage.finish(turn)
        await stage.is_well(stage.parent)

    @case
    async def test_a_result_that_names_a_sibling_closes_nothing_of_the_sibling(self, stage: Stage) -> None:
        """R1, R7: a Side that lives keeps its child, whoever else is said to have it."""
        sibling, heard = await stage.open_side()
        stage.seam.claimed_child = stage.seam.opened[sibling.scope.ref].provider_session_id
        await stage.fail_to_open("kit-side")
        assert stage.bed.loaded() == 2
        await stage.is_well(sibling)
        assert heard.ends == []

    @case
    async def test_a_branch_of_another_source_is_not_taken(self, stage: Stage) -> None:
        """Specification, Codex reference adapter: replayed only after lineage validation."""
        stage.seam.claimed_source = "kit-elsewhere"
        error = await stage.fail_to_open("kit-side")
        assert error.phase == "result"
        assert stage.bed.loaded() == 1
        await stage.is_well(stage.parent)

    @case
    async def test_no_two_branches_have_the_same_identity(self, stage: Stage) -> None:
        """Specification: a branch's identity is its own, neither its source's nor its sibling's."""
        (one, _), (other, _) = await stage.open_side(), await stage.open_side()
        bindings = [stage.seam.opened[side.scope.ref] for side in (one, other)]
        ids = {*(binding.provider_session_id for binding in bindings), stage.parent.provider_session_id}
        assert len(ids) == 3
        assert {binding.source_provider_session_id for binding in bindings} == {stage.parent.provider_session_id}
