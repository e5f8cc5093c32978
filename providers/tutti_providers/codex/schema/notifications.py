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
    "ErrorNotification",
    "Head",
    "HeadThread",
    "ItemCompleted",
    "ItemStarted",
    "McpServerStatusUpdated",
    "Notification",
    "RequestResolved",
    "ThreadClosed",
    "ThreadSettings",
    "ThreadSettingsUpdated",
    "ThreadStarted",
    "ThreadStatusChanged",
    "ThreadTokenUsage",
    "ThreadTokenUsageUpdated",
    "TokenUsage",
    "TurnCompleted",
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
    "serverRequest/resolved": RequestResolved,
    "mcpServer/startupStatus/updated": McpServerStatusUpdated,
    "thread/tokenUsage/updated": ThreadTokenUsageUpdated,
}
"""Method → struct of its parameters."""

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
