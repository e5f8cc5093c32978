"""What a simulated run is seen as: one list of records, in order. Pure; knows no runtime and no provider.

Three tell: the driver (jobs, and what their users saw), the provider's stand-in (what really went over its wire, in
words that any provider has), and the clock of both is the run's own. The checkers judge this list and nothing else, so
whatever a rule is about has to be in it. The order of the list is the order in which things happened.

A `child` is the provider's own id of a thread, session or Side. An `owner` is what the driver calls it: ``p0.1``
for the first session of slot 0, ``a/s3`` for a Side in workspace ``a``. A name is one thing in the whole run: a second
host gives its Sides names of their own, since what is over is remembered by the host that ended it.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = [
    "AgentCalled",
    "Answered",
    "AskKind",
    "Asked",
    "BoundaryDrawn",
    "BranchAnswered",
    "BranchAsked",
    "CommandsEnded",
    "ConnectionEnded",
    "ConnectionOpened",
    "Fault",
    "Healed",
    "HostEnded",
    "HostStopping",
    "InterruptAsked",
    "JobBegan",
    "JobEnded",
    "Leftover",
    "LogLine",
    "Matched",
    "Read",
    "Record",
    "ReleaseAnswered",
    "ReleaseAsked",
    "Rested",
    "ResumeAsked",
    "Sampled",
    "SeenEvent",
    "Settled",
    "SideEnded",
    "SideOpened",
    "SteerAsked",
    "Stored",
    "Stormed",
    "SubscriptionBegan",
    "SubscriptionEnded",
    "TurnAnswered",
    "TurnAsked",
    "TurnBegan",
    "TurnEnded",
    "WentOver",
    "World",
    "marked_owner",
    "side_mark",
]

AskKind = Literal["command", "change", "input", "elicitation"]
"""What a turn asks its user: to run a command, to change files, a question, what a tool's server wants to know."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver made up for one run, and what stand-in and checkers need of it."""

    answers: Mapping[str, tuple[str, ...]]
    """Question → the tokens that the model says. Each word of a token begins with its owner's name and a slash."""
    approvals: Mapping[str, tuple[AskKind, ...]]
    """Question → what its turn asks its user before it answers, one or two at once. A question that is no key here
    asks nothing. What is declined is not run; the answer is said all the same."""


_MARK = re.compile(r"<<side ([^<>]+)>>")


def side_mark(owner: str) -> str:
    """Return the words that stand in a Side's instructions and nowhere else, and name it."""
    return f"<<side {owner}>>"


def marked_owner(text: str) -> str:
    """Return the owner of the first mark in a text, empty without one."""
    found = _MARK.search(text)
    return found[1] if found else ""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    """Base of all."""

    at_s: float
    """Virtual time."""


# Told by the driver


class Stormed(Record, frozen=True, kw_only=True, tag=True):
    """The faults begin."""


class Healed(Record, frozen=True, kw_only=True, tag=True):
    """They end. From here on nothing is asked for but what the driver does to see that all converged."""


class JobBegan(Record, frozen=True, kw_only=True, tag=True):
    """A job begins one call of the public API."""

    job: int
    call: int
    """Unique in the run; its `JobEnded` has the same."""
    what: str
    """Of a session: ``start``, ``resume``, ``close session``, ``delete``, ``context``, ``resolve``. Of a Side:
    ``open``, ``close``, ``block`` (from open to close). Of both: ``send``, ``ask``, ``wait``, ``cancel``,
    ``steer``, ``end commands``, ``respond``."""
    owner: str = ""
    source: str = ""
    """With ``open``: the owner of the session that is branched."""
    request: str = ""
    detail: str = ""
    """With ``respond``: the option, or ``answers``. With ``send``, ``ask`` and ``steer``: the question."""
    interaction: str = ""
    """With ``respond``: which one."""
    turn: str = ""
    """With ``cancel``, ``steer`` and ``wait``: which one."""


class JobEnded(Record, frozen=True, kw_only=True, tag=True):
    """The call has come to its end."""

    job: int
    call: int
    outcome: str
    """``ok``, ``cut off`` when the driver cancelled it, or the type of the error."""
    is_typed: bool = True
    """False when the error is none of the product's own, which it never may be."""
    returned: str = ""
    """With ``wait`` and ``ask``: how the turn ended, for example ``completed``. With ``open``: the handle's side id."""
    child: str = ""
    """With ``start`` and ``resume``: the session's id at the provider; with ``open``: the Side's, once known."""
    reason: str = ""
    """With ``wait``: why the turn failed."""
    text: str = ""
    """With ``wait`` and ``ask``: all the turn's messages, one behind the other."""
    turn: str = ""
    """With ``send``, ``wait`` and ``ask``: which one."""


class SideOpened(Record, frozen=True, kw_only=True, tag=True):
    """A call returned a Side: it is open for its user."""

    owner: str
    source: str
    child: str


class SideEnded(Record, frozen=True, kw_only=True, tag=True):
    """A user was told that a Side is over: its close returned, or its terminal event was seen."""

    owner: str
    reason: str


class SeenEvent(Record, frozen=True, kw_only=True, tag=True):
    """One event, as one subscription saw it."""

    subscription: int
    owner: str
    sequence: int
    type: str
    """The contract's tag, for example ``message.delta``."""
    turn: str = ""
    item: str = ""
    text: str = ""
    interaction: str = ""
    status: str = ""
    """With ``turn.failed`` and ``session.expired``: the reason; of an interaction: its kind, or how it was resolved; of
    ``sub_agent.event``: the tag of what it holds."""
    options: tuple[str, ...] = ()
    """With ``interaction.requested``: the ids of its options."""
    child: str = ""
    """With ``session.started``: the provider's id; with ``sub_agent.event``: the agent's."""


class SubscriptionBegan(Record, frozen=True, kw_only=True, tag=True):
    """Somebody begins to read a subscription."""

    subscription: int
    owner: str
    opened_by: int = 0
    """The call of the ``open`` that it was asked for with; 0 for one that starts at now."""


class SubscriptionEnded(Record, frozen=True, kw_only=True, tag=True):
    """A subscription came to its end, with or without a terminal event or gap before."""

    subscription: int
    owner: str


class Stored(Record, frozen=True, kw_only=True, tag=True):
    """Something durable was written, through a port: metadata, or a canonical event that was reported."""

    what: str
    """``metadata`` or ``report``."""
    owner: str
    """As the port was told: the session's id."""
    text: str
    """All of it, as JSON."""


class LogLine(Record, frozen=True, kw_only=True, tag=True):
    """A line of the product's log, whole."""

    text: str


class Sampled(Record, frozen=True, kw_only=True, tag=True):
    """Counts at one moment, by name; `checks.bounds` has the names with a bound."""

    where: str
    """``fault``, ``healed``, ``end``."""
    counts: dict[str, int]


class Matched(Record, frozen=True, kw_only=True, tag=True):
    """A fault struck while a Side of its connection was in that state of its lifecycle."""

    owner: str
    state: str
    fault: str


class Leftover(Record, frozen=True, kw_only=True, tag=True):
    """All is calm and closed, and something is left that no live session needs."""

    what: str


class HostStopping(Record, frozen=True, kw_only=True, tag=True):
    """The host's block ends."""

    host: int


class HostEnded(Record, frozen=True, kw_only=True, tag=True):
    """It has ended."""

    host: int
    tasks: int
    """Tasks that are alive now and were not before the host."""
    threads: int
    """Threads that are not Trio's idle cache."""
    error: str = ""
    """The exception that left the block, if one did."""


# Told by the provider's stand-in


class Fault(Record, frozen=True, kw_only=True, tag=True):
    """A fault struck."""

    fault: str
    """The name of its kind; see `SimulatedBed.faults`."""
    connection: int
    """-1 for a fault of the driver's own, which may meet any."""
    child: str = ""
    """Whose messages it concerns, if that can be said."""


class ConnectionOpened(Record, frozen=True, kw_only=True, tag=True):
    """A connection to a fresh process of the provider."""

    connection: int
    attested: bool = True
    """False when it is of a version that may not be offered Sides."""


class ConnectionEnded(Record, frozen=True, kw_only=True, tag=True):
    """It is gone; no message of it comes any more."""

    connection: int


class WentOver(Record, frozen=True, kw_only=True, tag=True):
    """The provider wrote something that we could have read from this moment on."""

    connection: int
    bytes: int


class Read(Record, frozen=True, kw_only=True, tag=True):
    """Our reader took bytes."""

    connection: int
    bytes: int


class BranchAsked(Record, frozen=True, kw_only=True, tag=True):
    """A branch was asked for on the wire."""

    connection: int
    request: str
    source: str
    """The child that is branched."""
    owner: str
    """The Side whose instructions it carries, as far as they name one; see `marked_owner`."""
    restricted: bool = True
    """False when it asks for more than its source may."""


class BranchAnswered(Record, frozen=True, kw_only=True, tag=True):
    """It was answered."""

    connection: int
    request: str
    child: str = ""
    """Empty for a refusal."""


class BoundaryDrawn(Record, frozen=True, kw_only=True, tag=True):
    """The provider has taken, for a branch's child, what it is told of itself and the item where the Side begins."""

    connection: int
    child: str
    owner: str
    """The Side that it was told to be; see `marked_owner`."""


class ReleaseAsked(Record, frozen=True, kw_only=True, tag=True):
    """A child is given up on the wire (for Codex: unsubscribed)."""

    connection: int
    child: str


class ReleaseAnswered(Record, frozen=True, kw_only=True, tag=True):
    """It is released at the provider."""

    connection: int
    child: str


class ResumeAsked(Record, frozen=True, kw_only=True, tag=True):
    """A child is to be loaded again; never a Side's."""

    connection: int
    child: str


class AgentCalled(Record, frozen=True, kw_only=True, tag=True):
    """A session or Side has called an agent, which has a child of its own, and lives no longer."""

    connection: int
    child: str
    """The agent's."""
    parent: str
    """The child that called it."""


class TurnAsked(Record, frozen=True, kw_only=True, tag=True):
    """A turn was asked for on the wire."""

    connection: int
    request: str
    child: str
    question: str = ""
    restricted: bool = True
    """False when a Side's turn asks for more than its source may."""


class TurnAnswered(Record, frozen=True, kw_only=True, tag=True):
    """And answered; `turn` is empty for a refusal."""

    connection: int
    request: str
    child: str
    turn: str = ""


class TurnBegan(Record, frozen=True, kw_only=True, tag=True):
    """The provider said that a turn began."""

    connection: int
    child: str
    turn: str
    question: str = ""
    """What it answers; empty for a turn that nobody asked for."""


class TurnEnded(Record, frozen=True, kw_only=True, tag=True):
    """The provider said that a turn ended."""

    connection: int
    child: str
    turn: str
    status: str
    """``completed``, ``failed`` or ``canceled``."""


class Rested(Record, frozen=True, kw_only=True, tag=True):
    """Asked about a child, the provider said that no turn runs in it; of one that did it may never tell the end."""

    connection: int
    child: str


class InterruptAsked(Record, frozen=True, kw_only=True, tag=True):
    """An interrupt went over the wire."""

    connection: int
    child: str
    turn: str


class SteerAsked(Record, frozen=True, kw_only=True, tag=True):
    """More input for a turn that runs went over the wire."""

    connection: int
    child: str
    turn: str
    question: str


class CommandsEnded(Record, frozen=True, kw_only=True, tag=True):
    """The provider was asked to end what the turns of a child left running."""

    connection: int
    child: str


class Asked(Record, frozen=True, kw_only=True, tag=True):
    """The provider asks its user something, and waits."""

    connection: int
    request: str
    """Its id, as JSON: ``0`` and ``"0"`` are two."""
    child: str
    turn: str = ""
    kind: str = ""


class Settled(Record, frozen=True, kw_only=True, tag=True):
    """The provider said by itself that it waits for no answer any more."""

    connection: int
    request: str


class Answered(Record, frozen=True, kw_only=True, tag=True):
    """One response to such a request went over the wire: at most one may, for each."""

    connection: int
    request: str
    made_s: float
    """The earliest time at which it can have been given: it may have waited for its writer."""
    accepts: bool
    """Whether it allows something."""
    outside: bool = False
    """Whether what it allows reaches beyond the Side that was asked."""
