"""The bound of a run's steps: a task that spins through checkpoints holds the virtual clock, and no deadline comes."""

from collections import Counter
from collections.abc import Callable

import trio
import trio.testing

__all__ = ["STEPS_MAX", "StepBound"]

STEPS_MAX = 1_250_000
"""Steps of all tasks of a run: fifty times the largest count of 2,000 seeds, which was 24,782."""

WATCHED_STEPS = 1_000
"""So many more are watched, to say who it is that spins."""

NAMED_MAX = 3
"""Of those so many are named, the busiest first."""

JUMP_S = 60.0
"""The clock jumps so far at a time, so that the deadline of a shield comes after all: longer than any of them."""


class StepBound(trio.abc.Instrument):
    """Ends a run of too many steps, at the same step whenever it is repeated: nothing here reads real time.

    What goes on behind a shield without a deadline, or catches its cancel and goes on, it can't end; nor a step that
    never yields. For those there is the parent of `_workers`.

    Args:
      clock: of the run.
      tell: takes, once, who spins, in a sentence.
    """

    def __init__(self, clock: trio.testing.MockClock, tell: Callable[[str], None]) -> None:
        self.scope = trio.CancelScope()
        """The run belongs inside."""
        self.was_passed = False
        """True when the run has been cancelled. Asked for also when the run has broken down, outside of Trio."""
        self._clock = clock
        self._tell = tell
        self._left = STEPS_MAX
        self._watched: Counter[str] = Counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        self._left -= 1
        if self._left < 0:
            self._watch(task.name)

    def _watch(self, name: str) -> None:
        if not self.was_passed:
            self._watched[name] += 1
        if self._left % WATCHED_STEPS:
            return
        if self.was_passed:
            self._clock.jump(JUMP_S)
        else:
            busiest = ", ".join(f"{name} {count}" for name, count in self._watched.most_common(NAMED_MAX))
            self.was_passed = True
            self._tell(f"no end after {STEPS_MAX} steps; of {self._watched.total()} more took: {busiest}")
            self.scope.cancel(reason="the simulated run took too many steps")
