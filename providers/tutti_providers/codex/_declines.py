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

__all__ = ["REFUSED_CODE", "refusal"]

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


def refusal(method: str) -> object | None:
    """Return the result that refuses a request of this method; None when only an error does."""
    request = SERVER_REQUESTS.get(method)
    return None if request is None else _REFUSALS.get(request)
