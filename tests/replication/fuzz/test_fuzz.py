"""Any bytes at all: accepted, or a typed rejection; nothing else, and nothing written."""

import copy
import json
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from tutti_replication import (
    BatchTooLarge,
    ChangeBatch,
    EpochMismatch,
    Mutation,
    PermanentRejection,
    ReplicationError,
    admit_batch,
    decode_batch,
    encode_batch,
    validate_batch,
)
from tutti_replication.codec import to_wire
from tutti_replication.conformance import OracleSink
from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import KEY_TYPES, SessionKey

Result = TypeVar("Result")

SEEDS: list[Mutation] = [
    target_upsert("m1"),
    session_upsert("m2"),
    session_upsert(
        "m3",
        kind="child",
        root_agent_session_id="r",
        root_turn_id="t",
        parent_agent_session_id="p",
        parent_turn_id="t",
        parent_tool_call_id="c",
    ),
    turn_upsert("m4"),
    turn_upsert("m5", identity_anchor_turn_id="turn-0", **settled(5)),
    interaction_upsert("m6"),
    message_upsert("m7"),
    delete("m8", SessionKey("session-1")),
    *(delete(f"n{n}", key(*("id" for _ in key.__struct_fields__))) for n, key in enumerate(KEY_TYPES.values())),
]
DOCUMENTS: list[dict[str, Any]] = [json.loads(encode_batch([seed])) for seed in SEEDS]
WORDS = sorted(
    {value for document in DOCUMENTS for value in document["mutations"][0].values() if isinstance(value, str)}
    | {"", " ", "\0", "\u3000", "\x1c", "x" * 513, "\u00e9" * 256, "\U0001f600" * 129, "settled", "running", "failed"}
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 1.0, 1.5, 1e300]),
    st.integers(),
    st.sampled_from(WORDS),
    st.text(max_size=8),
    st.builds(dict),
    st.builds(list),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
ODDITIES = [b"\xff", b"\\u0000", b"\\ud800", b"NaN", b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"1e999", b"\0"]


@st.composite
def spoiled_documents(draw: st.DrawFn) -> bytes:
    """Valid batches with values changed, removed, added or exchanged between entities."""
    mutations = [
        copy.deepcopy(draw(st.sampled_from(DOCUMENTS))["mutations"][0]) for _ in range(draw(st.integers(0, 3)))
    ]
    batch: dict[str, Any] = {"schemaVersion": 1, "projectionEpoch": 1, "mutations": mutations}
    for _ in range(draw(st.integers(0, 3))):
        places: list[dict[str, Any]] = [batch, *mutations]
        places += [value for wire in mutations for value in wire.values() if isinstance(value, dict)]
        place = draw(st.sampled_from(places))
        name = draw(st.sampled_from(sorted(place) or ["x"]))
        change = draw(st.sampled_from(["value", "remove", "add", "exchange"]))
        if change == "value":
            place[name] = copy.deepcopy(draw(VALUES))
        elif change == "remove":
            place.pop(name, None)
        elif change == "add":
            place[draw(st.text(max_size=4))] = copy.deepcopy(draw(VALUES))
        else:
            other = draw(st.sampled_from(DOCUMENTS))["mutations"][0]
            taken = draw(st.sampled_from(sorted(other)))
            place[taken] = copy.deepcopy(other[taken])
    return json.dumps(batch, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    """Such batches cut short, with bytes changed or odd ones put in."""
    data = draw(spoiled_documents())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["cut", "insert", "replace", "drop"])):
            case "cut":
                data = data[:at]
            case "insert":
                data = data[:at] + draw(st.sampled_from(ODDITIES)) + data[at:]
            case "replace":
                data = data[:at] + draw(st.binary(min_size=1, max_size=2)) + data[at + 1 :]
            case _:
                data = data[:at] + data[at + draw(st.integers(1, 40)) :]
    return data


def attempt(work: Callable[[], Result]) -> Result | ReplicationError:
    """Return what came of it; whatever is no typed refusal fails the test by itself."""
    try:
        return work()
    except (PermanentRejection, EpochMismatch, BatchTooLarge) as refusal:
        return refusal


def check(data: bytes) -> None:
    outcome = attempt(lambda: admit_batch(data))
    sink = OracleSink()
    stored = session_upsert("stored", session_id="stored")
    sink.apply(encode_batch([stored]))
    applied = attempt(lambda: sink.apply(data))
    if isinstance(outcome, ReplicationError):
        assert str(applied) == str(outcome)
        assert sink.log.accepted == [stored]
        return
    assert admit_batch(encode_batch(outcome)) == outcome
    made = ChangeBatch(schema_version=1, projection_epoch=1, mutations=tuple(to_wire(item) for item in outcome))
    assert validate_batch(made) == outcome
    assert validate_batch(decode_batch(data)) == outcome
    if isinstance(applied, ReplicationError):
        assert isinstance(applied, PermanentRejection)
        assert applied.kind == "identity"
        assert sink.log.accepted == [stored]
    else:
        assert applied.result.accepted_count == len(outcome)


@settings(deadline=None)  # the examples are the profile's; a busy machine is no failure
@given(spoiled_documents())
def test_a_spoiled_batch_is_accepted_or_refused_with_a_type(data: bytes) -> None:
    """Bad input: accepted, or a typed rejection, nothing else. What the C decoder lets in, the rules let in."""
    check(data)


@settings(deadline=None)  # the examples are the profile's; a busy machine is no failure
@given(damaged_bytes())
def test_damaged_bytes_are_accepted_or_refused_with_a_type(data: bytes) -> None:
    """Bad input: truncated, non-UTF-8, NaN and whatever else bytes can be."""
    check(data)


@settings(deadline=None)  # the examples are the profile's; a busy machine is no failure
@given(st.binary(max_size=200))
def test_noise_is_refused_with_a_type(data: bytes) -> None:
    """Bad input."""
    assert isinstance(attempt(lambda: admit_batch(data)), ReplicationError)
