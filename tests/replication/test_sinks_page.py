"""What docs/sinks.md says about the fixtures is true of them."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tutti_replication.conformance import cases, pytest_plugin, sink_cases

PAGE = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text("utf-8")
FIXTURES = files("tutti_replication.conformance").joinpath("fixtures", "sink")


def steps() -> list[dict[str, Any]]:
    return [
        step
        for entry in FIXTURES.iterdir()
        if entry.name.endswith(".json")
        for step in json.loads(entry.read_text("utf-8"))["steps"]
    ]


def test_the_page_names_every_key_and_word_that_a_fixture_uses() -> None:
    """Issue, Conformance: a Go or TypeScript sink can run them, a page says how."""
    names: set[str] = set()
    for step in steps():
        names |= step.keys() | {step["do"]}
        names |= step.get("expect", {}).keys() | step.get("input", {}).keys() | step.get("row", {}).keys()
        names |= {step["expect"]["kind"]} if "expect" in step else set()
    names -= {"expected", "actual"}  # of an epoch mismatch, "these two epochs"
    missing = {name for name in names if not re.search(rf"\b{name}\b", PAGE)}
    assert not missing


def test_exactly_one_input_is_given() -> None:
    """docs/sinks.md: `input` has exactly one of batch, text, base64."""
    for step in steps():
        if step["do"] == "apply":
            assert len(step["input"]) == 1


def test_the_page_points_at_what_is_there() -> None:
    """Our choice: paths and names on the page exist."""
    root = Path(__file__).parents[2]
    for path in re.findall(r"`((?:replication|examples|docs)/[\w/.]+)`", PAGE):
        assert (root / path).exists(), path
    assert f"from {pytest_plugin.__name__} import {pytest_plugin.__all__[0]}" in PAGE
    assert len(sink_cases()) > 80


@pytest.mark.parametrize("key", ["unknown", "Steps"])
def test_a_fixture_with_a_key_that_nobody_knows_is_a_mistake(key: str) -> None:
    """Our choice: a misspelled expectation must not pass for none."""
    document = {"name": "n", "about": "a", "source": "s", "steps": [], key: 1}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(document), type=cases.SinkCase)
