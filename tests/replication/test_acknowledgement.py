"""Answers and their sum."""

import msgspec
import pytest

from tutti_replication import Acknowledgement, AcknowledgementError, ApplyResponse, summarize_acknowledgements


def ack(disposition: str, cursor: int, mutation_id: str = "m") -> Acknowledgement:
    return Acknowledgement(
        mutation_id=mutation_id,
        transaction_id="t",
        disposition=disposition,  # type: ignore[arg-type]
        cursor=cursor,
    )


def test_applied_duplicate_and_stale_all_count_and_the_greatest_cursor_stands() -> None:
    """Activity replication specification: count duplicate and stale in acceptedCount; wire page, ApplyResult."""
    result = summarize_acknowledgements([ack("applied", 7), ack("duplicate", 9), ack("stale", 0), ack("applied", 8)])
    assert (result.accepted_count, result.cursor, result.projection_epoch) == (4, 9, 1)


def test_all_stale_answers_zero() -> None:
    """Wire page, ApplyResult: a batch that is all stale answers 0."""
    result = summarize_acknowledgements([ack("stale", 0)] * 3, epoch=5)
    assert (result.accepted_count, result.cursor, result.projection_epoch) == (3, 0, 5)


@pytest.mark.parametrize(
    ("disposition", "cursor"), [("stale", 1), ("applied", 0), ("duplicate", 0), ("applied", -1), ("lost", 1)]
)
def test_an_acknowledgement_that_no_sink_may_give_is_refused(disposition: str, cursor: int) -> None:
    """Wire page, Answers: stale adds no cursor, the others have one."""
    with pytest.raises(AcknowledgementError):
        summarize_acknowledgements([ack(disposition, cursor)])


def test_an_answer_is_written_as_the_wire_page_has_it() -> None:
    """Wire page, Answers: over HTTP 200."""
    acknowledgements = (ack("applied", 3),)
    answer = ApplyResponse(result=summarize_acknowledgements(acknowledgements), acknowledgements=acknowledgements)
    assert msgspec.json.encode(answer) == (
        b'{"result":{"acceptedCount":1,"cursor":3,"projectionEpoch":1},"acknowledgements":'
        b'[{"mutationId":"m","transactionId":"t","disposition":"applied","cursor":3}]}'
    )
    assert msgspec.json.decode(msgspec.json.encode(answer), type=ApplyResponse) == answer
