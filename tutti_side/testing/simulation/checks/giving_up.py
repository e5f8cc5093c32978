"""R4, R14: what a call that was cut off leaves to others: no turn of its own, and the open that they share."""

from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Call, Facts, Violation
from tutti_side.testing.simulation.records import (
    BranchAnswered,
    ConnectionEnded,
    InterruptAsked,
    ReleaseAsked,
    TurnAsked,
    TurnBegan,
    TurnEnded,
)

__all__ = ["joined_opens_outlive_each_other", "turns_of_cut_calls_are_given_up"]

GIVEN_UP_S = 20.0
"""So long after its call was cut off a turn may go on without an interrupt: it waits 5 s for the turn to begin, and for
the start's answer as long as that takes; then the turn's own end is near."""


def turns_of_cut_calls_are_given_up(facts: Facts) -> Iterator[Violation]:
    """R14: the turn of a `send` or `ask` that was cut off is interrupted, unless it ends soon by itself.

    Nobody has its handle. Its begin is in the list behind its request, whatever becomes of the answer.
    """
    asks = list(facts.each(TurnAsked))
    for call in facts.calls:
        if call.job.what not in ("send", "ask") or call.outcome != "cut off" or call.ended is None:
            continue
        child = facts.child_at(call.job.owner, call.ended)
        mine = [at for at, ask in asks if call.began < at < call.ended and ask.child == child]
        mine = [at for at in mine if _question(facts, at) == call.job.detail]
        if len(mine) != 1 or _others(facts, call):
            continue
        yield from _check_turn(facts, call, mine[0], child)


def _question(facts: Facts, index: int) -> str:
    record = facts.records[index]
    return record.question if isinstance(record, TurnAsked) else ""


def _others(facts: Facts, call: Call) -> bool:
    """True when another call asked the same thing at the same time, so that it can't be told whose turn it is."""
    assert call.ended is not None
    return any(
        other is not call
        and other.job.what in ("send", "ask")
        and other.job.owner == call.job.owner
        and other.began < call.ended
        and call.began < (facts.last if other.ended is None else other.ended)
        for other in facts.calls
    )


def _check_turn(facts: Facts, call: Call, asked: int, child: str) -> Iterator[Violation]:
    began = next(((at, turn) for at, turn in facts.each(TurnBegan) if at > asked and turn.child == child), None)
    if began is None or call.ended is None:
        return
    turn = began[1].turn
    since_s = max(facts.records[call.ended].at_s, began[1].at_s)
    for index, record in facts.all_of(TurnEnded, InterruptAsked, ReleaseAsked, ConnectionEnded):
        if isinstance(record, ConnectionEnded):
            is_end = record.connection == began[1].connection
        elif isinstance(record, ReleaseAsked):
            is_end = record.child == child
        elif isinstance(record, TurnEnded | InterruptAsked):
            is_end = record.child == child and record.turn == turn
        else:
            continue
        if is_end and index > asked:
            if record.at_s - since_s > GIVEN_UP_S:
                problem = f"turn {turn} of {call.job.owner} ran on after call {call.job.call} was cut off"
                yield facts.violation("R14", index, problem)
            return


def joined_opens_outlive_each_other(facts: Facts) -> Iterator[Violation]:
    """R14: of two opens of one identity, the cut of one does not fail the other.

    Both are told in one instant how the open they share came out. So one that is cut off behind the other's failure,
    and of which the provider said nothing in that instant, was cut before it, and brought it about.
    """
    opens = [call for call in facts.calls if call.job.what == "open"]
    told = {record.at_s for _, record in facts.all_of(BranchAnswered, ConnectionEnded)}
    for call in opens:
        if call.outcome != "OpenFailedError" or call.ended is None or facts.records[call.ended].at_s in told:
            continue
        for other in opens:
            if other.outcome != "cut off" or other.ended is None:
                continue
            theirs = (other.job.owner, other.job.source, other.job.request)
            is_joined = theirs == (call.job.owner, call.job.source, call.job.request)
            if is_joined and other.began < call.ended < other.ended:
                problem = (
                    f"the open of {call.job.owner} failed since call {other.job.call}, which joined it, was cut off"
                )
                yield facts.violation("R14", call.ended, problem)
