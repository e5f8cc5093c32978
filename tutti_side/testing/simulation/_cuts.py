"""Where a call is cut off: before it begins, at its k-th await, or after a while. Drawn; no wall time."""

import random
from typing import Literal

import msgspec
import trio

__all__ = ["Cut", "StepCutter", "draw_cut"]

PATIENCE_S = 120.0
"""No user waits longer for any call: some turns wait for an answer that nobody gives."""

STEP_CHANCE = 0.12
TIME_CHANCE = 0.12
"""How often a call is cut at an await, and how often after a time."""

STEPS_MAX = 14
"""A cut falls on one of so many first awaits; a whole open has about ten."""

TIMES_S = (0.0005, 0.005, 0.02, 0.1, 1.0, 6.0)


class Cut(msgspec.Struct, frozen=True):
    """Where one call is cut off."""

    kind: Literal["patience", "step", "time"]
    steps: int = 0
    """With ``step``: which await of the calling task; 0 cuts it before it has begun."""
    after_s: float = PATIENCE_S


def draw_cut(rng: random.Random) -> Cut:
    """Draw one; most calls are left alone."""
    drawn = rng.random()
    if drawn < STEP_CHANCE:
        return Cut("step", steps=rng.randrange(STEPS_MAX + 1))
    if drawn < STEP_CHANCE + TIME_CHANCE:
        return Cut("time", after_s=rng.choice(TIMES_S))
    return Cut("patience")


class StepCutter(trio.abc.Instrument):
    """Cancels a scope when its task has come to its k-th await: the cancel strikes exactly there."""

    def __init__(self) -> None:
        self._left: dict[trio.lowlevel.Task, tuple[int, trio.CancelScope]] = {}

    def arm(self, scope: trio.CancelScope, steps: int) -> None:
        """Cancel `scope` at the await number `steps` of the running task, counted from here; 0 cancels it at once."""
        if steps == 0:
            scope.cancel(reason="the simulated user left before the call began")
        else:
            self._left[trio.lowlevel.current_task()] = (steps, scope)

    def disarm(self) -> None:
        """The call of the running task has ended. Idempotent."""
        self._left.pop(trio.lowlevel.current_task(), None)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        armed = self._left.get(task)
        if armed is None:
            return
        steps, scope = armed
        if steps > 1:
            self._left[task] = (steps - 1, scope)
        else:
            del self._left[task]
            scope.cancel(reason="the simulated user left at this await")
