"""Cases: what is not attested is not offered; each of the five facts, before the open and in its result."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tutti_side.contract import CanonicalRef, SessionId
from tutti_side.runtime import SideUnsupportedError
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._hearing import refused
from tutti_side.testing.adapter_suite._stage import Stage

__all__ = ["CapabilityCases"]


def not_promised(fact: str) -> Callable[[Any, Path], None]:
    """Make the case of a fact that is not attested before an open."""

    async def body(group: object, stage: Stage) -> None:
        stage.seam.not_promised = fact
        assert not await stage.parent.side_capabilities()
        with refused(SideUnsupportedError) as caught:
            await stage.open_side("kit-side")
        assert fact in caught.error.reason
        assert stage.seam.calls_of("open_side") == []
        stage.seam.not_promised = None
        await stage.wait_gone("kit-side")
        await stage.open_side("kit-side")

    return _named(body, f"test_without_the_promise_{fact}_no_side_is_asked_for", "R15: a promise that lacks it.")


def not_seen(fact: str) -> Callable[[Any, Path], None]:
    """Make the case of a fact that an open's result lacks."""

    async def body(group: object, stage: Stage) -> None:
        stage.seam.not_seen = fact
        error = await stage.fail_to_open("kit-side")
        assert (error.phase, fact in str(error)) == ("result", True)
        assert stage.bed.loaded() == 1
        await stage.is_well(stage.parent)

    return _named(body, f"test_a_branch_whose_result_lacks_{fact}_is_released", "R15, R6: a result that lacks it.")


def _named(body: Callable[[Any, Stage], Awaitable[None]], name: str, source: str) -> Callable[[Any, Path], None]:
    body.__name__ = name
    body.__qualname__ = f"CapabilityCases.{name}"
    body.__doc__ = source
    return case(body)


class CapabilityCases(CaseGroup):
    """Facts that are attested, or not."""

    test_without_the_promise_supported_no_side_is_asked_for = not_promised("supported")
    test_without_the_promise_active_source_turn_no_side_is_asked_for = not_promised("active_source_turn")
    test_without_the_promise_ephemeral_no_side_is_asked_for = not_promised("ephemeral")
    test_without_the_promise_hide_inherited_turns_no_side_is_asked_for = not_promised("hide_inherited_turns")
    test_without_the_promise_model_boundary_injected_no_side_is_asked_for = not_promised("model_boundary_injected")
    test_a_branch_whose_result_lacks_supported_is_released = not_seen("supported")
    test_a_branch_whose_result_lacks_active_source_turn_is_released = not_seen("active_source_turn")
    test_a_branch_whose_result_lacks_ephemeral_is_released = not_seen("ephemeral")
    test_a_branch_whose_result_lacks_hide_inherited_turns_is_released = not_seen("hide_inherited_turns")
    test_a_branch_whose_result_lacks_model_boundary_injected_is_released = not_seen("model_boundary_injected")

    @case
    async def test_an_adapter_attests_all_five_facts_for_a_live_source(self, stage: Stage) -> None:
        """Specification, Standard provider contract: attested before the open, and seen again in its result."""
        assert (await stage.parent.side_capabilities()).missing() == ()
        side, _ = await stage.open_side()
        assert stage.seam.opened[side.scope.ref].capabilities.missing() == ()

    @case
    async def test_nothing_is_attested_for_a_source_that_nobody_holds(self, stage: Stage) -> None:
        """R15: capability discovery fails closed."""
        unknown = CanonicalRef(stage.parent.ref.workspace, SessionId("kit-unknown"))
        attested = await stage.adapter.side_capabilities(unknown)
        assert not attested
        assert attested.reason
