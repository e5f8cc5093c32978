"""R6, R8, R11: how a child is let go: declined, interrupted, released; soon after its end, and with its source."""

from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.records import (
    Answered,
    Asked,
    Fault,
    InterruptAsked,
    Read,
    ReleaseAsked,
    Rested,
    Settled,
    SideEnded,
    SideOpened,
    TurnBegan,
    TurnEnded,
)

__all__ = [
    "deleted_sources_take_their_sides",
    "turns_are_interrupted_before_their_release",
    "what_is_over_is_released",
    "what_waits_is_declined_before_its_release",
]

OVER_S = 60.0
"""So long after its end a Side's child is asked to be released at the latest: its close is bounded by 15 s, and the
clock may have jumped 45 s meanwhile."""

LATE_STOP_S = 11.0
"""So long after a release a turn that began too late is interrupted at the latest: its begin is waited for 5 s, and an
interrupt that was refused meanwhile, or the release's own steps, may take 5 s before."""

LATE_EXCUSES = ("clock_jump",)
"""Faults after which that takes longer."""

DEAF = ("stops_reading", "frozen")
"""Faults after which what we send is not sent, or later: a request whose deadline passes meanwhile is taken back."""


def what_waits_is_declined_before_its_release(facts: Facts) -> Iterator[Violation]:
    """R11: what a child asked, and we have read, is answered or over when its release is asked.

    The provider would keep the question, and put it to whoever loads the child next.
    """
    waiting: dict[tuple[int, str], tuple[int, Asked]] = {}
    reads: dict[int, int] = {}
    for index, record in facts.all_of(Asked, Answered, Settled, TurnEnded, Read, ReleaseAsked):
        if isinstance(record, Asked):
            waiting[record.connection, record.request] = index, record
        elif isinstance(record, Answered | Settled):
            waiting.pop((record.connection, record.request), None)
        elif isinstance(record, Read):
            reads[record.connection] = index
        elif isinstance(record, TurnEnded):
            for key in [
                key for key, (_, ask) in waiting.items() if ask.turn == record.turn and ask.child == record.child
            ]:
                del waiting[key]
        elif isinstance(record, ReleaseAsked):
            for at, ask in waiting.values():
                is_read = at < reads.get(record.connection, -1) and ask.at_s < record.at_s
                if ask.connection == record.connection and ask.child == record.child and is_read:
                    owner = facts.owner_of.get(ask.child, ask.child)
                    yield facts.violation("R11", index, f"{owner} is released while it waits for {ask.request}")


def turns_are_interrupted_before_their_release(facts: Facts) -> Iterator[Violation]:
    """R6: a turn that runs, as we have read, was asked to stop when its thread's release is asked.

    Else it runs on, and nobody will ever hear of its end. Of one that begins when its Side is over that is known
    only from the answer to its start; it is stopped `LATE_STOP_S` later.
    """
    running: dict[tuple[int, str], tuple[int, str]] = {}
    reads: dict[int, int] = {}
    deaf: set[int] = set()
    interrupted: set[tuple[str, str]] = set()
    for index, record in facts.all_of(TurnBegan, TurnEnded, Rested, InterruptAsked, Read, Fault, ReleaseAsked):
        if isinstance(record, TurnBegan):
            running[record.connection, record.child] = index, record.turn
        elif isinstance(record, TurnEnded):
            if running.get((record.connection, record.child), (0, ""))[1] == record.turn:
                del running[record.connection, record.child]
        elif isinstance(record, Rested):
            running.pop((record.connection, record.child), None)
        elif isinstance(record, InterruptAsked):
            interrupted.add((record.child, record.turn))
        elif isinstance(record, Read):
            reads[record.connection] = index
        elif isinstance(record, Fault):
            if record.fault in DEAF:
                deaf.add(record.connection)
        elif isinstance(record, ReleaseAsked) and record.connection not in deaf:
            began, turn = running.get((record.connection, record.child), (index, ""))
            is_read = began < reads.get(record.connection, -1) and facts.records[began].at_s < record.at_s
            if is_read and (record.child, turn) not in interrupted:
                owner = facts.owner_of.get(record.child, record.child)
                if facts.was_over(owner, began) and _is_stopped_late(facts, index, record, turn):
                    continue
                yield facts.violation("R6", index, f"{owner} is released in its turn {turn}, which nobody interrupted")


def _is_stopped_late(facts: Facts, index: int, release: ReleaseAsked, turn: str) -> bool:
    """True when a turn ended, or was interrupted, within `LATE_STOP_S` of its thread's release, or nobody can know."""
    _, stop = next(facts.stops((release.child, turn), release.connection, index, LATE_EXCUSES), (0, None))
    return stop is not None and stop.at_s - release.at_s <= LATE_STOP_S


def what_is_over_is_released(facts: Facts) -> Iterator[Violation]:
    """R6: `OVER_S` after a Side was said to be over, its child's release was asked for, or nobody holds it."""
    deaf = {fault.connection for _, fault in facts.each(Fault) if fault.fault in DEAF}
    children: dict[str, str] = {}
    over: set[str] = set()
    for index, record in facts.all_of(SideOpened, SideEnded):
        if isinstance(record, SideOpened):
            children.setdefault(record.owner, record.child)
        elif isinstance(record, SideEnded) and record.owner not in over:
            over.add(record.owner)
            child = children.get(record.owner, "")
            if child and not _is_let_go(facts, child, record.at_s + OVER_S, deaf):
                problem = f"{record.owner} is over ({record.reason}), and its child {child} is not released"
                yield facts.violation("R6", index, problem)


def deleted_sources_take_their_sides(facts: Facts) -> Iterator[Violation]:
    """R8: whoever deletes a session ends its Sides; `OVER_S` later none of their children is held."""
    deaf = {fault.connection for _, fault in facts.each(Fault) if fault.fault in DEAF}
    for call in facts.calls:
        if call.job.what != "delete" or call.outcome != "ok" or call.ended is None:
            continue
        until_s = facts.records[call.ended].at_s + OVER_S
        for opened, side in facts.each(SideOpened):
            is_of_it = side.source == call.job.owner and opened < call.began
            if is_of_it and side.child and not _is_let_go(facts, side.child, until_s, deaf):
                problem = f"{side.owner} lives on after its source {side.source} was deleted"
                yield facts.violation("R8", call.ended, problem)


def _is_let_go(facts: Facts, child: str, until_s: float, deaf: set[int]) -> bool:
    """True when a child's release was asked by then, or its connection was over; or when that can't be told."""
    connection = facts.connection_at(child, facts.last)
    if connection is None or connection in deaf or facts.records[facts.last].at_s < until_s:
        return True
    ends = [index for index in (facts.released.get(child), facts.connection_ends.get(connection)) if index is not None]
    return any(facts.records[index].at_s <= until_s for index in ends)
