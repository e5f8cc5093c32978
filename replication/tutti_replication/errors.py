"""The root of this package's errors, and the one that is neither the peer's nor the epoch's."""

__all__ = ["AcknowledgementError", "BatchTooLarge", "ReplicationError"]


class ReplicationError(Exception):
    """Every error that `tutti_replication` raises on purpose."""


class BatchTooLarge(ReplicationError):
    """An encoded batch is over the limit; nothing of it was read. Over HTTP this is 413: halve the batch and retry.

    Attributes:
      size: encoded bytes.
      limit: the greatest size that is read.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"encoded batch of {size} bytes is over the limit of {limit}: send fewer mutations at a time")
        self.size = size
        self.limit = limit


class AcknowledgementError(ReplicationError):
    """Acknowledgements that no sink may give, such as a stale one with a cursor: a bug of the sink that made them."""
