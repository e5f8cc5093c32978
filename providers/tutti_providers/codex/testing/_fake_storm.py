"""A delta storm for benchmarks: many thousand pre-rendered delta lines, written as fast as a pipe takes them.

The client initialises, starts as many threads as the storm has, and starts a turn on each. The last `turn/start` lets
the storm loose: the deltas go round the threads, then every turn completes. Everything is rendered when the last thread
starts, so that the measurement is of the client.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from ._fake_shapes import completed_params, turn_shape, user_message
from ._fake_threads import FakeSetup
from .app_server_script import AppServerMachine, SendMessage

__all__ = ["DELTA", "Storm"]

DELTA = "0123456789abcdef "
"""The text of every delta; about as long as a token's line gets."""

WRITE_BYTES = 1 << 16
"""Written at once."""

_encode = msgspec.json.Encoder().encode


class Storm:
    """Serves one benchmark client."""

    def __init__(self, deltas: int, threads: int, setup: FakeSetup) -> None:
        self._deltas = deltas
        self._threads = threads
        self._machine = AppServerMachine(setup)
        self._turns: dict[str, str] = {}
        self._started: set[str] = set()
        self._lines: bytes = b""

    @classmethod
    def parse(cls, text: str, setup: FakeSetup) -> "Storm":
        """Read ``DELTAS`` or ``DELTAS,THREADS``."""
        deltas, _, threads = text.partition(",")
        return cls(int(deltas), int(threads or 1), setup)

    def serve(self, read: Callable[[], bytes], write: Callable[[bytes | memoryview], None]) -> int:
        """Answer until the end of input; return the exit status."""
        rest = b""
        while data := read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                for chunk in self.receive(msgspec.json.decode(line)):
                    write(chunk)
        return 0

    def receive(self, message: dict[str, Any]) -> list[bytes | memoryview]:
        """Take a message and return what to write."""
        if message.get("method") != "turn/start" or "id" not in message:
            return [self._ordinary(message)]
        thread_id = message["params"]["threadId"]
        self._started.add(thread_id)
        turn_id = self._turns[thread_id]
        answer = self._begin(message["id"], thread_id, turn_id, message["params"].get("input", []))
        if len(self._started) < self._threads:
            return [answer]
        self._started.clear()
        storm = memoryview(self._lines)
        return [answer, *(storm[at : at + WRITE_BYTES] for at in range(0, len(storm), WRITE_BYTES))]

    def _ordinary(self, message: dict[str, Any]) -> bytes:
        out = [action.message for action in self._machine.receive(message) if isinstance(action, SendMessage)]
        if message.get("method") == "thread/start":
            for thread_id in self._machine.threads:
                self._turns.setdefault(thread_id, thread_id.replace("-8000-", "-8fed-"))
            if len(self._turns) == self._threads:
                self._lines = self._render()
        return b"".join(_line(item) for item in out)

    def _begin(self, request_id: Any, thread_id: str, turn_id: str, inputs: list[Any]) -> bytes:
        status: dict[str, Any] = {"threadId": thread_id, "status": {"type": "active", "activeFlags": []}}
        item = user_message("item-user", inputs)
        where = {"threadId": thread_id, "turnId": turn_id}
        return b"".join(
            [
                _line({"id": request_id, "result": {"turn": turn_shape(turn_id, "inProgress")}}),
                _notification("thread/status/changed", status),
                _notification("turn/started", {"threadId": thread_id, "turn": turn_shape(turn_id, "inProgress")}),
                _notification("item/completed", {**where, **completed_params(item, 1, timed=False)}),
            ]
        )

    def _render(self) -> bytes:
        deltas = [
            _notification(
                "item/agentMessage/delta",
                {"threadId": thread_id, "turnId": turn_id, "itemId": "msg_storm", "delta": DELTA},
            )
            for thread_id, turn_id in self._turns.items()
        ]
        rounds, over = divmod(self._deltas, len(deltas))
        ends = [
            _notification("turn/completed", {"threadId": thread_id, "turn": turn_shape(turn_id, "completed")})
            for thread_id, turn_id in self._turns.items()
        ]
        return b"".join(deltas) * rounds + b"".join(deltas[:over]) + b"".join(ends)


def _line(message: dict[str, Any]) -> bytes:
    return _encode(message) + b"\n"


def _notification(method: str, params: dict[str, Any]) -> bytes:
    return _line({"method": method, "params": params, "emittedAtMs": 1_796_000_000_000})
