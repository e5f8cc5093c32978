"""A cancel at every step of opening a child, whoever's task makes the step."""

from typing import Any

import pytest
import trio

from tutti_side.jsonrpc.transports.stdio import open_stdio

pytestmark = pytest.mark.process

Lab = Any
BOUND_S = 60.0


class Cut(trio.abc.Instrument):
    """Cancels a scope after the k-th step of any task."""

    def __init__(self, scope: trio.CancelScope, at: int) -> None:
        self._scope = scope
        self._left = at

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count, and cut once."""
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


@pytest.mark.usefixtures("open_fds")
async def test_a_cancel_after_any_step_of_opening_leaves_nothing(lab: Lab) -> None:
    """R14, F31, F32: after the k-th step of any task, for every k; no process, no descriptor, no zombie."""
    opened_at = 0
    with trio.fail_after(BOUND_S):
        for at in range(1, 1000):
            with trio.CancelScope() as scope:
                cut = Cut(scope, at)
                trio.lowlevel.add_instrument(cut)
                try:
                    async with open_stdio(["cat"], env=lab.env) as child:
                        trio.lowlevel.remove_instrument(cut)
                        assert child.started
                        opened_at = at
                finally:
                    if not opened_at:
                        trio.lowlevel.remove_instrument(cut)
            assert lab.alive() == []
            assert lab.zombies() == []
            if opened_at and not scope.cancelled_caught:
                break
            opened_at = 0
    assert opened_at > 8  # opening takes some steps, and all of them were cut


@pytest.mark.usefixtures("open_fds")
async def test_a_cancel_after_any_step_of_closing_leaves_nothing(lab: Lab) -> None:
    """R14: the close of a cancelled block is the same close, bounded and complete."""
    with trio.fail_after(BOUND_S):
        for at in range(1, 1000):
            with trio.CancelScope() as scope:
                cut = Cut(scope, at)
                async with open_stdio(["cat"], env=lab.env) as child:
                    trio.lowlevel.add_instrument(cut)
                    await child.aclose()
            trio.lowlevel.remove_instrument(cut)
            assert lab.alive() == []
            if not scope.cancel_called:
                break
    assert at > 5
