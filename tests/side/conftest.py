"""A provider in memory whose every step a test holds in its hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tutti_side.contract import (
    CanonicalRef,
    Diagnosis,
    Event,
    EventSink,
    ExecTurn,
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
    """An adapter that does what the test says; implements `Adapter` and `SideConversationAdapter`."""

    name = "held"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.sinks: dict[ScopeRef, EventSink] = {}
        self.opening = Hold()
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

    async def start(self, request: StartSession, sink: EventSink) -> SessionBinding:
        await trio.lowlevel.checkpoint()
        self.sinks[request.ref] = sink
        return SessionBinding(provider_session_id=f"p-{request.ref.session}")

    async def exec(self, ref: ScopeRef, request: ExecTurn) -> TurnId:
        await trio.lowlevel.checkpoint()
        self.turns += 1
        turn_id = self.active[ref] = TurnId(f"turn-{self.turns}")
        self.sinks[ref].emit([TurnStarted(turn_id)], 10)
        return turn_id

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        await trio.lowlevel.checkpoint()
        self.log.append(f"cancel {turn_id}")
        if self.active.pop(ref, None) == turn_id:
            self.sinks[ref].emit([TurnCanceled(turn_id)], 10)

    async def close(self, ref: ScopeRef) -> None:
        self.log.append(f"close {ref.side if isinstance(ref, SideRef) else ref.session}")
        await self.closing.pass_through()

    async def resume(self, request: ResumeSession, sink: EventSink) -> SessionBinding:
        await trio.lowlevel.checkpoint()
        self.sinks[request.ref] = sink
        return SessionBinding(provider_session_id=request.metadata.provider_session_id)

    def liveness(self, ref: ScopeRef) -> Liveness:
        return "live" if ref in self.sinks else "unknown"

    async def side_capabilities(self, source: CanonicalRef, history: SourceMetadata | None = None) -> SideCapabilities:
        await trio.lowlevel.checkpoint()
        if history is not None and not self.offers_history:
            return SideCapabilities.unsupported("the source is not live")
        return self.promised

    async def open_side(self, request: OpenSide, sink: EventSink) -> SideBinding:
        self.log.append(f"fork {request.side.side}")
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
