"""Threads, turns and the items of a turn.

Items are tagged by hand: a `msgspec` tagged union rejects tags that it doesn't know, and a newer server has new kinds.
So an item stays `msgspec.Raw` until `decode_item` looks at its ``type``; what it can't place becomes an `UnknownItem`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tutti_providers.codex.schema._base import JsonObject, Read

__all__ = [
    "ITEM_TYPES",
    "AgentMessageItem",
    "CollabAgentToolCallItem",
    "CommandExecutionItem",
    "ContextCompactionItem",
    "DynamicToolCallItem",
    "FileChange",
    "FileChangeItem",
    "ImageViewItem",
    "InputPart",
    "McpToolCallError",
    "McpToolCallItem",
    "PlanItem",
    "ReasoningItem",
    "SubAgentActivityItem",
    "Thread",
    "ThreadItem",
    "ThreadStatus",
    "Turn",
    "TurnError",
    "UnknownItem",
    "UserMessageItem",
    "WebSearchItem",
    "decode_item",
]


class ThreadStatus(Read, frozen=True):
    """What a thread is doing."""

    type: str
    """``notLoaded``, ``idle``, ``systemError`` or ``active``."""
    active_flags: tuple[str, ...] = ()
    """With ``active``: ``waitingOnApproval``, ``waitingOnUserInput``."""


class TurnError(Read, frozen=True):
    """Why a turn failed, or why a request to the model will be tried again."""

    message: str
    """The server's sentence. It can quote the model or the model's provider: never log it."""
    codex_error_info: str | JsonObject | None = None
    """A word, or an object with one key that is the word."""
    additional_details: str | None = None


class Turn(Read, frozen=True):
    """One turn of a thread."""

    id: str
    status: str
    """``inProgress``, ``completed``, ``interrupted`` or ``failed``. An answered interrupt proves nothing; this does."""
    items: tuple[msgspec.Raw, ...] = ()
    """Each for `decode_item`. In notifications empty, or a message of the agent (seen on completed turns only)."""
    error: TurnError | None = None
    started_at: int | None = None
    """Unix time in seconds."""
    completed_at: int | None = None
    """Unix time in seconds."""


class Thread(Read, frozen=True):
    """One thread as the server tells of it.

    The three lineage fields have the defaults that make a lineage check fail: an old server that silently made a
    durable fork sends neither ``ephemeral`` nor ``forkedFromId``.
    """

    id: str
    ephemeral: bool = False
    forked_from_id: str | None = None
    """The thread this one was forked from. ``thread/read`` reports null for a live ephemeral fork."""
    path: str | None = None
    """Where it is persisted; null for an ephemeral one."""
    parent_thread_id: str | None = None
    """Set for sub-agents alone: the thread whose agent started this one. Null for forks."""
    status: ThreadStatus | None = None
    cli_version: str | None = None
    """The version that created the thread, not the one that runs."""
    cwd: str | None = None
    model: str | None = None
    model_provider: str | None = None
    name: str | None = None
    created_at: int | None = None
    """Unix time in seconds."""
    updated_at: int | None = None
    """Unix time in seconds."""
    turns: tuple[Turn, ...] = ()
    """Filled by resume, fork and read, and there only unless turns were excluded."""


class InputPart(Read, frozen=True):
    """One part of a user message: which fields are set depends on `type`."""

    type: str
    """``text``, ``image``, ``localImage``, ``audio``, ``localAudio``, ``skill`` or ``mention``."""
    text: str | None = None
    url: str | None = None
    path: str | None = None
    name: str | None = None


class UserMessageItem(Read, frozen=True):
    """What the user said: the input of the turn, or what steered it."""

    id: str
    content: tuple[InputPart, ...]
    client_id: str | None = None
    """The ``clientUserMessageId`` of the request that carried it."""


class AgentMessageItem(Read, frozen=True):
    """A message of the model. It has no ``item/completed`` when the turn was interrupted in its middle."""

    id: str
    text: str
    phase: str | None = None
    """``commentary``, ``partial_answer``, ``final_answer``, or null: unknown."""


class PlanItem(Read, frozen=True):
    """The plan that the model wrote in plan mode."""

    id: str
    text: str


class ReasoningItem(Read, frozen=True):
    """What the model lets us see of its reasoning."""

    id: str
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class CommandExecutionItem(Read, frozen=True):
    """A shell command. An interrupt doesn't stop it: its completion may come after its turn's."""

    id: str
    command: str
    cwd: str
    status: str
    """``inProgress``, ``completed``, ``failed`` or ``declined``."""
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None


class FileChange(Read, frozen=True):
    """One file of a patch."""

    path: str
    diff: str
    kind: JsonObject
    """``{"type": "add" | "delete" | "update", …}``."""


class FileChangeItem(Read, frozen=True):
    """A patch. A request for its approval names the item only; the changes stand here."""

    id: str
    changes: tuple[FileChange, ...]
    status: str
    """``inProgress``, ``completed``, ``failed`` or ``declined``."""


class McpToolCallError(Read, frozen=True):
    """Why a tool call failed."""

    message: str


class McpToolCallItem(Read, frozen=True):
    """A call of a tool of an MCP server."""

    id: str
    server: str
    tool: str
    status: str
    """``inProgress``, ``completed`` or ``failed``."""
    arguments: object = None
    result: JsonObject | None = None
    error: McpToolCallError | None = None
    duration_ms: int | None = None


class DynamicToolCallItem(Read, frozen=True):
    """A call of a tool that the client itself offers."""

    id: str
    tool: str
    status: str
    """``inProgress``, ``completed`` or ``failed``."""
    arguments: object = None
    content_items: tuple[JsonObject, ...] | None = None
    namespace: str | None = None
    success: bool | None = None


class CollabAgentToolCallItem(Read, frozen=True):
    """The model starts, feeds or ends a sub-agent."""

    id: str
    tool: str
    """``spawnAgent``, ``sendInput``, ``wait``, ``closeAgent`` …"""
    status: str
    sender_thread_id: str
    receiver_thread_ids: tuple[str, ...] = ()


class SubAgentActivityItem(Read, frozen=True):
    """A sub-agent did something; its own items are on its own thread."""

    id: str
    kind: str
    agent_thread_id: str


class WebSearchItem(Read, frozen=True):
    """A web search of the model."""

    id: str
    query: str = ""


class ImageViewItem(Read, frozen=True):
    """The model looks at an image file."""

    id: str
    path: str


class ContextCompactionItem(Read, frozen=True):
    """The thread's history was summarised; injected items may be gone from the model's view."""

    id: str


class UnknownItem(Read, frozen=True):
    """An item of a kind that we don't model, or not of the shape that we know; never an error."""

    type: str = ""
    id: str | None = None


ThreadItem = (
    UserMessageItem
    | AgentMessageItem
    | PlanItem
    | ReasoningItem
    | CommandExecutionItem
    | FileChangeItem
    | McpToolCallItem
    | DynamicToolCallItem
    | CollabAgentToolCallItem
    | SubAgentActivityItem
    | WebSearchItem
    | ImageViewItem
    | ContextCompactionItem
    | UnknownItem
)

ITEM_TYPES: Mapping[str, type[ThreadItem]] = {
    "userMessage": UserMessageItem,
    "agentMessage": AgentMessageItem,
    "plan": PlanItem,
    "reasoning": ReasoningItem,
    "commandExecution": CommandExecutionItem,
    "fileChange": FileChangeItem,
    "mcpToolCall": McpToolCallItem,
    "dynamicToolCall": DynamicToolCallItem,
    "collabAgentToolCall": CollabAgentToolCallItem,
    "subAgentActivity": SubAgentActivityItem,
    "webSearch": WebSearchItem,
    "imageView": ImageViewItem,
    "contextCompaction": ContextCompactionItem,
}
"""Wire ``type`` → struct."""


class _ItemHead(msgspec.Struct, frozen=True, gc=False):
    type: object = None
    id: object = None


_HEAD = msgspec.json.Decoder(_ItemHead)
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(t) for kind, t in ITEM_TYPES.items()}


def decode_item(raw: msgspec.Raw | bytes) -> ThreadItem:
    """Return the item in `raw`; an `UnknownItem` for any kind or shape that we don't know.

    Total: no input raises. The result holds nothing of `raw`, whose buffer may go.
    """
    try:
        head = _HEAD.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return UnknownItem()
    kind = head.type if isinstance(head.type, str) else ""
    decoder = _DECODERS.get(kind)
    if decoder is not None:
        try:
            item: ThreadItem = decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return item
    return UnknownItem(type=kind, id=head.id if isinstance(head.id, str) else None)
