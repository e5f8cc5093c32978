"""The fake app-server as a process in place of the binary."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tutti_providers.codex.testing import (
    Answer,
    CrashOn,
    FakeSetup,
    GarbageBefore,
    ModelScript,
    Say,
    write_fake_binary,
    write_setup,
)
from tutti_providers.codex.testing.fake_process import SETUP_VARIABLE, STORM_VARIABLE

pytestmark = pytest.mark.process

RUN_S = 60
"""How long one run may take on a busy machine."""

INITIALIZE = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "me", "version": "1"}}}


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return write_fake_binary(tmp_path / "codex")


def run(
    binary: Path, *messages: dict[str, Any], **env: str
) -> tuple["subprocess.CompletedProcess[bytes]", list[dict[str, Any]]]:
    """Send the messages, close its input, and return what it did and said."""
    command = [str(binary), "app-server", "--listen", "stdio://"]
    lines = b"".join(msgspec.json.encode(message) + b"\n" for message in messages)
    done = subprocess.run(command, input=lines, capture_output=True, env=env, timeout=RUN_S, check=False)
    return done, [msgspec.json.decode(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


def start_thread(request_id: int) -> dict[str, Any]:
    return {"id": request_id, "method": "thread/start", "params": {}}


def start_turn(request_id: int, thread: int) -> dict[str, Any]:
    """A turn on the n-th thread; the fake's ids are predictable."""
    thread_id = f"01a00000-0000-7000-8000-{thread:012x}"
    inputs = [{"type": "text", "text": "go"}]
    return {"id": request_id, "method": "turn/start", "params": {"threadId": thread_id, "input": inputs}}


def test_it_answers_as_the_binary_does_and_ends_with_its_input(binary: Path) -> None:
    """PROTOCOL 7 and 13."""
    done, said = run(binary, INITIALIZE)

    assert (done.returncode, done.stderr) == (0, b"")
    assert said[0]["result"]["userAgent"].startswith("me/0.163.0 (")


def test_the_setup_file_says_how_it_behaves(binary: Path, tmp_path: Path) -> None:
    """Our choice: script, faults and version come as JSON."""
    script = ModelScript(answers=(Answer.of(Say(tokens=("a", "b"), delay_s=0.001)),))
    garbage = GarbageBefore(method="initialize", data=b"banner\n")
    crash = CrashOn(method="thread/unsubscribe", status=7)
    setup = FakeSetup(script=script, faults=(garbage, crash), version="0.171.0")
    path = write_setup(tmp_path / "setup.json", setup)
    command = [str(binary), "app-server", "--listen", "stdio://"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={SETUP_VARIABLE: str(path)})
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in (INITIALIZE, start_thread(2), start_turn(3, 1)):
            process.stdin.write(msgspec.json.encode(message) + b"\n")
        process.stdin.flush()
        lines = []
        while b'"turn/completed"' not in (line := process.stdout.readline()):
            lines.append(line)
        process.stdin.write(b'{"id":9,"method":"thread/unsubscribe","params":{}}\n')
        process.stdin.flush()
        assert process.wait(RUN_S) == 7

    assert lines[0] == b"banner\n"
    assert sum(b"agentMessage/delta" in line for line in lines) == 2
    assert b'"cliVersion":"0.171.0"' in b"".join(lines)


def test_its_version_can_be_asked_and_nothing_else(binary: Path) -> None:
    """Our choice: what the binary is asked by tools that look for it."""
    version = subprocess.run([str(binary), "--version"], capture_output=True, env={}, timeout=RUN_S, check=True)
    other = subprocess.run([str(binary), "exec"], capture_output=True, env={}, timeout=RUN_S, check=False)

    assert version.stdout == b"codex-cli 0.163.0\n"
    assert other.returncode == 2


def test_it_runs_as_a_module_too() -> None:
    """Our choice: no file needs to be written for a quick try."""
    command = [sys.executable, "-m", "tutti_providers.codex.testing.fake_process", "--version"]
    done = subprocess.run(command, capture_output=True, env=dict(os.environ), timeout=RUN_S, check=True)

    assert done.stdout == b"codex-cli 0.163.0\n"


def test_it_starts_without_loading_trio(binary: Path) -> None:
    """Our choice: it is started hundreds of times; the standard library and msgspec are all it needs."""
    code = binary.read_text("utf-8").replace("sys.exit(main(sys.argv[1:]))", "print(*sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={}, timeout=RUN_S, check=True)
    loaded = set(done.stdout.decode().split())

    assert "tutti_providers.codex.testing.fake_process" in loaded
    assert loaded.isdisjoint({"trio", "h11", "tutti_side", "tutti_providers.codex.testing.scripted_model"})


@pytest.mark.parametrize(("deltas", "threads"), [(10, 1), (10, 3)])
def test_a_storm_sends_its_deltas_round_the_threads_and_ends_every_turn(
    binary: Path, deltas: int, threads: int
) -> None:
    """Required: `benchmarks/router.py` streams pre-rendered deltas."""
    starts = [start_thread(number) for number in range(10, 10 + threads)]
    turns = [start_turn(20 + number, 2 * number + 1) for number in range(threads)]
    _, plain = run(binary, INITIALIZE, *starts)
    ids = [message["result"]["thread"]["id"] for message in plain if message.get("id") in range(10, 20)]
    for turn, thread_id in zip(turns, ids, strict=True):
        turn["params"]["threadId"] = thread_id
    _, said = run(binary, INITIALIZE, *starts, *turns, **{STORM_VARIABLE: f"{deltas},{threads}"})

    flow = [message["params"]["threadId"] for message in said if message.get("method") == "item/agentMessage/delta"]
    assert flow == [ids[number % threads] for number in range(deltas)]
    ends = Counter(message["params"]["threadId"] for message in said if message.get("method") == "turn/completed")
    assert ends == dict.fromkeys(ids, 1)
    started = {m["result"]["turn"]["id"] for m in said if m.get("id") in range(20, 30)}
    assert {m["params"]["turnId"] for m in said if m.get("method") == "item/agentMessage/delta"} == started
