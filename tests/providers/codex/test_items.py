"""What an agent does besides talking, as events: each kind, in good shape and in every bad one."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tutti_providers.codex import _items
from tutti_providers.codex._items import CHANGED_FILES_MAX, CUT, EVENT_BYTES, KIND_MAX, TOOL_TEXT_MAX
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.schema.items import ITEM_TYPES
from tutti_providers.codex.schema.notifications import DELTA_METHODS, NOTIFICATIONS, QUIET_METHODS, Head
from tutti_side.contract import (
    ADAPTER_EVENTS,
    Audit,
    ChangedFile,
    EndReason,
    ErrorRaised,
    Event,
    MessageDelta,
    MessageUpdated,
    PlanDelta,
    PlanStep,
    PlanUpdated,
    ReasoningDelta,
    ReasoningUpdated,
    TokenCount,
    ToolOutput,
    ToolStarted,
    ToolUpdated,
    TurnId,
    Unknown,
    UsageUpdated,
    WarningRaised,
)
from tutti_side.jsonrpc import CODEX, Message, RequestId
from tutti_side.jsonrpc.codec import Codec

ME, T = "thread-1", TurnId("turn-1")
GOLDEN = Path(__file__).parents[2] / "golden" / "codex"


class Lab:
    """A thread, what it told with what size, and what it counted."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.size_bytes = 0
        self.thread = CodexThread(self, self)
        self.thread.thread_id = ME

    def emit(self, events: Any, size_bytes: int) -> None:
        self.events += events
        self.size_bytes += size_bytes

    def end(self, reason: EndReason) -> None:
        pass

    def respond(self, request_id: RequestId, result: object) -> None:
        pass

    def respond_error(self, request_id: RequestId, code: int, message: str) -> None:
        pass

    def settle_request(self, request_id: RequestId) -> None:
        pass

    def say(self, *lines: bytes) -> None:
        read: list[Message[Head]] = [one for one in Codec(Head, CODEX).decode_lines(list(lines)) if one.method]
        self.thread.deliver(read)


def notification(method: str, **params: Any) -> bytes:
    return msgspec.json.encode({"method": method, "params": {"threadId": ME, "turnId": T, **params}})


def item(item_type: str, /, *, over: bool = True, **fields: Any) -> bytes:
    method = "item/completed" if over else "item/started"
    return notification(method, item={"type": item_type, "id": "i", **fields})


def said(*lines: bytes) -> list[Event]:
    lab = Lab()
    lab.say(*lines)
    assert lab.thread.unread == {}
    return lab.events


def counted(*lines: bytes) -> tuple[list[Event], dict[str, int]]:
    lab = Lab()
    lab.say(*lines)
    return lab.events, dict(lab.thread.unread)


COMMAND: dict[str, Any] = {"command": "make", "cwd": "/w", "status": "inProgress"}
FILES = [
    {"path": "/w/a", "kind": {"type": "update", "move_path": "/w/b"}, "diff": "@@"},
    {"path": "/w/n", "kind": {"type": "add"}, "diff": "new"},
]
CHANGES = (ChangedFile("/w/a", "update", "@@", "/w/b"), ChangedFile("/w/n", "add", "new"))
MCP: dict[str, Any] = {"server": "docs", "tool": "find", "arguments": {"q": 1}}
FOUND = {"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "…"}, {"type": "text", "text": "b"}, 7]}
USAGE = {"totalTokens": 9, "inputTokens": 5, "cachedInputTokens": 1, "outputTokens": 4, "reasoningOutputTokens": 2}


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            notification("item/reasoning/summaryTextDelta", itemId="i", delta="hm", summaryIndex=0),
            ReasoningDelta(T, "i", "hm"),
        ),
        (
            notification("item/reasoning/textDelta", itemId="i", delta="hm", contentIndex=0),
            ReasoningDelta(T, "i", "hm", False),
        ),
        (
            notification("item/reasoning/summaryPartAdded", itemId="i", summaryIndex=1),
            ReasoningDelta(T, "i", "\n\n"),
        ),
        (item("reasoning", summary=["a", "b"], content=["c"]), ReasoningUpdated(T, "i", "a\n\nb", "c")),
        (item("commandExecution", over=False, **COMMAND), ToolStarted(T, "i", "command", "make", "/w")),
        (notification("item/commandExecution/outputDelta", itemId="i", delta="ok"), ToolOutput(T, "i", "ok")),
        (notification("item/fileChange/outputDelta", itemId="i", delta="ok"), ToolOutput(T, "i", "ok")),
        (notification("item/mcpToolCall/progress", itemId="i", message="half"), ToolOutput(T, "i", "half")),
        (
            item("commandExecution", **{**COMMAND, "status": "failed"}, aggregatedOutput="no", exitCode=2),
            ToolUpdated(T, "i", "command", "make", "failed", "/w", "no", 2),
        ),
        (
            item("commandExecution", **{**COMMAND, "status": "declined"}),
            ToolUpdated(T, "i", "command", "make", "declined", "/w"),
        ),
        (
            item("commandExecution", **{**COMMAND, "status": "something new"}),
            ToolUpdated(T, "i", "command", "make", "failed", "/w"),
        ),
        (
            item("fileChange", over=False, changes=FILES, status="inProgress"),
            ToolStarted(T, "i", "file_change", "/w/a, /w/n", changes=CHANGES),
        ),
        (
            item("fileChange", changes=FILES, status="completed"),
            ToolUpdated(T, "i", "file_change", "/w/a, /w/n", "completed", changes=CHANGES),
        ),
        (
            item("mcpToolCall", over=False, status="inProgress", **MCP),
            ToolStarted(T, "i", "tool", "docs.find", '{"q":1}'),
        ),
        (
            item("mcpToolCall", status="completed", result=FOUND, **MCP),
            ToolUpdated(T, "i", "tool", "docs.find", "completed", '{"q":1}', "a\n[image]\nb"),
        ),
        (
            item("mcpToolCall", status="failed", error={"message": "gone"}, **MCP),
            ToolUpdated(T, "i", "tool", "docs.find", "failed", '{"q":1}', "gone"),
        ),
        (
            item("dynamicToolCall", tool="t", namespace="n", status="completed", contentItems=[{"text": "x"}]),
            ToolUpdated(T, "i", "tool", "n.t", "completed", "", "x"),
        ),
        (
            item("dynamicToolCall", tool="t", status="completed", success=False),
            ToolUpdated(T, "i", "tool", "t", "failed"),
        ),
        (
            item("collabAgentToolCall", tool="wait", status="completed", senderThreadId="s", receiverThreadIds=["r"]),
            ToolUpdated(T, "i", "agent", "wait", "completed", "r"),
        ),
        (item("webSearch", query="cats"), ToolUpdated(T, "i", "web_search", "cats", "completed")),
        (item("imageView", path="/w/p.png"), ToolUpdated(T, "i", "tool", "view_image", "completed", "/w/p.png")),
        (notification("item/plan/delta", itemId="i", delta="1."), PlanDelta(T, "i", "1.")),
        (item("plan", text="1. go"), PlanUpdated(T, "1. go", (), "i")),
        (
            notification(
                "turn/plan/updated", explanation="why", plan=[{"step": "a", "status": s} for s in ("inProgress", "odd")]
            ),
            PlanUpdated(T, "why", (PlanStep("a", "in_progress"), PlanStep("a", "odd"))),
        ),
        (
            notification(
                "thread/tokenUsage/updated",
                tokenUsage={"total": USAGE, "last": {"totalTokens": 9}, "modelContextWindow": 100},
            ),
            UsageUpdated(T, TokenCount(9, 5, 1, 4, 2), TokenCount(9), 100),
        ),
        (notification("warning", message="beware"), WarningRaised("beware")),
        (notification("guardianWarning", message="beware"), WarningRaised("beware")),
        (
            notification("model/rerouted", fromModel="a", toModel="b", reason="x"),
            WarningRaised("answered by b instead of a"),
        ),
        (
            notification("mcpServer/startupStatus/updated", name="docs", status="failed", error="no such file"),
            WarningRaised("the tool server docs did not start", "no such file"),
        ),
        (
            notification("error", error={"message": "m", "codexErrorInfo": "other"}, willRetry=False),
            ErrorRaised(T, "m", False, "other"),
        ),
        (
            notification(
                "error",
                error={"message": "m", "codexErrorInfo": {"httpConnectionFailed": {}}, "additionalDetails": "d"},
                willRetry=True,
            ),
            ErrorRaised(T, "m", True, "httpConnectionFailed", "d"),
        ),
        (item("contextCompaction"), Audit("context_compacted", "i")),
    ],
    ids=lambda value: value.decode()[:110] if isinstance(value, bytes) else "",
)
def test_each_kind_becomes_the_contracts_event(line: bytes, event: Event) -> None:
    """Schema of 0.163; what the binary can be made to say stands in test_real_items as well."""
    assert said(line) == [event]


@pytest.mark.parametrize(
    "line",
    [
        item("userMessage", content=[{"type": "text", "text": "hi"}]),
        item("userMessage", over=False, content=[]),
        item("agentMessage", over=False, text=""),
        item("reasoning", over=False),
        item("plan", over=False, text=""),
        item("subAgentActivity", kind="started", agentThreadId="other"),
        notification("item/reasoning/summaryPartAdded", itemId="i", summaryIndex=0),
        *(notification("mcpServer/startupStatus/updated", name="d", status=s) for s in ("starting", "cancelled")),
        *(notification(method) for method in sorted(QUIET_METHODS)),
    ],
    ids=lambda line: line.decode()[:110],
)
def test_what_says_nothing_new_to_its_user_makes_no_event_and_is_no_loss(line: bytes) -> None:
    """F9 for the start-ups; the rest is our choice. A user's own words come back to nobody, nor does their size."""
    lab = Lab()
    lab.say(line)
    assert (lab.events, lab.size_bytes, lab.thread.unread) == ([], 0, {})


def test_no_method_is_quiet_and_modelled_at_once() -> None:
    """Our choice: one table says what a method is."""
    assert not QUIET_METHODS & (set(NOTIFICATIONS) | DELTA_METHODS)


def test_the_deltas_of_a_summary_are_the_summary() -> None:
    """Our choice: so the break between two parts is told as a delta too."""
    pieces = [("a", 0), ("b", 0), ("c", 1)]
    lines = [
        line
        for number, (text, index) in enumerate(pieces)
        for line in (
            [notification("item/reasoning/summaryPartAdded", itemId="i", summaryIndex=index)] * (number in (0, 2))
            + [notification("item/reasoning/summaryTextDelta", itemId="i", delta=text, summaryIndex=index)]
        )
    ]
    *deltas, whole = said(*lines, item("reasoning", summary=["ab", "c"]))
    assert isinstance(whole, ReasoningUpdated)
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == whole.summary


# unknown, malformed


def test_an_unknown_kind_is_an_event_without_content_and_counted() -> None:
    """Our choice: a newer server says more, and that is no reason to lose a turn."""
    events, unread = counted(
        notification("thread/newThing", secret="words"),
        item("newItem", secret={"a": ["words"]}),
        item("newItem", over=False),
        notification("x" * 1_000),
    )
    assert events == [Unknown("thread/newThing", T), Unknown("newItem", T), Unknown("x" * KIND_MAX, T)]
    assert unread == {"not modelled": 3}
    assert "words" not in repr(events)


KNOWN_ITEMS: dict[str, dict[str, Any]] = {
    "agentMessage": {"text": "x"},
    "plan": {"text": "x"},
    "reasoning": {"summary": ["x"], "content": []},
    "commandExecution": {**COMMAND, "exitCode": 0, "aggregatedOutput": "x"},
    "fileChange": {"changes": FILES, "status": "completed"},
    "mcpToolCall": {**MCP, "status": "completed", "result": FOUND},
    "dynamicToolCall": {"tool": "t", "status": "completed", "contentItems": [{}]},
    "webSearch": {"query": "x"},
    "imageView": {"path": "x"},
}


@pytest.mark.parametrize("over", [True, False], ids=["completed", "started"])
@pytest.mark.parametrize("kind", KNOWN_ITEMS)
def test_a_field_of_another_type_costs_its_item_only(kind: str, over: bool) -> None:
    """R9: dropped and counted, and the next message is read."""
    for field in KNOWN_ITEMS[kind]:
        if (kind, field) == ("mcpToolCall", "arguments"):
            continue  # any JSON may stand there
        line = item(kind, over=over, **{**KNOWN_ITEMS[kind], field: 3.5})
        events, unread = counted(line, notification("warning", message="next"))
        assert (events, unread) == ([WarningRaised("next")], {"malformed": 1}), field


@pytest.mark.parametrize("missing", ["turnId", "itemId", "delta"])
@pytest.mark.parametrize("method", sorted(DELTA_METHODS - {"item/agentMessage/delta"}))
def test_a_delta_that_lacks_a_part_is_dropped_and_counted(method: str, missing: str) -> None:
    """R9."""
    whole = {"threadId": ME, "turnId": T, "itemId": "i", "delta": "x"}
    params = {name: value for name, value in whole.items() if name != missing}
    assert counted(msgspec.json.encode({"method": method, "params": params})) == ([], {"malformed": 1})
    assert len(said(msgspec.json.encode({"method": method, "params": whole}))) == 1


ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    sorted({"turnId", "itemId", "delta", "item", "plan", "tokenUsage", "error", "message", "changes", "status", "turn"})
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A notification of any method that we know, with fields of any type; items with any fields of any kind."""
    method = draw(st.sampled_from(sorted({*NOTIFICATIONS, *DELTA_METHODS, *QUIET_METHODS, "brand/new"})))
    params: dict[str, Any] = {"threadId": ME, "turnId": T, **draw(st.dictionaries(NAMES, ANY_JSON, max_size=4))}
    if draw(st.booleans()):
        kind = draw(st.sampled_from(sorted([*ITEM_TYPES, "brandNew"])))
        known = KNOWN_ITEMS.get(kind, {})
        spoilt = draw(st.dictionaries(st.sampled_from(sorted(known) or ["x"]), ANY_JSON, max_size=2))
        params["item"] = {"type": kind, "id": draw(st.just("i") | ANY_JSON), **known, **spoilt}
    return msgspec.json.encode({"method": method, "params": params})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
@given(st.lists(frames(), min_size=1, max_size=5))
def test_no_frame_raises_or_stops_the_next_one(lines: list[bytes]) -> None:
    """R9: whatever stands in the right envelope becomes the contract's events or is counted."""
    lab = Lab()
    lab.say(*lines, notification("item/agentMessage/delta", itemId="i", delta="still here"))
    assert all(isinstance(event, ADAPTER_EVENTS) for event in lab.events)
    if lab.thread._sink is not None:  # a thread that was unloaded says nothing any more
        assert lab.events[-1] == MessageDelta(T, "i", "still here")
    msgspec.json.encode(lab.events)


# bounds


def test_the_texts_of_a_tool_are_bounded_and_show_their_cut() -> None:
    """R12: a tool returns what it likes. Its beginning and its end are what a person looks for."""
    long = "a" * TOOL_TEXT_MAX + "b" * TOOL_TEXT_MAX
    [event] = said(item("commandExecution", command=long, cwd="/", status="completed", aggregatedOutput=long))
    assert isinstance(event, ToolUpdated)
    for text in (event.title, event.output):
        assert len(text) <= TOOL_TEXT_MAX
        assert (text[0], text[-1], text.count(CUT)) == ("a", "b", 1)
    [event] = said(item("commandExecution", **COMMAND, aggregatedOutput="a" * TOOL_TEXT_MAX))
    assert isinstance(event, ToolUpdated)
    assert event.output == "a" * TOOL_TEXT_MAX


def test_only_so_many_files_of_a_patch_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12."""
    monkeypatch.setattr(_items, "CHANGED_FILES_MAX", 1)
    [event] = said(item("fileChange", changes=FILES, status="completed"))
    assert isinstance(event, ToolUpdated)
    assert event.changes == CHANGES[:1]
    assert CHANGED_FILES_MAX > 1


def test_a_result_of_which_nothing_is_shown_fills_no_subscribers_queue() -> None:
    """R12, R10: a screenshot of megabytes must not cut off who only reads of it; what is shown is counted whole."""
    lab = Lab()
    image = {"content": [{"type": "image", "data": "A" * 5_000_000}]}
    lab.say(item("mcpToolCall", status="completed", result=image, **MCP))
    assert lab.size_bytes < 2 * EVENT_BYTES
    lab.say(item("newItem", data="A" * 5_000_000))
    assert lab.size_bytes < 3 * EVENT_BYTES
    lab.say(item("commandExecution", **COMMAND, aggregatedOutput="A" * 100_000))
    assert lab.size_bytes > 100_000


# what was recorded

TRANSCRIPTS = sorted((GOLDEN / "transcripts").glob("*.jsonl"))


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_no_message_of_a_recorded_session_is_malformed_or_unknown_in_its_thread(transcript: Path) -> None:
    """Recorded from 0.163 and 0.171."""
    labs: dict[str, Lab] = {}
    for record in map(json.loads, transcript.read_text("utf-8").splitlines()):
        message = record.get("msg", {})
        thread_id = message.get("params", {}).get("threadId")
        if record["dir"] == "in" and "method" in message and thread_id is not None:
            labs.setdefault(thread_id, Lab()).say(msgspec.json.encode(message))
    assert labs or transcript.stem.startswith("h_")
    for lab in labs.values():
        assert {cause: n for cause, n in lab.thread.unread.items() if cause in ("malformed", "not modelled")} == {}
    events = [event for lab in labs.values() for event in lab.events]
    whole = {(event.turn_id, event.item_id): event.text for event in events if isinstance(event, MessageUpdated)}
    pieces: dict[tuple[TurnId, str], str] = {}
    for event in events:
        if isinstance(event, MessageDelta):
            pieces[event.turn_id, event.item_id] = pieces.get((event.turn_id, event.item_id), "") + event.text
    assert {key: pieces.get(key) for key in whole} == whole


@pytest.mark.parametrize("path", sorted((GOLDEN / "messages").glob("item.*.json")), ids=lambda path: path.stem)
def test_a_recorded_item_becomes_events_without_a_loss(path: Path) -> None:
    """Recorded from 0.163."""
    recorded = json.loads(path.read_bytes())
    for method in ("item/started", "item/completed"):
        said(notification(method, item=recorded))
