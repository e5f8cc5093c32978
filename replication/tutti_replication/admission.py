"""What every sink does with a batch before it looks at its projection: epoch, then schema, then permission.

Source: wire page, "What a sink decides for an ordered batch", 1 and 2.
"""

from .codec import decode_batch
from .epoch import PROJECTION_EPOCH
from .mutation import Mutation
from .ports import Authorizer
from .rejection import PermanentRejection, Rule
from .validation import validate_batch

__all__ = ["admit_batch"]


def admit_batch(
    data: bytes, *, authorize: Authorizer | None = None, epoch: int = PROJECTION_EPOCH
) -> tuple[Mutation, ...]:
    """Return the valid, permitted mutations of an encoded batch, in order.

    Args:
      data: at most `codec.BATCH_BYTES_MAX` bytes of JSON.
      authorize: asked once for each mutation, in order, until it says no; None permits everything.
      epoch: the sink's.

    Raises:
      EpochMismatch: the batch is of another epoch, also when its mutations can't be decoded.
      PermanentRejection: kind schema, or else kind permission; the first offender is named.
      BatchTooLarge: not read.
    """
    mutations = validate_batch(decode_batch(data, epoch=epoch), epoch=epoch)
    if authorize is not None:
        for mutation in mutations:
            if not authorize(mutation):
                raise PermanentRejection(
                    "permission", mutation.mutation_id, mutation.transaction_id, rule=Rule.NOT_PERMITTED
                )
    return mutations
