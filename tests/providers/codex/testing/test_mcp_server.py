"""The tiny tool server, as the process that Codex starts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tutti_providers.codex.testing import mcp_server

pytestmark = pytest.mark.process

EXIT_S = 20
"""How long a process may take to end."""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-I", "-S", mcp_server.__file__, *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(EXIT_S)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


def send(process: "subprocess.Popen[bytes]", message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def receive(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    message: dict[str, Any] = json.loads(process.stdout.readline())
    return message


def test_it_initialises_lists_its_tools_and_echoes(start: Start) -> None:
    """The Model Context Protocol, as far as Codex uses it."""
    server = start()
    send(server, {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}})
    send(server, {"method": "notifications/initialized"})
    send(server, {"id": 1, "method": "tools/list"})
    send(server, {"id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi"}}})
    first, tools, echo = (receive(server) for _ in range(3))

    assert first["result"]["serverInfo"]["name"] == "docs"
    assert [tool["name"] for tool in tools["result"]["tools"]] == ["echo", "ask"]
    assert echo["result"]["content"] == [{"type": "text", "text": "hi"}]


def test_it_asks_the_user_and_answers_with_what_came_back(start: Start) -> None:
    """PROTOCOL 1: an elicitation."""
    server = start()
    send(server, {"id": 0, "method": "tools/call", "params": {"name": "ask", "arguments": {"message": "Who?"}}})
    asked = receive(server)
    send(server, {"id": asked["id"], "result": {"action": "accept", "content": {"name": "Bob"}}})

    assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "Who?")
    assert "Bob" in receive(server)["result"]["content"][0]["text"]


def test_it_ends_with_its_input(start: Start) -> None:
    """A well-behaved tool server."""
    server = start()
    assert server.stdin is not None
    server.stdin.close()

    assert server.wait(EXIT_S) == 0


def test_it_can_ignore_the_end_of_input_and_sigterm(start: Start, tmp_path: Path) -> None:
    """F30: what an orphan does; only SIGKILL ends it."""
    pid_file = tmp_path / "pids"
    server = start("--ignore-eof", "--ignore-term", "--pid-file", str(pid_file))
    for number in range(2):
        send(server, {"id": number, "method": "initialize"})
        assert receive(server)["id"] == number
        os.kill(server.pid, signal.SIGTERM)
    assert server.stdin is not None
    server.stdin.close()
    deadline = time.monotonic() + EXIT_S
    while "ignores" not in pid_file.read_text("utf-8"):
        assert time.monotonic() < deadline

    assert server.poll() is None
    assert pid_file.read_text("utf-8").startswith(f"{server.pid}\n")
