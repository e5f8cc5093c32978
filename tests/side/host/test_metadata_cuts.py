"""Metadata in a file and behind the gate, cut after the k-th step of any task; a worker thread writes meanwhile."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from tutti_side import JsonFileMetadata
from tutti_side.contract import NO_METRICS, CanonicalRef, SessionId, SourceMetadata, WorkspaceId
from tutti_side.runtime import DurableGate
from tutti_side.testing.cuts import Cut, cut_at_every_step

CUTS = {
    "read": ("JsonFileMetadata.read", "DurableGate.read_metadata"),
    "write": ("JsonFileMetadata.write", "DurableGate.write_metadata"),
    "forget": ("JsonFileMetadata.forget", "DurableGate.forget_metadata"),
}

REF, OTHER = (CanonicalRef(WorkspaceId("w"), SessionId(name)) for name in ("one", "two"))
OLD, NEW = (SourceMetadata(provider="p", provider_session_id=name, cwd="/") for name in ("old", "new"))
BOUND_S = 30.0

CALLS: dict[str, tuple[Callable[[DurableGate], Awaitable[object]], tuple[SourceMetadata | None, ...]]] = {
    "read": (lambda gate: gate.read_metadata(REF), (OLD,)),
    "write": (lambda gate: gate.write_metadata(REF, NEW), (OLD, NEW)),
    "forget": (lambda gate: gate.forget_metadata(REF), (OLD, None)),
}
"""Each with what may be kept after it, whole."""


@pytest.mark.parametrize("call", CALLS)
async def test_the_old_or_the_new_is_kept_whole_and_the_next_call_is_not_held_up(tmp_path: Path, call: str) -> None:
    """R14; `SourceMetadataPort`: what this object says is what another object reads from the file."""
    path = tmp_path / "metadata.json"
    make, allowed = CALLS[call]

    async def once(cut: Cut) -> None:
        await JsonFileMetadata(path).write(OTHER, OLD)
        await JsonFileMetadata(path).write(REF, OLD)
        port = JsonFileMetadata(path)
        gate = DurableGate(None, port, NO_METRICS)
        with cut.cancelling() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(port.read, OTHER)  # holds the lock at first, so that the call waits for it too
                nursery.start_soon(make, gate)
        kept = await gate.read_metadata(REF)
        assert kept in allowed
        assert scope.cancelled_caught or kept == allowed[-1]
        assert await JsonFileMetadata(path).read(REF) == kept
        assert await JsonFileMetadata(path).read(OTHER) == OLD
        assert os.listdir(tmp_path) == [path.name], "a temporary file is left"

    report = await cut_at_every_step(once, run_s=BOUND_S)

    assert report.inside >= set(CUTS[call])
