"""What stands on either side of the contract. Sync, because database drivers are, and conformance must run anywhere.

The contract owns no queries, no authorisation and no transport: a sink is given an `Authorizer` by whoever knows the
caller, and hands it on to `admission.admit_batch`.
"""

from collections.abc import Callable
from typing import Protocol

from .acknowledgement import ApplyResponse
from .mutation import Mutation

__all__ = ["Authorizer", "ProjectionBuilder", "Sink"]

Authorizer = Callable[[Mutation], bool]
"""Says whether the caller may send this mutation. Asked once per mutation of a batch whose schema is right."""


class Sink(Protocol):
    """Applies official batches to a projection."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        """Apply one encoded batch in one transaction and answer in batch order.

        The bytes go to `admission.admit_batch` first: epoch, then schema, then permission, before anything is read
        from or written to the projection.

        Args:
          batch: at most `codec.BATCH_BYTES_MAX` bytes of JSON.
          authorize: the caller's rights; None permits everything.

        Raises:
          EpochMismatch: the batch is of another epoch, whatever else is wrong with it.
          PermanentRejection: schema, permission or identity, naming the offender.
          BatchTooLarge: not read.
          Exception: anything else is transient: the same bytes may be sent again. Nothing was written, or, when the
            connection was lost during the commit, all of it; the repeat then gets duplicates.
        """
        ...


class ProjectionBuilder(Protocol):
    """Builds official batches from canonical state."""

    def build(self) -> bytes:
        """Return the next encoded batch, at most 500 mutations in dependency order.

        Until it is acknowledged the same batch is returned, with the same mutation ids, whatever was lost on the way.
        """
        ...
