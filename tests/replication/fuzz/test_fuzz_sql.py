"""The SQL sink beside the oracle: whatever bytes come, both say the same and show the same."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutti_replication import ApplyResponse, EpochMismatch, Mutation, PermanentRejection, ReplicationError, encode_batch
from tutti_replication.conformance import ConformanceSink, OpenSink, OracleSink
from tutti_replication.conformance.samples import delete, message_upsert, session_upsert, target_upsert, turn_upsert
from tutti_replication.keys import EntityKey, MessageKey, SessionKey, TargetKey, TurnKey
from tutti_sinks.conformance import open_conformance_sink

KEYS: list[EntityKey] = [
    TargetKey("target-1"),
    SessionKey("session-1"),
    TurnKey("session-1", "turn-1"),
    MessageKey("session-1", "message-1"),
]
MUTATIONS: tuple[Mutation, ...] = (
    target_upsert("m1"),
    session_upsert("m2"),
    session_upsert("m3", title="Later", updated_at_unix_ms=200),
    turn_upsert("m4"),
    turn_upsert("m5", identity_anchor_turn_id="turn-0", updated_at_unix_ms=200),
    turn_upsert("m7", identity_anchor_turn_id="turn-9", updated_at_unix_ms=200),
    message_upsert("m6", version=7, updated_at_unix_ms=300),
    *(delete(f"d{number}", key) for number, key in enumerate(KEYS)),
)
ELEMENTS: list[dict[str, Any]] = json.loads(encode_batch(MUTATIONS))["mutations"]
SPOILING: list[tuple[str, Any]] = [
    ("mutationId", "m1"),
    ("mutationId", " "),
    ("sourceDeviceId", "device-1 "),
    ("workspaceId", "workspace-2"),
    ("operation", "delete"),
    ("entityType", "turn"),
    ("transactionId", None),
    ("key", {}),
    ("schemaVersion", 2),
]


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    elements = []
    for element in draw(st.lists(st.sampled_from(ELEMENTS), max_size=6)):
        copy = dict(element)
        if draw(st.integers(0, 5)) == 0:
            name, value = draw(st.sampled_from(SPOILING))
            copy[name] = value
        elements.append(copy)
    epoch = draw(st.sampled_from([1, 1, 1, 1, 1, 2]))
    data = json.dumps({"schemaVersion": 1, "projectionEpoch": epoch, "mutations": elements}).encode()
    return data if draw(st.integers(0, 9)) else data[: draw(st.integers(0, len(data)))]


@pytest.fixture(scope="module")
def open_sink() -> Iterator[OpenSink]:
    with open_conformance_sink("sqlite://") as opened:
        yield opened


def answer_of(sink: ConformanceSink, batch: bytes) -> ApplyResponse | tuple[str, str]:
    try:
        return sink.apply(batch)
    except (PermanentRejection, EpochMismatch) as refusal:
        return type(refusal).__name__, str(refusal)
    except ReplicationError as error:
        raise AssertionError(type(error)) from None


@settings(deadline=None)  # the examples are the profile's; a busy machine is no failure
@given(history=st.lists(batches(), min_size=1, max_size=5))
def test_the_sql_sink_answers_and_shows_what_the_oracle_does(open_sink: OpenSink, history: list[bytes]) -> None:
    """Bad input: fuzz over decode, validate and apply: accepted, or a typed rejection, nothing else."""
    sink, oracle = open_sink(), OracleSink()
    sink.reset()
    for batch in history:
        assert answer_of(sink, batch) == answer_of(oracle, batch)
    for key in KEYS:
        for workspace in ("workspace-1", "workspace-2"):
            assert sink.lookup(workspace, "device-1", key) == oracle.lookup(workspace, "device-1", key)
