"""What mypy refuses, and the run as well: a Side handed to anything durable.

Each line that mypy must refuse has an ignore for exactly that error. `warn_unused_ignores` is part of strict, so the
day that mypy takes one of these lines, the check of types fails on an ignore that is not used.
"""

import pytest

from tutti_side.contract import (
    NO_METRICS,
    CanonicalRef,
    EventBatch,
    ScopeRef,
    SessionId,
    SideId,
    SideRef,
    SourceMetadata,
    TurnId,
    WorkspaceId,
)
from tutti_side.runtime import ActivityReporter, DurableGate, DurableRefusedError, MemoryMetadata, RecordingReporter

SIDE = SideRef(WorkspaceId("w"), SideId("s"))
BATCH = EventBatch(1, ())
TURN = TurnId("t")
METADATA = SourceMetadata(provider="p", provider_session_id="p", cwd="/")


def report_to_any_reporter(reporter: ActivityReporter, either: ScopeRef) -> None:
    """Hand both to a reporter of whatever kind. Never called: only its types are of interest."""
    reporter.report(SIDE, BATCH)  # type: ignore[arg-type]
    reporter.submitted(SIDE, TURN, None)  # type: ignore[arg-type]
    reporter.report(either, BATCH)  # type: ignore[arg-type]


def test_a_side_is_refused_by_type_and_by_the_run() -> None:
    """Required: the durable reporter takes `CanonicalRef`, which a Side cannot produce; R2."""
    gate = DurableGate(RecordingReporter(), MemoryMetadata(), NO_METRICS)
    with pytest.raises(DurableRefusedError):
        gate.report(SIDE, BATCH)  # type: ignore[arg-type]
    with pytest.raises(DurableRefusedError):
        gate.submitted(SIDE, TURN, None)  # type: ignore[arg-type]
    assert gate.refused == 2


async def test_the_metadata_of_a_side_are_refused_by_type_and_by_the_run() -> None:
    """Required."""
    gate = DurableGate(None, MemoryMetadata(), NO_METRICS)
    with pytest.raises(DurableRefusedError):
        await gate.read_metadata(SIDE)  # type: ignore[arg-type]
    with pytest.raises(DurableRefusedError):
        await gate.write_metadata(SIDE, METADATA)  # type: ignore[arg-type]
    assert gate.refused == 2


def test_a_side_cannot_be_turned_into_a_canonical_session_by_type() -> None:
    """Required: the two ids are two types; whoever mixes them has to say so."""
    mixed = CanonicalRef(SIDE.workspace, SIDE.side)  # type: ignore[arg-type]
    assert mixed == CanonicalRef(WorkspaceId("w"), SessionId("s"))
    assert mixed != SIDE  # type: ignore[comparison-overlap]
