"""Which processes of a child, or of a whole test, are still alive. Linux; elsewhere nothing is found."""

import trio

from tutti_side.jsonrpc.transports.process_table import (
    has_environment_entry,
    read_process,
    read_table,
    with_descendants,
)

__all__ = ["descendants_of", "is_alive", "marked_processes", "wait_no_marked_process", "wait_processes_ended"]

_POLL_S = 0.01


def marked_processes(marker: str) -> list[int]:
    """Return the living processes that carry `marker` (``NAME=value``) in their environment, and their descendants.

    A marker is any entry that only the wanted processes have: `StdioTransport.marker`, or one that a test puts into the
    environment of its child. A program may give its children another environment (Codex does so for tool servers): such
    a child is found below a living parent that is marked, not after that parent's end; for it, look at `descendants_of`
    beforehand and wait with `wait_processes_ended`.
    """
    table = read_table()
    return sorted(with_descendants(table, {pid for pid in table if has_environment_entry(pid, marker)}))


def descendants_of(pid: int) -> dict[int, int]:
    """Return the living descendants of `pid`, itself not: pid → start time in ticks, which tells a reused pid apart."""
    table = read_table()
    return {found: table[found].started_ticks for found in with_descendants(table, {pid}) - {pid}}


def is_alive(pid: int, started_ticks: int) -> bool:
    """Whether the process with this pid and this start time lives; a zombie doesn't."""
    row = read_process(pid)
    return row is not None and row.started_ticks == started_ticks


async def wait_no_marked_process(marker: str) -> None:
    """Wait until no living process is marked; the caller sets the bound. Cancellation: harmless."""
    while marked_processes(marker):  # noqa: ASYNC110 - nobody tells us of a process that isn't our child
        await trio.sleep(_POLL_S)
    await trio.lowlevel.checkpoint()


async def wait_processes_ended(processes: dict[int, int]) -> None:
    """Wait until each process (pid → start time, as from `descendants_of`) has ended; the caller sets the bound."""
    for pid, started_ticks in processes.items():
        while is_alive(pid, started_ticks):  # noqa: ASYNC110 - as above
            await trio.sleep(_POLL_S)
    await trio.lowlevel.checkpoint()
