"""What the host does when the guard is gone without having ended its subtree: find what was below it, and end it.

The host is no subreaper, so there is no tree to rely on. What belongs to a child is what carries its marker in the
environment, lives in the guard's session, is a child of the guard, or descends from one of those. Processes are
stopped before they are killed: a stopped one can neither fork nor end and leave its children to nobody, so the search
comes to an end.
"""

import contextlib
import os
import select
import signal
import sys
import time

from tutti_side.jsonrpc.transports._guard import open_pidfd, signal_pidfd
from tutti_side.jsonrpc.transports.process_table import (
    ProcessRow,
    has_environment_entry,
    read_process,
    read_table,
    with_descendants,
)

__all__ = ["ORPHANS_S", "end_orphans"]

ORPHANS_S = 2.0
"""How long the search and the wait for the end of what was killed may take together."""


def end_orphans(guard_pid: int, child_pid: int | None, marker: str) -> int:
    """End what the guard `guard_pid` left, and return how many processes were still there after `ORPHANS_S`.

    Blocks; for a worker thread. The guard must not have been reaped: its unreaped pid is what keeps the number of its
    session from being anyone else's. A process is signalled through a pidfd that was opened before the process was
    compared with what was found, so never one that only took over a pid.
    """
    if sys.platform != "linux":
        with contextlib.suppress(OSError):
            if child_pid is not None and os.getsid(child_pid) == guard_pid:
                os.kill(child_pid, signal.SIGKILL)
        return 0
    deadline = time.monotonic() + ORPHANS_S
    held: dict[int, int] = {}
    try:
        while time.monotonic() < deadline:
            new = [row for row in _find(guard_pid, marker, held) if _hold(row, held)]
            for row in new:
                signal_pidfd(held[row.pid], signal.SIGSTOP)
            if new:
                continue  # they may have forked before they stopped
            for pidfd in held.values():
                signal_pidfd(pidfd, signal.SIGKILL)
            _wait_ended(held, deadline)
            if not _find(guard_pid, marker, {}):
                return 0
            _release(held)
        return len(_find(guard_pid, marker, {}))
    finally:
        _release(held)


def _find(guard_pid: int, marker: str, held: dict[int, int]) -> list[ProcessRow]:
    """Return what belongs to the child and isn't held yet."""
    table = read_table()
    roots = {
        row.pid
        for row in table.values()
        if row.session == guard_pid or row.parent == guard_pid or has_environment_entry(row.pid, marker)
    }
    ours = with_descendants(table, roots | (held.keys() & table.keys())) - {guard_pid, os.getpid()}
    return [table[pid] for pid in ours if pid not in held]


def _hold(row: ProcessRow, held: dict[int, int]) -> bool:
    """Hold the process by a pidfd, if its pid is still the process that was found."""
    pidfd = open_pidfd(row.pid)
    if pidfd is None:
        return False
    now = read_process(row.pid)
    if now is None or now.started_ticks != row.started_ticks:
        os.close(pidfd)
        return False
    held[row.pid] = pidfd
    return True


def _wait_ended(held: dict[int, int], deadline: float) -> None:
    for pid, pidfd in held.items():
        events = select.poll()
        events.register(pidfd, select.POLLIN)
        events.poll(max(0.0, deadline - time.monotonic()) * 1000)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # where the host is a subreaper or pid 1, the orphan became its child


def _release(held: dict[int, int]) -> None:
    for pidfd in held.values():
        os.close(pidfd)
    held.clear()
