"""What stands on a line, in which of the two dialects, and who takes it."""

from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw

from tutti_side.jsonrpc.errors import ConnectionClosedError

__all__ = ["CODEX", "NO_RAW", "STRICT", "Dialect", "Message", "MessageRouter", "RequestId"]

P = TypeVar("P")

RequestId = int | str
"""An id as it stood on the wire. ``0``, ``"0"`` and ``""`` are three ids: test with ``is None``, never for truth."""

NO_RAW = Raw(b"")
"""Stands for an absent field. (msgspec has no optional `Raw`: ``Raw | None`` rejects every value.)"""


class Message(msgspec.Struct, Generic[P], kw_only=True, gc=False):
    """One message from the peer; `P` is a struct of the few parameters that its receiver routes by.

    With a `method` it is a notification, or (with an `id` as well) a request of the peer. Without one it is an answer
    to a request of ours, and the peer settles it itself: a router never sees it.
    """

    method: str | None = None
    id: RequestId | None = None
    params: P | None = None
    """The typed parameters. None when there were none, or when they didn't fit `P`: they then stand in `line` only."""
    result: Raw = NO_RAW
    error: Raw = NO_RAW
    jsonrpc: str | None = None
    line: bytes = msgspec.field(default=b"", name="<the whole line>")
    """The whole line, for whoever needs more than `params`; set by the codec, whatever the peer sent under this name.

    It keeps all of the message in memory: decode from it, never store it in an event.
    """


class MessageRouter(Protocol[P]):
    """Takes what the peer sends of itself. It is called synchronously, in the reader: short, and no user code."""

    def feed(self, messages: list[Message[P]]) -> None:
        """Take notifications and requests of the peer, in wire order; the list is the router's to keep.

        An exception ends the connection, reason `internal`.
        """
        ...

    def connection_lost(self, error: ConnectionClosedError) -> None:
        """Note that nothing will come any more; called once, when everything pending has failed already."""
        ...


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How a peer deviates from JSON-RPC 2.0, or that it doesn't."""

    name: str
    writes_version: bool
    """Whether what we write has ``"jsonrpc":"2.0"``."""
    requires_version: bool
    """Whether a message without exactly that is dropped."""
    overload_code: int | None
    """The error code by which the peer says that it did *not* take a request and that it may be sent again."""


CODEX = Dialect(name="codex", writes_version=False, requires_version=False, overload_code=-32001)
"""Codex app-server: never writes `jsonrpc`, accepts any, and answers -32001 when its queue is full."""

STRICT = Dialect(name="strict", writes_version=True, requires_version=True, overload_code=None)
"""JSON-RPC 2.0 to the letter; no error code of it promises that a request was not executed."""
