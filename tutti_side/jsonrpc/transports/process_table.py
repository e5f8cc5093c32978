"""What /proc says about this machine's processes, and who descends from whom. Linux; elsewhere nothing is found."""

import os
from collections.abc import Iterable, Mapping

import msgspec

__all__ = ["ProcessRow", "has_environment_entry", "read_process", "read_table", "with_descendants"]


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """One living process. `pid` and `started_ticks` together name it: a reused pid has another start."""

    pid: int
    parent: int
    session: int
    started_ticks: int


def read_process(pid: int) -> ProcessRow | None:
    """Return the row of a living process; None when it has ended, a zombie included."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()  # what stands before can hold anything: it is the name
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return ProcessRow(pid=pid, parent=int(fields[1]), session=int(fields[3]), started_ticks=int(fields[19]))


def read_table() -> dict[int, ProcessRow]:
    """Return all living processes by pid. They move while one looks: compare again before using what was found."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    rows = (read_process(int(name)) for name in names if name.isdecimal())
    return {row.pid: row for row in rows if row is not None}


def has_environment_entry(pid: int, entry: str) -> bool:
    """Whether the process was executed with `entry` (``NAME=value``) in its environment; False for another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return os.fsencode(entry) in environment.read().split(b"\0")
    except OSError:
        return False


def with_descendants(table: Mapping[int, ProcessRow], roots: Iterable[int]) -> set[int]:
    """Return `roots` and all their descendants in `table`."""
    children: dict[int, list[int]] = {}
    for row in table.values():
        children.setdefault(row.parent, []).append(row.pid)
    found = set(roots)
    todo = list(found)
    for parent in todo:
        new = [pid for pid in children.get(parent, ()) if pid not in found]
        found.update(new)
        todo += new
    return found
