"""How each request of the server is refused in its own form, so that nothing is ever accepted by silence. Pure.

Source: architecture R11; the forms are those of the binary's schema, their effects were observed: a declined command or
patch lets the turn go on, an empty answer is what refusing a question becomes, an error fails closed.
"""

from collections.abc import Mapping

from tutti_providers.codex.schema.server_requests import (
    SERVER_REQUESTS,
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
    UserInputAnswer,
    UserInputRequest,
)

__all__ = ["REFUSED_CODE", "not_offered", "refusal"]

REFUSED_CODE = -32000
"""Our error code for a request that has no form of refusal, or that we don't know."""

_DENIED = LegacyApprovalAnswer(decision={"denied": {"rejection": "nobody answered"}})

_REFUSALS: Mapping[type, object] = {
    CommandApproval: CommandApprovalAnswer(decision="decline"),
    FileChangeApproval: FileChangeApprovalAnswer(decision="decline"),
    PermissionsApproval: PermissionsApprovalAnswer(permissions={}),
    UserInputRequest: UserInputAnswer(answers={}),
    Elicitation: ElicitationAnswer(action="decline"),
    ApplyPatchApproval: _DENIED,
    ExecCommandApproval: _DENIED,
}

_NOT_OFFERED: Mapping[str, str] = {
    "item/tool/call": "this client offers no tools of its own",
    "account/chatgptAuthTokens/refresh": "this client holds no tokens to refresh; sign in with `codex login`",
    "attestation/generate": "this client attests nothing",
    "currentTime/read": "this client tells no time",
}


def not_offered(method: str) -> str:
    """Return the words of the error that refuses a request of this method, which has no form of refusal."""
    return _NOT_OFFERED.get(method, "this client does not answer such requests")


def refusal(method: str) -> object | None:
    """Return the result that refuses a request of this method; None when only an error does."""
    request = SERVER_REQUESTS.get(method)
    return None if request is None else _REFUSALS.get(request)
