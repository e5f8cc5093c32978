"""The hard end of a case: what shields itself, swallows its cancel or blocks is ended all the same, and named.

A case that takes too long is cancelled. An adapter can withstand that; then the whole kit would hang, and say nothing.
"""

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import trio

__all__ = ["GRACE_S", "CaseHangsError", "HardEnd"]

GRACE_S = 60.0
"""A case that was cancelled may go on so long: longer than all shields of ours together."""

STRIKE_S = 0.1
"""Real time between two attempts to end a case from outside: whoever swallows the first does not meet each of them."""

AGAIN_S = 1.0
"""Time on the clock of the run after which shields fall again."""

NAMED_MAX = 5
"""Tasks of a hanging case that are named."""

WATCH = "hard end of the case"
"""Name of the task that watches."""


class CaseHangsError(AssertionError):
    """A case went on after it was cancelled; the message says which tasks, and where they were."""


class HardEnd:
    """Ends one case that withstands its cancel.

    On the clock of the run all shields fall. In real time, for who spins or blocks so that the clock stands still, an
    alarm raises into whatever runs; not where the author uses that alarm himself, nor outside the main thread.

    Args:
      bound_s: when the case is cancelled, in seconds.
    """

    def __init__(self, bound_s: float) -> None:
        self.told = ""
        """Who withstood, once that was so."""
        self._bound_s = bound_s

    @contextmanager
    def striking(self) -> Iterator[None]:
        """Have the alarm set while the block runs."""
        ours = threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGALRM, self._strike)
        signal.setitimer(signal.ITIMER_REAL, self._bound_s + GRACE_S, STRIKE_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        where = "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        self.told = self.told or f"it spins or blocks{where}; {_waiting()}"
        raise CaseHangsError(self.told)

    def watch(self) -> None:
        """Let all shields fall when the case goes on after its cancel; called in its run, which ends the watch."""
        trio.lowlevel.spawn_system_task(self._watch, name=WATCH)

    async def _watch(self) -> None:
        await trio.sleep(self._bound_s + GRACE_S)
        self.told = _waiting()
        while True:  # what is called next may shield itself as well
            for scope in gc.get_objects():
                if type(scope) is trio.CancelScope and scope.shield:
                    scope.shield = False
            await trio.sleep(AGAIN_S)


def _waiting() -> str:
    """Say which tasks of the case there still are, and where each stands."""
    try:
        root = trio.lowlevel.current_root_task()
    except RuntimeError:
        return "no task runs"
    found: list[str] = []
    tasks = [] if root is None else [task for nursery in root.child_nurseries for task in nursery.child_tasks]
    for task in tasks:  # it grows
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        frames = [frame for frame, _ in task.iter_await_frames() if "/trio/" not in frame.f_code.co_filename]
        if frames and task.name != WATCH:
            found.append(f"{task.name} at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}")
    return f"still there: {', '.join(found[-NAMED_MAX:])}"
