"""Events of an agent's work besides its messages: reasoning, tools, plans, tokens, warnings, errors. Pure.

Few and the same for all providers; what a provider says beyond them is an `Unknown`, never an error. A *delta* is a
piece as it came; an *updated* is whole and replaces what the pieces made. None of them is a turn's answer: the runtime
keeps messages only. All of them can hold a prompt, a model's words or a file's content, so none belongs into a log.
"""

from typing import Literal

import msgspec

from tutti_side.contract._event import EventBase
from tutti_side.contract.ids import TurnId

__all__ = [
    "WORK_EVENTS",
    "ChangedFile",
    "ErrorRaised",
    "PlanDelta",
    "PlanStep",
    "PlanUpdated",
    "ReasoningDelta",
    "ReasoningUpdated",
    "TokenCount",
    "ToolKind",
    "ToolOutput",
    "ToolStarted",
    "ToolStatus",
    "ToolUpdated",
    "Unknown",
    "UsageUpdated",
    "WarningRaised",
]


# Reasoning


class ReasoningDelta(EventBase, frozen=True, gc=False, tag="reasoning.delta"):
    """A piece of what a model shows of its reasoning, in order within its item."""

    turn_id: TurnId
    item_id: str
    text: str
    is_summary: bool = True
    """True: of the summary that its provider makes for people; False: of the model's own words."""


class ReasoningUpdated(EventBase, frozen=True, gc=False, tag="reasoning.updated"):
    """All that a model showed of one piece of reasoning, once it is complete; its parts with a blank line between."""

    turn_id: TurnId
    item_id: str
    summary: str
    text: str = ""
    """The model's own words, where its provider shows them."""


# Tools

ToolKind = Literal["command", "file_change", "tool", "web_search", "agent"]
"""``command``: a shell command. ``file_change``: a patch. ``tool``: a named tool, of the agent, a tool server or the
host. ``web_search``: a search of the model. ``agent``: a sub-agent is started, fed or ended."""

ToolStatus = Literal["completed", "failed", "declined"]
"""``failed`` also stands for a word that we don't know: it is no success. ``declined``: the user said no."""


class ChangedFile(msgspec.Struct, frozen=True, gc=False):
    """One file of a patch."""

    path: str
    change: str
    """``add``, ``delete`` or ``update``; a newer provider may know more."""
    diff: str = ""
    """A unified diff; of a file that is added or deleted, its content."""
    moved_to: str | None = None


class ToolStarted(EventBase, frozen=True, gc=False, tag="tool.started"):
    """A tool begins, or is about to, once its user allows it."""

    turn_id: TurnId
    item_id: str
    kind: ToolKind
    title: str
    """For a person: the command line, the tool's name, the paths, the query."""
    detail: str = ""
    """More of it: where a command runs, a tool's arguments as JSON."""
    changes: tuple[ChangedFile, ...] = ()


class ToolOutput(EventBase, frozen=True, gc=False, tag="tool.output"):
    """A piece of what a running tool prints, or says of its progress, as it came. It can miss what came first."""

    turn_id: TurnId
    item_id: str
    text: str


class ToolUpdated(EventBase, frozen=True, gc=False, tag="tool.updated"):
    """A tool is over; whole, it replaces what was known. May come after its turn's end, or never."""

    turn_id: TurnId
    item_id: str
    kind: ToolKind
    title: str
    status: ToolStatus
    detail: str = ""
    output: str = ""
    """What it printed or returned, as text; an error's sentence when it failed with one."""
    exit_status: int | None = None
    """Of a command; None when it has none."""
    changes: tuple[ChangedFile, ...] = ()


# Plans


class PlanDelta(EventBase, frozen=True, gc=False, tag="plan.delta"):
    """A piece of a plan that is being written, in order within its item."""

    turn_id: TurnId
    item_id: str
    text: str


class PlanStep(msgspec.Struct, frozen=True, gc=False):
    """One step of a plan."""

    text: str
    status: str
    """``pending``, ``in_progress`` or ``completed``."""


class PlanUpdated(EventBase, frozen=True, gc=False, tag="plan.updated"):
    """The plan, whole: a written text, or steps that are ticked off. It replaces the one before of its sort."""

    turn_id: TurnId
    text: str = ""
    """The plan as it was written; with steps, why they changed."""
    steps: tuple[PlanStep, ...] = ()
    item_id: str | None = None
    """Of a written plan: what its deltas were of."""


# What it costs, and what goes wrong


class TokenCount(msgspec.Struct, frozen=True, gc=False):
    """Tokens as the model's provider counts them."""

    total: int = 0
    input: int = 0
    cached_input: int = 0
    """Of the input."""
    output: int = 0
    reasoning_output: int = 0
    """Of the output."""


class UsageUpdated(EventBase, frozen=True, gc=False, tag="usage.updated"):
    """What was used so far; whole, it replaces the one before."""

    turn_id: TurnId
    total: TokenCount
    """Of the session or Side, with what it inherited."""
    last: TokenCount
    """Of its last request to the model."""
    context_window: int | None = None
    """Tokens that the model can be given; None when unknown."""


class WarningRaised(EventBase, frozen=True, gc=False, tag="warning"):
    """The provider warns its user; everything goes on."""

    message: str
    detail: str = ""


class ErrorRaised(EventBase, frozen=True, gc=False, tag="error"):
    """A turn met an error. It is not the turn's end: that is told by an event of its own."""

    turn_id: TurnId
    message: str
    """The provider's own words, for the user who asked; not for logs."""
    will_retry: bool
    """True: the provider tries again by itself, and the turn goes on."""
    cause: str = ""
    """The provider's word for it, such as ``usageLimitExceeded``; empty when it has none."""
    detail: str = ""


class Unknown(EventBase, frozen=True, gc=False, tag="unknown"):
    """The provider said something of a kind that we don't model; its content is left out. Adapters count them too."""

    kind: str
    """The provider's word for it, cut at 128 characters."""
    turn_id: TurnId | None = None


WORK_EVENTS = (
    ReasoningDelta,
    ReasoningUpdated,
    ToolStarted,
    ToolOutput,
    ToolUpdated,
    PlanDelta,
    PlanUpdated,
    UsageUpdated,
    WarningRaised,
    ErrorRaised,
    Unknown,
)
"""All of them; each is one that an adapter may emit."""
