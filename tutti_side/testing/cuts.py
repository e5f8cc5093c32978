"""Cancel injection: run something again and again, cut after its first step, its second, … until it ends uncut.

A cancel can land at every checkpoint, and between the steps of other tasks as well. Whoever owns something that must
not leak lets each of those places be hit once:

    async def once(cut: Cut) -> None:
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".")
            with cut.cancelling():
                await session.ask("what?")
            assert host.statistics().locks_in_use == 0      # outside the cut: this always runs

    report = await cut_at_every_step(once)
    assert report.cuts > 10

A step is one turn of any task at the run loop, so a cut also falls while another task works for the one that is cut.
All runs draw their schedule from one seed: the k-th run is the same as the one before up to the cut.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import cast

import msgspec
import trio

from tutti_side.testing._schedule import seeded_schedule

__all__ = ["CUTS_MAX", "RUN_S", "Cut", "CutReport", "CutUnusedError", "CutsUnendingError", "cut_at_every_step"]

CUTS_MAX = 5_000
"""Cuts of one call: several times what the longest call of ours takes. More means that it does not end by itself."""

RUN_S = 10_000.0
"""One run on the clock that it runs on, a virtual one as a rule: a hang becomes an error that names its cut."""


class CutUnusedError(Exception):
    """The function that was to be cut never entered its cut, or entered it twice."""

    def __init__(self, times: int) -> None:
        super().__init__(f"a run has to enter `cut.cancelling()` or `cut.striking(…)` once; it did {times} times")


class CutsUnendingError(Exception):
    """Every run so far was cut: the call does not end by itself, or takes more steps than allowed."""

    def __init__(self, cuts: int) -> None:
        super().__init__(f"still cut after {cuts} steps; raise `cuts_max` if the call is really that long")


class CutReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the cuts of one call hit."""

    cuts: int
    """Runs in which the cut came before the end."""
    seed: int
    """Of the schedule; `cut_at_every_step` takes it for the same runs again."""
    inside: frozenset[str]
    """Every function that waited in the block, or in a task below it, at some cut: ``function``, or ``Class.method`` by
    the class of its object, so that an inherited method counts for each class apart."""


class Cut(trio.abc.Instrument):
    """The cut of one run; made by `cut_at_every_step`.

    Attributes:
      has_struck: whether the block was still running at the step that was chosen.
      inside: what was waiting then; see `CutReport.inside`.
    """

    def __init__(self, after_steps: int) -> None:
        self.after_steps = after_steps
        self.has_struck = False
        self.inside: frozenset[str] = frozenset()
        self.times_entered = 0
        self._steps = 0
        self._strike: Callable[[], object] = lambda: None
        self._failure: Exception | None = None
        self._task: trio.lowlevel.Task | None = None

    def __repr__(self) -> str:
        return f"<Cut after step {self.after_steps}, {'struck' if self.has_struck else 'not struck'}>"

    def cancelling(self) -> AbstractContextManager[trio.CancelScope, bool]:
        """Cancel the block after the chosen step. What follows the block is not cancelled."""
        # The cast tells type checkers that what follows the block is reached also when the block was not finished.
        return cast("AbstractContextManager[trio.CancelScope, bool]", self._cancelling())

    @contextmanager
    def _cancelling(self) -> Iterator[trio.CancelScope]:
        with trio.CancelScope() as scope, self.striking(scope.cancel):
            yield scope

    @contextmanager
    def striking(self, strike: Callable[[], object]) -> Iterator[None]:
        """Call `strike` after the chosen step of the block instead, from inside the run loop: the end of a peer, say.

        It is synchronous. What it raises, the end of the block raises.
        """
        self.times_entered += 1
        self._strike = strike
        self._task = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)
        if self._failure is not None:
            raise self._failure

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count; Trio calls this."""
        self._steps += 1
        if self._steps != self.after_steps or self._task is None:
            return
        self.has_struck = True
        self.inside = frozenset(_names_below(self._task))
        try:
            self._strike()
        except Exception as error:  # an instrument that raises would only be logged and removed
            self._failure = error


async def cut_at_every_step(
    run: Callable[[Cut], Awaitable[object]],
    *,
    seed: int | None = None,
    first: int = 1,
    cuts_max: int = CUTS_MAX,
    run_s: float = RUN_S,
) -> CutReport:
    """Run a function with a cut after the first step, the second, …, until a run ends before its cut.

    Args:
      run: makes everything anew, enters its cut once, and checks what is left after that block.
      seed: of the schedule; drawn by default. A worker thread or a real process still takes the time it takes.
      first: the first step to be cut after; to come back to one cut.
      cuts_max: bound on the cuts.
      run_s: bound on each run, in seconds of the clock that Trio runs on.

    Raises:
      CutUnusedError: a run did not enter its cut.
      CutsUnendingError: `cuts_max` runs were cut.
      AssertionError: a run left a task behind.
      Exception: what a run raised; a note on it says after which step it was cut, and how to get there again.

    Cancellation: the run that is under way is cancelled.
    """
    seed = random.randrange(2**32) if seed is None else seed
    inside: set[str] = set()
    for step in range(first, first + cuts_max):
        cut = Cut(step)
        tasks = trio.lowlevel.current_statistics().tasks_living
        try:
            with seeded_schedule(seed), trio.fail_after(run_s):
                await run(cut)
            if cut.times_entered != 1:
                raise CutUnusedError(cut.times_entered)
            left = trio.lowlevel.current_statistics().tasks_living - tasks
            if left > 0:
                raise AssertionError(f"{left} tasks are left")
        except Exception as error:
            error.add_note(f"cut after step {step} inside {', '.join(sorted(cut.inside)) or 'nothing of Python'}")
            error.add_note(f"to get there again: cut_at_every_step(…, seed={seed}, first={step})")
            raise
        inside |= cut.inside
        if not cut.has_struck:
            return CutReport(cuts=step - first, seed=seed, inside=frozenset(inside))
    raise CutsUnendingError(cuts_max)


def _names_below(task: trio.lowlevel.Task) -> Iterator[str]:
    """Name what waits in a task, and in those that it is the parent of."""
    for frame, _ in task.iter_await_frames():
        yield _name(frame)
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _names_below(child)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    if code.co_argcount and code.co_varnames[0] == "self":
        return f"{type(frame.f_locals['self']).__qualname__}.{code.co_name}"
    return code.co_qualname
