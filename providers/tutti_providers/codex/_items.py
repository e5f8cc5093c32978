"""What the server says of an agent's work → the contract's events. Pure: no thread, no turn is followed here.

Four ways in: `delta_event` for what the codec's one pass has read whole, `item_started_event` and
`item_completed_event` for items, `state_event` for a thread's status, `notification_event` for the other notifications.
A kind that we don't model becomes an `Unknown`; a known kind in another shape is for the caller to drop and count
(`is_malformed`). Texts of tools are bounded, whatever a tool returns; a piece of output stays as it came, since a line
bounds it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

import msgspec

from tutti_providers.codex.schema.items import (
    ITEM_TYPES,
    AgentMessageItem,
    CollabAgentToolCallItem,
    CommandExecutionItem,
    ContextCompactionItem,
    DynamicToolCallItem,
    FileChange,
    FileChangeItem,
    ImageViewItem,
    McpToolCallItem,
    PlanItem,
    ReasoningItem,
    ThreadItem,
    ThreadStatus,
    UnknownItem,
    WebSearchItem,
)
from tutti_providers.codex.schema.notifications import (
    ErrorNotification,
    McpServerStatusUpdated,
    McpToolCallProgress,
    ModelRerouted,
    Notification,
    SummaryPartAdded,
    ThreadTokenUsageUpdated,
    TokenUsage,
    TurnPlanUpdated,
    WarningNotification,
)
from tutti_side.contract import (
    Audit,
    ChangedFile,
    ErrorRaised,
    Event,
    MessageUpdated,
    PlanDelta,
    PlanStep,
    PlanUpdated,
    ReasoningDelta,
    ReasoningUpdated,
    StatePatch,
    TokenCount,
    ToolKind,
    ToolOutput,
    ToolStarted,
    ToolStatus,
    ToolUpdated,
    TurnId,
    Unknown,
    UsageUpdated,
    WarningRaised,
)

__all__ = [
    "TOOL_TEXT_MAX",
    "delta_event",
    "is_malformed",
    "item_completed_event",
    "item_started_event",
    "notification_event",
    "size_of",
    "state_event",
    "unknown",
]

TOOL_TEXT_MAX = 256 << 10
"""Characters of one text of a tool: its output, its arguments, a diff. Of a longer one the middle is left out."""

CHANGED_FILES_MAX = 1_000
"""Files of one patch that are shown."""

EVENT_BYTES = 512
"""About what an event holds besides the texts of a tool."""

KIND_MAX = 128
"""Characters of a word that we don't know."""

CUT = "\n[…]\n"
"""Stands where something was left out."""

PART_BREAK = "\n\n"
"""Between the parts of a reasoning item."""


# Deltas


def _raw_reasoning(turn_id: TurnId, item_id: str, text: str) -> Event:
    return ReasoningDelta(turn_id, item_id, text, False)


_DELTAS: Mapping[str, Callable[[TurnId, str, str], Event]] = {
    "item/reasoning/summaryTextDelta": ReasoningDelta,
    "item/reasoning/textDelta": _raw_reasoning,
    "item/commandExecution/outputDelta": ToolOutput,
    "item/fileChange/outputDelta": ToolOutput,
    "item/plan/delta": PlanDelta,
}


def delta_event(method: str | None) -> Callable[[TurnId, str, str], Event] | None:
    """Return what makes an event of a delta's turn, item and text; None for a method that is no delta."""
    return None if method is None else _DELTAS.get(method)


# Items

_Shown = tuple[ToolKind, str, str, tuple[ChangedFile, ...]]
"""Kind, title, detail and changed files of a tool."""


def is_malformed(item: ThreadItem) -> bool:
    """True for an item of a kind that we know in a shape that we don't."""
    return isinstance(item, UnknownItem) and (not item.type or item.type in ITEM_TYPES)


def item_started_event(turn_id: TurnId, item: ThreadItem) -> Event | None:
    """Return what is to be said of an item that begins; None when only its end counts."""
    shown = _shown(item)
    if shown is None:
        return None
    kind, title, detail, changes = shown
    return ToolStarted(turn_id, _id_of(item), kind, title, detail, changes)


def item_completed_event(turn_id: TurnId, item: ThreadItem) -> Event | None:
    """Return what is to be said of an item that is whole; None when it says nothing that its user does not know."""
    if isinstance(item, AgentMessageItem):
        return MessageUpdated(turn_id, item.id, item.text)
    if isinstance(item, ReasoningItem):
        return ReasoningUpdated(turn_id, item.id, PART_BREAK.join(item.summary), PART_BREAK.join(item.content))
    if isinstance(item, PlanItem):
        return PlanUpdated(turn_id, item.text, (), item.id)
    if isinstance(item, ContextCompactionItem):
        return Audit("context_compacted", item.id)
    if isinstance(item, UnknownItem):
        return unknown(item.type, turn_id)
    shown = _shown(item)
    if shown is None:
        return None
    kind, title, detail, changes = shown
    output = _bounded(_output_of(item))
    exit_status = item.exit_code if isinstance(item, CommandExecutionItem) else None
    return ToolUpdated(turn_id, _id_of(item), kind, title, _status_of(item), detail, output, exit_status, changes)


def _shown(item: ThreadItem) -> _Shown | None:
    """Return how a tool is shown; None for what is none, and for what was said by the user or on another thread."""
    if isinstance(item, CommandExecutionItem):
        return "command", _bounded(item.command), item.cwd, ()
    if isinstance(item, FileChangeItem):
        shown = item.changes[:CHANGED_FILES_MAX]
        return "file_change", _bounded(", ".join(change.path for change in shown)), "", tuple(map(_changed, shown))
    if isinstance(item, McpToolCallItem):
        return "tool", f"{item.server}.{item.tool}", _json(item.arguments), ()
    if isinstance(item, DynamicToolCallItem):
        name = item.tool if item.namespace is None else f"{item.namespace}.{item.tool}"
        return "tool", name, _json(item.arguments), ()
    if isinstance(item, CollabAgentToolCallItem):
        return "agent", item.tool, ", ".join(item.receiver_thread_ids), ()
    if isinstance(item, WebSearchItem):
        return "web_search", _bounded(item.query), "", ()
    if isinstance(item, ImageViewItem):
        return "tool", "view_image", item.path, ()
    return None


def _id_of(item: ThreadItem) -> str:
    return item.id or ""


def _changed(change: FileChange) -> ChangedFile:
    kind = change.kind.get("type")
    moved_to = change.kind.get("move_path")
    return ChangedFile(
        change.path,
        kind[:KIND_MAX] if isinstance(kind, str) else "update",
        _bounded(change.diff),
        moved_to if isinstance(moved_to, str) else None,
    )


def _status_of(item: ThreadItem) -> ToolStatus:
    status = getattr(item, "status", "completed")
    if status == "completed":
        return "failed" if isinstance(item, DynamicToolCallItem) and item.success is False else "completed"
    return "declined" if status == "declined" else "failed"


def _output_of(item: ThreadItem) -> str:
    if isinstance(item, CommandExecutionItem):
        return item.aggregated_output or ""
    if isinstance(item, McpToolCallItem):
        if item.error is not None:
            return item.error.message
        content = None if item.result is None else item.result.get("content")
        return _text_of(cast("list[object]", content)) if isinstance(content, list) else ""
    if isinstance(item, DynamicToolCallItem):
        return _text_of(item.content_items or ())
    return ""


def _text_of(parts: Iterable[object]) -> str:
    """Join the texts among the parts of a tool's result; of another kind only its name is shown."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, dict):
            fields = cast("dict[str, object]", part)
            text = fields.get("text")
            texts.append(text if isinstance(text, str) else f"[{str(fields.get('type'))[:KIND_MAX]}]")
    return "\n".join(texts)


def _json(value: object) -> str:
    return "" if value is None else _bounded(msgspec.json.encode(value).decode())


def _bounded(text: str) -> str:
    """Return a text of a tool, its middle left out when it has more than `TOOL_TEXT_MAX` characters."""
    if len(text) <= TOOL_TEXT_MAX:
        return text
    half = (TOOL_TEXT_MAX - len(CUT)) // 2
    return f"{text[:half]}{CUT}{text[-half:]}"


# Other notifications


def notification_event(notification: Notification) -> Event | None:
    """Return what a notification says that needs no knowledge of its thread; None when it says nothing to a user."""
    if isinstance(notification, ThreadTokenUsageUpdated):
        usage = notification.token_usage
        turn_id = TurnId(notification.turn_id)
        return UsageUpdated(turn_id, _count(usage.total), _count(usage.last), usage.model_context_window)
    if isinstance(notification, ErrorNotification):
        return _error(notification)
    if isinstance(notification, WarningNotification):
        return WarningRaised(notification.message)
    if isinstance(notification, ModelRerouted):
        return WarningRaised(f"answered by {notification.to_model} instead of {notification.from_model}")
    if isinstance(notification, McpServerStatusUpdated):
        if notification.status != "failed":
            return None
        return WarningRaised(f"the tool server {notification.name} did not start", notification.error or "")
    if isinstance(notification, TurnPlanUpdated):
        steps = tuple(PlanStep(step.step, _STEP_STATUSES.get(step.status, step.status)) for step in notification.plan)
        return PlanUpdated(TurnId(notification.turn_id), notification.explanation or "", steps)
    if isinstance(notification, SummaryPartAdded):
        if notification.summary_index == 0:
            return None
        return ReasoningDelta(TurnId(notification.turn_id), notification.item_id, PART_BREAK)
    if isinstance(notification, McpToolCallProgress):
        return ToolOutput(TurnId(notification.turn_id), notification.item_id, notification.message)
    return None


_STEP_STATUSES = {"inProgress": "in_progress"}


def _count(usage: TokenUsage) -> TokenCount:
    return TokenCount(
        usage.total_tokens,
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.output_tokens,
        usage.reasoning_output_tokens,
    )


def _error(notification: ErrorNotification) -> Event:
    error = notification.error
    info = error.codex_error_info
    cause = info if isinstance(info, str) else next(iter(info or ()), "")
    detail = error.additional_details or ""
    return ErrorRaised(
        TurnId(notification.turn_id), error.message, notification.will_retry, cause[:KIND_MAX], _bounded(detail)
    )


def size_of(event: Event, line_bytes: int) -> int:
    """Return about what an event holds in memory: what its line held, except where only a part of it was taken.

    A tool's result can be megabytes of which nothing is shown, such as an image; and a subscriber's queue counts.
    """
    if isinstance(event, ToolStarted | ToolUpdated):
        shown = sum(len(change.path) + len(change.diff) for change in event.changes)
        output = len(event.output) if isinstance(event, ToolUpdated) else 0
        return min(line_bytes, EVENT_BYTES + len(event.title) + len(event.detail) + output + shown)
    return EVENT_BYTES if isinstance(event, Unknown) else line_bytes


def unknown(kind: str, turn_id: str | None) -> Unknown:
    """Return the event of something that we don't model."""
    return Unknown(kind[:KIND_MAX], None if turn_id is None else TurnId(turn_id))


_THREAD_STATUSES = {"idle": "idle", "active": "active", "systemError": "error", "notLoaded": "unloaded"}
_WAITING_FLAGS = {"waitingOnApproval": "approval", "waitingOnUserInput": "input"}


def state_event(status: ThreadStatus) -> StatePatch | None:
    """Say what a thread is doing in the contract's words; None for a status that we don't know."""
    known = _THREAD_STATUSES.get(status.type)
    if known is None:
        return None
    return StatePatch(known, tuple(_WAITING_FLAGS[flag] for flag in status.active_flags if flag in _WAITING_FLAGS))
