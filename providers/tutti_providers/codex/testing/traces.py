"""Recorded app-server sessions, and their traces: what can be compared between two runs of one client script.

A trace has *lanes*: one for each thread (its notifications and server requests, in order), one for the start-up of its
tool servers (another task of the server's sends it), one for what names no thread, and one for answers. How lanes
interleave differs from run to run and is not in a trace. Ids become names by order of appearance, times and places
become ``*``, adjacent deltas of an item become one. The status that ends a wait for an answer comes from another task
of the server, before or after what the answer leads to: it is put in one place.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

__all__ = ["SessionLine", "Trace", "Transcript", "lane_of", "load_transcript", "merged_lengths", "trace_of"]

DELTA_METHOD = "item/agentMessage/delta"

VOLATILE_KEYS = frozenset(
    {
        *("createdAt", "updatedAt", "recencyAt", "startedAt", "completedAt", "startedAtMs", "completedAtMs"),
        *("emittedAtMs", "durationMs", "revision", "installationId", "serverName", "processId"),
        *("cwd", "path", "runtimeWorkspaceRoots", "codexHome", "originator", "developer_instructions"),
    }
)
"""Values that differ between two runs on one machine; a trace keeps whether they are null."""

_TERMINAL = re.compile(r"(\(Debian [^)]*\)) \w+ ")


class SessionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a session, or what became of the process."""

    dir: Literal["in", "out", "meta"]
    msg: dict[str, Any]
    t: float = 0.0


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded session."""

    name: str
    lines: tuple[SessionLine, ...]

    @property
    def version(self) -> str:
        """The app-server's version, from the file's name."""
        return f"0.{self.name.rsplit('_', 1)[1]}.0"

    @property
    def exit(self) -> int | None:
        """The exit status."""
        return next((line.msg.get("processExit") for line in self.lines if line.dir == "meta"), None)

    @property
    def was_killed(self) -> bool:
        """Was the process killed at the end?"""
        return any(line.dir == "meta" and "signal" in line.msg for line in self.lines)


Trace = dict[str, list[str]]
"""Lane → entries, each a JSON text with sorted keys."""


def load_transcript(path: Path) -> Transcript:
    """Read a recorded session, one JSON object a line.

    Raises:
      msgspec.DecodeError: a line is no session line.
    """
    lines = path.read_bytes().splitlines()
    return Transcript(name=path.stem, lines=tuple(msgspec.json.decode(line, type=SessionLine) for line in lines))


def lane_of(message: dict[str, Any]) -> str | None:
    """The lane of a message from the server, by raw thread id; None for an answer."""
    method: str | None = message.get("method")
    if method is None:
        return None
    params = _object(message.get("params"))
    thread_id = params.get("threadId") or _object(params.get("thread")).get("id")
    if thread_id is None:
        return f"global {method}"
    return f"{thread_id} tool servers" if method.startswith("mcpServer/startupStatus") else str(thread_id)


def merged_lengths(messages: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many entries each lane has, adjacent deltas counted as one; answers are no lane here."""
    lengths: dict[str, int] = defaultdict(int)
    last: dict[str, str] = {}
    for message in messages:
        lane = lane_of(message)
        if lane is None:
            continue
        if not (message["method"] == DELTA_METHOD and last.get(lane) == DELTA_METHOD):
            lengths[lane] += 1
        last[lane] = message["method"]
    return dict(lengths)


def trace_of(lines: Sequence[SessionLine]) -> Trace:
    """The trace of a session."""
    names = _Names(lines)
    lanes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    asked = {
        line.msg["id"]: line.msg["method"]
        for line in lines
        if line.dir == "out" and "method" in line.msg and "id" in line.msg
    }
    answers: dict[Any, str] = {}
    for line in lines:
        if line.dir != "in":
            continue
        lane = lane_of(line.msg)
        if lane is None:
            answers[line.msg["id"]] = _text({"answer to": asked.get(line.msg["id"]), **names.answer(line.msg)})
        else:
            lanes[lane].append(line.msg)
    trace = {
        names.lane(lane): [_text(entry) for entry in _entries(messages, names)] for lane, messages in lanes.items()
    }
    trace["answers"] = [answers.get(request_id, "never answered") for request_id in asked]
    return dict(sorted(trace.items()))


class _Names:
    """Gives ids names: threads in the order they were asked for, turns and items in the order of their thread."""

    def __init__(self, lines: Sequence[SessionLine]) -> None:
        self._names: dict[str, str] = {}
        made = {"thread/start": "thread", "thread/fork": "fork"}
        counts: dict[str, int] = defaultdict(int)
        asked: dict[Any, dict[str, Any]] = {}
        for line in lines:
            if line.dir == "out" and line.msg.get("method") in {*made, "turn/start"}:
                asked[line.msg["id"]] = line.msg
        results = {
            line.msg["id"]: _object(line.msg.get("result"))
            for line in lines
            if line.dir == "in" and "method" not in line.msg and line.msg["id"] in asked
        }
        for request_id, request in asked.items():
            kind = made.get(request["method"], "turn")
            value = _object(results.get(request_id, {}).get("turn" if kind == "turn" else "thread")).get("id")
            source: str | None = _object(request.get("params")).get("threadId")
            if kind == "fork" and value is not None and source is not None:
                self._names.setdefault(source, "stored")
            if value is not None and value not in self._names:
                self._names[value] = f"{kind}{counts[kind]}"
                counts[kind] += 1
        self._items = 0

    def lane(self, lane: str) -> str:
        first, _, rest = lane.partition(" ")
        return f"{self._names.get(first, first)} {rest}".strip()

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if "error" in message:
            return {"error": self.plain(message["error"])}
        return {"result": self.plain(message["result"])}

    def item(self, item_id: str) -> None:
        """Name an item at its first appearance."""
        if item_id not in self._names:
            self._names[item_id] = f"item{self._items}"
            self._items += 1

    def plain(self, value: Any, key: str = "") -> Any:
        """The value with names for ids and ``*`` for what differs between runs."""
        if key in VOLATILE_KEYS:
            return None if value is None else "*"
        if isinstance(value, dict):
            return {name: self.plain(part, name) for name, part in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self.plain(part, key) for part in cast("Sequence[Any]", value)]
        return self._plain_text(value) if isinstance(value, str) else value

    def _plain_text(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        for known, name in self._names.items():
            if len(known) == len("01a00000-0000-7000-8000-000000000000"):
                text = text.replace(known, f"<{name}>")
        return _TERMINAL.sub(r"\1 * ", text.partition("expected one of `initialize`")[0])


def _entries(messages: list[dict[str, Any]], names: _Names) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    open_item: dict[str, Any] | None = None
    names._items = 0  # items are counted within their lane
    for message in messages:
        params = _object(message.get("params"))
        item_id = params.get("itemId") or _object(params.get("item")).get("id")
        if isinstance(item_id, str):
            names.item(item_id)
        if message["method"] == DELTA_METHOD and entries and entries[-1]["method"] == DELTA_METHOD:
            entries[-1]["params"]["delta"] += params["delta"]
            continue
        if message["method"] == DELTA_METHOD:
            open_item = entry = {"method": DELTA_METHOD, "params": names.plain(params)}
        else:
            entry = names.plain(message)
            if message["method"] == "item/completed":
                open_item = None
            elif message["method"] == "turn/completed" and open_item is not None:
                open_item["params"]["delta"] = "(cut off)"
                open_item = None
        entries.append(entry)
    if open_item is not None:
        open_item["params"]["delta"] = "(cut off)"
    return _settle_statuses(entries)


def _settle_statuses(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the status that ends a wait right behind the answered request: another task of the server sends it."""
    settled: list[dict[str, Any]] = []
    resolved: int | None = None
    for entry in entries:
        position = len(settled)
        if entry["method"] == "serverRequest/resolved":
            resolved = position + 1
        elif entry["method"] == "thread/status/changed":
            if resolved is not None and entry["params"]["status"] == {"type": "active", "activeFlags": []}:
                position = resolved
            resolved = None
        settled.insert(position, entry)
    return settled


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(entry: dict[str, Any]) -> str:
    return msgspec.json.encode(entry, order="sorted").decode()
