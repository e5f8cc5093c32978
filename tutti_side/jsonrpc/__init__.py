"""A JSON-RPC peer that knows nothing of Sides or Codex.

Read `messages` and `errors` for the words, `peer` for what a caller may do. The rules stand in pure modules, without
`await` and clock: `codec` (lines and messages), `_correlation` (which answer belongs to which request), `_write_queue`;
`_calls` and `peer` are their Trio half. How bytes travel is the business of `transports`.

Not here: routing by thread, what a method means, which requests may be repeated, who owns a process.
"""

from tutti_side.jsonrpc._calls import OVERLOAD_RETRIES_MAX, Outcome, ResultHook
from tutti_side.jsonrpc._correlation import CLEANUP_SLOTS, IN_FLIGHT_MAX, SLOT_GRACE_S, UNANSWERED_MAX
from tutti_side.jsonrpc.codec import LINE_BYTES_MAX, Codec, LineSplitter
from tutti_side.jsonrpc.errors import (
    ClosedReason,
    ConnectionClosedError,
    InvalidResultError,
    JsonRpcError,
    LocalError,
    NotSentError,
    RemoteError,
    RequestNotOpenError,
    RequestTimeoutError,
    TransportBrokenError,
)
from tutti_side.jsonrpc.messages import CODEX, NO_RAW, STRICT, Dialect, Message, MessageRouter, RequestId
from tutti_side.jsonrpc.peer import REQUEST_DEADLINE_S, Peer, open_peer
from tutti_side.jsonrpc.statistics import PeerStatistics
from tutti_side.jsonrpc.transports import PeerExit, Transport
from tutti_side.jsonrpc.transports.memory import MemoryTransport, memory_pair

__all__ = [
    "CLEANUP_SLOTS",
    "CODEX",
    "IN_FLIGHT_MAX",
    "LINE_BYTES_MAX",
    "NO_RAW",
    "OVERLOAD_RETRIES_MAX",
    "REQUEST_DEADLINE_S",
    "SLOT_GRACE_S",
    "STRICT",
    "UNANSWERED_MAX",
    "ClosedReason",
    "Codec",
    "ConnectionClosedError",
    "Dialect",
    "InvalidResultError",
    "JsonRpcError",
    "LineSplitter",
    "LocalError",
    "MemoryTransport",
    "Message",
    "MessageRouter",
    "NotSentError",
    "Outcome",
    "Peer",
    "PeerExit",
    "PeerStatistics",
    "RemoteError",
    "RequestId",
    "RequestNotOpenError",
    "RequestTimeoutError",
    "ResultHook",
    "Transport",
    "TransportBrokenError",
    "memory_pair",
    "open_peer",
]
