"""One wire message per file: read, written again, and nothing is different, not even the order of the keys."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tutti_replication import ApplyResponse, admit_batch, decode_batch, encode_batch, encode_mutation, join_batch
from tutti_replication.epoch import EpochMismatchBody
from tutti_replication.rejection import PermanentRejectionBody

GOLDEN = Path(__file__).parents[1] / "golden" / "replication"
ANSWERS: dict[str, type[Any]] = {
    "answer_200": ApplyResponse,
    "answer_409": EpochMismatchBody,
    "answer_422": PermanentRejectionBody,
}
MUTATIONS = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem.endswith(("_upsert", "_delete")))


def pretty(data: bytes) -> str:
    return json.dumps(json.loads(data), indent=2, ensure_ascii=False) + "\n"


def text_of(name: str) -> str:
    return (GOLDEN / f"{name}.json").read_text("utf-8")


def test_there_is_a_file_for_each_kind_of_mutation() -> None:
    """Our choice: a golden set that lost a file is found."""
    assert [name.removesuffix("_upsert") for name in MUTATIONS if name.endswith("_upsert")] == [
        "interaction",
        "message",
        "session",
        "target",
        "turn",
    ]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_read_and_written_again_as_it_was(name: str) -> None:
    """Wire page: JSON keys are exactly as written; every optional field is set here."""
    data = join_batch([msgspec.json.encode(json.loads(text_of(name)))])
    (wire,) = decode_batch(data).mutations
    assert pretty(encode_mutation(wire)) == text_of(name)
    (mutation,) = admit_batch(data)
    assert pretty(encode_mutation(mutation)) == text_of(name)


def test_a_batch_is_read_and_written_again_as_it_was() -> None:
    """Wire page, ChangeBatch."""
    assert pretty(encode_batch(decode_batch(text_of("batch").encode()))) == text_of("batch")


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_an_answer_is_read_and_written_again_as_it_was(name: str) -> None:
    """Wire page, Answers: over HTTP."""
    answer = msgspec.json.decode(text_of(name), type=ANSWERS[name])
    assert pretty(msgspec.json.encode(answer)) == text_of(name)


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_field_of_a_golden_upsert_is_set(name: str) -> None:
    """Our choice: a field that is always absent proves nothing about its key."""
    if name.endswith("_delete"):
        assert text_of(name).count("Id") >= 6
        return
    payload = json.loads(text_of(name))[name.removesuffix("_upsert")]
    unset = {key for key, value in payload.items() if value is None}
    roots = {"rootAgentSessionId", "rootTurnId", "parentAgentSessionId", "parentTurnId", "parentToolCallId"}
    assert unset == (roots if name == "session_upsert" else set())
