"""What a simulated host is given to write to: ports that record all that would become durable."""

import msgspec
import trio

from tutti_side.contract import CanonicalRef, EventBatch, SourceMetadata, TurnId
from tutti_side.testing.simulation._recorder import Recorder
from tutti_side.testing.simulation.records import Stored

__all__ = ["KeptMetadata", "RecordingActivity"]


def _store(recorder: Recorder, what: str, ref: CanonicalRef, content: object) -> None:
    text = msgspec.json.encode(content).decode()
    recorder.add(Stored(at_s=trio.current_time(), what=what, owner=ref.session, text=text))


class KeptMetadata:
    """Metadata that outlive a host, as a file would; each read and write gives others a turn, as a disk does."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._kept: dict[CanonicalRef, SourceMetadata] = {}

    def __contains__(self, ref: CanonicalRef) -> bool:
        return ref in self._kept

    async def read(self, ref: CanonicalRef) -> SourceMetadata | None:
        """See `SourceMetadataPort`."""
        await trio.lowlevel.checkpoint()
        return self._kept.get(ref)

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        """See `SourceMetadataPort`."""
        await trio.lowlevel.checkpoint()
        self._kept[ref] = metadata
        _store(self._recorder, "metadata", ref, metadata)

    async def forget(self, ref: CanonicalRef) -> None:
        """See `SourceMetadataPort`."""
        await trio.lowlevel.checkpoint()
        self._kept.pop(ref, None)


class RecordingActivity:
    """An `ActivityReporter` that records."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def report(self, ref: CanonicalRef, batch: EventBatch) -> None:
        """See `ActivityReporter`."""
        _store(self._recorder, "report", ref, batch)

    def submitted(self, ref: CanonicalRef, turn_id: TurnId, client_submit_id: str | None) -> None:
        """See `ActivityReporter`."""
        _store(self._recorder, "report", ref, [turn_id, client_submit_id])
