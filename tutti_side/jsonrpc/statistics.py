"""What a connection shows of itself."""

import msgspec

__all__ = ["PeerStatistics"]


class PeerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection holds at this moment, and what it has counted since it was opened."""

    in_flight: int
    """Requests that hold a slot."""
    waiting: int
    """Requests that wait for a slot or for room in the write queue."""
    expired: int
    """Requests without a slot whose late answer is still looked for."""
    open_requests: int
    """Requests of the peer without an answer."""
    write_queue_frames: int
    """Lines that nobody has begun to write."""
    write_queue_bytes: int
    dropped: dict[str, int]
    """Lines that were no message, by cause."""
    duplicate_answers: int
    """Answers to a request that was over: answered before, forgotten, or taken back."""
    unknown_answers: int
    """Answers with an id that stood for no request on the wire."""
    late_answers: int
    """Answers that came when nobody waited any more."""
    unsent: int
    """Requests taken back before a byte of them was written."""
    forgotten: int
    """Requests whose late answer is not looked for any more."""
    overload_retries: int
    """Requests sent again since the peer had refused them as overloaded."""
    refused_requests: int
    """Requests of the peer beyond the bound of open ones, answered with an error at once."""
    repeated_requests: int
    """Requests of the peer under an id that was still open, dropped."""
    withdrawn_answers: int
    """Answers of ours that were taken back unsent, since the peer had settled its request meanwhile."""
    hook_failures: int
    """Result hooks that raised; their requests failed with what they raised."""
    router_failures: int
    """Calls of the router that raised; the connection ended by the first."""
