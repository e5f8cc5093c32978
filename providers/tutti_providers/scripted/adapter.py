"""The scripted adapter: sessions and Sides over connections of its own making, all in this process.

It is built as an adapter of a real provider is: sessions and the Sides of live sources share one connection and its
fate; the Side of a source that is not live has a connection of its own. `_connection` and `_thread` are the provider's
end, `_creation`, `_player` and `_closing` what it does, `_reader` what the script says.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import trio

from tutti_providers.scripted._closing import Closer, Live
from tutti_providers.scripted._connection import Connection, Counts
from tutti_providers.scripted._creation import Creation
from tutti_providers.scripted._gates import Gates
from tutti_providers.scripted._player import TurnPlayer
from tutti_providers.scripted._reader import ScriptReader
from tutti_providers.scripted._thread import ScriptedThread
from tutti_providers.scripted._transcript import KeptSessions, Transcript
from tutti_providers.scripted.errors import ScriptedFailureError
from tutti_providers.scripted.script import Script
from tutti_side.contract import (
    CanonicalRef,
    Content,
    EventSink,
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    InvalidSettingsError,
    Liveness,
    OpenSide,
    ProviderLostError,
    ProviderPorts,
    ResumeSession,
    ScopeRef,
    SessionBinding,
    SideBinding,
    SideCapabilities,
    SideRef,
    SourceMetadata,
    StartSession,
    TextContent,
    TurnActiveError,
    TurnId,
    TurnNotActiveError,
)
from tutti_side.nursery import open_service_nursery

__all__ = ["Call", "ScriptedAdapter", "ScriptedStatistics", "open_adapter"]


class Call(msgspec.Struct, frozen=True):
    """One call that reached an adapter."""

    operation: str
    """The contract's name for it: ``start``, ``open_side``, ``exec``, …"""
    ref: ScopeRef
    request: object = None
    """What came with it: the request, the turn to cancel, the answer."""

    def __repr__(self) -> str:
        return f"Call({self.operation!r}, {self.ref!r})"


class ScriptedStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter holds now, and what it counted."""

    connections: int
    """Of them all, also the Sides' own."""
    dedicated_connections: int
    threads: int
    draining: int
    """Failed or given up opens of which something may be left."""
    releasing: int
    """Threads whose release is tried again."""
    unclosed_connections: int
    """Connections of Sides that are being closed, or would not close yet."""
    dropped_events: int
    """What came for a thread that nobody listens to any more."""
    forced_releases: int
    crashed_connections: int


class ScriptedAdapter:
    """Implements `Adapter` and its Side, interactive and steering additions; made by `open_adapter`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        name: str,
        script: Script,
        gates: Gates,
        kept: KeptSessions,
        note: Callable[[Call], None],
        ports: ProviderPorts,
    ) -> None:
        self.name = name
        self._ports = ports
        self._nursery = nursery
        self._script = script
        self._reader = ScriptReader(script)
        self._gates = gates
        self._kept = kept
        self._note = note
        self._counts = Counts()
        self._connecting = trio.Lock()
        self._shared: Connection | None = None
        self._connections: dict[Connection, None] = {}
        self._live: dict[ScopeRef, Live] = {}
        self._closer = Closer(nursery, self._reader, ports.cleanup)

    def statistics(self) -> ScriptedStatistics:
        """Return counts, without touching anything."""
        connections = tuple(self._connections)
        return ScriptedStatistics(
            connections=len(connections),
            dedicated_connections=sum(connection.is_dedicated for connection in connections),
            threads=sum(len(connection.threads) for connection in connections),
            draining=self._closer.draining,
            releasing=sum(connection.releasing for connection in connections),
            unclosed_connections=sum(connection.close_attempts > 0 for connection in connections),
            dropped_events=self._counts.dropped_events,
            forced_releases=self._counts.forced_releases,
            crashed_connections=self._counts.crashed_connections,
        )

    def drop(self) -> None:
        """Lose all connections at once, as when the provider's processes are killed."""
        for connection in tuple(self._connections):
            connection.lose()

    # Connections

    async def _lease(self) -> Connection:
        """Return the shared connection, made if need be. Nothing may be awaited before a thread is put on it."""
        async with self._connecting:
            if self._shared is None or not self._shared.is_usable:
                self._shared = await self._connect(is_dedicated=False)
            return self._shared

    async def _connect(self, *, is_dedicated: bool) -> Connection:
        connection = Connection(self._gates, self._kept, self._counts, is_dedicated=is_dedicated)
        began = trio.current_time()
        await self._nursery.start(self._run_connection, connection)
        if connection.lost:  # it may be cancelled, with the whole adapter, before its caller runs again
            raise ProviderLostError
        self._ports.metrics.observe("side_open_phase", trio.current_time() - began, phase="initialize")
        return connection

    async def _run_connection(self, connection: Connection, *, task_status: trio.TaskStatus[Connection]) -> None:
        """Own one connection until it is shut or lost. A task of it that crashes loses it, and nothing else."""
        self._connections[connection] = None
        try:
            async with trio.open_nursery() as nursery:
                connection.begin(nursery)
                task_status.started(connection)
                try:
                    await trio.sleep_forever()
                finally:
                    connection.lose()  # before the nursery is closed, so that nobody begins anything in it
        except Exception:  # contained: its sessions are told that they are lost
            self._counts.crashed_connections += 1
            self._ports.metrics.count("crashed_connections")
        finally:
            connection.lose()
            del self._connections[connection]
            connection.gone.set()

    def _find(self, ref: ScopeRef) -> Live:
        live = self._live.get(ref)
        if live is None or live.thread.lost:
            raise ProviderLostError
        return live

    def _new_thread(self, thread_id: str, sink: EventSink, transcript: Transcript, *, is_side: bool) -> ScriptedThread:
        return ScriptedThread(thread_id, sink, transcript, is_side=is_side, on_dropped=self._counts.drop)

    # Adapter

    async def start(self, request: StartSession, sink: EventSink) -> SessionBinding:
        """Start a canonical session; see `tutti_side.contract.Adapter.start`."""
        self._note(Call("start", request.ref, request))
        _check_settings(request.settings)
        connection = await self._lease()
        transcript = Transcript()
        thread = self._new_thread(self._kept.new_id("session"), sink, transcript, is_side=False)
        binding = await self._create(request.ref, connection, thread, "start")
        self._kept.keep(thread.thread_id, transcript)
        return binding

    async def resume(self, request: ResumeSession, sink: EventSink) -> SessionBinding:
        """Load a session that this provider object keeps; see `tutti_side.contract.Adapter.resume`.

        Raises:
          SessionNotKeptError: it was never started here.
          SessionHeldError: it is live somewhere.
        """
        self._note(Call("resume", request.ref, request))
        _check_settings(request.settings)
        thread_id = request.metadata.provider_session_id
        transcript = self._kept.hold(thread_id)
        try:
            connection = await self._lease()
        except BaseException:
            self._kept.release(thread_id)
            raise
        thread = self._new_thread(thread_id, sink, transcript, is_side=False)
        return await self._create(request.ref, connection, thread, "resume")

    async def _create(
        self, ref: CanonicalRef, connection: Connection, thread: ScriptedThread, operation: str
    ) -> SessionBinding:
        creation = Creation(connection, thread, operation, self._reader.starting(ref.session))
        try:
            await creation.run()
            if thread.lost:
                raise ProviderLostError
        except BaseException:
            creation.abandon()
            raise
        self._live[ref] = Live(connection, thread)
        return SessionBinding(provider_session_id=thread.thread_id, runtime={"kept": "in memory"})

    def liveness(self, ref: ScopeRef) -> Liveness:
        """Say whether a thread is held; see `tutti_side.contract.Adapter.liveness`."""
        live = self._live.get(ref)
        if live is None:
            return "unknown"
        return "lost" if live.thread.lost else "live"

    async def exec(self, ref: ScopeRef, request: ExecTurn) -> TurnId:
        """Play the turn that the script has for this text; see `tutti_side.contract.Adapter.exec`.

        Raises:
          TurnActiveError: a turn runs or is starting.
          ScriptedFailureError: the script refuses it.
        """
        self._note(Call("exec", ref, request))
        live = self._find(ref)
        connection, thread = live.connection, live.thread
        if thread.is_busy:
            raise TurnActiveError
        prompt = _text_of(request.content)
        turn = self._reader.turn(prompt, in_side=thread.is_side)
        thread.is_starting = True
        try:
            with connection.call():
                failure = await connection.play_end(thread, turn.before)
            if failure is not None:
                raise ScriptedFailureError("exec", failure)
            if not thread.is_attached:  # closed meanwhile
                raise ProviderLostError
            player = TurnPlayer(
                connection,
                thread,
                turn.steps,
                prompt=prompt,
                steps_for=lambda text: self._reader.turn(text, in_side=thread.is_side).steps,
                is_stubborn=turn.is_stubborn,
            )
        finally:
            thread.is_starting = False
        connection.nursery.start_soon(player.run, name=f"scripted:{player.turn_id}")
        if turn.answered_after is not None:
            try:
                with connection.call():
                    await connection.wait(turn.answered_after)
            except trio.Cancelled:
                if thread.active_turn == player.turn_id and thread.interrupt is not None:
                    thread.interrupt()
                raise
        return player.turn_id

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        """Interrupt that turn or nothing; see `tutti_side.contract.Adapter.cancel`."""
        self._note(Call("cancel", ref, turn_id))
        live = self._find(ref)
        if live.thread.active_turn != turn_id or live.thread.interrupt is None:
            raise TurnNotActiveError(turn_id)
        live.thread.interrupt()
        with live.connection.call():
            await trio.lowlevel.checkpoint()

    async def close(self, ref: ScopeRef) -> None:
        """Release a session or Side; see `tutti_side.contract.Adapter.close`."""
        self._note(Call("close", ref))
        live = self._live.pop(ref, None)
        if live is None or live.thread.lost:
            await trio.lowlevel.checkpoint()
        else:
            await self._closer.close(ref, live)

    # SteeringAdapter

    async def steer(self, ref: ScopeRef, turn_id: TurnId, content: tuple[Content, ...]) -> None:
        """Play, after what the turn is playing, what the script has for this text; see `SteeringAdapter.steer`."""
        self._note(Call("steer", ref, (turn_id, content)))
        live = self._find(ref)
        with live.connection.call():
            await trio.lowlevel.checkpoint()
        if live.thread.active_turn != turn_id:
            raise TurnNotActiveError(turn_id)
        live.thread.steer(_text_of(content))

    # InteractiveAdapter

    def respond(self, ref: ScopeRef, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        """Answer what was asked; see `tutti_side.contract.InteractiveAdapter.respond`."""
        self._note(Call("respond", ref, (interaction_id, answer)))
        return self._find(ref).thread.respond(interaction_id, answer)

    # SideConversationAdapter

    async def side_capabilities(self, source: CanonicalRef, history: SourceMetadata | None = None) -> SideCapabilities:
        """Attest what the script says, if the source is there at all."""
        await trio.lowlevel.checkpoint()
        if history is None:
            if self.liveness(source) != "live":
                return SideCapabilities.unsupported("the source has no live connection")
            return self._script.capabilities
        if history.provider_session_id not in self._kept.ids:
            return SideCapabilities.unsupported("the source is not kept here")
        return self._script.historical_capabilities

    async def open_side(self, request: OpenSide, sink: EventSink) -> SideBinding:
        """Branch a source; see `tutti_side.contract.SideConversationAdapter.open_side`.

        Raises:
          ScriptedFailureError: the script says so.
          SessionNotKeptError: the historical source was never started here.
          ProviderLostError: the connection is gone.
        """
        self._note(Call("open_side", request.side, request))
        if request.history is None:
            live = self._find(request.source)
            connection, source_id, transcript = live.connection, live.thread.thread_id, live.thread.transcript
            promised = self._script.capabilities
        else:
            source_id = request.history.provider_session_id
            transcript = self._kept.read(source_id)
            connection = await self._connect(is_dedicated=True)
            promised = self._script.historical_capabilities
        inherited = Transcript(transcript.messages())
        thread = self._new_thread(self._kept.new_id("side"), sink, inherited, is_side=True)
        opening = self._reader.opening(request.side.side)
        creation = Creation(connection, thread, "open_side", opening)
        child = Live(connection, thread)
        began = trio.current_time()
        try:
            await creation.run()
            self._ports.metrics.observe("side_open_phase", trio.current_time() - began, phase="fork")
            if thread.lost:
                raise ProviderLostError
        except BaseException:
            creation.abandon()
            self._closer.undo_open(request.side, child, creation.released)
            raise
        self._live[request.side] = child
        return SideBinding(
            provider_session_id=opening.provider_session_id or thread.thread_id,
            source_provider_session_id=opening.source_provider_session_id or source_id,
            capabilities=promised if opening.seen is None else opening.seen,
        )

    async def wait_side_released(self, side: SideRef) -> None:
        """Wait until nothing of a failed open is left; see `tutti_side.contract.SideConversationAdapter`.

        A child whose result the controller did not believe is released as well: by what this adapter made under the
        Side's own name, never by the identity that the result claimed.
        """
        await trio.lowlevel.checkpoint()
        if side in self._live:
            await self.close(side)
        await self._closer.wait_released(side)


def _text_of(content: tuple[Content, ...]) -> str:
    return "\n".join(block.text for block in content if isinstance(block, TextContent))


def _check_settings(settings: object) -> None:
    if settings is not None:
        raise InvalidSettingsError("settings", f"is a {type(settings).__name__}; the scripted provider takes none")


@asynccontextmanager
async def open_adapter(
    name: str, script: Script, gates: Gates, kept: KeptSessions, note: Callable[[Call], None], ports: ProviderPorts
) -> AsyncIterator[ScriptedAdapter]:
    """Open the adapter with its nursery.

    Cancellation: everything it holds is dropped.
    """
    for notice in script.notices:
        ports.notices.notice(notice)
    async with open_service_nursery() as nursery:
        yield ScriptedAdapter(nursery, name, script, gates, kept, note, ports)
