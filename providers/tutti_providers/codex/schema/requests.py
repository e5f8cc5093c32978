"""What we ask the app-server: parameters and results of the methods in use.

A parameter struct names its method in ``METHOD``; `REQUESTS` pairs it with the struct of its result. Which of them a
server needs ``experimentalApi`` for is said where it is so.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import msgspec

from tutti_providers.codex.schema._base import JsonObject, Read, Written
from tutti_providers.codex.schema.items import Thread, Turn

__all__ = [
    "INITIALIZED",
    "REQUESTS",
    "ApprovalPolicy",
    "BackgroundTerminalsCleanParams",
    "ClientInfo",
    "CollaborationMode",
    "CollaborationSettings",
    "Empty",
    "ForkParams",
    "ImageInput",
    "InitializeCapabilities",
    "InitializeParams",
    "InitializeResult",
    "InjectItemsParams",
    "InjectedMessage",
    "InjectedText",
    "LoadedListParams",
    "LocalImageInput",
    "MentionInput",
    "ModeKind",
    "OpenedThread",
    "Params",
    "ReadParams",
    "ReadResult",
    "ResumeParams",
    "ResumedThread",
    "SandboxMode",
    "SandboxPolicy",
    "SkillInput",
    "StartParams",
    "TextInput",
    "TurnInterruptParams",
    "TurnStartParams",
    "TurnStartResult",
    "TurnSteerParams",
    "TurnSteerResult",
    "TurnsListParams",
    "TurnsPage",
    "UnsubscribeParams",
    "UnsubscribeResult",
    "UserInput",
]

INITIALIZED = "initialized"
"""The notification that follows an answered ``initialize``."""

ApprovalPolicy = str | JsonObject
"""``on-request``, ``never`` … or ``{"granular": {…}}``; sent back as it came."""

SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]
"""What ``thread/fork`` and ``thread/start`` take: a word, which takes roots and network from the configuration."""

SandboxPolicy = JsonObject
"""What ``turn/start`` takes and every answer carries: ``{"type": "readOnly", "networkAccess": false}`` …

Verbatim, because a restriction that we don't know must not be lost on its way from the source's settings to a Side.
"""

ModeKind = Literal["default", "plan"]
"""The collaboration modes. ``plan`` stays until another mode is set."""


class Params(Written, frozen=True):
    """Parameters of one request."""

    METHOD: ClassVar[str]


class Empty(Read, frozen=True):
    """A result that says only that it was done."""


# initialize ----------------------------------------------------------------------------------------------------------


class ClientInfo(Written, frozen=True):
    """Who we are. The name comes back at the head of the user agent, and must be a valid HTTP header value."""

    name: str
    version: str
    title: str | None = None


class InitializeCapabilities(Written, frozen=True):
    """What we understand."""

    experimental_api: bool = False


class InitializeParams(Params, frozen=True):
    """The first request of a connection; a second is an error."""

    METHOD: ClassVar[str] = "initialize"
    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None


class InitializeResult(Read, frozen=True):
    """Who the server is."""

    user_agent: str
    codex_home: str | None = None
    """Its resolved home; versions before 0.120 or so don't say."""


# settings that several requests carry --------------------------------------------------------------------------------


class CollaborationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a collaboration mode: snake_case on the wire, nulls are written (they mean "the built-in ones")."""

    model: str
    reasoning_effort: str | None = None
    developer_instructions: str | None = None


class CollaborationMode(msgspec.Struct, frozen=True, kw_only=True):
    """Mode, model and instructions of a turn and those after it; they win over the turn's own `model` and `effort`."""

    mode: str
    """A `ModeKind`; on reading, perhaps a newer word."""
    settings: CollaborationSettings


# threads -------------------------------------------------------------------------------------------------------------


class StartParams(Params, frozen=True):
    """Start a thread; its caller is subscribed to it."""

    METHOD: ClassVar[str] = "thread/start"
    cwd: str | None = None
    model: str | None = None
    model_provider: str | None = None
    service_tier: str | msgspec.UnsetType | None = msgspec.UNSET
    approval_policy: ApprovalPolicy | None = None
    approvals_reviewer: str | None = None
    sandbox: SandboxMode | None = None
    config: JsonObject | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    ephemeral: bool | None = None


class ResumeParams(Params, frozen=True):
    """Load a persisted thread, or rejoin a running one; its caller is subscribed to it. Never for a Side."""

    METHOD: ClassVar[str] = "thread/resume"
    thread_id: str
    cwd: str | None = None
    model: str | None = None
    model_provider: str | None = None
    approval_policy: ApprovalPolicy | None = None
    approvals_reviewer: str | None = None
    sandbox: SandboxMode | None = None
    config: JsonObject | None = None
    developer_instructions: str | None = None
    exclude_turns: bool = False


class ForkParams(Params, frozen=True):
    """Fork a thread; its caller is subscribed to the child.

    The child inherits working directory, approval policy and reviewer, but takes model, provider, effort and sandbox
    from the configuration: whoever wants the source's must say so, and check the answer. `developer_instructions` reach
    the model only after a compaction. An ephemeral fork is refused without `exclude_turns`.
    """

    METHOD: ClassVar[str] = "thread/fork"
    thread_id: str
    ephemeral: bool = False
    exclude_turns: bool = False
    before_turn_id: str | None = None
    """History before this turn only (needs ``experimentalApi``)."""
    last_turn_id: str | None = None
    """History through this turn, which must not be in progress."""
    cwd: str | None = None
    model: str | None = None
    model_provider: str | None = None
    service_tier: str | msgspec.UnsetType | None = msgspec.UNSET
    approval_policy: ApprovalPolicy | None = None
    approvals_reviewer: str | None = None
    sandbox: SandboxMode | None = None
    config: JsonObject | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None


class OpenedThread(Read, frozen=True):
    """Answer of ``thread/start`` and ``thread/fork``: the thread and the settings that it really has."""

    thread: Thread
    model: str
    model_provider: str
    cwd: str
    approval_policy: ApprovalPolicy
    approvals_reviewer: str
    sandbox: SandboxPolicy
    service_tier: str | None = None
    reasoning_effort: str | None = None


class ResumedThread(OpenedThread, frozen=True):
    """Answer of ``thread/resume``."""

    collaboration_mode: CollaborationMode | None = None


class InjectedText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="input_text"):
    """Text of an injected message."""

    text: str


class InjectedMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message put into the model's history as it stands, before the next user message."""

    role: Literal["developer", "user"]
    content: tuple[InjectedText, ...]

    @classmethod
    def of(cls, role: Literal["developer", "user"], text: str) -> "InjectedMessage":
        """Return a message of one text."""
        return cls(role=role, content=(InjectedText(text=text),))


class InjectItemsParams(Params, frozen=True):
    """Append items to what the model sees; no notification comes of it. An empty list is refused."""

    METHOD: ClassVar[str] = "thread/inject_items"
    thread_id: str
    items: tuple[InjectedMessage, ...]


class UnsubscribeParams(Params, frozen=True):
    """Stop hearing of a thread. Neither its turn nor a pending approval ends by that: end them first."""

    METHOD: ClassVar[str] = "thread/unsubscribe"
    thread_id: str


class UnsubscribeResult(Read, frozen=True):
    """What the subscription was."""

    status: str
    """``unsubscribed``, ``notSubscribed`` or ``notLoaded``."""


class ReadParams(Params, frozen=True):
    """Read a thread without subscribing."""

    METHOD: ClassVar[str] = "thread/read"
    thread_id: str
    include_turns: bool = False


class ReadResult(Read, frozen=True):
    """A thread as stored or loaded."""

    thread: Thread


class TurnsListParams(Params, frozen=True):
    """Page through a thread's turns (not of an ephemeral thread)."""

    METHOD: ClassVar[str] = "thread/turns/list"
    thread_id: str
    cursor: str | None = None
    limit: int | None = None
    sort_direction: Literal["asc", "desc"] | None = None
    items_view: Literal["notLoaded", "summary", "full"] | None = None


class TurnsPage(Read, frozen=True):
    """One page of turns."""

    data: tuple[Turn, ...]
    next_cursor: str | None = None
    """None: no more."""


class LoadedListParams(Params, frozen=True):
    """List the loaded threads; cheap, and changes nothing."""

    METHOD: ClassVar[str] = "thread/loaded/list"


class BackgroundTerminalsCleanParams(Params, frozen=True):
    """Kill the shell commands that outlived their turn (needs ``experimentalApi``)."""

    METHOD: ClassVar[str] = "thread/backgroundTerminals/clean"
    thread_id: str


# turns ---------------------------------------------------------------------------------------------------------------


class TextInput(Written, frozen=True, tag_field="type", tag="text"):
    """Text of the user."""

    text: str


class ImageInput(Written, frozen=True, tag_field="type", tag="image"):
    """An image by URL; a ``data:`` URL is one."""

    url: str


class LocalImageInput(Written, frozen=True, tag_field="type", tag="localImage"):
    """An image file that the server can read."""

    path: str


class MentionInput(Written, frozen=True, tag_field="type", tag="mention"):
    """A file or app that the user named."""

    name: str
    path: str


class SkillInput(Written, frozen=True, tag_field="type", tag="skill"):
    """A skill that the user named."""

    name: str
    path: str


UserInput = TextInput | ImageInput | LocalImageInput | MentionInput | SkillInput


class TurnStartParams(Params, frozen=True):
    """Start a turn. On a thread whose turn is active this *steers* that turn, and answers with its id.

    Every override holds for this turn and those after it.
    """

    METHOD: ClassVar[str] = "turn/start"
    thread_id: str
    input: tuple[UserInput, ...]
    client_user_message_id: str | None = None
    """Comes back as `UserMessageItem.client_id`."""
    cwd: str | None = None
    model: str | None = None
    effort: str | None = None
    service_tier: str | msgspec.UnsetType | None = msgspec.UNSET
    approval_policy: ApprovalPolicy | None = None
    approvals_reviewer: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    collaboration_mode: CollaborationMode | None = None
    """Needs ``experimentalApi``; wins over `model` and `effort`."""


class TurnStartResult(Read, frozen=True):
    """The turn that takes the input."""

    turn: Turn


class TurnSteerParams(Params, frozen=True):
    """Add input to the active turn, which must be the expected one."""

    METHOD: ClassVar[str] = "turn/steer"
    thread_id: str
    expected_turn_id: str
    input: tuple[UserInput, ...]
    client_user_message_id: str | None = None


class TurnSteerResult(Read, frozen=True):
    """The turn that takes the input."""

    turn_id: str


class TurnInterruptParams(Params, frozen=True):
    """Interrupt a turn. One at a time: 0.163 leaves a redundant one unanswered. Never with an empty `turn_id`."""

    METHOD: ClassVar[str] = "turn/interrupt"
    thread_id: str
    turn_id: str


REQUESTS: Mapping[type[Params], type[Read]] = {
    InitializeParams: InitializeResult,
    StartParams: OpenedThread,
    ResumeParams: ResumedThread,
    ForkParams: OpenedThread,
    InjectItemsParams: Empty,
    UnsubscribeParams: UnsubscribeResult,
    ReadParams: ReadResult,
    TurnsListParams: TurnsPage,
    LoadedListParams: Empty,
    BackgroundTerminalsCleanParams: Empty,
    TurnStartParams: TurnStartResult,
    TurnSteerParams: TurnSteerResult,
    TurnInterruptParams: Empty,
}
"""Parameters → result, for every request in use."""
