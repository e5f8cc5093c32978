"""One call of the public API by a simulated user, between its two records; some are cut off."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from tutti_side.errors import TuttiSideError
from tutti_side.testing.simulation._cuts import Cut, StepCutter, draw_cut
from tutti_side.testing.simulation._recorder import Recorder
from tutti_side.testing.simulation.records import JobBegan, JobEnded

__all__ = ["Caller", "Calls"]

_Value = TypeVar("_Value")


class Calls:
    """What all callers of a run share: the record, the numbers, and how calls ended."""

    def __init__(self, recorder: Recorder, cutter: StepCutter) -> None:
        self.recorder = recorder
        self.cutter = cutter
        self.outcomes: dict[str, int] = {}
        self.open: dict[int, str] = {}
        """Calls that have not ended, by number; what each is."""
        self._last = 0

    def next(self) -> int:
        """Number a call."""
        self._last += 1
        return self._last

    def count(self, what: str, outcome: str) -> None:
        """Count how one ended."""
        name = f"{what}: {outcome}"
        self.outcomes[name] = self.outcomes.get(name, 0) + 1


class Caller:
    """One job's user.

    Args:
      job: its number.
      rng: the job's own source.
      patient: True for the driver itself in the calm: nothing is cut.
    """

    def __init__(self, calls: Calls, job: int, rng: random.Random, *, patient: bool = False) -> None:
        self.rng = rng
        self.job = job
        self.failed = ""
        """How the last call failed; empty when it did not."""
        self.number = 0
        """Of the last call."""
        self._calls = calls
        self._patient = patient

    async def call(
        self,
        what: str,
        function: Callable[[], Awaitable[_Value]],
        describe: Callable[[_Value], dict[str, str]] = lambda _: {},
        *,
        owner: str = "",
        source: str = "",
        request: str = "",
        detail: str = "",
        interaction: str = "",
        turn: str = "",
    ) -> _Value | None:
        """Make the call; None when it failed or was cut off, and `failed` says how.

        Args:
          what: see `JobBegan.what`, and for the rest too.
          function: makes the awaitable; called inside.
          describe: what `JobEnded` says of the value.
        """
        number = self.number = self._calls.next()
        recorder, cutter = self._calls.recorder, self._calls.cutter
        recorder.add(
            JobBegan(
                at_s=trio.current_time(),
                job=self.job,
                call=number,
                what=what,
                owner=owner,
                source=source,
                request=request,
                detail=detail,
                interaction=interaction,
                turn=turn,
            )
        )
        self._calls.open[number] = f"{what} {owner}"
        cut = Cut("patience") if self._patient else draw_cut(self.rng)
        outcome, is_typed, said, value = "cut off", True, dict[str, str](), None
        try:
            with trio.move_on_after(cut.after_s) as scope:
                if cut.kind == "step":
                    cutter.arm(scope, cut.steps)
                try:
                    value = await function()
                    outcome, said = "ok", describe(value)
                except TuttiSideError as error:
                    outcome = type(error).__name__
                except Exception as error:  # which the product must never raise: a checker says so
                    outcome, is_typed = f"{type(error).__name__}: {error}", False
        finally:
            cutter.disarm()
            del self._calls.open[number]
            recorder.add(
                JobEnded(
                    at_s=trio.current_time(), job=self.job, call=number, outcome=outcome, is_typed=is_typed, **said
                )
            )
        if scope.cancelled_caught and cut.kind != "patience":
            recorder.fault(f"cancel_{'at_await' if cut.kind == 'step' else 'after_a_time'}")
        self._calls.count(what, outcome if is_typed else "untyped")
        self.failed = "" if outcome == "ok" else outcome
        return value
