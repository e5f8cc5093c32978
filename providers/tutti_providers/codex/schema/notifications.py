"""What the app-server tells us unasked.

Two ways in. `Head` is for the codec's one pass over every line: the few fields by which a message is routed, and the
text of a delta. A colder message keeps its line, and `decode_notification` reads it once more by its own struct.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tutti_providers.codex.schema._base import Read
from tutti_providers.codex.schema._envelope import params_decoder
from tutti_providers.codex.schema.items import Thread, ThreadStatus, Turn, TurnError
from tutti_providers.codex.schema.requests import ApprovalPolicy, CollaborationMode, SandboxPolicy

__all__ = [
    "DELTA_METHODS",
    "NOTIFICATIONS",
    "QUIET_METHODS",
    "ConfigWarning",
    "DeprecationNotice",
    "ErrorNotification",
    "Head",
    "HeadThread",
    "ItemCompleted",
    "ItemStarted",
    "McpServerStatusUpdated",
    "McpToolCallProgress",
    "ModelRerouted",
    "Notification",
    "RateLimitWindow",
    "RateLimits",
    "RateLimitsUpdated",
    "RequestResolved",
    "SummaryPartAdded",
    "ThreadClosed",
    "ThreadSettings",
    "ThreadSettingsUpdated",
    "ThreadStarted",
    "ThreadStatusChanged",
    "ThreadTokenUsage",
    "ThreadTokenUsageUpdated",
    "TokenUsage",
    "TurnCompleted",
    "TurnPlanStep",
    "TurnPlanUpdated",
    "TurnStarted",
    "WarningNotification",
    "decode_notification",
]


class HeadThread(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The thread of a ``thread/started``, as far as routing needs it."""

    id: str | None = None
    parent_thread_id: str | None = None


class Head(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The hot fields of any message's parameters, read in the codec's single pass.

    Every field is optional and only strings are looked at, so that one struct fits all methods; a message where one
    of these names has another type takes the codec's slow path. Fields stand in the order of the wire.
    """

    thread_id: str | None = None
    turn_id: str | None = None
    item_id: str | None = None
    delta: str | None = None
    thread: HeadThread | None = None
    conversation_id: str | None = None
    """The thread, in the two legacy approval requests."""


DELTA_METHODS = frozenset(
    {
        "item/agentMessage/delta",
        "item/plan/delta",
        "item/reasoning/summaryTextDelta",
        "item/reasoning/textDelta",
        "item/commandExecution/outputDelta",
        "item/fileChange/outputDelta",
    }
)
"""The notifications that `Head` holds whole: thread, turn, item and a piece of text."""


class ThreadStarted(Read, frozen=True):
    """A thread exists. On a shared server, also one that another client started or forked."""

    thread: Thread


class ThreadStatusChanged(Read, frozen=True):
    """A thread's status. Comes for unsubscribed threads too, and may be the first that is heard of a child."""

    thread_id: str
    status: ThreadStatus


class ThreadClosed(Read, frozen=True):
    """A thread was unloaded."""

    thread_id: str


class ThreadSettings(Read, frozen=True):
    """A thread's settings, whole: they replace what was known."""

    cwd: str
    model: str
    model_provider: str
    approval_policy: ApprovalPolicy
    approvals_reviewer: str
    sandbox_policy: SandboxPolicy
    service_tier: str | None = None
    effort: str | None = None
    collaboration_mode: CollaborationMode | None = None


class ThreadSettingsUpdated(Read, frozen=True):
    """A thread's settings changed."""

    thread_id: str
    thread_settings: ThreadSettings


class TurnStarted(Read, frozen=True):
    """A turn runs. May come before the answer of ``turn/start``."""

    thread_id: str
    turn: Turn


class TurnCompleted(Read, frozen=True):
    """A turn ended: `Turn.status` says how. Items of it may still follow."""

    thread_id: str
    turn: Turn


class ItemStarted(Read, frozen=True):
    """An item of a turn began."""

    thread_id: str
    turn_id: str
    item: msgspec.Raw
    """For `decode_item`. It pins the line it came in: decode it or `copy()` it, don't keep it."""


class ItemCompleted(Read, frozen=True):
    """An item of a turn is whole. May come after its turn's end, or never."""

    thread_id: str
    turn_id: str
    item: msgspec.Raw
    """For `decode_item`. It pins the line it came in: decode it or `copy()` it, don't keep it."""


class ErrorNotification(Read, frozen=True):
    """A turn met an error; with `will_retry` it goes on."""

    thread_id: str
    turn_id: str
    error: TurnError
    will_retry: bool = False


class WarningNotification(Read, frozen=True):
    """A warning for the user, of one thread or of the server as a whole."""

    message: str
    thread_id: str | None = None


class ConfigWarning(Read, frozen=True):
    """Something about the user's configuration; of the server as a whole."""

    summary: str
    details: str | None = None
    path: str | None = None


class DeprecationNotice(Read, frozen=True):
    """Something that the user relies on will go; of the server as a whole."""

    summary: str
    details: str | None = None


class ModelRerouted(Read, frozen=True):
    """A turn is answered by another model than it was asked of."""

    thread_id: str
    turn_id: str
    from_model: str
    to_model: str


class RequestResolved(Read, frozen=True):
    """A request of the server needs no answer any more. May come after its turn's end, or never."""

    thread_id: str
    request_id: int | str


class McpServerStatusUpdated(Read, frozen=True):
    """A tool server of a thread starts. For a fork's child this can come before the fork's answer."""

    name: str
    status: str
    """``starting``, ``ready``, ``failed`` or ``cancelled``."""
    thread_id: str | None = None
    error: str | None = None


class TokenUsage(Read, frozen=True):
    """Tokens counted by the model's provider."""

    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class ThreadTokenUsage(Read, frozen=True):
    """Tokens of the whole thread and of its last request."""

    total: TokenUsage
    last: TokenUsage
    model_context_window: int | None = None


class ThreadTokenUsageUpdated(Read, frozen=True):
    """The token counts of a thread."""

    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage


class SummaryPartAdded(Read, frozen=True):
    """The next part of a reasoning summary begins; its deltas follow."""

    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int
    """From 0."""


class McpToolCallProgress(Read, frozen=True):
    """A tool of an MCP server says how far it is."""

    thread_id: str
    turn_id: str
    item_id: str
    message: str


class TurnPlanStep(Read, frozen=True):
    """One step of the model's to-do list."""

    step: str
    status: str
    """``pending``, ``inProgress`` or ``completed``."""


class TurnPlanUpdated(Read, frozen=True):
    """The model's to-do list, whole."""

    thread_id: str
    turn_id: str
    plan: tuple[TurnPlanStep, ...]
    explanation: str | None = None


class RateLimitWindow(Read, frozen=True):
    """How much of an allowance is used."""

    used_percent: int
    window_duration_mins: int | None = None
    resets_at: int | None = None
    """Unix time in seconds."""


class RateLimits(Read, frozen=True):
    """The account's allowances; what is null was not said this time."""

    limit_id: str | None = None
    limit_name: str | None = None
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None


class RateLimitsUpdated(Read, frozen=True):
    """The account's allowances changed; of the server as a whole, after each answer of the model."""

    rate_limits: RateLimits


Notification = (
    ThreadStarted
    | ThreadStatusChanged
    | ThreadClosed
    | ThreadSettingsUpdated
    | TurnStarted
    | TurnCompleted
    | ItemStarted
    | ItemCompleted
    | ErrorNotification
    | WarningNotification
    | ConfigWarning
    | DeprecationNotice
    | ModelRerouted
    | SummaryPartAdded
    | McpToolCallProgress
    | TurnPlanUpdated
    | RateLimitsUpdated
    | RequestResolved
    | McpServerStatusUpdated
    | ThreadTokenUsageUpdated
)

NOTIFICATIONS: Mapping[str, type[Notification]] = {
    "thread/started": ThreadStarted,
    "thread/status/changed": ThreadStatusChanged,
    "thread/closed": ThreadClosed,
    "thread/settings/updated": ThreadSettingsUpdated,
    "turn/started": TurnStarted,
    "turn/completed": TurnCompleted,
    "item/started": ItemStarted,
    "item/completed": ItemCompleted,
    "error": ErrorNotification,
    "warning": WarningNotification,
    "guardianWarning": WarningNotification,
    "configWarning": ConfigWarning,
    "deprecationNotice": DeprecationNotice,
    "model/rerouted": ModelRerouted,
    "item/reasoning/summaryPartAdded": SummaryPartAdded,
    "item/mcpToolCall/progress": McpToolCallProgress,
    "turn/plan/updated": TurnPlanUpdated,
    "account/rateLimits/updated": RateLimitsUpdated,
    "serverRequest/resolved": RequestResolved,
    "mcpServer/startupStatus/updated": McpServerStatusUpdated,
    "thread/tokenUsage/updated": ThreadTokenUsageUpdated,
}
"""Method → struct of its parameters."""

QUIET_METHODS = frozenset(
    {
        "hook/completed",
        "hook/started",
        "item/commandExecution/terminalInteraction",
        "item/fileChange/patchUpdated",
        "thread/archived",
        "thread/attachment/updated",
        "thread/compacted",
        "thread/deleted",
        "thread/name/updated",
        "thread/project/updated",
        "thread/queue/changed",
        "thread/readState/changed",
        "thread/unarchived",
        "turn/diff/updated",
        "turn/moderationMetadata",
    }
)
"""Notifications of a thread that 0.163 knows and that say nothing new to its user: what a list of threads shows, and
what other notifications say too. ``turn/diff/updated`` repeats the whole diff of a turn after each step."""

_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {m: params_decoder(t) for m, t in NOTIFICATIONS.items()}


def decode_notification(method: str, line: bytes) -> Notification | None:
    """Return the parameters of a notification, read from its whole `line`; None for a method that we don't model.

    Raises:
      msgspec.ValidationError: the parameters are not of the shape that we know.
    """
    decoder = _DECODERS.get(method)
    if decoder is None:
        return None
    params: Notification = decoder.decode(line).params
    return params
