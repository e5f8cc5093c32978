"""What can go wrong between two JSON-RPC peers, and whose fault it is.

`Broken…`, `Closed…`, `Remote…` and `InvalidResult…` are the peer's, `Local…` is a bad call of ours, `RequestTimeout…`
is nobody's until more is known. No message holds content that the peer sent, except the bounded start of an error
answer's own text.
"""

from typing import Literal

import msgspec

from tutti_side.errors import TuttiSideError
from tutti_side.jsonrpc.transports import PeerExit

__all__ = [
    "ClosedReason",
    "ConnectionClosedError",
    "InvalidResultError",
    "JsonRpcError",
    "LocalError",
    "NotSentError",
    "RemoteError",
    "RequestNotOpenError",
    "RequestTimeoutError",
    "TransportBrokenError",
]

ClosedReason = Literal["eof", "broken_pipe", "closed", "peer_not_reading", "unresponsive", "internal"]
"""Why a connection ended: `eof` and `broken_pipe` the stream did, `closed` we did, `peer_not_reading` even the reserve
of the write queue was full, `unresponsive` too many requests in a row had no answer, `internal` a bug of ours."""

_REASONS: dict[str, str] = {
    "eof": "the peer closed the stream",
    "broken_pipe": "the stream to the peer broke",
    "closed": "closed by this side",
    "peer_not_reading": "the peer does not read what is sent to it",
    "unresponsive": "the peer has stopped answering",
    "internal": "an internal error of ours, please report it",
}


class JsonRpcError(TuttiSideError):
    """Every error of `tutti_side.jsonrpc`."""


class TransportBrokenError(JsonRpcError):
    """The byte stream failed: the other side is gone, or this end was closed."""

    def __init__(self, message: str = "the stream to the peer is broken") -> None:
        super().__init__(message)


class ConnectionClosedError(JsonRpcError):
    """The connection has ended; nothing sent on it will be answered any more.

    Attributes:
      reason: why, one word of `ClosedReason`.
      exit: how the peer ended, when that is known; its `stderr_tail` is for a person who asks and stands in no message.
    """

    def __init__(self, reason: ClosedReason, exit: PeerExit | None = None) -> None:
        status = None if exit is None else exit.status
        ended = "" if status is None else f", exit status {status}"
        super().__init__(f"connection closed: {_REASONS[reason]} ({reason}{ended})")
        self.reason: ClosedReason = reason
        self.exit = exit

    def again(self) -> "ConnectionClosedError":
        """Return a fresh exception with the same fields and cause, so that no two waiters raise one object."""
        fresh = ConnectionClosedError(self.reason, self.exit)
        fresh.__cause__ = self.__cause__
        return fresh


class RemoteError(JsonRpcError):
    """The peer answered with an error: the request was received and refused, or it failed.

    Attributes:
      code: the peer's error code.
      message: its whole text, which can be several kB and can quote what was sent: so `str()` does not show it.
      data: the raw JSON of the error's `data`, or None.
      method: the method that was asked for; None where it isn't known.
    """

    def __init__(self, code: int, message: str, data: msgspec.Raw | None = None, *, method: str | None = None) -> None:
        super().__init__(f"{method or 'the request'} was answered with error {code}; `message` has the peer's words")
        self.code = code
        self.message = message
        self.data = data
        self.method = method


class RequestTimeoutError(JsonRpcError):
    """No answer came within the deadline. Unless `sent` is False the request may have been executed.

    Attributes:
      method: the method that was asked for.
      deadline_s: the deadline, in seconds from the call.
      sent: False if no byte of it was written: it waited for a slot or for the peer to read, and was taken back.
    """

    def __init__(self, method: str, deadline_s: float, *, sent: bool = True) -> None:
        what = (
            "was not answered within {:g} s; it may have been executed" if sent else "could not be sent within {:g} s"
        )
        super().__init__(f"{method} {what.format(deadline_s)}")
        self.method = method
        self.deadline_s = deadline_s
        self.sent = sent


class InvalidResultError(JsonRpcError):
    """An answer came, but it doesn't have the form that was asked for.

    Attributes:
      method: the method that was asked for.
      where: the path and the expected type, without any content of the answer.
    """

    def __init__(self, method: str, where: str) -> None:
        super().__init__(f"{method} was answered in an unexpected form: {where}")
        self.method = method
        self.where = where


class LocalError(JsonRpcError):
    """A bad call of ours: what was given can't be sent. Not one byte was written."""


class RequestNotOpenError(LocalError):
    """There is no open request of the peer with this id: unknown, or answered already. Not one byte was written."""

    def __init__(self, request_id: int | str) -> None:
        super().__init__(f"no request with the id {request_id!r} is open; it is unknown or was answered already")
        self.request_id = request_id


class NotSentError(JsonRpcError):
    """The request was taken back before a byte of it was written; given to result hooks only."""

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} was never sent")
        self.method = method
