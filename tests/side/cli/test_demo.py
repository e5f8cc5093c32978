"""`tutti-side demo`: what it shows, what it asserts, and that it says so when something does not hold."""

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tutti_providers.scripted.testing import Testbed, make_testbed
from tutti_side.cli import _providers, main

HELD = (
    "demo: held: all 60 tokens of the turn, in order; the Side opened and closed while it ran; all 12 tokens of the "
    "Side in the Side alone; both sequences without a gap; no Side text in the provider's files; no process left"
)


class LyingBed:
    """A small test bed whose provider does something else than the plan says."""

    def __init__(self, leaked: str = "", **wrong: Any) -> None:
        self._bed = make_testbed(parent_tokens=6, side_tokens=3)
        self._leaked = leaked
        self.demo = msgspec.structs.replace(self._bed.demo, **wrong)

    @asynccontextmanager
    async def open(self, directory: pathlib.Path) -> AsyncIterator[Testbed]:
        async with self._bed.open(directory) as place:
            (place.home / "rollout.jsonl").write_text(f"before {self._leaked} after", "utf-8")
            yield place


def show(monkeypatch: pytest.MonkeyPatch, bed: LyingBed, *options: str) -> int:
    """Run the demo in this test bed."""
    real = _providers.load
    monkeypatch.setattr(
        _providers, "load", lambda group, name: (lambda: bed) if group == _providers.TESTBEDS else real(group, name)
    )
    return main(["demo", "--provider", "scripted", *options])


@pytest.mark.codex
@pytest.mark.process
def test_the_demo_holds_on_the_real_codex(capsys: pytest.CaptureFixture[str]) -> None:
    """Required: the README's first command, to its summary line."""
    assert main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == HELD
    assert lines[0].split() == ["codex", "0.163.0,", "scripted", "model,", "temporary", "home"]


def test_the_demo_holds_on_the_scripted_provider_and_labels_both_streams(capsys: pytest.CaptureFixture[str]) -> None:
    """Required: both streams interleaved and labelled with their sequence."""
    assert main(["demo", "--provider", "scripted"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == HELD
    streams = [line.split()[0] for line in lines[:-1] if not line.startswith(" ")]
    assert set(streams) == {"main", "side"}
    inside = streams[streams.index("side") : len(streams) - streams[::-1].index("side")]
    assert "main" in inside


def test_every_line_of_the_demo_is_one_json_object_when_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: ``--json``."""
    assert show(monkeypatch, LyingBed(), "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for stream in ("main", "side"):
        numbers = [row["sequence"] for row in rows if row.get("stream") == stream]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert rows[-1]["held"] is True
    assert all(check["held"] for check in rows[-1]["summary"])


@pytest.mark.parametrize(
    ("bed", "problem"),
    [
        (LyingBed(parent_tokens=("another ",)), "NOT all 1 tokens of the turn, in order"),
        (LyingBed(side_tokens=("another ", "one ")), "NOT all 2 tokens of the Side in the Side alone"),
        (LyingBed(leaked="What does the tokenizer do?"), "NOT no Side text in the provider's files"),
        (LyingBed(leaked="side-1"), "NOT no Side text in the provider's files"),
    ],
    ids=["the turn's tokens", "the Side's tokens", "the question in a file", "an answer in a file"],
)
def test_what_does_not_hold_is_named_and_is_an_exit_code_of_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bed: LyingBed, problem: str
) -> None:
    """Required: exit code 1 if any does not hold; R2 for what stands in a file."""
    assert show(monkeypatch, bed) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("demo: FAILED: ")
    assert problem in last
    assert last.count("NOT ") == 1


def test_without_a_binary_the_demo_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: a sentence, and an exit code of its own."""
    monkeypatch.setenv("CODEX_BIN", "/no/such/codex")
    assert main(["demo"]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("tutti-side: CODEX_BIN names /no/such/codex as the Codex binary")
    assert "pip install 'tutti-side[codex]'" in shown.err


@pytest.mark.process
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=lambda sign: sign.name)
def test_a_signal_in_mid_demo_ends_it_quietly_and_leaves_nothing(tmp_path: pathlib.Path, sign: signal.Signals) -> None:
    """R13: whoever stops it, its temporary directory goes with it."""
    code = "import sys; from tutti_side.cli import main; sys.exit(main(['demo', '--provider', 'scripted']))"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=pipe, stderr=pipe, text=True) as demo:
        assert demo.stdout is not None
        assert any("a Side is open" in line for line in demo.stdout)
        demo.send_signal(sign)
        _, complaints = demo.communicate(timeout=30)
    assert demo.returncode == 130
    assert complaints == ""
    assert list(tmp_path.iterdir()) == []
