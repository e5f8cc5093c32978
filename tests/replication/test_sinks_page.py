"""What docs/sinks.md says about the fixtures is true of them."""

import json
import re
import subprocess
import sys
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
    """Conformance: a Go or TypeScript sink can run them, a page says how."""
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


@pytest.mark.process
def test_what_the_page_says_of_pytest_runs_as_it_stands(tmp_path: Path) -> None:
    """Our choice: who copies the two pieces into a project has a test for each case."""
    conftest, module = re.findall(r"```python\n((?:from[^\n]*(?:plugin|run_sink_case).*?))```", PAGE, re.DOTALL)
    sink = "from tutti_replication.conformance import OracleLog, OracleSink\nLOG = OracleLog()\n"
    tmp_path.joinpath("conftest.py").write_text(conftest)
    tmp_path.joinpath("test_it.py").write_text(f"{sink}{module}\ndef MySink(path):\n    return OracleSink(LOG)\n")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert run.returncode == 0, run.stdout
    assert f"{len(sink_cases())} passed" in run.stdout


@pytest.mark.parametrize("key", ["unknown", "Steps"])
def test_a_fixture_with_a_key_that_nobody_knows_is_a_mistake(key: str) -> None:
    """Our choice: a misspelled expectation must not pass for none."""
    document = {"name": "n", "about": "a", "source": "s", "steps": [], key: 1}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(document), type=cases.SinkCase)
