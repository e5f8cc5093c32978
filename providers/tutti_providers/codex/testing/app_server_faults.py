"""What a fake app-server can be told to do wrong, as frozen structs; and the plan that hands them out.

Each fault names the method it waits for (``*`` is any) and how often it strikes. They are data, so that a fake in
another process gets them as JSON.
"""

from typing import Any, Literal, TypeVar

import msgspec

__all__ = [
    "AnswerLate",
    "AnswerTwice",
    "CrashAfterEffect",
    "CrashAfterSends",
    "CrashOn",
    "DropTurnCompleted",
    "Fault",
    "FaultPlan",
    "ForkAnswer",
    "ForkMessage",
    "ForkOrder",
    "GarbageBefore",
    "NeverAnswer",
    "Overloaded",
    "Refuse",
    "StopReading",
    "Strangers",
    "TurnFails",
    "TurnStartsFirst",
]

ForkMessage = Literal["starting", "ready", "status", "started", "request", "response"]
"""A message about a fork's child: tool server starting and ready, status, `thread/started`, a request, the answer."""


class _Fault(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    times: int = 1_000_000
    """How often it strikes; practically always unless given."""


class NeverAnswer(_Fault, frozen=True, kw_only=True, tag="never_answer"):
    """The request has no effect and no answer (what a burst does to the real one)."""


class Overloaded(_Fault, frozen=True, kw_only=True, tag="overloaded"):
    """The answer is -32001, without effect."""


class Refuse(_Fault, frozen=True, kw_only=True, tag="refuse"):
    """The answer is an error, without effect."""

    code: int = -32603


class AnswerTwice(_Fault, frozen=True, kw_only=True, tag="answer_twice"):
    """The answer comes twice."""


class AnswerLate(_Fault, frozen=True, kw_only=True, tag="answer_late"):
    """The effect is at once, the answer (and what follows it in wire order) is held."""

    gate: str | None = None
    """Until this gate opens…"""
    after_s: float = 0.0
    """…or for this long, if no gate is named."""


class GarbageBefore(_Fault, frozen=True, kw_only=True, tag="garbage_before"):
    """Bytes, newline included or not, before whatever the request causes."""

    data: bytes


class Strangers(_Fault, frozen=True, kw_only=True, tag="strangers"):
    """A turn's worth of events, and a server request, of a thread nobody asked for, before the answer."""

    thread_id: str = "01a0ffff-0000-7000-8000-00000000dead"


class CrashOn(_Fault, frozen=True, kw_only=True, tag="crash_on"):
    """Exit instead of handling the request."""

    status: int = 101


class CrashAfterEffect(_Fault, frozen=True, kw_only=True, tag="crash_after_effect"):
    """Handle the request, and exit before it is answered."""

    status: int = 101


class ForkAnswer(_Fault, frozen=True, kw_only=True, tag="fork_answer"):
    """Replace fields of a fork's answer: a wrong lineage, a path, `ephemeral` false, another model…"""

    method: str = "thread/fork"
    thread: dict[str, Any] = {}
    """Fields of ``result.thread``; a ``null`` path is a value like any other."""
    result: dict[str, Any] = {}
    """Other fields of the result."""
    without: tuple[str, ...] = ()
    """Fields of ``result.thread`` that are left out, as old versions do."""
    known_child: bool = False
    """No child is made; the answer names a thread that is there already, the source itself perhaps."""


class ForkOrder(_Fault, frozen=True, kw_only=True, tag="fork_order"):
    """The order of the messages about a fork's child."""

    method: str = "thread/fork"
    order: tuple[ForkMessage, ...]


class TurnStartsFirst(_Fault, frozen=True, kw_only=True, tag="turn_starts_first"):
    """`turn/started` comes before the answer to `turn/start`, as about one in ten times with the real one."""

    method: str = "turn/start"


class TurnFails(_Fault, frozen=True, kw_only=True, tag="turn_fails"):
    """The model fails in the turn."""

    method: str = "turn/start"
    after_tokens: int = 0
    """So much of its reply is said before."""


class CrashAfterSends(_Fault, frozen=True, kw_only=True, tag="crash_after_sends"):
    """Exit after so many messages were sent."""

    method: str = "*"
    sends: int
    status: int = 101


class DropTurnCompleted(_Fault, frozen=True, kw_only=True, tag="drop_turn_completed"):
    """A turn ends, but `turn/completed` never comes."""

    method: str = "turn/completed"
    with_status: bool = False
    """Nor does the status that comes with it: not a word."""
    forgets: bool = False
    """The thread's list of turns does not know it either."""


class StopReading(_Fault, frozen=True, kw_only=True, tag="stop_reading"):
    """Handle the request, then read no more."""

    for_s: float | None = None
    """For so long; None is for ever."""


Fault = (
    NeverAnswer
    | Overloaded
    | Refuse
    | AnswerTwice
    | AnswerLate
    | GarbageBefore
    | Strangers
    | CrashOn
    | CrashAfterEffect
    | ForkAnswer
    | ForkOrder
    | TurnStartsFirst
    | TurnFails
    | CrashAfterSends
    | DropTurnCompleted
    | StopReading
)

_Kind = TypeVar("_Kind", bound=_Fault)


class FaultPlan:
    """Hands out each fault as often as it may strike."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._left = [(fault, [fault.times]) for fault in faults]

    def begin_request(self, method: str, params: dict[str, Any]) -> None:
        """Take note of the request that the next faults are asked for."""

    def take(self, kind: type[_Kind], method: str) -> _Kind | None:
        """The first fault of that kind for the method, counted as having struck; None when there is none."""
        for fault, left in self._left:
            if isinstance(fault, kind) and fault.method in (method, "*") and left[0] > 0:
                left[0] -= 1
                return fault
        return None

    def crash_after_sends(self) -> CrashAfterSends | None:
        """The fault that counts sends, if there is one."""
        return next((fault for fault, _ in self._left if isinstance(fault, CrashAfterSends)), None)
