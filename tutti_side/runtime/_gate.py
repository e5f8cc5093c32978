"""What arrives before the commit: kept in order, then drained or dropped. Pure.

One gate stands in front of every scope that is being opened. It is closed at first. `open` hands out what it kept,
once; `drop` forgets it. A gate that would have to keep more than its bound says so, and its owner ends the open.
"""

from collections.abc import Sequence

from tutti_side.contract import Event

__all__ = ["GATE_BYTES_MAX", "GATE_EVENTS_MAX", "Gate"]

GATE_EVENTS_MAX = 8_192
"""Events kept before the commit. An open takes tens of milliseconds; a child says a handful of things meanwhile."""

GATE_BYTES_MAX = 8 << 20
"""The same bound in bytes."""


class Gate:
    """A buffer in front of one scope."""

    def __init__(self, events_max: int = GATE_EVENTS_MAX, bytes_max: int = GATE_BYTES_MAX) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._kept: list[Event] = []
        self._size_bytes = 0
        self.is_open = False

    @property
    def kept(self) -> int:
        """How many events wait."""
        return len(self._kept)

    def hold(self, events: Sequence[Event], size_bytes: int) -> bool:
        """Keep events; False when that would break the bound (then they are not kept)."""
        if self.is_open:
            raise RuntimeError("an open gate holds nothing; please report this bug")
        if len(self._kept) + len(events) > self._events_max or self._size_bytes + size_bytes > self._bytes_max:
            return False
        self._kept += events
        self._size_bytes += size_bytes
        return True

    def open(self) -> tuple[tuple[Event, ...], int]:
        """Open the gate, and return what it kept with its size in bytes."""
        kept, size_bytes = tuple(self._kept), self._size_bytes
        self.is_open = True
        self.drop()
        return kept, size_bytes

    def drop(self) -> None:
        """Forget what was kept."""
        self._kept = []
        self._size_bytes = 0
