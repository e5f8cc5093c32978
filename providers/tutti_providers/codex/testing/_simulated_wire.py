"""What becomes of a fake's lines on their way in a simulation: held, repeated, cut, mixed with garbage, lost.

Pure but for the drawing. Each thread has a lane. A lane that is held keeps its order, and other lanes overtake it; an
answer travels in the lane of the thread that its request was about, so that within a thread nothing is reordered.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ._fake_shapes import sub_object
from ._simulated_faults import FaultDrawer
from .fake_task import Write

__all__ = ["LINE_BYTES_MAX", "DrawnWire"]

HELD_S = (0.001, 0.02, 0.3, 3.0)
"""A lane is held for one of these."""

PAUSE_S = (0.0005, 0.01, 0.3)
"""Between the two halves of a line that is cut passes one of these."""

CRASH_SENDS_MAX = 300
"""A process that dies after so many messages has at most this many: about what one simulation makes it say."""

LINE_BYTES_MAX = 64 * 1024
"""The longest line that a simulated client reads, unless the model says more: a real one's bound would cost more than
the whole run."""

CRASHED = 101
"""Exit status of a process that dies of itself."""

REPEATED = frozenset(
    {
        *("turn/started", "turn/completed", "item/started", "item/completed", "serverRequest/resolved"),
        *("thread/started", "thread/status/changed", "mcpServer/startupStatus/updated", "thread/settings/updated"),
    }
)
"""Notifications that may come twice. A delta may not: nobody could tell its repetition from more text."""

_GARBAGE: tuple[Callable[[str], bytes], ...] = (
    lambda thread: b"panic: no message at all\n",
    lambda thread: b'{"id":0,\xff}\n',
    lambda thread: b'[{"method":"turn/completed","params":{}}]\n',
    lambda thread: b"7\nnull\n\n",
    lambda thread: b'{"method":"turn/completed","params":{"threadId":7,"turn":"x"}}\n',
    lambda thread: _line({"method": "turn/completed", "params": {"threadId": thread, "turn": {"id": 5, "status": []}}}),
    lambda thread: _line({"method": "turn/started", "params": {"threadId": thread}}),
    lambda thread: _line(
        {"method": "item/agentMessage/delta", "params": {"threadId": thread, "turnId": "t", "itemId": "i", "delta": 7}}
    ),
    lambda thread: _line({"method": "item/completed", "params": {"threadId": thread, "turnId": "t", "item": [1]}}),
    lambda thread: _line({"method": "thread/settings/updated", "params": {"threadId": thread, "threadSettings": 1}}),
    lambda thread: _line({"method": 4, "params": {"threadId": thread}}),
    lambda thread: _line({"id": 1_000_000_007, "result": {}}),
    lambda thread: _line({"id": None, "error": {"code": "x"}}),
    lambda thread: _line({"id": 1.5, "method": "item/tool/requestUserInput", "params": {"threadId": thread}}),
    lambda thread: b'{"method":"item/completed","params":{"threadId":"' + b"[" * 3000 + b"\n",
)
"""Lines that are no message, and messages of the wrong types, about a thread where that makes a difference."""

_line_encoder = msgspec.json.Encoder()


def _line(message: dict[str, Any]) -> bytes:
    return _line_encoder.encode(message) + b"\n"


class _Lane:
    """The lines of one thread that are held."""

    def __init__(self) -> None:
        self.until = 0.0
        self.lines: deque[bytes] = deque()


class DrawnWire:
    """Implements `fake_task.Wire`.

    Args:
      drawer: of the run.
      connection: its number.
      thread_of: the thread that a request of ours was about, by its id; empty for none.
      tell: hears of each write, in bytes, when it begins.
      line_bytes_max: the longest line that the client reads.
    """

    def __init__(
        self,
        drawer: FaultDrawer,
        connection: int,
        thread_of: Callable[[Any], str],
        tell: Callable[[int], None],
        *,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self._line_bytes_max = line_bytes_max
        self._tell = tell
        self._drawer = drawer
        self._connection = connection
        self._thread_of = thread_of
        self._lanes: dict[str, _Lane] = {}
        self._ready: list[bytes] = []
        self._thread = ""
        self._messages_left = math.inf
        if drawer.strikes("lost_after_sends", in_calm=True):
            self._messages_left = drawer.rng.randint(1, CRASH_SENDS_MAX)
        self._dies = False

    @property
    def is_doomed(self) -> bool:
        """Whether the process is to die after so many messages."""
        return self._messages_left < math.inf

    def put(self, message: dict[str, Any] | None, line: bytes) -> None:
        """Take a line; from then on the process may be dying."""
        if self._dies:
            return
        thread = self._thread = "" if message is None else self._lane_of(message)
        lane = self._lanes.get(thread)
        if lane is None and self._strikes("threads_reordered", thread):
            lane = self._lanes[thread] = _Lane()
            lane.until = self._drawer.now() + self._drawer.rng.choice(HELD_S)
        out = self._ready if lane is None else lane.lines
        for name, garbage in (("garbage_frame", self._garbage), ("overlong_line", self._overlong)):
            if self._strikes(name, thread):
                self._ready.append(garbage(thread))
        out.append(line)
        if message is not None and self._comes_twice(message, thread):
            out.append(line)
        self._count_down()

    def take(self, now: float) -> list[Write]:
        """Hand out what is due, lanes in the order of their time."""
        due = sorted((lane.until, name) for name, lane in self._lanes.items() if lane.until <= now)
        for _, name in due:
            self._ready += self._lanes.pop(name).lines
        data, self._ready = b"".join(self._ready), []
        if self._dies:
            return [Write(data=data, exit_status=CRASHED)]
        if not data:
            return []
        if self._strikes("lost_in_frame", self._thread):
            self._dies = True
            return [Write(data=data[: self._drawer.rng.randrange(len(data))], exit_status=CRASHED)]
        if len(data) > 1 and self._strikes("split_write", self._thread):
            cut = self._drawer.rng.randrange(1, len(data))
            return [
                Write(data=data[:cut]),
                Write(data=data[cut:], pause_s=self._drawer.rng.choice(PAUSE_S)),
            ]
        return [Write(data=data)]

    def goes_out(self, write: Write) -> None:
        """See `fake_task.Wire`."""
        self._tell(len(write.data))

    def next_due(self) -> float:
        """See `fake_task.Wire`."""
        return min((lane.until for lane in self._lanes.values()), default=math.inf)

    def _lane_of(self, message: dict[str, Any]) -> str:
        if "method" not in message:
            return self._thread_of(message.get("id"))
        params = sub_object(message, "params")
        return str(params.get("threadId") or sub_object(params, "thread").get("id") or "")

    def _comes_twice(self, message: dict[str, Any], thread: str) -> bool:
        if "method" not in message:
            return False
        if "id" in message:
            return self._strikes("question_twice", thread)
        return message["method"] in REPEATED and self._strikes("notification_twice", thread)

    def _count_down(self) -> None:
        self._messages_left -= 1
        if self._messages_left <= 0 and self._drawer.is_stormy:
            self._drawer.strike("lost_after_sends", self._connection)
            self._dies = True

    def _garbage(self, thread: str) -> bytes:
        return self._drawer.rng.choice(_GARBAGE)(thread)

    def _strikes(self, name: str, thread: str) -> bool:
        if not self._drawer.strikes(name):
            return False
        self._drawer.strike(name, self._connection, thread)
        return True

    def _overlong(self, thread: str) -> bytes:
        params = {"threadId": thread, "turnId": "t", "itemId": "i", "delta": "x" * self._line_bytes_max}
        return _line({"method": "item/agentMessage/delta", "params": params})
