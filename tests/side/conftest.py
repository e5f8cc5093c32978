"""A provider in memory whose every step a test holds in its hand."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tutti_side.contract import (
    CanonicalRef,
    Content,
    Diagnosis,
    Event,
    EventSink,
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    InteractionResolved,
    InvalidAnswerError,
    Liveness,
    OpenSide,
    ProviderPorts,
    ResumeSession,
    ScopeRef,
    SessionBinding,
    SideBinding,
    SideCapabilities,
    SideRef,
    SourceMetadata,
    StartSession,
    TurnCanceled,
    TurnId,
    TurnNotActiveError,
    TurnStarted,
)

ALL = SideCapabilities(
    supported=True,
    active_source_turn=True,
    ephemeral=True,
    hide_inherited_turns=True,
    model_boundary_injected=True,
)


class Hold:
    """A point that the provider stops at while it is held."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self._go = trio.Event()
        self._go.set()

    def hold(self) -> None:
        self.reached = trio.Event()
        self._go = trio.Event()

    def release(self) -> None:
        self._go.set()

    async def pass_through(self) -> None:
        self.reached.set()
        await self._go.wait()


class HeldAdapter:
    """An adapter that does what the test says; implements all protocols of the contract.

    `log` has a line for each call about a Side or turn that reached it; each step can be held.
    """

    name = "held"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.sinks: dict[ScopeRef, EventSink] = {}
        self.starting = Hold()
        self.attesting = Hold()
        self.opening = Hold()
        self.starting_turn = Hold()
        self.cancelling = Hold()
        self.closing = Hold()
        self.releasing = Hold()
        self.offers_history = False
        self.promised = ALL
        self.seen = ALL
        self.child_id: str | None = None
        self.forked_from: str | None = None
        self.open_error: Exception | None = None
        self.early: list[Event] = []
        self.turns = 0
        self.active: dict[ScopeRef, TurnId] = {}
        self.started: list[CanonicalRef] = []
        self.resumed: list[ResumeSession] = []
        self.opened: list[OpenSide] = []
        self.turns_asked: list[tuple[ScopeRef, ExecTurn]] = []
        self.asked: dict[tuple[ScopeRef, InteractionId], InteractionRequested] = {}
        self.answers: list[tuple[InteractionId, InteractionAnswer]] = []

    async def start(self, request: StartSession, sink: EventSink) -> SessionBinding:
        self.started.append(request.ref)
        await trio.lowlevel.checkpoint()
        self.sinks[request.ref] = sink
        await self.starting.pass_through()
        return SessionBinding(provider_session_id=f"p-{request.ref.session}", runtime={"home": "/h"})

    async def exec(self, ref: ScopeRef, request: ExecTurn) -> TurnId:
        self.log.append(f"exec {name_of(ref)}")
        self.turns_asked.append((ref, request))
        await trio.lowlevel.checkpoint()
        await self.starting_turn.pass_through()
        self.turns += 1
        turn_id = self.active[ref] = TurnId(f"turn-{self.turns}")
        self.sinks[ref].emit([TurnStarted(turn_id)], 10)
        return turn_id

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        self.log.append(f"cancel {turn_id}")
        await trio.lowlevel.checkpoint()
        await self.cancelling.pass_through()
        if self.active.pop(ref, None) == turn_id:
            self.sinks[ref].emit([TurnCanceled(turn_id)], 10)

    async def steer(self, ref: ScopeRef, turn_id: TurnId, content: tuple[Content, ...]) -> None:
        await trio.lowlevel.checkpoint()
        if self.active.get(ref) != turn_id:
            raise TurnNotActiveError(turn_id)
        self.log.append(f"steer {turn_id}")
        await trio.lowlevel.checkpoint()

    async def end_commands(self, ref: ScopeRef) -> None:
        self.log.append(f"end commands {name_of(ref)}")
        await trio.lowlevel.checkpoint()

    async def close(self, ref: ScopeRef) -> None:
        self.log.append(f"close {name_of(ref)}")
        await self.closing.pass_through()

    async def resume(self, request: ResumeSession, sink: EventSink) -> SessionBinding:
        self.resumed.append(request)
        await trio.lowlevel.checkpoint()
        self.sinks[request.ref] = sink
        return SessionBinding(provider_session_id=request.metadata.provider_session_id)

    def liveness(self, ref: ScopeRef) -> Liveness:
        return "live" if ref in self.sinks else "unknown"

    async def side_capabilities(self, source: CanonicalRef, history: SourceMetadata | None = None) -> SideCapabilities:
        await trio.lowlevel.checkpoint()
        await self.attesting.pass_through()
        if history is not None and not self.offers_history:
            return SideCapabilities.unsupported("the source is not live")
        return self.promised

    async def open_side(self, request: OpenSide, sink: EventSink) -> SideBinding:
        self.log.append(f"fork {request.side.side}")
        self.opened.append(request)
        self.sinks[request.side] = sink
        sink.emit(self.early, 10)
        await self.opening.pass_through()
        if self.open_error is not None:
            raise self.open_error
        return SideBinding(
            provider_session_id=self.child_id or f"p-{request.side.side}",
            source_provider_session_id=self.forked_from or f"p-{request.source.session}",
            capabilities=self.seen,
        )

    async def wait_side_released(self, side: SideRef) -> None:
        self.log.append(f"release {side.side}")
        await self.releasing.pass_through()

    def ask(self, ref: ScopeRef, request: InteractionRequested) -> None:
        """Ask the user something."""
        self.asked[ref, request.interaction_id] = request
        self.sinks[ref].emit([request], 10)

    def take_back(self, ref: ScopeRef, interaction_id: InteractionId) -> None:
        """Wait for an answer no longer."""
        del self.asked[ref, interaction_id]
        self.sinks[ref].emit([InteractionResolved(interaction_id, "superseded")], 10)

    def respond(self, ref: ScopeRef, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        request = self.asked.get((ref, interaction_id))
        if request is None:
            return False
        if request.options and answer.option_id not in {option.id for option in request.options}:
            raise InvalidAnswerError("option_id", "is not one of its options")
        if {question.id for question in request.questions} != set(answer.answers):
            raise InvalidAnswerError("answers", "are not to its questions")
        del self.asked[ref, interaction_id]
        self.log.append(f"respond {interaction_id}")
        self.answers.append((interaction_id, answer))
        return True


def name_of(ref: ScopeRef) -> str:
    """Return the id alone."""
    return ref.side if isinstance(ref, SideRef) else ref.session


NO_PORTS = ProviderPorts()


class HeldProvider:
    """The provider of that adapter."""

    name = "held"

    def __init__(self) -> None:
        self.adapter = HeldAdapter()

    @asynccontextmanager
    async def open(self, ports: ProviderPorts = NO_PORTS) -> AsyncIterator[HeldAdapter]:
        yield self.adapter

    async def diagnose(self) -> Diagnosis:
        await trio.lowlevel.checkpoint()
        return Diagnosis(provider=self.name, found=True)


@pytest.fixture
def provider() -> HeldProvider:
    """A provider whose steps the test holds: ``provider.adapter.opening.hold()`` …"""
    return HeldProvider()


@pytest.fixture
def make_provider() -> type[HeldProvider]:
    """Makes such providers, for a test that needs many."""
    return HeldProvider


class RecordingMetrics:
    """Keeps what was counted: `counts["side_opens", "accepted"]`, by name and label values."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.durations: list[tuple[str, float, dict[str, str]]] = []
        self.gauges: dict[str, float] = {}

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        self.counts[name, *labels.values()] += value

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self.durations.append((name, seconds, labels))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.gauges[name] = value

    def outcomes(self) -> dict[str, int]:
        """What became of the calls that open a Side."""
        return {key[1]: count for key, count in self.counts.items() if key[0] == "side_opens"}


@pytest.fixture
def metrics() -> RecordingMetrics:
    """Where a host can count."""
    return RecordingMetrics()
