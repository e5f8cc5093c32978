"""R4, R6, R14: what is given up leaves nothing to others: no turn runs on, and an open that is shared goes on."""

from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Call, Facts, Violation
from tutti_side.testing.simulation.records import (
    BranchAnswered,
    ConnectionEnded,
    ReleaseAsked,
    TurnAnswered,
    TurnAsked,
    TurnBegan,
    TurnEnded,
)

__all__ = ["given_up_turns_do_not_run_on", "joined_opens_outlive_each_other", "turns_of_cut_calls_are_given_up"]

GIVEN_UP_S = 0.05
"""So long a turn may go on without an interrupt when all is known: that its call is cut off, its start answered, its
begin told."""

EXCUSES = ("clock_jump", "frozen", "stops_reading")
"""Faults after which what is known, or said, takes longer than that."""


CLOSES = ("close", "close session", "delete")
"""What ends a Side, or a session."""


def turns_of_cut_calls_are_given_up(facts: Facts) -> Iterator[Violation]:
    """R14: the turn of a `send` or `ask` that was cut off is interrupted at once, since nobody has its handle.

    At once is when it is known: the call is cut off, the start answered, and the begin told.
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
    assert call.ended is not None
    ask = facts.records[asked]
    assert isinstance(ask, TurnAsked)
    its = ask.connection, ask.request
    answers = ((at, turn) for at, turn in facts.each(TurnAnswered) if (turn.connection, turn.request) == its)
    answered = next(answers, None)
    if answered is None or not answered[1].turn:
        return
    turn = answered[1].turn
    began = next((at for at, told in facts.each(TurnBegan) if told.turn == turn and told.child == child), None)
    if began is None or _is_closing(facts, call.job.owner, began):
        return
    known_s = max(facts.records[index].at_s for index in (call.ended, answered[0], began))
    end = _runs_on(facts, (child, turn), asked, known_s, ask.connection)
    if end is not None:
        problem = f"turn {turn} of {call.job.owner} runs to its end, and call {call.job.call} was cut off"
        yield facts.violation("R14", end, problem)


def _is_closing(facts: Facts, owner: str, index: int) -> bool:
    """True when an owner was being closed, or was over, before a record: R6 judges how its turn is ended then."""
    return facts.was_over(owner, index) or any(
        call.job.owner == owner and call.job.what in CLOSES and call.began < index for call in facts.calls
    )


def given_up_turns_do_not_run_on(facts: Facts) -> Iterator[Violation]:
    """R6: a turn that failed for want of an end, and whose begin is told after that, is interrupted at once."""
    for began, told in facts.each(TurnBegan):
        owner = facts.owner_of.get(told.child, "")
        if facts.given_up.get((owner, told.turn), began) >= began:
            continue
        end = _runs_on(facts, (told.child, told.turn), began, told.at_s, told.connection)
        if end is not None:
            yield facts.violation("R6", end, f"turn {told.turn} of {owner} runs to its end, and was given up before")


def _runs_on(facts: Facts, turn: tuple[str, str], since: int, known_s: float, connection: int) -> int | None:
    """Return the index of a turn's end that came later than an interrupt had to; None if all is well, or unknown."""
    released = (at for at, release in facts.each(ReleaseAsked) if at >= since and release.child == turn[0])
    index, stop = next(facts.stops(turn, connection, since, EXCUSES), (0, None))
    if not isinstance(stop, TurnEnded) or next(released, index) < index:
        return None
    return index if stop.at_s - known_s > GIVEN_UP_S else None


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
