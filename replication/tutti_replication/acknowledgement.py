"""What a sink answers: applied, duplicate or stale, a cursor each, and the sum over a batch.

Source: activity replication specification ("Consumers should …"); wire page, Answers.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from .epoch import PROJECTION_EPOCH
from .errors import AcknowledgementError

__all__ = [
    "APPLIED",
    "DUPLICATE",
    "STALE",
    "Acknowledgement",
    "ApplyResponse",
    "ApplyResult",
    "Disposition",
    "summarize_acknowledgements",
]

Disposition = Literal["applied", "duplicate", "stale"]
"""Accepted in one of three ways; all three are successes and count."""

APPLIED: Final = "applied"
DUPLICATE: Final = "duplicate"
STALE: Final = "stale"


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One mutation's answer.

    Attributes:
      mutation_id: as sent.
      transaction_id: as sent with this attempt (of a duplicate: the retry's, not the original's).
      disposition: applied, duplicate or stale.
      cursor: the commit's place in the projection's order (of a duplicate: the original commit's; stale: 0).
    """

    mutation_id: str
    transaction_id: str
    disposition: Disposition
    cursor: int


class ApplyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The batch's answer.

    Attributes:
      accepted_count: applied, duplicate and stale together.
      cursor: the greatest among the acknowledgements; 0 when all are stale, which never lowers a client's mark.
      projection_epoch: the sink's.
    """

    accepted_count: int
    cursor: int
    projection_epoch: int


class ApplyResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Result and acknowledgements, these in batch order: the body of a 200 answer."""

    result: ApplyResult
    acknowledgements: tuple[Acknowledgement, ...]


def summarize_acknowledgements(
    acknowledgements: Iterable[Acknowledgement], *, epoch: int = PROJECTION_EPOCH
) -> ApplyResult:
    """Return the batch result that belongs to these acknowledgements.

    Raises:
      AcknowledgementError: a disposition that doesn't exist, a stale one with a cursor, another one without.
    """
    count = cursor = 0
    for acknowledgement in acknowledgements:
        disposition = acknowledgement.disposition
        if disposition == STALE:
            if acknowledgement.cursor != 0:
                raise AcknowledgementError(f"stale acknowledgement of {acknowledgement.mutation_id!r} has a cursor")
        elif disposition not in (APPLIED, DUPLICATE):
            raise AcknowledgementError(f"unknown disposition for {acknowledgement.mutation_id!r}")
        elif acknowledgement.cursor <= 0:
            raise AcknowledgementError(
                f"{disposition} acknowledgement of {acknowledgement.mutation_id!r} has no cursor"
            )
        count += 1
        cursor = max(cursor, acknowledgement.cursor)
    return ApplyResult(accepted_count=count, cursor=cursor, projection_epoch=epoch)
