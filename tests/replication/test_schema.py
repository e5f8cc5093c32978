"""The exported JSON Schema: current, and right about what a conforming peer writes."""

import json
from importlib.resources import files
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # no stubs among the tools
import pytest

from tutti_replication import Mutation, encode_batch
from tutti_replication.conformance import sink_cases
from tutti_replication.conformance.cases import Apply, ExpectedAnswer
from tutti_replication.conformance.samples import (
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.schema import contract_schema, schema_text


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = contract_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_checked_in_schema_is_current() -> None:
    """Contract: exported JSON Schema, checked in, tested to be current; else run its module."""
    checked_in = files("tutti_replication").joinpath("schema.json").read_text("utf-8")
    assert checked_in == schema_text()


def test_what_we_write_is_valid(validator: Any) -> None:
    """Contract: the schema describes what a conforming peer writes."""
    mutations: list[Mutation] = [
        target_upsert("m1"),
        session_upsert("m2", user_id="u" * 512),
        turn_upsert("m3", identity_anchor_turn_id="t0", **settled(5)),
        interaction_upsert("m4"),
        message_upsert("m5"),
    ]
    validator.validate(json.loads(encode_batch(mutations)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schemaVersion", 2),
        ("mutations", []),
        ("mutations", [{}] * 501),
        ("mutations.0.mutationId", ""),
        ("mutations.0.mutationId", "m" * 513),
        ("mutations.0.entityType", "thing"),
        ("mutations.0.message.version", 0),
        ("mutations.0.message.createdAtUnixMs", -1),
        ("mutations.0.message.createdAtUnixMs", 2**63),
        ("mutations.0.message.payload", None),
        ("mutations.0.message.semantics", []),
        ("mutations.0.sessionScope.visibility", "all"),
    ],
)
def test_what_breaks_the_shape_is_not_valid(validator: Any, path: str, value: Any) -> None:
    """Wire page: types, words and bounds."""
    document = json.loads(encode_batch([message_upsert("m")]))
    place = document
    *parents, name = path.split(".")
    for parent in parents:
        place = place[int(parent) if parent.isdigit() else parent]
    place[name] = value
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)


def test_a_key_that_is_always_written_is_required(validator: Any) -> None:
    """Wire page: unless a row says omitted when empty, a key is always written."""
    document = json.loads(encode_batch([message_upsert("m")]))
    del document["mutations"][0]["message"]["semantics"]
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)


def test_the_batches_that_fixtures_have_accepted_are_valid(validator: Any) -> None:
    """Conformance: fixtures are what other languages start from. The lenient ones are the exception."""
    seen = 0
    for case in sink_cases():
        if case.name == "absent_null_unknown_and_repeated_keys":
            continue
        for step in case.steps:
            if isinstance(step, Apply) and isinstance(step.expect, ExpectedAnswer):
                validator.validate(json.loads(step.input.encoded()))
                seen += 1
    assert seen > 100
