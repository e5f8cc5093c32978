"""Which answer belongs to which request, in both directions; pure: no await, no clock (`now` is an argument).

A request of ours moves through the phases below. It is *taken back* as long as no byte of it is written; from then on
its answer may come at any time, also when nobody waits for it any more, and finds its entry.

    WAITING ──admit──▶ QUEUED ──write──▶ SENT ──leave──▶ ABANDONED ──expire──▶ EXPIRED
       │ leave           │ leave           │ answer          │ answer            │ answer, forget
       └────────────▶ DONE ◀───────────────┴─────────────────┴───────────────────┘      (close: from every phase)

QUEUED, SENT and ABANDONED hold a slot. So a peer that never answers costs slots only for a while, and a late answer
still does what its hook says. WAITING has no bound of its own: behind each entry there stands a task of the caller's,
with a deadline. Decide, then act: every call here changes the state and returns what the caller must do.
"""

import collections
import enum
import math
from typing import Generic, TypeVar

from tutti_side.jsonrpc.messages import RequestId

__all__ = [
    "CLEANUP_SLOTS",
    "EXPIRED_ENTRIES_MAX",
    "IN_FLIGHT_MAX",
    "OPEN_REQUESTS_MAX",
    "OPEN_REQUEST_IDS_CHARACTERS_MAX",
    "SLOT_GRACE_S",
    "UNANSWERED_MAX",
    "Correlation",
    "Entry",
    "OpenRequests",
    "Phase",
]

IN_FLIGHT_MAX = 64
"""Requests on the wire at once: of 100 at once the proven server answers all, of 500 it loses some without a word."""

CLEANUP_SLOTS = 8
"""Slots on top that only cleanup may use, so that closing works while everything else waits."""

SLOT_GRACE_S = 30.0
"""How long after its deadline a request that nobody waits for keeps its slot: the server may be busy with it still."""

EXPIRED_ENTRIES_MAX = 1024
"""Requests without a slot whose late answer is still looked for; the oldest is forgotten for a newer one."""

UNANSWERED_MAX = 64
"""This many requests whose grace ran out, with no answer to anything in between, make the connection unhealthy: as many
as may be in flight, so one slow method alone never does it."""

OPEN_REQUESTS_MAX = 4096
"""Requests of the peer that may be unanswered at once; each costs us an entry until somebody answers it."""


OPEN_REQUEST_IDS_CHARACTERS_MAX = 1 << 20
"""The same bound in length: an id may be a string, and nothing but us keeps a peer from a long one."""


class Phase(enum.Enum):
    """Where a request of ours stands; see the module's picture."""

    WAITING = "waiting"
    QUEUED = "queued"
    SENT = "sent"
    ABANDONED = "abandoned"
    EXPIRED = "expired"
    DONE = "done"


_STEPS: dict[str, dict[Phase, Phase]] = {
    "admit": {Phase.WAITING: Phase.QUEUED},
    "write": {Phase.QUEUED: Phase.SENT},
    "leave": {Phase.WAITING: Phase.DONE, Phase.QUEUED: Phase.DONE, Phase.SENT: Phase.ABANDONED},
    "answer": {Phase.SENT: Phase.DONE, Phase.ABANDONED: Phase.DONE, Phase.EXPIRED: Phase.DONE},
    "expire": {Phase.ABANDONED: Phase.EXPIRED},
    "forget": {Phase.EXPIRED: Phase.DONE},
    "close": dict.fromkeys([phase for phase in Phase if phase is not Phase.DONE], Phase.DONE),
}


class Entry:
    """One request of ours; whoever correlates derives from it what it needs beside.

    Attributes:
      number: its id on the wire.
      method: what is asked for.
      due: the moment of its deadline, on the caller's clock in seconds.
      cleanup: whether it may use a cleanup slot.
      phase: where it stands; only `Correlation` moves it.
    """

    __slots__ = ("cleanup", "due", "method", "number", "phase")

    def __init__(self, number: int, method: str, due: float, *, cleanup: bool) -> None:
        self.number = number
        self.method = method
        self.due = due
        self.cleanup = cleanup
        self.phase = Phase.WAITING

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.method} {self.phase.value}>"


E = TypeVar("E", bound=Entry)


class Correlation(Generic[E]):
    """The requests of ours on one connection.

    Attributes:
      duplicate_answers: answers to a request that is over: answered before, forgotten, or taken back.
      unknown_answers: answers with an id that stands for no request on the wire, now or before.
      unanswered: requests whose grace ran out since the last answer to anything.
      forgotten: requests whose late answer is not looked for any more.
    """

    def __init__(self, in_flight_max: int = IN_FLIGHT_MAX, cleanup_slots: int = CLEANUP_SLOTS) -> None:
        self._in_flight_max = in_flight_max
        self._cleanup_slots = cleanup_slots
        self._last_number = 0
        self._waiting: collections.OrderedDict[int, E] = collections.OrderedDict()
        self._waiting_cleanup: collections.OrderedDict[int, E] = collections.OrderedDict()
        self._in_flight: dict[int, E] = {}
        self._expired: collections.OrderedDict[int, E] = collections.OrderedDict()
        self.duplicate_answers = 0
        self.unknown_answers = 0
        self.unanswered = 0
        self.forgotten = 0

    @property
    def in_flight(self) -> int:
        """Requests that hold a slot."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot, or for room in the write queue."""
        return len(self._waiting) + len(self._waiting_cleanup)

    @property
    def expired(self) -> int:
        """Requests without a slot whose late answer is still looked for."""
        return len(self._expired)

    @property
    def is_unhealthy(self) -> bool:
        """Whether so many requests in a row had no answer that none can be expected."""
        return self.unanswered >= UNANSWERED_MAX

    def next_number(self) -> int:
        """Return a new id: 1, 2, 3, …"""
        self._last_number += 1
        return self._last_number

    def add(self, entry: E) -> None:
        """Let a new entry wait for its slot."""
        (self._waiting_cleanup if entry.cleanup else self._waiting)[entry.number] = entry

    def admit(self, *, cleanup_only: bool = False) -> E | None:
        """Give a slot to the next entry that may have one, and return it: it is to be queued for writing.

        First come, first served; cleanup goes ahead of the rest, since its answer is what frees things.
        """
        in_flight = len(self._in_flight)
        if self._waiting_cleanup and in_flight < self._in_flight_max + self._cleanup_slots:
            entry = self._waiting_cleanup.popitem(last=False)[1]
        elif self._waiting and not cleanup_only and in_flight < self._in_flight_max:
            entry = self._waiting.popitem(last=False)[1]
        else:
            return None
        _step(entry, "admit")
        self._in_flight[entry.number] = entry
        return entry

    def write(self, entry: E) -> None:
        """Note that the writer has taken the entry: it counts as sent."""
        _step(entry, "write")

    def leave(self, entry: E) -> bool:
        """Note that nobody waits for the entry any more; return whether it was taken back.

        Taken back, it is over and must not be written. Otherwise it is on the wire and its answer still finds it.
        """
        _step(entry, "leave")
        if entry.phase is Phase.ABANDONED:
            return False
        waiting = self._waiting_cleanup if entry.cleanup else self._waiting
        if waiting.pop(entry.number, None) is None:
            del self._in_flight[entry.number]
        return True

    def answer(self, request_id: RequestId) -> E | None:
        """Return the entry that this answer ends, or None, counted: no request on the wire has this id."""
        if isinstance(request_id, str):
            self.unknown_answers += 1
            return None
        entry = self._in_flight.get(request_id) or self._expired.get(request_id)
        if entry is None or entry.phase is Phase.QUEUED:
            over = entry is None and 0 < request_id <= self._last_number and not self._is_waiting(request_id)
            self.duplicate_answers += over
            self.unknown_answers += not over
            return None
        _step(entry, "answer")
        if self._in_flight.pop(request_id, None) is None:
            del self._expired[request_id]
        self.unanswered = 0
        return entry

    def next_expiry(self) -> float:
        """Return the moment at which the next abandoned entry's grace runs out; infinity if there is none."""
        abandoned = (entry.due for entry in self._in_flight.values() if entry.phase is Phase.ABANDONED)
        return min(abandoned, default=math.inf) + SLOT_GRACE_S

    def expire(self, now: float) -> list[E]:
        """Take the slots of the abandoned entries whose grace has run out; return the entries forgotten for them."""
        for entry in list(self._in_flight.values()):
            if entry.phase is Phase.ABANDONED and entry.due + SLOT_GRACE_S <= now:
                _step(entry, "expire")
                del self._in_flight[entry.number]
                self._expired[entry.number] = entry
                self.unanswered += 1
        forgotten: list[E] = []
        while len(self._expired) > EXPIRED_ENTRIES_MAX:
            entry = self._expired.popitem(last=False)[1]
            _step(entry, "forget")
            forgotten.append(entry)
        self.forgotten += len(forgotten)
        return forgotten

    def close(self) -> list[E]:
        """End every entry and return all of them, oldest first."""
        parts = (self._expired, self._in_flight, self._waiting_cleanup, self._waiting)
        entries = sorted((entry for part in parts for entry in part.values()), key=lambda entry: entry.number)
        for part in parts:
            part.clear()
        for entry in entries:
            _step(entry, "close")
        return entries

    def _is_waiting(self, number: int) -> bool:
        return number in self._waiting or number in self._waiting_cleanup


class OpenRequests:
    """The peer's requests that have no answer yet: each gets at most one.

    Ids are compared as they stood on the wire: ``0`` and ``"0"`` are two requests.

    Attributes:
      refused: requests beyond the bound.
      repeated: requests under an id that was still open; they can't be told apart, so only the first is one.
    """

    def __init__(self, open_max: int = OPEN_REQUESTS_MAX) -> None:
        self._open_max = open_max
        self._ids: set[RequestId] = set()
        self._characters = 0
        self.refused = 0
        self.repeated = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._ids

    def open(self, request_id: RequestId) -> bool | None:
        """Note a request of the peer: True if it is open now, False if there are too many, None if its id was open."""
        if request_id in self._ids:
            self.repeated += 1
            return None
        characters = self._characters + _length(request_id)
        if len(self._ids) >= self._open_max or characters > OPEN_REQUEST_IDS_CHARACTERS_MAX:
            self.refused += 1
            return False
        self._ids.add(request_id)
        self._characters = characters
        return True

    def close(self, request_id: RequestId) -> None:
        """Note that the request is answered: from now on it is unknown."""
        if request_id in self._ids:
            self._ids.remove(request_id)
            self._characters -= _length(request_id)

    def clear(self) -> None:
        """Forget all: there is nobody left to answer."""
        self._ids.clear()
        self._characters = 0


def _length(request_id: RequestId) -> int:
    return len(request_id) if isinstance(request_id, str) else 0


def _step(entry: Entry, event: str) -> None:
    """Move `entry` by the table; a step that isn't in it is a bug of ours and changes nothing."""
    after = _STEPS[event].get(entry.phase)
    if after is None:
        raise AssertionError(f"{entry!r} can't take the step {event!r}")
    entry.phase = after
