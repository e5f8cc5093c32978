"""What a provider is given by the host that opens it: where to count, who retries what it could
not close, and who hears what belongs to no session.

Each has a default that does nothing, so that a provider can be opened without a host.
"""

from typing import Protocol

import msgspec

from tutti_side.contract.notices import NO_NOTICES, NoticePort

__all__ = ["NO_METRICS", "CleanupOwner", "CleanupPort", "CleanupRow", "Metrics", "NoMetrics", "ProviderPorts"]


class Metrics(Protocol):
    """Takes counts and durations. Synchronous and cheap: it is called in the reader too.

    Labels hold no ids and no text.
    """

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        """Add to a counter, for example ``side_opens`` with ``outcome="accepted"``."""
        ...

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Note one duration, for example ``side_open_phase`` with ``phase="fork"``."""
        ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Note what a number is now, for example ``live_sides``."""
        ...


class NoMetrics:
    """Takes everything and keeps nothing; the default."""

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        """Do nothing."""

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Do nothing."""

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Do nothing."""


NO_METRICS = NoMetrics()
"""The one that everybody shares."""


class CleanupOwner(Protocol):
    """Something that did not close, and that somebody has to go on closing."""

    @property
    def label(self) -> str:
        """What it is, for `statistics()`: a kind and an id, never content."""
        ...

    async def close(self) -> None:
        """Try again; raises when it failed again. Bounded by the caller. Cancellation: try again later."""
        ...

    def force(self) -> None:
        """End it without asking; the last step. Synchronous, never raises."""
        ...


class CleanupRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that did not close and is being retried, by the sweeper or by its provider; for `statistics()`."""

    label: str
    """What it is: a kind and an id, never content."""
    tries: int
    """Tries that failed."""
    due_s: float
    """Seconds until the next try; 0 while one runs."""


class CleanupPort(Protocol):
    """Takes over what would not close; see `tutti_side.runtime.sweeper`."""

    def register(self, owner: CleanupOwner) -> None:
        """Close it from now on, with bounded retries and then by force."""
        ...


class _ForceAtOnce:
    """Without a host there is nobody to retry."""

    def register(self, owner: CleanupOwner) -> None:
        owner.force()


class ProviderPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider is opened with."""

    metrics: Metrics = NO_METRICS
    cleanup: CleanupPort = _ForceAtOnce()
    notices: NoticePort = NO_NOTICES
