"""What the runtime writes to the log ``tutti_side.runtime``.

A message is a constant sentence. What it is about stands in attributes of the record, as ids: a handler can filter and
format by them, and all of them are there on every record. No record holds a prompt, a model's words, instructions, host
context, an environment value, or the text of an exception that is not ours: of an error only its type is named.
"""

import logging

from tutti_side.contract import CanonicalRef, RequestId, ScopeRef, SideRef

__all__ = ["FIELDS", "log"]

FIELDS = ("workspace", "source", "side", "provider", "child_id", "request_id", "phase", "reason", "error")
"""The attributes of each record; None where one does not apply. `source` is a canonical session's id, `child_id` what
the provider calls the Side, `phase` where in its life something happened, `error` the name of an exception's type."""

_log = logging.getLogger("tutti_side.runtime")


def log(
    level: int,
    message: str,
    ref: ScopeRef | None = None,
    *,
    source: CanonicalRef | None = None,
    provider: str | None = None,
    child_id: str | None = None,
    request_id: RequestId | None = None,
    phase: str | None = None,
    reason: str | None = None,
    error: BaseException | None = None,
) -> None:
    """Write one record about a session or Side; `message` is a constant."""
    side = ref if isinstance(ref, SideRef) else None
    session = ref if isinstance(ref, CanonicalRef) else source
    _log.log(
        level,
        message,
        extra={
            "workspace": None if ref is None else ref.workspace,
            "source": None if session is None else session.session,
            "side": None if side is None else side.side,
            "provider": provider,
            "child_id": child_id,
            "request_id": request_id,
            "phase": phase,
            "reason": reason,
            "error": None if error is None else type(error).__name__,
        },
    )
