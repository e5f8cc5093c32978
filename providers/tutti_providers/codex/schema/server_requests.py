"""What the app-server asks us, and what we may answer.

Each request stays open on the server until it is answered or its turn ends; an answer that the server doesn't
understand counts as a refusal. Ids are echoed exactly: ``0`` is one, ``"0"`` another.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tutti_providers.codex.schema._base import JsonObject, Read, Written
from tutti_providers.codex.schema._envelope import params_decoder

__all__ = [
    "ANSWERS",
    "SERVER_REQUESTS",
    "ApplyPatchApproval",
    "AuthTokensRefresh",
    "CommandApproval",
    "CommandApprovalAnswer",
    "DynamicToolCall",
    "DynamicToolCallAnswer",
    "DynamicToolText",
    "Elicitation",
    "ElicitationAnswer",
    "ExecCommandApproval",
    "FileChangeApproval",
    "FileChangeApprovalAnswer",
    "LegacyApprovalAnswer",
    "PermissionsApproval",
    "PermissionsApprovalAnswer",
    "QuestionOption",
    "ServerRequest",
    "UserInputAnswer",
    "UserInputQuestion",
    "UserInputReply",
    "UserInputRequest",
    "decode_server_request",
]


class CommandApproval(Read, frozen=True):
    """May this command run?"""

    thread_id: str
    turn_id: str
    item_id: str
    kind: str = "command"
    approval_id: str | None = None
    """Tells several requests of one item apart."""
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    available_decisions: tuple[str | JsonObject, ...] | None = None
    """In the server's order. ``decline`` and ``acceptForSession`` are accepted also when missing here."""


class CommandApprovalAnswer(Written, frozen=True):
    """``cancel`` also interrupts the turn; the amendments are left out on purpose: they write to the configuration."""

    decision: Literal["accept", "acceptForSession", "decline", "cancel"]


class FileChangeApproval(Read, frozen=True):
    """May this patch be applied? What is in it stands in the item that began before."""

    thread_id: str
    turn_id: str
    item_id: str
    reason: str | None = None
    grant_root: str | None = None


class FileChangeApprovalAnswer(Written, frozen=True):
    """``cancel`` also interrupts the turn."""

    decision: Literal["accept", "acceptForSession", "decline", "cancel"]


class PermissionsApproval(Read, frozen=True):
    """May the model have these permissions?"""

    thread_id: str
    turn_id: str
    item_id: str
    permissions: JsonObject
    cwd: str | None = None
    reason: str | None = None


class PermissionsApprovalAnswer(Written, frozen=True):
    """The granted part of what was asked for; an empty object grants nothing."""

    permissions: JsonObject
    scope: Literal["turn", "session"] = "turn"


class QuestionOption(Read, frozen=True):
    """One offered answer."""

    label: str
    description: str = ""


class UserInputQuestion(Read, frozen=True):
    """One question to the user."""

    id: str
    question: str
    header: str = ""
    is_other: bool = False
    """An answer that isn't among the options is welcome."""
    is_secret: bool = False
    options: tuple[QuestionOption, ...] | None = None


class UserInputRequest(Read, frozen=True):
    """The model asks its user. There is no declining: an empty answer is what a refusal becomes."""

    thread_id: str
    turn_id: str
    item_id: str
    questions: tuple[UserInputQuestion, ...]
    is_blocking: bool = True


class UserInputReply(Written, frozen=True):
    """What the user answered to one question."""

    answers: tuple[str, ...]


class UserInputAnswer(Written, frozen=True):
    """Answers by question id."""

    answers: dict[str, UserInputReply]


class Elicitation(Read, frozen=True):
    """A tool server asks the user for data (`requested_schema`) or to visit a page (`url`)."""

    thread_id: str
    server_name: str
    mode: str
    message: str = ""
    turn_id: str | None = None
    """Null when the server could not say which turn caused it."""
    requested_schema: object = None
    url: str | None = None
    elicitation_id: str | None = None


class ElicitationAnswer(Written, frozen=True):
    """``cancel`` doesn't interrupt the turn."""

    action: Literal["accept", "decline", "cancel"]
    content: object = None


class DynamicToolCall(Read, frozen=True):
    """Call a tool that the client offered when it started the thread."""

    thread_id: str
    turn_id: str
    call_id: str
    tool: str
    arguments: object = None
    namespace: str | None = None


class DynamicToolText(Written, frozen=True, tag_field="type", tag="inputText"):
    """Text that the tool returns."""

    text: str


class DynamicToolCallAnswer(Written, frozen=True):
    """What the tool returned."""

    content_items: tuple[DynamicToolText, ...]
    success: bool


class AuthTokensRefresh(Read, frozen=True):
    """The server wants new tokens of the account that the client brought. Belongs to no thread."""

    reason: str
    previous_account_id: str | None = None


class ApplyPatchApproval(Read, frozen=True):
    """Legacy form of `FileChangeApproval`."""

    conversation_id: str
    call_id: str
    reason: str | None = None
    grant_root: str | None = None


class ExecCommandApproval(Read, frozen=True):
    """Legacy form of `CommandApproval`."""

    conversation_id: str
    call_id: str
    command: tuple[str, ...]
    cwd: str
    approval_id: str | None = None
    reason: str | None = None


class LegacyApprovalAnswer(Written, frozen=True):
    """Answer of both legacy forms; ``{"denied": {"rejection": …}}`` refuses and lets the turn go on."""

    decision: (
        Literal["approved", "approved_for_session", "abort"] | dict[Literal["denied"], dict[Literal["rejection"], str]]
    )


ServerRequest = (
    CommandApproval
    | FileChangeApproval
    | PermissionsApproval
    | UserInputRequest
    | Elicitation
    | DynamicToolCall
    | AuthTokensRefresh
    | ApplyPatchApproval
    | ExecCommandApproval
)

SERVER_REQUESTS: Mapping[str, type[ServerRequest]] = {
    "item/commandExecution/requestApproval": CommandApproval,
    "item/fileChange/requestApproval": FileChangeApproval,
    "item/permissions/requestApproval": PermissionsApproval,
    "item/tool/requestUserInput": UserInputRequest,
    "mcpServer/elicitation/request": Elicitation,
    "item/tool/call": DynamicToolCall,
    "account/chatgptAuthTokens/refresh": AuthTokensRefresh,
    "applyPatchApproval": ApplyPatchApproval,
    "execCommandApproval": ExecCommandApproval,
}
"""Method → struct of its parameters."""

ANSWERS: Mapping[type[ServerRequest], type[Written]] = {
    CommandApproval: CommandApprovalAnswer,
    FileChangeApproval: FileChangeApprovalAnswer,
    PermissionsApproval: PermissionsApprovalAnswer,
    UserInputRequest: UserInputAnswer,
    Elicitation: ElicitationAnswer,
    DynamicToolCall: DynamicToolCallAnswer,
    ApplyPatchApproval: LegacyApprovalAnswer,
    ExecCommandApproval: LegacyApprovalAnswer,
}
"""Request → answer. A token refresh has none: we bring no account, so it is answered by an error."""

_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {m: params_decoder(t) for m, t in SERVER_REQUESTS.items()}


def decode_server_request(method: str, line: bytes) -> ServerRequest | None:
    """Return the parameters of a server's request, read from its whole `line`; None for a method that we don't model.

    Raises:
      msgspec.ValidationError: the parameters are not of the shape that we know. The request must be refused.
    """
    decoder = _DECODERS.get(method)
    if decoder is None:
        return None
    params: ServerRequest = decoder.decode(line).params
    return params
