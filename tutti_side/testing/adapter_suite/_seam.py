"""The seam between the runtime and an author's adapter: every call and every event passes here.

It watches (which calls were made, what an adapter emitted after it had to be quiet), it holds events of Sides back, and
it lies to the runtime (a fact that is not attested, an identity that is another's). So these cases run over any
provider, a real binary too, and the adapter behind the seam is as it is.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import trio

from tutti_side.contract import (
    Adapter,
    CanonicalRef,
    Content,
    Diagnosis,
    EndReason,
    Event,
    EventSink,
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    InteractionResolved,
    InteractiveAdapter,
    InvalidAnswerError,
    Liveness,
    OpenSide,
    Provider,
    ProviderPorts,
    ResumeSession,
    ScopeRef,
    SessionBinding,
    SideBinding,
    SideCapabilities,
    SideConversationAdapter,
    SideRef,
    SourceMetadata,
    StartSession,
    SteeringAdapter,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
)

__all__ = ["Seam", "SeamedAdapter", "SeamedProvider", "WatchedSink"]


class WatchedSink:
    """What an adapter emits for one session or Side, on its way to the runtime."""

    def __init__(self, sink: EventSink, *, is_held: bool = False) -> None:
        self.events: list[Event] = []
        """Everything that the adapter emitted, in order."""
        self.ends: list[EndReason] = []
        self.quiet_since = ""
        """Since what the adapter has to be quiet; empty while it may speak."""
        self.too_late: list[str] = []
        """The kinds of event that it emitted when it had to be quiet."""
        self.quiet = trio.Event()
        """Set from the moment on at which the adapter has to be quiet."""
        self._sink = sink
        self._is_held = is_held
        self._held: list[tuple[tuple[Event, ...], int]] = []

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        """Take events of the adapter."""
        self.events += events
        if self.quiet_since:
            self.too_late += [type(event).__name__ for event in events]
        if self._is_held:
            self._held.append((tuple(events), size_bytes))
        else:
            self._sink.emit(events, size_bytes)

    def end(self, reason: EndReason) -> None:
        """Take the adapter's word that it is over."""
        if self.quiet_since:
            self.too_late.append(f"the end ({reason})")
        self.ends.append(reason)
        self.be_quiet("its end")
        self._sink.end(reason)

    def be_quiet(self, since: str) -> None:
        """Nothing may come from now on."""
        self.quiet_since = self.quiet_since or since
        self.quiet.set()

    def inject(self, *events: Event) -> None:
        """Give the runtime events that the adapter never emitted."""
        self._sink.emit(events, 64 * len(events))

    def replay(self) -> int:
        """Give the runtime what was held back, in its order; return how many events that were."""
        held, self._held = self._held, []
        for events, size_bytes in held:
            self._sink.emit(events, size_bytes)
        return sum(len(events) for events, _ in held)

    def violations(self) -> list[str]:
        """Say what no adapter may do whatever the case is about, one line each."""
        found = [f"{kind} after {self.quiet_since}" for kind in self.too_late]
        turns = [event.turn_id for event in self.events if isinstance(event, TurnCompleted | TurnFailed | TurnCanceled)]
        found += [f"turn {turn_id} ended twice" for turn_id in sorted(set(turns)) if turns.count(turn_id) > 1]
        settled = [event.interaction_id for event in self.events if isinstance(event, InteractionResolved)]
        found += [f"interaction {asked} settled twice" for asked in sorted(set(settled)) if settled.count(asked) > 1]
        return found


class Seam:
    """What the kit sees of the adapters of one stage, and how it lies about them."""

    def __init__(self) -> None:
        self.adapters: list[SeamedAdapter] = []
        self.calls: list[tuple[str, ScopeRef]] = []
        """Every call that reached an adapter, by the contract's name for it."""
        self.opened: dict[SideRef, SideBinding] = {}
        """What the adapter really returned for each Side, whatever the runtime was told."""
        self.all_sinks: list[WatchedSink] = []
        self.not_promised: str | None = None
        """A fact that is missing before an open."""
        self.not_seen: str | None = None
        """A fact that is missing in an open's result."""
        self.claimed_child: str | None = None
        """What the next results call their child."""
        self.claimed_source: str | None = None
        """What the next results say was branched."""
        self.holds_sides = False
        """The events of Sides opened from now on stay here until `WatchedSink.replay`."""
        self._sinks: dict[ScopeRef, WatchedSink] = {}

    def sink(self, ref: ScopeRef) -> WatchedSink:
        """Return the newest sink of a session or Side."""
        return self._sinks[ref]

    def calls_of(self, operation: str) -> list[ScopeRef]:
        """Return what an operation was called for, in order."""
        return [ref for name, ref in self.calls if name == operation]

    def watch(self, ref: ScopeRef, sink: EventSink) -> WatchedSink:
        """Stand between an adapter and the runtime's sink."""
        watched = self._sinks[ref] = WatchedSink(sink, is_held=self.holds_sides and isinstance(ref, SideRef))
        self.all_sinks.append(watched)
        return watched

    def be_quiet(self, ref: ScopeRef, since: str) -> None:
        """Nothing may come for this ref from now on."""
        if ref in self._sinks:
            self._sinks[ref].be_quiet(since)

    def violations(self) -> list[str]:
        """Say what adapters did that none may do."""
        return [line for sink in self.all_sinks for line in sink.violations()]


class SeamedAdapter:
    """Implements `SideConversationAdapter` and `InteractiveAdapter` over an author's adapter.

    There are no cases about commands that a turn leaves running, so an adapter's `CommandAdapter` is not seen here.
    """

    def __init__(self, inner: Adapter, seam: Seam) -> None:
        if not isinstance(inner, SideConversationAdapter):
            raise TypeError(
                f"{type(inner).__name__} is no SideConversationAdapter; the kit is for adapters that offer Sides"
            )
        self.name = inner.name
        self.inner = inner
        self._sides: SideConversationAdapter = inner
        self._seam = seam

    # Adapter

    async def start(self, request: StartSession, sink: EventSink) -> SessionBinding:
        """Pass it on."""
        self._seam.calls.append(("start", request.ref))
        return await self.inner.start(request, self._seam.watch(request.ref, sink))

    async def resume(self, request: ResumeSession, sink: EventSink) -> SessionBinding:
        """Pass it on."""
        self._seam.calls.append(("resume", request.ref))
        return await self.inner.resume(request, self._seam.watch(request.ref, sink))

    def liveness(self, ref: ScopeRef) -> Liveness:
        """Pass it on."""
        return self.inner.liveness(ref)

    async def exec(self, ref: ScopeRef, request: ExecTurn) -> TurnId:
        """Pass it on."""
        self._seam.calls.append(("exec", ref))
        return await self.inner.exec(ref, request)

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        """Pass it on."""
        self._seam.calls.append(("cancel", ref))
        await self.inner.cancel(ref, turn_id)

    async def close(self, ref: ScopeRef) -> None:
        """Pass it on; afterwards the adapter has to be quiet."""
        self._seam.calls.append(("close", ref))
        try:
            await self.inner.close(ref)
        finally:
            self._seam.be_quiet(ref, "its close")

    # InteractiveAdapter

    def respond(self, ref: ScopeRef, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        """Pass it on."""
        self._seam.calls.append(("respond", ref))
        if not isinstance(self.inner, InteractiveAdapter):
            raise InvalidAnswerError("adapter", "takes no answers")
        return self.inner.respond(ref, interaction_id, answer)

    # SideConversationAdapter

    async def side_capabilities(self, source: CanonicalRef, history: SourceMetadata | None = None) -> SideCapabilities:
        """Pass it on, without one fact if the case says so."""
        attested = await self._sides.side_capabilities(source, history)
        return _without(attested, self._seam.not_promised)

    async def open_side(self, request: OpenSide, sink: EventSink) -> SideBinding:
        """Pass it on, and bend the result if the case says so; after a failure the adapter has to be quiet."""
        self._seam.calls.append(("open_side", request.side))
        watched = self._seam.watch(request.side, sink)
        try:
            binding = await self._sides.open_side(request, watched)
        except BaseException:
            watched.be_quiet("its failed open")
            raise
        self._seam.opened[request.side] = binding
        return SideBinding(
            provider_session_id=self._seam.claimed_child or binding.provider_session_id,
            source_provider_session_id=self._seam.claimed_source or binding.source_provider_session_id,
            capabilities=_without(binding.capabilities, self._seam.not_seen),
        )

    async def wait_side_released(self, side: SideRef) -> None:
        """Pass it on; afterwards the adapter has to be quiet."""
        self._seam.calls.append(("wait_side_released", side))
        await self._sides.wait_side_released(side)
        self._seam.be_quiet(side, "its release")


class SteeringSeamedAdapter(SeamedAdapter):
    """The same over an adapter that takes more input for a turn."""

    async def steer(self, ref: ScopeRef, turn_id: TurnId, content: tuple[Content, ...]) -> None:
        """Pass it on."""
        self._seam.calls.append(("steer", ref))
        assert isinstance(self.inner, SteeringAdapter)
        await self.inner.steer(ref, turn_id, content)


class SeamedProvider:
    """Opens an author's provider behind a seam."""

    def __init__(self, inner: Provider, seam: Seam) -> None:
        self.name = inner.name
        self._inner = inner
        self._seam = seam

    @asynccontextmanager
    async def open(self, ports: ProviderPorts | None = None) -> AsyncIterator[SeamedAdapter]:
        """Open it. Cancellation: as the provider's."""
        async with self._inner.open(ports or ProviderPorts()) as inner:
            kind = SteeringSeamedAdapter if isinstance(inner, SteeringAdapter) else SeamedAdapter
            adapter = kind(inner, self._seam)
            self._seam.adapters.append(adapter)
            try:
                yield adapter
            finally:
                self._seam.adapters.remove(adapter)

    async def diagnose(self) -> Diagnosis:
        """Pass it on. Cancellation: as the provider's."""
        return await self._inner.diagnose()


def _without(attested: SideCapabilities, fact: str | None) -> SideCapabilities:
    if fact is None:
        return attested
    return msgspec.structs.replace(attested, **{fact: False, "reason": f"the kit took {fact} away"})
