"""The rebaseline fence: which epochs may talk to each other, and what a difference means.

A destructive reset of a cloud projection raises the epoch in its paired release. There is no compatibility mode: a sink
refuses every other epoch whole, before it looks at anything else, and a client treats acknowledgements of an older
epoch as untrusted.

Source: activity replication specification ("explicit rebaseline fence"); wire page, Answers.
"""

from typing import Final, Literal

import msgspec

from .errors import ReplicationError

__all__ = ["PROJECTION_EPOCH", "EpochMismatch", "EpochMismatchBody", "check_epoch"]

PROJECTION_EPOCH: Final = 1
"""The epoch of this release. Raised only together with a destructive reset of the projection."""


class EpochMismatchBody(msgspec.Struct, frozen=True, kw_only=True):
    """The answer with status 409."""

    error: Literal["projection_epoch"] = "projection_epoch"
    expected: int
    actual: int


class EpochMismatch(ReplicationError):
    """The batch belongs to another projection epoch than the sink; nothing was written.

    Attributes:
      expected: the sink's epoch.
      actual: the batch's epoch (0 when the batch names none).
    """

    def __init__(self, expected: int, actual: int) -> None:
        hint = "upgrade the client" if actual < expected else "the sink is behind: wait for its release"
        super().__init__(f"projection epoch {actual} of the batch is not the sink's {expected}: {hint}")
        self.expected = expected
        self.actual = actual

    def body(self) -> EpochMismatchBody:
        """Return what goes over HTTP with status 409."""
        return EpochMismatchBody(expected=self.expected, actual=self.actual)


def check_epoch(actual: int, expected: int = PROJECTION_EPOCH) -> None:
    """Raise `EpochMismatch` unless both epochs are the same."""
    if actual != expected:
        raise EpochMismatch(expected, actual)
