"""What a provider leaves behind when it is closed: tasks, threads and processes that were not there before it.

A task of a nursery ends with the nursery, so what can be left is a system task. The bed is still open when this looks:
what only its end would end is left all the same, such as a thread that reads what the bed's agent says.
"""

import os
import threading
import time
from collections.abc import Iterator

import trio

from tutti_side.testing.processes import descendants_of, is_alive

__all__ = ["GRACE_S", "Before", "LeftBehindError"]

GRACE_S = 2.0
"""What was told to end when its provider was closed may take so long, in real time."""

POLL_S = 0.01
"""Between two looks."""

NAMED_MAX = 10
"""Of what is left so much is named."""

TRIO_IDLE = "Trio thread "
"""How Trio names the idle threads of its cache; one that works has the name of its work."""


class LeftBehindError(AssertionError):
    """After its provider was closed something of it was still there; the message says what."""


class Before:
    """What there is before the provider of a case is opened; made inside the case's run, in its main task."""

    def __init__(self) -> None:
        self._tasks = _top_tasks()
        self._threads = set(_threads())
        self._processes = descendants_of(os.getpid())
        self._noted: dict[int, int] = {}

    def note_processes(self) -> None:
        """Remember those of now, before the provider is closed: whose parent ends first is no descendant any more."""
        self._noted = descendants_of(os.getpid())

    async def check(self) -> None:
        """See that nothing else is there any more, now or after a moment.

        Raises:
          LeftBehindError: something is.

        Cancellation: harmless.
        """
        end_s = time.monotonic() + GRACE_S
        while left := [*self._left()]:
            if time.monotonic() >= end_s:
                more = f", and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
                raise LeftBehindError(f"the closed provider left {', '.join(left[:NAMED_MAX])}{more}")
            await trio.sleep(POLL_S)
            time.sleep(POLL_S)  # noqa: ASYNC251 - threads and processes need real time, and that of the run may jump

    def _left(self) -> Iterator[str]:
        for task in _top_tasks() - self._tasks:
            yield f"task {task.name!r}"
        for thread in _threads():
            if thread not in self._threads:
                yield f"thread {thread.name!r}"
        for pid, started_ticks in {**self._noted, **descendants_of(os.getpid())}.items():
            if self._processes.get(pid) != started_ticks and is_alive(pid, started_ticks):
                yield f"process {pid} ({_command_name(pid)!r})"


def _top_tasks() -> set[trio.lowlevel.Task]:
    """The main task and the system tasks of this run; all others are below them."""
    root = trio.lowlevel.current_root_task()
    return set() if root is None else {task for nursery in root.child_nurseries for task in nursery.child_tasks}


def _threads() -> list[threading.Thread]:
    """All threads but the idle ones of Trio's cache."""
    return [thread for thread in threading.enumerate() if not thread.name.startswith(TRIO_IDLE)]


def _command_name(pid: int) -> str:
    """The name of a process, never its arguments: they may hold secrets."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as name:
            return name.read().decode(errors="replace").rstrip("\n")
    except OSError:
        return "?"
