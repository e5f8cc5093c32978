"""A run's records, sorted once: who is whom, and where. Pure.

A session's slot has one child after another, and a child moves to another connection when it is resumed; so the
questions here take the place in the list that they are asked for.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypeVar, cast

import msgspec

from tutti_side.testing.simulation.records import (
    BranchAnswered,
    BranchAsked,
    ConnectionEnded,
    Fault,
    Healed,
    HostStopping,
    InterruptAsked,
    JobBegan,
    JobEnded,
    Record,
    ReleaseAsked,
    ResumeAsked,
    SeenEvent,
    SideEnded,
    SideOpened,
    Stored,
    TurnAsked,
    TurnBegan,
    TurnEnded,
    World,
)

__all__ = ["CALM_S", "GIVEN_UP", "Call", "Context", "Facts", "Violation"]

CALM_S = 120.0
"""So long after the storm everything that was given up is over: longer than any deadline, grace and bounded retry."""

EXPIRED = '"session.expired"'
"""Stands in the report of a session's end that nobody asked for; no text of an owner has it."""

GIVEN_UP = "terminal_event_missing"
"""Why a turn fails whose end nobody could tell."""

_R = TypeVar("_R", bound=Record)


class _ReportedEvent(msgspec.Struct):
    """As much of it as is looked at."""

    turn_id: str = ""
    reason: str | None = None


class _Report(msgspec.Struct):
    events: tuple[_ReportedEvent, ...] = ()


_REPORT = msgspec.json.Decoder(_Report)


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must never be."""

    rule: str
    """Its number, for example ``R4``."""
    what: str
    """Who, and what, in a sentence."""
    at_s: float
    """Virtual time."""
    index: int
    """Of the record at which it was seen."""

    def __str__(self) -> str:
        return f"{self.rule} at {self.at_s:.6f} (record {self.index}): {self.what}"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver made up for a run, beside the records."""

    world: World
    sides: Mapping[str, str]
    """Every Side that the driver may have opened: owner → its side id."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the public API, from its begin to its end."""

    began: int
    """Index of its `JobBegan`."""
    ended: int | None
    """Index of its `JobEnded`; None when it never ended."""
    job: JobBegan
    end: JobEnded | None

    @property
    def outcome(self) -> str:
        """How it ended; ``hangs`` when it did not."""
        return "hangs" if self.end is None else self.end.outcome


class Facts:
    """One run, as the checkers see it.

    Args:
      records: all of the run, in order.
      context: what the driver made up.
    """

    def __init__(self, records: Sequence[Record], context: Context) -> None:
        self.records = records
        self.context = context
        self._by_type: dict[type[Record], list[int]] = defaultdict(list)
        for index, record in enumerate(records):
            self._by_type[type(record)].append(index)
        self.connection_ends: dict[int, int] = {}
        """Connection → index of its end, if it has one."""
        for index, end in self.each(ConnectionEnded):
            self.connection_ends.setdefault(end.connection, index)
        self.released: dict[str, int] = {}
        """Child → index of the first release that was asked for it."""
        for index, release in self.each(ReleaseAsked):
            self.released.setdefault(release.child, index)
        self.calm = self._find_calm()
        """Index of the first record in the calm; None when there is none."""
        self.expired = self._expired()
        """Session → index of the report, or event, that it ended without its user's wish."""
        self.given_up = self._given_up()
        """Owner and turn that failed for want of an end → index of the first report, or event, of it."""
        self.calls = self._calls()
        self.branches = self._branches()
        self.side_children: dict[str, str] = {}
        """The provider's id of each Side's child, whether or not it became a Side → its owner."""
        self.owner_of: dict[str, str] = {}
        """Child → owner, of sessions and Sides."""
        self._children: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._connections: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._learn_children()
        self._learn_connections()

    def each(self, kind: type[_R]) -> Iterator[tuple[int, _R]]:
        """Yield the records of a kind with their indices, in order."""
        for index in self._by_type.get(kind, ()):
            yield index, cast("_R", self.records[index])

    def all_of(self, *kinds: type[Record]) -> Iterator[tuple[int, Record]]:
        """Yield the records of some kinds with their indices, in order."""
        for index in sorted(index for kind in kinds for index in self._by_type.get(kind, ())):
            yield index, self.records[index]

    def violation(self, rule: str, index: int, what: str) -> Violation:
        """Make a violation that was seen at a record."""
        return Violation(rule=rule, what=what, at_s=self.records[index].at_s, index=index)

    @property
    def last(self) -> int:
        """Index of the last record."""
        return len(self.records) - 1

    def _expired(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for index, record in self.all_of(
            Stored, SeenEvent
        ):  # a report comes at once; a subscriber may be slow, or gone
            is_report = isinstance(record, Stored) and record.what == "report" and EXPIRED in record.text
            is_event = isinstance(record, SeenEvent) and record.type == "session.expired"
            if isinstance(record, Stored | SeenEvent) and (is_report or is_event) and not self.is_side(record.owner):
                found.setdefault(record.owner, index)
        return found

    def _given_up(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for index, record in self.all_of(Stored, SeenEvent):
            if isinstance(record, SeenEvent) and record.type == "turn.failed" and record.status == GIVEN_UP:
                found.setdefault((record.owner, record.turn), index)
            elif isinstance(record, Stored) and record.what == "report" and GIVEN_UP in record.text:
                for event in _REPORT.decode(record.text).events:
                    if event.reason == GIVEN_UP:
                        found.setdefault((record.owner, event.turn_id), index)
        return found

    def _find_calm(self) -> int | None:
        calm_s = [healed.at_s + CALM_S for _, healed in self.each(Healed)]
        if not calm_s:
            return None
        return next((index for index, record in enumerate(self.records) if record.at_s >= calm_s[-1]), None)

    def is_side(self, owner: str) -> bool:
        """True for the name of a Side."""
        return owner in self.context.sides

    def was_over(self, owner: str, index: int) -> bool:
        """True when a user was told before a record that a Side is over."""
        return any(at < index and end.owner == owner for at, end in self.each(SideEnded))

    def stops(
        self, turn: tuple[str, str], connection: int, since: int, excuses: Container[str]
    ) -> Iterator[tuple[int, Record]]:
        """Yield, from a record on, what ends a turn of a child (or asks for that), or makes it impossible to know.

        That is its end, its interrupt, the end of its connection, the host's stop, and the faults of those names.
        """
        for index, record in self.all_of(TurnEnded, InterruptAsked, ConnectionEnded, HostStopping, Fault):
            if isinstance(record, TurnEnded | InterruptAsked):
                stops = (record.child, record.turn) == turn
            elif isinstance(record, ConnectionEnded):
                stops = record.connection == connection
            elif isinstance(record, Fault):
                stops = record.fault in excuses
            else:
                stops = True
            if stops and index >= since:
                yield index, record

    # Who, and where

    def child_at(self, owner: str, index: int) -> str:
        """Return the latest child that an owner was known to have before a record; empty for none."""
        known = self._children.get(owner, [])
        position = bisect_left(known, (index, ""))
        return known[position - 1][1] if position else ""

    def connection_at(self, child: str, index: int) -> int | None:
        """Return the connection that held a child last before a record; None when it was on none."""
        known = self._connections.get(child, [])
        position = bisect_left(known, (index, -1))
        return known[position - 1][1] if position else None

    def is_connection_over(self, connection: int, index: int) -> bool:
        """True when a connection had ended before a record."""
        end = self.connection_ends.get(connection)
        return end is not None and end <= index

    def _calls(self) -> list[Call]:
        ends = {end.call: (index, end) for index, end in self.each(JobEnded)}
        calls: list[Call] = []
        for index, job in self.each(JobBegan):
            ended, end = ends.get(job.call, (None, None))
            calls.append(Call(began=index, ended=ended, job=job, end=end))
        return calls

    def _branches(self) -> "list[Branch]":
        branches: list[Branch] = []
        waiting: dict[tuple[int, str], int] = {}
        answers: dict[int, tuple[int, BranchAnswered]] = {}
        for index, record in self.all_of(BranchAsked, BranchAnswered):
            if isinstance(record, BranchAsked):
                waiting[record.connection, record.request] = index
            elif isinstance(record, BranchAnswered):
                asked = waiting.pop((record.connection, record.request), None)
                if asked is not None:  # else an answer that was doubled: the first one counts
                    answers[asked] = index, record
        for index, ask in self.each(BranchAsked):
            answered, answer = answers.get(index, (None, None))
            child = "" if answer is None else answer.child
            branches.append(Branch(asked=index, answered=answered, ask=ask, child=child))
        return branches

    def _learn_children(self) -> None:
        for branch in self.branches:
            if branch.child and branch.answered is not None:
                self._learn(branch.answered, branch.ask.owner, branch.child)
                self.side_children.setdefault(branch.child, branch.ask.owner)
        for index, record in self.all_of(SideOpened, SeenEvent, JobEnded):
            if isinstance(record, SideOpened):
                self._learn(index, record.owner, record.child)
                if record.child:
                    self.side_children[record.child] = record.owner
            elif isinstance(record, SeenEvent) and record.type == "session.started":
                self._learn(index, record.owner, record.child)
        for call in self.calls:
            if call.job.what in ("start", "resume") and call.end is not None and call.ended is not None:
                self._learn(call.ended, call.job.owner, call.end.child)
        for known in self._children.values():
            known.sort()

    def _learn(self, index: int, owner: str, child: str) -> None:
        if owner and child:
            self._children[owner].append((index, child))
            self.owner_of[child] = owner

    def _learn_connections(self) -> None:
        for index, record in self.all_of(TurnAsked, TurnBegan, ResumeAsked, BranchAsked):
            if isinstance(record, BranchAsked):
                self._connections[record.source].append((index, record.connection))
            elif isinstance(record, TurnAsked | TurnBegan | ResumeAsked):
                self._connections[record.child].append((index, record.connection))
        for branch in self.branches:
            if branch.child and branch.answered is not None:
                self._connections[branch.child].append((branch.answered, branch.ask.connection))
        for known in self._connections.values():
            known.sort()


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """One branch, from its request to its answer on the wire."""

    asked: int
    """Index of its `BranchAsked`."""
    answered: int | None
    """Index of its first `BranchAnswered`; None when there was none."""
    ask: BranchAsked
    child: str
    """What came of it; empty for a refusal or no answer."""
