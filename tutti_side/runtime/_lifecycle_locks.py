"""Lifecycle locks: several keys taken in one stable order, so that two holders never wait for each other.

An open holds its source and its Side until the provider's snapshot is committed or rolled back; a close of either
waits. Keys are the contract's refs; they are taken sorted by workspace and id, and released in reverse.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tutti_side.contract import CanonicalRef, ScopeRef

__all__ = ["LifecycleLocks", "lock_order"]


def lock_order(ref: ScopeRef) -> tuple[str, str, bool]:
    """Sort key of a ref: workspace, then id; a session before a Side of the same id."""
    if isinstance(ref, CanonicalRef):
        return (ref.workspace, ref.session, False)
    return (ref.workspace, ref.side, True)


class _Entry:
    """One lock and how many hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.users = 0


class LifecycleLocks:
    """Locks by ref, made when first wanted and forgotten when nobody uses them."""

    def __init__(self) -> None:
        self._entries: dict[ScopeRef, _Entry] = {}

    @property
    def in_use(self) -> int:
        """How many locks somebody holds or waits for."""
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return sum(entry.lock.statistics().tasks_waiting for entry in self._entries.values())

    @asynccontextmanager
    async def hold(self, *refs: ScopeRef) -> AsyncIterator[None]:
        """Hold the locks of all refs for the block.

        Cancellation: while waiting, whatever was taken is given back.
        """
        taken: list[_Entry] = []
        ordered = sorted(set(refs), key=lock_order)
        for ref in ordered:
            self._entries.setdefault(ref, _Entry()).users += 1
        try:
            for ref in ordered:
                entry = self._entries[ref]
                await entry.lock.acquire()
                taken.append(entry)
            yield
        finally:
            for entry in reversed(taken):
                entry.lock.release()
            for ref in ordered:
                entry = self._entries[ref]
                entry.users -= 1
                if not entry.users:
                    del self._entries[ref]
