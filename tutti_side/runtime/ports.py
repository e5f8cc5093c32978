"""What the runtime needs from outside, and what stands there until somebody brings more.

The durable half takes `CanonicalRef`, which a Side cannot produce. `DurableGate` asserts the same at run time, in front
of whatever reporter there is: a Side that reaches it is refused and counted as a violation of an invariant.
"""

import logging
from collections import deque
from typing import Protocol

import msgspec

from tutti_side.contract import (
    CanonicalRef,
    EventBatch,
    Metrics,
    SideRef,
    SourceMetadata,
    SourceMetadataPort,
    TurnId,
)
from tutti_side.errors import TuttiSideError
from tutti_side.runtime._log import log

__all__ = [
    "ActivityReporter",
    "DurableGate",
    "DurableRefusedError",
    "MemoryMetadata",
    "RecordedActivity",
    "RecordingReporter",
]

RECORDED_MAX = 65_536
"""Activities that a `RecordingReporter` keeps; older ones are forgotten."""

METADATA_MAX = 65_536
"""Sessions whose metadata are kept in memory."""


class ActivityReporter(Protocol):
    """Takes canonical activity, to make it durable. Synchronous: it queues, and never waits."""

    def report(self, ref: CanonicalRef, batch: EventBatch) -> None:
        """Take events of a canonical session, in their order."""
        ...

    def submitted(self, ref: CanonicalRef, turn_id: TurnId, client_submit_id: str | None) -> None:
        """Take note that a submit became a turn."""
        ...


class DurableRefusedError(TuttiSideError):
    """Something that is no canonical session was about to become durable; nothing was written.

    Attributes:
      operation: what was about to happen.
    """

    def __init__(self, operation: str) -> None:
        super().__init__(f"only a canonical session is durable; {operation} was refused (please report this bug)")
        self.operation = operation


class RecordedActivity(msgspec.Struct, frozen=True):
    """One call of a reporter."""

    ref: CanonicalRef
    batch: EventBatch | None
    turn_id: TurnId | None
    client_submit_id: str | None


class RecordingReporter:
    """Keeps what it is told, bounded; stands in for the durable half."""

    def __init__(self) -> None:
        self.recorded: deque[RecordedActivity] = deque(maxlen=RECORDED_MAX)

    def report(self, ref: CanonicalRef, batch: EventBatch) -> None:
        """Keep a batch."""
        self.recorded.append(RecordedActivity(ref, batch, None, None))

    def submitted(self, ref: CanonicalRef, turn_id: TurnId, client_submit_id: str | None) -> None:
        """Keep a submit."""
        self.recorded.append(RecordedActivity(ref, None, turn_id, client_submit_id))


class DurableGate:
    """Stands in front of every durable entry point."""

    def __init__(self, reporter: ActivityReporter | None, metadata: SourceMetadataPort, metrics: Metrics) -> None:
        self._reporter = reporter
        self._metadata = metadata
        self._metrics = metrics
        self.refused = 0

    def report(self, ref: CanonicalRef, batch: EventBatch) -> None:
        """Pass a batch on."""
        self._require_canonical(ref, "report")
        if self._reporter is not None:
            self._reporter.report(ref, batch)

    def submitted(self, ref: CanonicalRef, turn_id: TurnId, client_submit_id: str | None) -> None:
        """Pass a submit on."""
        self._require_canonical(ref, "submit")
        if self._reporter is not None:
            self._reporter.submitted(ref, turn_id, client_submit_id)

    async def read_metadata(self, ref: CanonicalRef) -> SourceMetadata | None:
        """Return what is kept of a session. Cancellation: harmless."""
        self._require_canonical(ref, "reading metadata")
        return await self._metadata.read(ref)

    async def write_metadata(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        """Keep metadata of a session. Cancellation: the old or the new one is kept."""
        self._require_canonical(ref, "writing metadata")
        await self._metadata.write(ref, metadata)

    async def forget_metadata(self, ref: CanonicalRef) -> None:
        """Keep nothing of a session any more. Cancellation: kept or forgotten."""
        self._require_canonical(ref, "forgetting metadata")
        await self._metadata.forget(ref)

    def _require_canonical(self, ref: CanonicalRef, operation: str) -> None:
        # The type says so already; callers are not all typed, and this is the invariant that must never break.
        if type(ref) is not CanonicalRef:
            self.note_refused(operation, ref)
            raise DurableRefusedError(operation)

    def note_refused(self, operation: str, ref: object) -> None:
        """Count, and log, that something of a Side was kept from what is durable."""
        self.refused += 1
        self._metrics.count("durable_writes_refused", operation=operation)
        known = ref if isinstance(ref, SideRef) else None
        log(logging.ERROR, "a durable write was refused: not a canonical session", known, phase=operation)


class MemoryMetadata:
    """Keeps metadata for as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[CanonicalRef, SourceMetadata] = {}

    async def read(self, ref: CanonicalRef) -> SourceMetadata | None:
        """Return what is kept; see `SourceMetadataPort`."""
        return self._kept.get(ref)

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        """Keep it; see `SourceMetadataPort`."""
        self._kept[ref] = metadata
        if len(self._kept) > METADATA_MAX:
            del self._kept[next(iter(self._kept))]

    async def forget(self, ref: CanonicalRef) -> None:
        """Keep it no longer; see `SourceMetadataPort`."""
        self._kept.pop(ref, None)
