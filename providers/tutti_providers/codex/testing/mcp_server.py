"""A tiny MCP server over stdio, for Codex' configuration: standard library only, run by path.

Its mere presence makes Codex send `mcpServer/startupStatus/updated` for a fork's child, sometimes before the fork's own
answer. Options make it a bad citizen: ``--ignore-eof`` and ``--ignore-term`` keep it alive as an orphan would be,
``--slow SECONDS`` delays its start, ``--pid-file PATH`` names a file that its process id is appended to.

Tools: `echo {text}` answers its text; `ask {message}` asks the user (an elicitation) and answers with what came back.
"""

import argparse
import json
import os
import signal
import sys
import time
from typing import Any

PROTOCOL_VERSION = "2025-06-18"

TOOLS = [
    {
        "name": "echo",
        "description": "Answer the given text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "ask",
        "description": "Ask the user for a name.",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        "annotations": {"readOnlyHint": True},
    },
]

ELICITATION_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Server:
    """Answers one client; requests come one at a time."""

    def __init__(self) -> None:
        self.next_id = 0

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def serve(self) -> None:
        """Answer until the end of input."""
        while (message := self.receive()) is not None:
            if "id" in message and "method" in message:
                self.send({"id": message["id"], "result": self.answer(message["method"], message.get("params") or {})})

    def receive(self) -> dict[str, Any] | None:
        """Return the next message, None at the end of input."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result for a request."""
        if method == "initialize":
            return {
                "protocolVersion": params.get("protocolVersion", PROTOCOL_VERSION),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "docs", "version": "1.0"},
            }
        if method == "tools/list":
            return {"tools": TOOLS}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": self.call(params["name"], params.get("arguments") or {})}]}
        return {}

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool."""
        if name == "ask":
            return json.dumps(self.elicit(arguments.get("message", "Your name?")))
        return str(arguments.get("text", ""))

    def elicit(self, message: str) -> Any:
        """Ask the client's user, and wait for the answer."""
        self.next_id += 1
        params = {"message": message, "requestedSchema": ELICITATION_SCHEMA}
        self.send({"id": self.next_id, "method": "elicitation/create", "params": params})
        while (reply := self.receive()) is not None:
            if reply.get("id") == self.next_id and "method" not in reply:
                return reply.get("result", reply.get("error"))
        return None


def note(path: str | None, line: str) -> None:
    """Append a line to the file, if one was named."""
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def main() -> None:
    """Serve as the options say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ignore-eof", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--slow", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--pid-file")
    options = parser.parse_args()
    if options.ignore_term:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    note(options.pid_file, str(os.getpid()))
    time.sleep(options.slow)
    Server().serve()
    if options.ignore_eof:
        note(options.pid_file, "ignores the end of its input")
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
