"""What a controller counts."""

from collections.abc import Mapping

import msgspec

__all__ = ["ControllerStatistics"]


class ControllerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What lives in a controller now, and what it counted."""

    sessions: int
    sides: Mapping[str, int]
    """Sides by lifecycle state."""
    interactions_open: int
    """What providers ask and nobody has answered, of sessions and Sides."""
    subscribers: int
    """Subscriptions attached to sessions and Sides."""
    buffered_events: int
    """Events of opening sessions and Sides that wait for the commit."""
    locks_in_use: int
    locks_waiting: int
    remembered_ends: int
    failed_closes: int
    """Closes that an adapter failed at, or that took longer than their bound."""
    dropped_events: int
    """Events that reached nobody: they came after the end, or were never committed."""
