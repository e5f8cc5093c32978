"""R7, R10, R15, R19 on the wire: what is sent for a Side stays within it, and the reader never waits."""

from collections import defaultdict
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.records import (
    AgentCalled,
    BoundaryDrawn,
    BranchAsked,
    CommandsEnded,
    ConnectionEnded,
    ConnectionOpened,
    Fault,
    HostEnded,
    HostStopping,
    InterruptAsked,
    Read,
    ReleaseAsked,
    SideOpened,
    SteerAsked,
    TurnAsked,
    WentOver,
)

__all__ = [
    "only_the_attested_is_asked",
    "parents_are_left_alone",
    "sides_are_restricted",
    "sides_know_where_they_begin",
    "steers_reach_their_own_turn",
    "the_reader_never_waits",
]

CLOCK_JUMP = "clock_jump"
"""The fault after which time has passed that nobody had: what could be read before it may be read behind it."""

SETTLED = ("ok", "SessionBusyError", "TurnFailedError", "TurnCanceledError")
"""A `send` or `ask` that ended so gave no turn up; after any other end its turn, named or not, is interrupted."""


def parents_are_left_alone(facts: Facts) -> Iterator[Violation]:
    """R7: a session's turn is interrupted, its commands are ended and it is released only on its own user's account.

    That is: a cancel of that turn, a question that was given up, the turn's failing for want of an end, its close or
    delete, its provider's loss, a start that came to nothing, or the host's stop; for its commands alone, that its user
    says so. What an agent does that the session called goes with any of these; it is let go when it is done.
    """
    parents = {called.child: called.parent for _, called in facts.each(AgentCalled)}
    stopping: set[int] = set()
    for index, record in facts.all_of(HostStopping, HostEnded, InterruptAsked, ReleaseAsked, CommandsEnded):
        if isinstance(record, HostStopping):
            stopping.add(record.host)
        elif isinstance(record, HostEnded):
            stopping.discard(record.host)
        if stopping or not isinstance(record, InterruptAsked | ReleaseAsked | CommandsEnded):
            continue
        child = _caller_of(record.child, parents)
        is_release = not isinstance(record, InterruptAsked)
        if child in facts.side_children or (is_release and record.child in parents):
            continue
        owner, turn = facts.owner_of.get(child, ""), record.turn if isinstance(record, InterruptAsked) else ""
        wanted = None if record.child in parents else turn
        if isinstance(record, CommandsEnded) and _is_asked(facts, "end commands", owner, index):
            continue
        if not _was_wanted(facts, owner, index, wanted, is_release=is_release):
            if turn:
                what = f"turn {turn} of {owner or record.child} is interrupted"
            else:
                what = f"{owner} is released" if isinstance(record, ReleaseAsked) else f"commands of {owner} are ended"
            yield facts.violation("R7", index, f"{what}, and nobody asked for it")


def steers_reach_their_own_turn(facts: Facts) -> Iterator[Violation]:
    """R7: a turn is given what its own user gave it, and nothing else."""
    for index, steer in facts.each(SteerAsked):
        owner = facts.owner_of.get(steer.child, "")
        if not _is_asked(facts, "steer", owner, index, turn=steer.turn, detail=steer.question):
            problem = f"turn {steer.turn} of {owner or steer.child} is given {steer.question!r}"
            yield facts.violation("R7", index, f"{problem}, and nobody asked for it")


def _is_asked(facts: Facts, what: str, owner: str, index: int, **details: str) -> bool:
    """True when an owner's user began such a call before a record."""
    return any(
        call.job.what == what
        and call.job.owner == owner
        and call.began < index
        and all(getattr(call.job, name) == detail for name, detail in details.items())
        for call in facts.calls
    )


def _caller_of(child: str, parents: dict[str, str]) -> str:
    """Return the session's or Side's child that called an agent, perhaps through others; any other child is itself."""
    seen: set[str] = set()
    while child in parents and child not in seen:
        seen.add(child)
        child = parents[child]
    return child


def _was_wanted(facts: Facts, owner: str, index: int, turn: str | None, *, is_release: bool) -> bool:
    """True when an owner's user had reason to end a turn (None: any), or to release the session, before a record."""
    if not owner:
        return is_release  # a session whose start was given up is nobody's
    if facts.expired.get(owner, index) < index or facts.given_up.get((owner, turn or ""), index) < index:
        return True
    for call in facts.calls:
        job = call.job
        if call.began > index:
            break
        if job.owner != owner:
            continue
        if job.what in ("close session", "delete"):
            return True
        if is_release:
            if job.what in ("start", "resume") and call.outcome != "ok":
                return True
        elif job.what == "cancel":
            if turn is None or job.turn in ("", turn):
                return True
        elif job.what in ("send", "ask") and call.outcome not in SETTLED:
            return True
    return False


def the_reader_never_waits(facts: Facts) -> Iterator[Violation]:
    """R10: what a provider wrote is read in the same instant, whatever anybody does with it.

    A connection that is being closed is read no more; a jump of the clock moves the instant.
    """
    behind: dict[int, int] = defaultdict(int)
    since: dict[int, float] = {}
    reported: set[int] = set()
    for index, record in facts.all_of(WentOver, Read, ConnectionEnded, Fault):
        if isinstance(record, Fault):
            if record.fault == CLOCK_JUMP:
                since.update(dict.fromkeys(since, record.at_s))
            continue
        if not isinstance(record, WentOver | Read | ConnectionEnded):
            continue
        connection = record.connection
        if isinstance(record, ConnectionEnded):
            behind.pop(connection, None)
            since.pop(connection, None)
        elif isinstance(record, WentOver):
            behind[connection] += record.bytes
            since.setdefault(connection, record.at_s)
        else:
            late_s = record.at_s - since.get(connection, record.at_s)
            if late_s > 0 and connection not in reported:
                reported.add(connection)
                yield facts.violation("R10", index, f"connection {connection} is read {late_s:.6f} s late")
            behind[connection] -= record.bytes
            if behind[connection] <= 0:
                since.pop(connection, None)
            else:
                since[connection] = record.at_s
    for connection, count in sorted(behind.items()):
        if count > 0 and connection not in reported and connection not in facts.connection_ends:
            yield facts.violation("R10", facts.last, f"{count} bytes of connection {connection} were never read")


def only_the_attested_is_asked(facts: Facts) -> Iterator[Violation]:
    """R15: no branch is asked of a connection whose version may not be offered Sides."""
    attested = {opened.connection: opened.attested for _, opened in facts.each(ConnectionOpened)}
    for index, ask in facts.each(BranchAsked):
        if not attested.get(ask.connection, False):
            yield facts.violation("R15", index, f"{ask.owner} is branched on connection {ask.connection}, not attested")


def sides_know_where_they_begin(facts: Facts) -> Iterator[Violation]:
    """R15: what is open as a Side was told so, and where it begins; its provider has answered that it took that."""
    drawn: dict[str, str] = {}
    for index, record in facts.all_of(BoundaryDrawn, SideOpened):
        if isinstance(record, BoundaryDrawn):
            drawn[record.child] = record.owner
        elif isinstance(record, SideOpened) and drawn.get(record.child) != record.owner:
            yield facts.violation("R15", index, f"{record.owner} is open, and its child does not know where it begins")


def sides_are_restricted(facts: Facts) -> Iterator[Violation]:
    """R19: neither a Side's branch nor any of its turns asks for more than its source may."""
    for index, record in facts.all_of(BranchAsked, TurnAsked):
        if isinstance(record, BranchAsked) and not record.restricted:
            yield facts.violation("R19", index, f"the branch of {record.owner} asks for more than its source may")
        if isinstance(record, TurnAsked) and record.child in facts.side_children and not record.restricted:
            owner = facts.side_children[record.child]
            yield facts.violation("R19", index, f"a turn of {owner} asks for more than its source may")
