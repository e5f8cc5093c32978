"""Nothing of a Side becomes durable: every durable entry point refuses it and counts the attempt."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import SideConflictError, open_host
from tutti_side.contract import (
    CanonicalRef,
    EventBatch,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    MessageDelta,
    MessageUpdated,
    SessionId,
    SideId,
    SideRef,
    SourceMetadata,
    TurnCompleted,
    TurnId,
    WorkspaceId,
)
from tutti_side.runtime import DurableGate, DurableRefusedError, MemoryMetadata, RecordingReporter

Provider = Any  # tests/side/conftest.py: HeldProvider
Metrics = Any  # tests/side/conftest.py: RecordingMetrics

SIDE: Any = SideRef(WorkspaceId("w"), SideId("s"))
SESSION = CanonicalRef(WorkspaceId("w"), SessionId("s"))
BATCH = EventBatch(1, (TurnCompleted(TurnId("t")),))
METADATA = SourceMetadata(provider="p", provider_session_id="p", cwd="/")


class LooksCanonical(CanonicalRef, frozen=True):
    """A ref that passes for a canonical one by inheritance."""


ENTRY_POINTS: dict[str, tuple[str, Callable[[DurableGate, Any], Any]]] = {
    "report": ("report", lambda gate, ref: gate.report(ref, BATCH)),
    "submitted": ("submit", lambda gate, ref: gate.submitted(ref, TurnId("t"), "c")),
    "read_metadata": ("reading metadata", lambda gate, ref: gate.read_metadata(ref)),
    "write_metadata": ("writing metadata", lambda gate, ref: gate.write_metadata(ref, METADATA)),
    "forget_metadata": ("forgetting metadata", lambda gate, ref: gate.forget_metadata(ref)),
}


def test_the_table_has_every_entry_point() -> None:
    """Required: *every* durable entry point."""
    public = {name for name, thing in vars(DurableGate).items() if callable(thing) and not name.startswith("_")}
    assert public - {"note_refused"} == set(ENTRY_POINTS)


@pytest.mark.parametrize("ref", [SIDE, LooksCanonical(WorkspaceId("w"), SessionId("s")), ("w", "s"), None])
@pytest.mark.parametrize("entry", ENTRY_POINTS)
async def test_each_durable_entry_point_refuses_what_is_no_canonical_session(
    metrics: Metrics, entry: str, ref: Any
) -> None:
    """Required; R2: refused, counted, nothing written."""
    operation, call = ENTRY_POINTS[entry]
    reporter, kept = RecordingReporter(), MemoryMetadata()
    gate = DurableGate(reporter, kept, metrics)
    with pytest.raises(DurableRefusedError, match="report this bug") as caught:
        result = call(gate, ref)
        if result is not None:
            await result
    assert caught.value.operation == operation
    assert gate.refused == 1
    assert metrics.counts == {("durable_writes_refused", operation): 1}
    assert not reporter.recorded
    assert await kept.read(ref) is None


@pytest.mark.parametrize("entry", ENTRY_POINTS)
async def test_each_durable_entry_point_takes_a_canonical_session(metrics: Metrics, entry: str) -> None:
    """Required: the gate refuses nothing else."""
    gate = DurableGate(RecordingReporter(), MemoryMetadata(), metrics)
    result = ENTRY_POINTS[entry][1](gate, SESSION)
    if result is not None:
        await result
    assert gate.refused == 0


async def test_the_reporter_sees_canonical_activity_only(provider: Provider) -> None:
    """R1, R2, SC-controller-durable: over a whole life of a session and its Side."""
    adapter = provider.adapter
    reporter = RecordingReporter()
    kept = MemoryMetadata()
    async with open_host(provider, reporter=reporter, metadata=kept) as host:
        session = await host.start_session(cwd=".", session_id="main")
        async with session.side(side_id="side", subscribe=True) as side:
            for owner, word in ((session, "canonical"), (side, "transient")):
                turn = await owner.send("q", client_submit_id=f"submit-{word}")
                ref = owner.scope.ref
                adapter.ask(ref, InteractionRequested(InteractionId(word), turn.id, "plan", word))
                owner.respond(InteractionId(word), InteractionAnswer())
                adapter.sinks[ref].emit([MessageDelta(turn.id, "i", word), MessageUpdated(turn.id, "i", word)], 10)
                adapter.sinks[ref].emit([TurnCompleted(turn.id)], 10)
        seen = host.statistics()
    assert seen.refused_durable_writes == 0
    assert {activity.ref for activity in reporter.recorded} == {session.ref}
    recorded = repr(list(reporter.recorded))
    assert "canonical" in recorded
    for word in ("transient", "side", "turn-2", "p-side"):
        assert word not in recorded
    assert [activity.client_submit_id for activity in reporter.recorded if activity.turn_id] == ["submit-canonical"]
    numbers = [number for activity in reporter.recorded if activity.batch for number, _ in activity.batch.numbered()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert list(kept._kept) == [session.ref]


async def test_a_side_is_refused_the_submit_id_of_a_canonical_submit(provider: Provider, metrics: Metrics) -> None:
    """SC-submit-pairing: settled, in flight, and however it ended; the attempt is counted and nothing is sent."""
    with trio.fail_after(5):
        await refuse_the_pairing(provider, metrics)


async def refuse_the_pairing(provider: Provider, metrics: Metrics) -> None:
    adapter = provider.adapter
    async with open_host(provider, metrics=metrics) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="s")
        adapter.starting_turn.hold()

        async def send() -> None:
            await session.send("q", client_submit_id="c")

        nursery.start_soon(send)
        await adapter.starting_turn.reached.wait()
        for flight in ("in flight", "settled"):
            with pytest.raises(SideConflictError):
                await side.send("q", client_submit_id="c")
            adapter.starting_turn.release()
            await trio.testing.wait_all_tasks_blocked()
            assert "exec s" not in adapter.log, flight
        assert host.statistics().refused_durable_writes == 2
        assert metrics.counts["durable_writes_refused", "paired submit"] == 2
        assert (await side.send("q", client_submit_id="c2")).is_active


async def test_a_submit_id_of_a_side_stays_free_for_its_session(provider: Provider) -> None:
    """SC-submit-transient: it correlates and is nowhere kept; a canonical submit under it is an ordinary one."""
    reporter = RecordingReporter()
    async with open_host(provider, reporter=reporter) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side()
        await side.send("q", client_submit_id="c")
        turn = await session.send("q", client_submit_id="c")
        submits = [activity for activity in reporter.recorded if activity.turn_id]
        assert [(activity.turn_id, activity.client_submit_id) for activity in submits] == [(turn.id, "c")]


async def test_a_submit_that_was_refused_as_busy_is_no_submit(provider: Provider) -> None:
    """Our choice: nothing was made of it that a Side could be paired with."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side()
        await session.send("q")
        with pytest.raises(Exception, match="active turn"):
            await session.send("q", client_submit_id="c")
        assert (await side.send("q", client_submit_id="c")).is_active


def test_a_recording_reporter_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12."""
    reporter = RecordingReporter()
    assert reporter.recorded.maxlen is not None


async def test_metadata_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: the oldest are forgotten."""
    monkeypatch.setattr("tutti_side.runtime.ports.METADATA_MAX", 2)
    kept = MemoryMetadata()
    refs = [CanonicalRef(WorkspaceId("w"), SessionId(str(number))) for number in range(3)]
    for ref in refs:
        await kept.write(ref, METADATA)
    assert [await kept.read(ref) for ref in refs] == [None, METADATA, METADATA]
