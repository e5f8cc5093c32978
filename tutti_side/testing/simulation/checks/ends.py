"""R9, R13, R14: every call ends, with an error of ours or none; a host leaves nothing; what was cut off is free."""

from collections import defaultdict
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Call, Facts, Violation
from tutti_side.testing.simulation.records import (
    BranchAsked,
    ConnectionEnded,
    ConnectionOpened,
    HostEnded,
    Sampled,
    TurnBegan,
    TurnEnded,
)

__all__ = ["all_is_free_in_the_calm", "each_call_ends", "lost_calls_end_soon", "nothing_outlives_its_host"]

LOSS_S = 10.0
"""Whoever waits for something of a connection knows within so long that it has ended: everything is told at once, and
a call that was cut off meanwhile may still wait for its interrupt or rollback, 5 s."""

WAITING = ("send", "ask", "wait", "cancel", "steer", "end commands", "open")
"""Calls that wait for a provider."""

STUCK = ("SideInProgressError",)
"""Refusals that a call finds only while something else is under way."""

BUSY = ("SideBusyError", "SessionBusyError")
"""The same, of a turn."""

LOCKS = ("locks_in_use", "locks_waiting")
"""Samples of the calm have these at zero."""


def each_call_ends(facts: Facts) -> Iterator[Violation]:
    """R9: every call that began has ended, with what it returns or an error of the product's own."""
    for call in facts.calls:
        who = f"call {call.job.call}, {call.job.what} of {call.job.owner or 'the host'},"
        if call.end is None or call.ended is None:
            yield facts.violation("R9", call.began, f"{who} never ended")
        elif not call.end.is_typed:
            yield facts.violation("R9", call.ended, f"{who} raised {call.end.outcome}, which is none of our own errors")


def lost_calls_end_soon(facts: Facts) -> Iterator[Violation]:
    """R9: a call that waits for something of a connection ends within `LOSS_S` of the connection's end."""
    asked: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, ask in facts.each(BranchAsked):
        asked[ask.owner].append((index, ask.connection))
    waiting = [call for call in facts.calls if call.job.what in WAITING]
    for index, end in facts.each(ConnectionEnded):
        for call in waiting:
            if call.began > index or (call.ended is not None and call.ended < index):
                continue
            if _connection_of(facts, call, index, asked) != end.connection:
                continue
            ended_s = float("inf") if call.ended is None else facts.records[call.ended].at_s
            if ended_s - end.at_s > LOSS_S:
                who = f"call {call.job.call}, {call.job.what} of {call.job.owner},"
                problem = f"{who} still waited {ended_s - end.at_s:.3f} s after connection {end.connection} had ended"
                yield facts.violation("R9", call.began if call.ended is None else call.ended, problem)


def _connection_of(facts: Facts, call: Call, index: int, asked: dict[str, list[tuple[int, int]]]) -> int | None:
    """Return the connection that a call waits for at a record, as far as can be seen."""
    owner = call.job.owner
    if call.job.what == "open":
        during = [connection for at, connection in asked.get(owner, ()) if call.began < at < index]
        return during[-1] if during else None
    return facts.connection_at(facts.child_at(owner, call.began), index)


def nothing_outlives_its_host(facts: Facts) -> Iterator[Violation]:
    """R13: a host's end leaves no task, no thread and no connection, and raises nothing."""
    for index, end in facts.each(HostEnded):
        if end.tasks or end.threads:
            yield facts.violation("R13", index, f"host {end.host} left {end.tasks} tasks and {end.threads} threads")
        if end.error:
            yield facts.violation("R13", index, f"host {end.host} raised {end.error}")
        for began, opened in facts.each(ConnectionOpened):
            if began < index and not facts.is_connection_over(opened.connection, index):
                yield facts.violation("R13", index, f"host {end.host} left connection {opened.connection}")


def all_is_free_in_the_calm(facts: Facts) -> Iterator[Violation]:
    """R14: in the calm no lock is held, no identity is on its way, and none is busy without a turn.

    What was cut off, wherever that was, is as usable then as what was not.
    """
    if facts.calm is None:
        return
    for index, sample in facts.each(Sampled):
        if index >= facts.calm and sample.where != "fault":  # what strikes late meets calls of the driver's own
            for name in LOCKS:
                if sample.counts.get(name, 0):
                    yield facts.violation("R14", index, f"{name} is {sample.counts[name]} in the calm")
    running = _turns_of_owners(facts)
    for call in facts.calls:
        if call.end is None or call.ended is None or call.began < facts.calm:
            continue
        owner = call.job.owner
        if call.end.outcome in STUCK:
            yield facts.violation("R14", call.ended, f"{owner} is still on its way in the calm: {call.end.outcome}")
        if call.end.outcome in BUSY and not _may_be_busy(facts, call, running):
            yield facts.violation("R14", call.ended, f"{owner} is busy in the calm, and has no turn")


def _turns_of_owners(facts: Facts) -> dict[str, list[tuple[int, int]]]:
    """Owner → from where to where in the list each of its turns ran."""
    ends: dict[tuple[str, str], int] = {}
    for index, end in facts.each(TurnEnded):
        ends.setdefault((end.child, end.turn), index)
    running: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, turn in facts.each(TurnBegan):
        end_index = ends.get((turn.child, turn.turn), facts.last)
        running[facts.owner_of.get(turn.child, "")].append((index, end_index))
    return running


def _may_be_busy(facts: Facts, call: Call, running: dict[str, list[tuple[int, int]]]) -> bool:
    """True when a turn of the owner ran, or another call was about to begin one."""
    owner, began = call.job.owner, call.began
    if any(first < began < last for first, last in running.get(owner, ())):
        return True
    return any(
        other is not call
        and other.job.owner == owner
        and other.job.what in ("send", "ask")
        and other.began < began < (facts.last if other.ended is None else other.ended)
        for other in facts.calls
    )
