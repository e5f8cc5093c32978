"""Every fault that a simulated Codex commits, as one table, and how it is drawn.

Each run draws a factor for each fault, so that a seed is about some of them and spares others: what needs two rare
faults at once is met so, and what a frequent one would hide is seen as well.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import trio

from tutti_side.testing.simulation.records import Fault, Record

from ._fake_disturbances import Disturb, Disturbances
from .app_server_faults import (
    AnswerLate,
    AnswerTwice,
    CrashAfterEffect,
    CrashOn,
    DropTurnCompleted,
    FaultPlan,
    ForkAnswer,
    ForkMessage,
    ForkOrder,
    NeverAnswer,
    Overloaded,
    Refuse,
    StopReading,
    Strangers,
    TurnFails,
    TurnStartsFirst,
)

__all__ = ["FAULT_POINTS", "DrawnFaults", "FaultDrawer", "FaultPoint", "Weather"]

FACTORS = (0.0, 0.3, 1.0, 1.0, 4.0)
"""A fault's rate is multiplied by one of these in each run."""

RATE_MAX = 0.5
"""And is at most this."""

FORK_MESSAGES: tuple[ForkMessage, ...] = ("starting", "ready", "status", "started", "request", "response")

CLOSING = ("thread/unsubscribe", "thread/backgroundTerminals/clean")
OPENING = ("thread/fork", "thread/inject_items", "thread/start", "turn/start")

Occasion = Literal["request", "message", "write", "moment", "connection"]
"""When a fault may strike: for each request of ours, each message or write of the server, at any moment, or once for a
connection. At a moment one fault is drawn among all, and its rate is its weight."""

Drawer = Callable[[random.Random, str], Any]


class FaultPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault."""

    says: str
    """What it does, in a sentence."""
    rate: float
    """How probable it is on each occasion, while it storms."""
    on: Occasion = "request"
    draw: Drawer | None = None
    """Of a request: makes the fault that strikes it, from its method."""
    kind: type[Any] | None = None
    """Of a request: what `draw` makes."""
    methods: tuple[str, ...] = ()
    """Of a request: only these; all when empty."""
    disturb: Disturb | None = None
    """Of a moment: what the server then does."""
    meets_no_side: str = ""
    """Why it never strikes while there is a Side on its connection; empty when it may."""


def _fork(rate: float, says: str, **bent: Any) -> FaultPoint:
    return FaultPoint(says=says, rate=rate, kind=ForkAnswer, draw=lambda rng, method: ForkAnswer(**bent))


def _late(rate: float, says: str, methods: tuple[str, ...], *lateness_s: float) -> FaultPoint:
    def draw(rng: random.Random, method: str) -> AnswerLate:
        return AnswerLate(method=method, after_s=rng.choice(lateness_s))

    return FaultPoint(says=says, rate=rate, kind=AnswerLate, draw=draw, methods=methods)


def _plain(kind: type[Any], rate: float, says: str, methods: tuple[str, ...] = ()) -> FaultPoint:
    return FaultPoint(says=says, rate=rate, kind=kind, draw=lambda rng, method: kind(method=method), methods=methods)


def _moment(rate: float, says: str, disturb: Disturb) -> FaultPoint:
    return FaultPoint(says=says, rate=rate, on="moment", disturb=disturb)


FAULT_POINTS: Mapping[str, FaultPoint] = {
    # Answers
    "late_answer": _late(0.2, "An answer comes some time after its effect.", (), 0.001, 0.02, 0.3, 3.0),
    "overdue_answer": _late(0.01, "An answer comes after everybody's deadline.", (), 40.0),
    "never_answered": _plain(NeverAnswer, 0.01, "A request has no effect and no answer."),
    "answered_twice": _plain(AnswerTwice, 0.03, "An answer comes twice."),
    "overloaded": _plain(Overloaded, 0.04, "A request is refused as overloaded."),
    "request_refused": _plain(Refuse, 0.01, "A request that opens something is refused.", OPENING),
    "close_refused": _plain(Refuse, 0.03, "A step of a close is refused.", CLOSING),
    "close_late": _late(0.03, "A step of a close is answered after its deadline.", CLOSING, 6.0, 20.0),
    "close_unanswered": _plain(NeverAnswer, 0.03, "A step of a close is never answered.", CLOSING),
    "interrupt_unanswered": _plain(
        NeverAnswer, 0.1, "An interrupt does nothing and is never answered.", ("turn/interrupt",)
    ),
    # Forks
    "fork_shuffled": FaultPoint(
        says="Messages of a child, a question too, come before its fork's answer and in any order.",
        rate=0.3,
        kind=ForkOrder,
        draw=lambda rng, method: ForkOrder(order=tuple(rng.sample(FORK_MESSAGES, rng.randint(1, 6)))),
    ),
    "fork_durable": _fork(0.015, "A fork is not ephemeral.", thread={"ephemeral": False}),
    "fork_with_path": _fork(0.015, "A fork is written to a file.", thread={"path": "/x"}),
    "fork_of_another": _fork(
        0.015, "A fork names another source.", thread={"forkedFromId": "01a0ffff-0000-7000-8000-00000000beef"}
    ),
    "fork_other_model": _fork(0.015, "A fork runs another model than was asked for.", result={"model": "other"}),
    "fork_malformed": _fork(0.015, "A fork's answer lacks what its form has.", without=("ephemeral", "cwd", "status")),
    "fork_known_child": _fork(0.015, "A fork's answer names a thread that was there before.", known_child=True),
    # Turns
    "turn_started_early": FaultPoint(
        says="A turn starts before its start is answered.",
        rate=0.3,
        kind=TurnStartsFirst,
        draw=lambda rng, method: TurnStartsFirst(),
    ),
    "turn_failed": FaultPoint(
        says="The model fails in a turn.",
        rate=0.05,
        kind=TurnFails,
        draw=lambda rng, method: TurnFails(after_tokens=rng.randrange(4)),
    ),
    "end_dropped": FaultPoint(
        says="A turn ends, and its end is never told, perhaps not even when it is asked about.",
        rate=0.02,
        kind=DropTurnCompleted,
        draw=lambda rng, method: DropTurnCompleted(with_status=rng.random() < 0.5, forgets=rng.random() < 0.2),
    ),
    # Messages
    "notification_twice": FaultPoint(says="A notification that adds no text comes twice.", rate=0.03, on="message"),
    "question_twice": FaultPoint(says="A request of the server comes twice.", rate=0.05, on="message"),
    "threads_reordered": FaultPoint(
        says="The messages of one thread are overtaken by those of others.", rate=0.02, on="message"
    ),
    "garbage_frame": FaultPoint(says="A line is no message, or one of wrong types.", rate=0.01, on="message"),
    "overlong_line": FaultPoint(says="A line is longer than is read.", rate=0.001, on="message"),
    "split_write": FaultPoint(says="A line comes in two reads, cut at any byte.", rate=0.05, on="write"),
    "stranger_turn": _plain(Strangers, 0.03, "A thread that nobody asked for has a turn, and asks something."),
    # Losses
    "lost_before_effect": _plain(CrashOn, 0.002, "The process dies of a request."),
    "lost_after_effect": _plain(CrashAfterEffect, 0.002, "The process does what it was asked, and dies unanswered."),
    "lost_in_frame": FaultPoint(says="The process dies in the middle of a line.", rate=0.001, on="write"),
    "lost_after_sends": FaultPoint(says="The process dies after so many messages.", rate=0.2, on="connection"),
    "lost_at_once": FaultPoint(says="The process is killed.", rate=0.05, on="moment"),
    # The process
    "stops_reading": FaultPoint(
        says="The process reads no more for a time.",
        rate=0.005,
        kind=StopReading,
        draw=lambda rng, method: StopReading(method=method, for_s=rng.choice((0.3, 3.0, 40.0, 200.0))),
    ),
    "frozen": FaultPoint(says="The process stands still for a time.", rate=0.2, on="moment"),
    "version_unproven": FaultPoint(
        says="The process is of a version that is not proven.",
        rate=0.04,
        on="connection",
        meets_no_side="a connection shows its version before there is any session on it",
    ),
    # What a server does of itself
    "settings_tightened": _moment(1.0, "A session is restricted further.", Disturbances.tighten_settings),
    "thread_dropped": _moment(0.1, "A thread in use is unloaded.", Disturbances.drop_thread),
    "sub_agent_turn": _moment(1.0, "An agent that a turn has called has a turn.", Disturbances.play_sub_agent),
    "ended_turn_asks": _moment(1.0, "A turn that is over asks something.", Disturbances.ask_for_ended_turn),
    "permissions_asked": _moment(1.0, "A turn asks for more than its policy allows.", Disturbances.ask_for_permissions),
    "question_taken_back": _moment(
        3.0, "What a turn asks is resolved without an answer.", Disturbances.take_question_back
    ),
    "nothing_resolved": _moment(1.0, "A request that never was is called resolved.", Disturbances.resolve_nothing),
}
"""Every fault by its name."""

_BY_KIND: Mapping[type[Any] | None, list[tuple[str, FaultPoint]]] = {
    kind: [(name, point) for name, point in FAULT_POINTS.items() if point.kind is kind]
    for kind in {point.kind: None for point in FAULT_POINTS.values()}
}


class Weather:
    """Whether there are faults now; the same for all connections."""

    def __init__(self) -> None:
        self.stormy = False
        self._began = trio.Event()

    def storm(self) -> None:
        """Faults from now on."""
        self.stormy = True
        self._began.set()

    def heal(self) -> None:
        """No fault from now on."""
        self.stormy = False
        self._began = trio.Event()

    async def wait_stormy(self) -> None:
        """Wait until there are faults. Cancellation: harmless."""
        await self._began.wait()


class FaultDrawer:
    """Draws the faults of a run, and records each that strikes.

    Args:
      rng: everything is drawn from it.
      weather: nothing strikes while it is calm.
      record: takes the faults.
      clock: tells the time of the run, in seconds.
    """

    def __init__(
        self, rng: random.Random, weather: Weather, record: Callable[[Record], None], clock: Callable[[], float]
    ) -> None:
        self.rng = rng
        self._weather = weather
        self._record = record
        self._clock = clock
        self.rates = {name: point.rate * rng.choice(FACTORS) for name, point in FAULT_POINTS.items()}

    @property
    def is_stormy(self) -> bool:
        """Whether there are faults now."""
        return self._weather.stormy

    def now(self) -> float:
        """The time of the run."""
        return self._clock()

    def strikes(self, name: str, *, in_calm: bool = False) -> bool:
        """Draw whether a fault strikes; `strike` records it. In the calm none does, unless it is to strike later."""
        rate = self.rates[name]
        return (self._weather.stormy or in_calm) and rate > 0 and self.rng.random() < min(rate, RATE_MAX)

    def strike(self, name: str, connection: int, child: str = "") -> None:
        """Record that a fault strikes now."""
        self._record(Fault(at_s=self._clock(), fault=name, connection=connection, child=child))

    def draw_moment(self) -> str | None:
        """Draw what happens at a moment; None in a run that has no such faults, and in the calm."""
        names = [name for name, point in FAULT_POINTS.items() if point.on == "moment" and self.rates[name] > 0]
        if not names or not self._weather.stormy:
            return None
        return self.rng.choices(names, [self.rates[name] for name in names])[0]


class DrawnFaults(FaultPlan):
    """Draws each fault of a connection's requests when it is asked for, so that they fall on any of them.

    Args:
      drawer: of the run.
      connection: its number.
    """

    def __init__(self, drawer: FaultDrawer, connection: int) -> None:
        super().__init__(())
        self._drawer = drawer
        self._connection = connection
        self._child = ""

    def begin_request(self, method: str, params: dict[str, Any]) -> None:
        """Remember whose request it is."""
        self._child = str(params.get("threadId") or "")

    def take(self, kind: type[Any], method: str) -> Any:
        """Draw a fault of that kind for one request; None when it is spared."""
        for name, point in _BY_KIND.get(kind, ()):
            if (not point.methods or method in point.methods) and self._drawer.strikes(name):
                assert point.draw is not None
                # A turn's end comes of no request, so it is not the last request's thread that is concerned.
                self._drawer.strike(name, self._connection, "" if kind is DropTurnCompleted else self._child)
                return point.draw(self._drawer.rng, method)
        return None
