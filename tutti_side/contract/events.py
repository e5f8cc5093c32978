"""Events a provider emits, and the numbered batches in which they reach a subscriber. Pure.

Adapters emit events without a number; the scope numbers them and publishes one `EventBatch` per delivery. Each kind
here has a producer. `Gap` and the session's first and last events come from the runtime itself. What an agent does
besides talking stands in `work`.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from tutti_side.contract._event import EventBase
from tutti_side.contract.ids import InteractionId, TurnId
from tutti_side.contract.interactive import InteractionKind, InteractionOption, InteractionQuestion
from tutti_side.contract.work import (
    WORK_EVENTS,
    ErrorRaised,
    PlanDelta,
    PlanUpdated,
    ReasoningDelta,
    ReasoningUpdated,
    ToolOutput,
    ToolStarted,
    ToolUpdated,
    Unknown,
    UsageUpdated,
    WarningRaised,
)

__all__ = [
    "ADAPTER_EVENTS",
    "Audit",
    "AvailableCommand",
    "CommandSnapshot",
    "ConfigOption",
    "ConfigOptions",
    "EndReason",
    "Event",
    "EventBatch",
    "FailureReason",
    "Gap",
    "InteractionRequested",
    "InteractionResolved",
    "MessageDelta",
    "MessageUpdated",
    "SessionClosed",
    "SessionExpired",
    "SessionStarted",
    "SessionUpdated",
    "StatePatch",
    "SubAgentEvent",
    "TurnCanceled",
    "TurnCompleted",
    "TurnFailed",
    "TurnStarted",
]

EndReason = Literal["closed", "lost", "overflow", "source_deleted", "host_stopped"]
"""Why a session or Side came to its end; the reasons of `SideExpiredError`."""

FailureReason = Literal["failed", "terminal_event_missing"]
"""``terminal_event_missing``: the turn is over at the provider, which never said so and can't say how it ended."""


class SessionStarted(EventBase, frozen=True, gc=False, tag="session.started"):
    """The session or Side is open. Always the first event, sequence 1."""

    provider_session_id: str


class SessionExpired(EventBase, frozen=True, gc=False, tag="session.expired"):
    """The end of a session or Side that nobody closed. Nothing follows."""

    reason: EndReason


class SessionClosed(EventBase, frozen=True, gc=False, tag="session.closed"):
    """The end of a session or Side that was closed on request. Nothing follows."""


class TurnStarted(EventBase, frozen=True, gc=False, tag="turn.started"):
    """A turn began."""

    turn_id: TurnId


class TurnCompleted(EventBase, frozen=True, gc=False, tag="turn.completed"):
    """A turn ended well. One of completed, failed and canceled comes exactly once for each turn."""

    turn_id: TurnId


class TurnFailed(EventBase, frozen=True, gc=False, tag="turn.failed"):
    """A turn failed."""

    turn_id: TurnId
    message: str
    """The provider's own words, for the user who asked; not for logs."""
    reason: FailureReason = "failed"


class TurnCanceled(EventBase, frozen=True, gc=False, tag="turn.canceled"):
    """A turn was interrupted."""

    turn_id: TurnId


class MessageDelta(EventBase, frozen=True, gc=False, tag="message.delta"):
    """A piece of an agent's message, in order within its item."""

    turn_id: TurnId
    item_id: str
    text: str


class MessageUpdated(EventBase, frozen=True, gc=False, tag="message.updated"):
    """The whole text of a message, once it is complete; it replaces what the deltas made."""

    turn_id: TurnId
    item_id: str
    text: str


class SessionUpdated(EventBase, frozen=True, gc=False, tag="session.updated"):
    """What the session runs with changed; whole, it replaces what was known."""

    cwd: str
    model: str
    model_provider: str


class StatePatch(EventBase, frozen=True, gc=False, tag="state.patch"):
    """What the session is doing changed."""

    status: str
    """``idle``, ``active``, ``error`` or ``unloaded``."""
    waiting_on: tuple[str, ...] = ()
    """With ``active``: what it waits for, ``approval`` or ``input``."""


class AvailableCommand(msgspec.Struct, frozen=True, gc=False):
    """One command that the provider offers in this session."""

    name: str
    description: str = ""


class CommandSnapshot(EventBase, frozen=True, gc=False, tag="command.snapshot"):
    """The commands that the provider offers; whole, it replaces the one before."""

    commands: tuple[AvailableCommand, ...]


class ConfigOption(msgspec.Struct, frozen=True, gc=False):
    """One setting that a user can choose."""

    name: str
    value: str
    choices: tuple[str, ...] = ()


class ConfigOptions(EventBase, frozen=True, gc=False, tag="config.options"):
    """The settings that a user can choose; whole, they replace those before."""

    options: tuple[ConfigOption, ...]


class InteractionRequested(EventBase, frozen=True, tag="interaction.requested"):
    """The provider asks its user something, and waits."""

    interaction_id: InteractionId
    turn_id: TurnId | None
    """The turn that waits; None when the provider can't say which."""
    kind: InteractionKind
    title: str
    """What is asked, for a person: the command, the question."""
    detail: str = ""
    """More of it: the reason, the paths of a change."""
    options: tuple[InteractionOption, ...] = ()
    questions: tuple[InteractionQuestion, ...] = ()


class InteractionResolved(EventBase, frozen=True, gc=False, tag="interaction.resolved"):
    """An interaction needs no answer any more. Comes exactly once for each."""

    interaction_id: InteractionId
    status: Literal["answered", "superseded"]
    """``superseded``: its turn ended, or nobody could answer it any more and it was declined."""


class Audit(EventBase, frozen=True, gc=False, tag="audit"):
    """Something happened that a person may want to know of afterwards; never a prompt or a model's words."""

    action: str
    """For example ``request_declined``."""
    subject: str
    """What it was done to: a method, a tool's name."""


class SubAgentEvent(EventBase, frozen=True, tag="sub_agent.event"):
    """An agent that the session's or Side's own agent started says or does something; never a turn of its parent."""

    agent_id: str
    """The provider's id of it; the same for all its events."""
    event: "Event"
    """As if it were of a session of its own; never another `SubAgentEvent`."""


class Gap(EventBase, frozen=True, gc=False, tag="gap"):
    """This subscriber missed the events numbered `first` to `last` and was cut off; nobody else was."""

    first: int
    last: int


Event = (
    SessionStarted
    | SessionExpired
    | SessionClosed
    | TurnStarted
    | TurnCompleted
    | TurnFailed
    | TurnCanceled
    | MessageDelta
    | MessageUpdated
    | ReasoningDelta
    | ReasoningUpdated
    | ToolStarted
    | ToolOutput
    | ToolUpdated
    | PlanDelta
    | PlanUpdated
    | UsageUpdated
    | WarningRaised
    | ErrorRaised
    | Unknown
    | SessionUpdated
    | StatePatch
    | CommandSnapshot
    | ConfigOptions
    | InteractionRequested
    | InteractionResolved
    | Audit
    | SubAgentEvent
    | Gap
)

ADAPTER_EVENTS = (
    TurnStarted,
    TurnCompleted,
    TurnFailed,
    TurnCanceled,
    MessageDelta,
    MessageUpdated,
    *WORK_EVENTS,
    SessionUpdated,
    StatePatch,
    CommandSnapshot,
    ConfigOptions,
    InteractionRequested,
    InteractionResolved,
    Audit,
    SubAgentEvent,
)
"""The kinds that an adapter may emit; the runtime makes the others."""


class EventBatch(msgspec.Struct, frozen=True):
    """Consecutive events of one session or Side, as published at once; shared by its subscribers."""

    first_sequence: int
    """Number of the first event; the others follow without a gap. Counted from 1 for each session and Side."""
    events: tuple[Event, ...]

    def numbered(self) -> Iterator[tuple[int, Event]]:
        """Yield each event with its sequence number."""
        return enumerate(self.events, self.first_sequence)
