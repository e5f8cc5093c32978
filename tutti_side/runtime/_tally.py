"""What a controller counts over its life, and tells the host's metrics: opens and ends of Sides, failed closes."""

from tutti_side.contract import EndReason, Metrics
from tutti_side.runtime.errors import (
    HostStoppedError,
    SideConflictError,
    SideExpiredError,
    SideInProgressError,
    SideUnsupportedError,
)

__all__ = ["Tally", "open_outcome"]


class Tally:
    """Told by sessions, Sides and the controller; synchronous."""

    def __init__(self, metrics: Metrics) -> None:
        self.failed_closes = 0
        self.dropped_events = 0
        self._metrics = metrics
        self._live_sides = 0

    def note_dropped(self, count: int) -> None:
        """Count events that reached nobody."""
        self.dropped_events += count

    def note_discarded(self, count: int) -> None:
        """Count events of a Side that reached nobody."""
        self.note_dropped(count)
        self._metrics.count("side_events", count, fate="discarded")

    def note_open_asked(self) -> None:
        """Count a call of ``open_side``; `note_open_outcome` follows."""
        self._metrics.count("side_opens", outcome="attempted")

    def note_open_outcome(self, outcome: str) -> None:
        """Count what it came to: ``accepted``, ``cancelled``, or one of `open_outcome`."""
        self._metrics.count("side_opens", outcome=outcome)

    def note_open(self, provider: str, buffered: int, took_s: float) -> None:
        """Count a Side that was committed: how long that took, and what had waited for it."""
        self._live_sides += 1
        self._metrics.gauge("live_sides", self._live_sides)
        self._metrics.count("side_events", buffered, fate="buffered")
        self._metrics.observe("side_open_phase", took_s, phase="total", provider=provider)

    def note_side_over(self, reason: EndReason) -> None:
        """Count the end of a Side that was committed."""
        self._live_sides -= 1
        self._metrics.gauge("live_sides", self._live_sides)
        self._metrics.count("side_ends", reason=reason)

    def note_failed_close(self, provider: str | None) -> None:
        """Count a close that did not work at the provider."""
        self.failed_closes += 1
        self._metrics.count("failed_closes", provider=provider or "")


def open_outcome(error: Exception) -> str:
    """Return what an open that raised counts as: one of these for each call, beside ``attempted``.

    ``refused``: another open, a close, or the host's stop was in its way, or the id belongs to something else.
    """
    if isinstance(error, SideUnsupportedError):
        return "unsupported"
    if isinstance(error, SideExpiredError):
        return "expired"
    if isinstance(error, SideConflictError | SideInProgressError | HostStoppedError):
        return "refused"
    return "failed"
