"""What the server asks its user ↔ the contract's interactions. Pure: a request becomes a `Pending`, an answer a result.

A request that no user of ours answers (dynamic tools, tokens, what we don't model) is no interaction; the thread
refuses it. In a Side nothing is offered that reaches beyond it: no permission is granted there, and the amendments of
the execution policy, which write into Codex' home, are offered nowhere.
"""

from collections.abc import Callable, Mapping

import msgspec

from tutti_providers.codex._forms import check_answers, form_of
from tutti_providers.codex.schema.server_requests import (
    ApplyPatchApproval,
    CommandApproval,
    CommandApprovalAnswer,
    Elicitation,
    ElicitationAnswer,
    ExecCommandApproval,
    FileChangeApproval,
    FileChangeApprovalAnswer,
    LegacyApprovalAnswer,
    PermissionsApproval,
    PermissionsApprovalAnswer,
    ServerRequest,
    UserInputAnswer,
    UserInputReply,
    UserInputRequest,
    decode_server_request,
)
from tutti_side.contract import (
    InteractionAnswer,
    InteractionId,
    InteractionKind,
    InteractionOption,
    InteractionQuestion,
    InteractionRequested,
    InvalidAnswerError,
    TurnId,
)
from tutti_side.jsonrpc import RequestId

__all__ = ["Pending", "interaction_id_of", "pending_of"]

ACCEPT = InteractionOption("accept", "Yes")
ACCEPT_FOR_SESSION = InteractionOption("accept_for_session", "Yes, and don't ask again here")
DECLINE = InteractionOption("decline", "No")
CANCEL = InteractionOption("cancel", "No, and stop the turn")
DISMISS = InteractionOption("cancel", "Dismiss")
"""A tool server's question is dismissed, and the turn goes on (seen on 0.163)."""
APPROVAL = (ACCEPT, ACCEPT_FOR_SESSION, DECLINE, CANCEL)

_DECISIONS = {
    "accept": "accept",
    "accept_for_session": "acceptForSession",
    "decline": "decline",
    "cancel": "cancel",
}
_LEGACY = {
    "accept": "approved",
    "accept_for_session": "approved_for_session",
    "decline": {"denied": {"rejection": "declined by the user"}},
    "cancel": "abort",
}


class Pending:
    """One request of the server that waits for its user.

    Args:
      request_id: exactly as it came.
      method: for the refusal's form.
      requested: the event that says so.
      encode: makes the result of an answer; raises `InvalidAnswerError`.
    """

    def __init__(
        self,
        request_id: RequestId,
        method: str,
        requested: InteractionRequested,
        encode: Callable[[InteractionAnswer], object],
    ) -> None:
        self.request_id = request_id
        self.method = method
        self.requested = requested
        self.encode = encode
        self.answered = False

    @property
    def interaction_id(self) -> InteractionId:
        """The contract's id of it."""
        return self.requested.interaction_id


def interaction_id_of(request_id: RequestId) -> InteractionId:
    """Return the interaction's id for a request's: one to one, so ``0`` and ``"0"`` stay two."""
    return InteractionId(msgspec.json.encode(request_id).decode())


def pending_of(
    method: str, line: bytes, request_id: RequestId, *, in_side: bool, changes: Mapping[str, tuple[str, ...]]
) -> Pending | None:
    """Return what the server asks; None when no user of ours answers such a request.

    Args:
      in_side: whether its thread is a Side.
      changes: paths of the file changes that began, by item: the request does not carry them.

    Raises:
      msgspec.ValidationError: the request has another form than the one we know; it must be refused.
    """
    request = decode_server_request(method, line)
    if request is None:
        return None
    built = _build(request, in_side=in_side, changes=changes)
    if built is None:
        return None
    kind, title, detail, options, questions, encode = built
    turn_id: str | None = getattr(request, "turn_id", None)
    requested = InteractionRequested(
        interaction_id_of(request_id),
        None if turn_id is None else TurnId(turn_id),
        kind,
        title,
        detail,
        options,
        questions,
    )
    return Pending(request_id, method, requested, encode)


_Built = tuple[
    InteractionKind,
    str,
    str,
    tuple[InteractionOption, ...],
    tuple[InteractionQuestion, ...],
    Callable[[InteractionAnswer], object],
]


def _build(request: ServerRequest, *, in_side: bool, changes: Mapping[str, tuple[str, ...]]) -> _Built | None:
    if isinstance(request, CommandApproval):
        return _approval(request.command or "a command", request.reason, _command_answer)
    if isinstance(request, ExecCommandApproval):
        return _approval(" ".join(request.command), request.reason, _legacy_answer)
    if isinstance(request, FileChangeApproval):
        paths = changes.get(request.item_id, ())
        return _approval(f"change {', '.join(paths) or 'files'}", request.reason, _change_answer)
    if isinstance(request, ApplyPatchApproval):
        return _approval("change files", request.reason, _legacy_answer)
    if isinstance(request, PermissionsApproval):
        # A Side is never less restricted than its source: nothing beyond the source's policy is granted in it.
        return None if in_side else _permissions(request)
    if isinstance(request, UserInputRequest):
        return _questions(request)
    if isinstance(request, Elicitation):
        return _elicitation(request)
    return None


def _approval(title: str, reason: str | None, encode: Callable[[InteractionAnswer], object]) -> _Built:
    return "approval", title, reason or "", APPROVAL, (), encode


def _option(answer: InteractionAnswer, options: tuple[InteractionOption, ...]) -> str:
    known = [option.id for option in options]
    if answer.option_id is None or answer.option_id not in known:
        raise InvalidAnswerError("option_id", f"is not one of {', '.join(known)}")
    return answer.option_id


def _command_answer(answer: InteractionAnswer) -> object:
    return msgspec.convert({"decision": _DECISIONS[_option(answer, APPROVAL)]}, CommandApprovalAnswer)


def _change_answer(answer: InteractionAnswer) -> object:
    return msgspec.convert({"decision": _DECISIONS[_option(answer, APPROVAL)]}, FileChangeApprovalAnswer)


def _legacy_answer(answer: InteractionAnswer) -> object:
    return msgspec.convert({"decision": _LEGACY[_option(answer, APPROVAL)]}, LegacyApprovalAnswer)


def _permissions(request: PermissionsApproval) -> _Built:
    """Show exactly what would be granted: the answer sends it back as it was asked for, whatever it holds."""
    options = (ACCEPT, ACCEPT_FOR_SESSION, DECLINE)

    def encode(answer: InteractionAnswer) -> object:
        chosen = _option(answer, options)
        if chosen == "decline":
            return PermissionsApprovalAnswer(permissions={})
        if chosen == "accept_for_session":
            return PermissionsApprovalAnswer(permissions=request.permissions, scope="session")
        return PermissionsApprovalAnswer(permissions=request.permissions, scope="turn")

    title = f"more permissions: {msgspec.json.encode(request.permissions).decode()}"
    return "approval", title, request.reason or "", options, (), encode


def _questions(request: UserInputRequest) -> _Built:
    questions = tuple(
        InteractionQuestion(
            id=question.id,
            text=question.question,
            options=tuple(option.label for option in question.options or ()),
            takes_free_text=question.is_other or not question.options,
            is_secret=question.is_secret,
        )
        for question in request.questions
    )

    def encode(answer: InteractionAnswer) -> object:
        check_answers(answer.answers, questions)
        return UserInputAnswer(answers={key: UserInputReply(answers=value) for key, value in answer.answers.items()})

    title = request.questions[0].header if request.questions else ""
    return "question", title or "a question", "", (), questions, encode


def _elicitation(request: Elicitation) -> _Built | None:
    """Show a form, or the page that the user is to visit: its address, too, since nothing opens it for them."""
    options = (ACCEPT, DECLINE, DISMISS)
    if request.mode not in ("form", "url"):
        return None  # a form of a kind that we don't read: its fields would be accepted unseen
    form = form_of(request.requested_schema) if request.mode == "form" else None
    questions = () if form is None else form.questions

    def encode(answer: InteractionAnswer) -> object:
        if _option(answer, options) != "accept":
            return ElicitationAnswer(action="decline" if answer.option_id == "decline" else "cancel")
        return ElicitationAnswer(action="accept", content=None if form is None else form.content(answer.answers))

    title = f"{request.server_name} asks"
    parts = (request.message, request.url if request.mode == "url" else None)
    detail = "\n".join(part for part in parts if part)
    return ("question" if questions else "approval"), title, detail, options, questions, encode
