"""Bytes that are no batch, or a strange one: the SQL sink does what the oracle does, and nothing else."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutti_replication.codec import BATCH_BYTES_MAX, encode_batch
from tutti_replication.conformance.oracle import OracleSink
from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    target_upsert,
    turn_upsert,
)
from tutti_replication.epoch import EpochMismatch
from tutti_replication.errors import BatchTooLarge
from tutti_replication.keys import SubmitClaimKey
from tutti_replication.mutation import Mutation
from tutti_replication.rejection import PermanentRejection
from tutti_sinks import SqlSink, open_conformance_sink

VALID: list[Mutation] = [
    target_upsert("m1"),
    session_upsert("m2"),
    turn_upsert("m3", identity_anchor_turn_id="turn-0"),
    interaction_upsert("m4"),
    message_upsert("m5"),
    delete("m6", SubmitClaimKey("session-1", "claim")),
]
ENCODED = encode_batch(VALID)

SNIPPETS = (
    b"",
    b"null",
    b"-1",
    b"1.5",
    b"9223372036854775807",
    b"9223372036854775808",
    b"NaN",
    b"{}",
    b"[]",
    b'""',
    b'" "',
    b'"\\u0000"',
    b'"\\ud800"',
    b"\xff",
    b"\x00",
    b",",
    b"}",
    b"[" * 2000,
    b'"' + b"x" * 600 + b'"',
)

BAD = {
    "nothing": b"",
    "white space": b"  ",
    "another type": b"[]",
    "no mutations": b'{"schemaVersion":1,"projectionEpoch":1,"mutations":[]}',
    "truncated": ENCODED[:-20],
    "too many": encode_batch([session_upsert(f"m{n}") for n in range(501)]),
    "oversized": ENCODED[:-1] + b" " * BATCH_BYTES_MAX + b"}",
    "deeply nested": ENCODED.replace(b'{"text":"hello"}', b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "not UTF-8": ENCODED.replace(b"hello", b"hel\xfflo"),
    "NaN": ENCODED.replace(b'"version":1', b'"version":NaN'),
    "2^63": ENCODED.replace(b'"version":1', b'"version":9223372036854775808'),
    "a fraction": ENCODED.replace(b'"version":1', b'"version":1.5'),
    "a payload on a delete": encode_batch([VALID[5]]).replace(b'"operation":', b'"target":{},"operation":'),
    "another epoch": encode_batch(VALID, epoch=7),
}


def outcome(apply: Callable[[bytes], Any], data: bytes) -> tuple[Any, ...]:
    """Return what came of it: an answer or one of the typed refusals; anything else is raised."""
    try:
        answer = apply(data)
    except PermanentRejection as refused:
        return refused.kind, refused.rule, refused.mutation_id, refused.transaction_id, refused.field
    except EpochMismatch as refused:
        return "epoch", refused.expected, refused.actual
    except BatchTooLarge as refused:
        return "too large", refused.size
    return answer.result, answer.acknowledgements


@pytest.mark.parametrize("data", BAD.values(), ids=list(BAD))
def test_what_is_no_batch_is_a_typed_refusal_and_writes_nothing(sink: SqlSink, data: bytes) -> None:
    """Issue of the contract, bad input: the same refusal as the oracle's; R17."""
    assert data != ENCODED

    refused = outcome(sink.apply, data)

    assert refused == outcome(OracleSink().apply, data)
    assert isinstance(refused[0], str)
    assert (sink.last_cursor(), sink.changes().items) == (0, [])


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(ENCODED)), st.integers(0, 40), st.sampled_from(SNIPPETS)), min_size=1, max_size=3
    )
)
def test_a_batch_with_random_edits_ends_as_with_the_oracle(edits: list[tuple[int, int, bytes]]) -> None:
    """Accepted, or a typed refusal, nothing else; and sent again, the same. R16, R17."""
    data = ENCODED
    for at, length, snippet in edits:
        data = data[:at] + snippet + data[at + length :]
    oracle = OracleSink()
    with ExitStack() as stack:
        sink = stack.enter_context(open_conformance_sink("sqlite://"))()
        for batch in (data, ENCODED, data):
            assert outcome(sink.apply, batch) == outcome(oracle.apply, batch)
        for mutation in oracle.log.accepted:
            where = mutation.workspace_id, mutation.source_device_id, mutation.key
            assert sink.lookup(*where) == oracle.lookup(*where)
