"""The Codex adapter: sessions and Sides of one provider, over one live app-server that they lease.

Which connection, which thread and in which order; the parts decide the rest: `_live_connection` (the one app-server),
`_connection` (process, peer, late work), `_router` (which message goes where), `_creation` and `_side_open` (threads on
their way), `_thread` (normalising), `_thread_turns` (which turn is active), `_turn_start` and `_turn_control` (what a
turn is asked for), `_closing` (how a thread ends), `_asking` (what waits for its user), `_settings` (what a Side
carries).
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio

from tutti_providers.codex._closing import close_thread, end_commands_quietly
from tutti_providers.codex._connection import Connection, ConnectionStatistics
from tutti_providers.codex._creation import ThreadCreation
from tutti_providers.codex._live_connection import LiveConnection, OpenConnection
from tutti_providers.codex._releases import RECLAIM_S
from tutti_providers.codex._settings import check_resumed, check_started, resume_params, settings_of, start_params
from tutti_providers.codex._settling import settle_turn, stop_earlier_turn
from tutti_providers.codex._side_open import SideOpening
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex._turn_control import interrupt_turn, steer_turn
from tutti_providers.codex._turn_start import Live, start_turn
from tutti_providers.codex.schema.requests import (
    BackgroundTerminalsCleanParams,
    Empty,
    OpenedThread,
    ResumeParams,
    StartParams,
)
from tutti_side.contract import (
    NO_METRICS,
    CanonicalRef,
    CleanupRow,
    Content,
    EventSink,
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    Liveness,
    Metrics,
    OpenSide,
    ProviderLostError,
    ResumeSession,
    ScopeRef,
    SessionBinding,
    SideBinding,
    SideCapabilities,
    SideRef,
    SourceMetadata,
    StartSession,
    TurnId,
)
from tutti_side.nursery import open_service_nursery

__all__ = ["CodexAdapter", "open_adapter"]


class CodexAdapter:
    """Implements `Adapter` and its additions for Sides, interactions, steering and commands; made by `open_adapter`."""

    name = "codex"

    def __init__(self, nursery: trio.Nursery, open_connection: OpenConnection, metrics: Metrics = NO_METRICS) -> None:
        self._metrics = metrics
        self._connection = LiveConnection(nursery, open_connection, metrics)
        self._live: dict[ScopeRef, Live] = {}
        self._closings: dict[ScopeRef, trio.Event] = {}
        self._openings: dict[SideRef, SideOpening] = {}

    def statistics(self) -> Mapping[str, ConnectionStatistics]:
        """Return counts of the live connection, if there is one."""
        current = self._connection.current
        return {} if current is None else {"live": current.statistics()}

    def cleanup_rows(self) -> tuple[CleanupRow, ...]:
        """Return the threads that the live connection is still unsubscribing."""
        current = self._connection.current
        return () if current is None else current.releases.rows()

    def close_all(self) -> None:
        """Begin no connection any more: the adapter's block has ended, and its nursery ends now."""
        self._connection.close()

    def _find(self, ref: ScopeRef) -> Live:
        live = self._live.get(ref)
        if live is None or live.thread.lost:
            raise ProviderLostError(None if live is None else live.thread.exit_status)
        return live

    # Adapter

    async def start(self, request: StartSession, sink: EventSink) -> SessionBinding:
        """Start a canonical session; see `tutti_side.contract.Adapter.start`."""
        params = start_params(request.cwd, settings_of(request.settings))
        return await self._create(request.ref, params, check_started, sink)

    async def _create(
        self,
        ref: CanonicalRef,
        params: StartParams | ResumeParams,
        check: Callable[[OpenedThread], str | None],
        sink: EventSink,
    ) -> SessionBinding:
        closing = self._closings.get(ref)
        if closing is not None:  # of the same session, which the server had unloaded: it still has route and lease
            with trio.move_on_after(RECLAIM_S):
                await closing.wait()
        connection = await self._connection.lease(ref)
        thread = CodexThread(
            sink,
            connection.peer,
            on_busy=connection.note_busy,
            on_doubt=_settler(connection),
            on_late_begin=connection.interrupt_over,
            on_sub_agent=connection.follow,
            unread=connection.unread,
        )
        creation = ThreadCreation(connection, thread, check)
        try:
            opened = await creation.run(params)
            status = opened.thread.status
            if isinstance(params, ResumeParams) and status is not None and status.type == "active":
                await stop_earlier_turn(connection, thread)
            if thread.lost:
                raise ProviderLostError(thread.exit_status)
        except BaseException:
            creation.abandon()
            connection.give_back(ref)
            raise
        self._live[ref] = Live(connection, thread)
        self._follow_source(thread)
        runtime = {"version": connection.attestation.version or "", "codex_home": connection.codex_home or ""}
        return SessionBinding(provider_session_id=opened.thread.id, runtime=runtime)

    def _follow_source(self, source: CodexThread) -> None:
        """Let the Sides of a session that was closed and is loaded again heed how it is restricted from now on."""
        for live in self._live.values():
            before = live.thread.source
            if before is not None and before.thread_id == source.thread_id:
                live.thread.source = source

    async def resume(self, request: ResumeSession, sink: EventSink) -> SessionBinding:
        """Load a persisted session; see `tutti_side.contract.Adapter.resume`."""
        kept = request.metadata
        params = resume_params(kept.provider_session_id, kept.cwd, settings_of(request.settings))
        binding = await self._create(request.ref, params, check_resumed(params), sink)
        self._live[request.ref].thread.had_context = kept.host_context is not None
        return binding

    def liveness(self, ref: ScopeRef) -> Liveness:
        """Say whether a thread is held; see `tutti_side.contract.Adapter.liveness`."""
        live = self._live.get(ref)
        if live is None:
            return "unknown"
        return "lost" if live.thread.lost else "live"

    async def exec(self, ref: ScopeRef, request: ExecTurn) -> TurnId:
        """Start a turn; see `tutti_side.contract.Adapter.exec`."""
        return await start_turn(self._find(ref), request)

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        """Interrupt that turn or nothing; see `tutti_side.contract.Adapter.cancel`."""
        live = self._find(ref)
        await interrupt_turn(live.connection, live.thread, turn_id)

    async def close(self, ref: ScopeRef) -> None:
        """Release a session or Side; see `tutti_side.contract.Adapter.close`."""
        live = self._live.pop(ref, None)
        if isinstance(ref, SideRef):
            self._openings.pop(ref, None)
        if live is None:
            await trio.lowlevel.checkpoint()
            return
        closing = self._closings[ref] = trio.Event()
        try:
            await close_thread(live)
        finally:
            live.connection.give_back(ref)
            if self._closings.get(ref) is closing:
                del self._closings[ref]
            closing.set()

    # SteeringAdapter, CommandAdapter

    async def steer(self, ref: ScopeRef, turn_id: TurnId, content: tuple[Content, ...]) -> None:
        """Give that turn more input, or nothing; see `tutti_side.contract.SteeringAdapter.steer`."""
        live = self._find(ref)
        await steer_turn(live.connection, live.thread, turn_id, content)

    async def end_commands(self, ref: ScopeRef) -> None:
        """End what was left running; see `tutti_side.contract.CommandAdapter.end_commands`."""
        live = self._find(ref)
        for agent in live.thread.sub_agents:  # one that the server has closed meanwhile has none
            await end_commands_quietly(live.connection, agent)
        await live.connection.request(BackgroundTerminalsCleanParams(thread_id=live.thread.thread_id), Empty)

    # InteractiveAdapter

    def respond(self, ref: ScopeRef, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        """Answer what the server asks; see `tutti_side.contract.InteractiveAdapter.respond`."""
        return self._find(ref).thread.interactions.respond(interaction_id, answer)

    # SideConversationAdapter

    async def side_capabilities(self, source: CanonicalRef, history: SourceMetadata | None = None) -> SideCapabilities:
        """Attest what a Side of this source would be; found out without wire traffic."""
        await trio.lowlevel.checkpoint()
        if history is not None:
            return SideCapabilities.unsupported("the source is not live; a Side of a historical one is not offered yet")
        live = self._live.get(source)
        if live is None or live.thread.lost:
            return SideCapabilities.unsupported("the source has no live connection")
        if not live.thread.turns.has_any:
            return SideCapabilities.unsupported("the source has no turn yet, so there is nothing to branch")
        return live.connection.attestation.capabilities()

    async def open_side(self, request: OpenSide, sink: EventSink) -> SideBinding:
        """Branch a live source; see `tutti_side.contract.SideConversationAdapter.open_side`."""
        source = self._find(request.source)
        connection = source.connection
        thread = CodexThread(
            sink,
            connection.peer,
            source=source.thread,
            instructions=request.instructions,
            on_busy=connection.note_busy,
            on_doubt=_settler(connection),
            on_late_begin=connection.interrupt_over,
            on_sub_agent=connection.follow,
            unread=connection.unread,
        )
        connection.lease(request.side)
        opening = self._openings[request.side] = SideOpening(connection, source.thread, thread, self._metrics)
        try:
            binding = await opening.run()
        except BaseException:
            connection.give_back(request.side)
            raise
        self._live[request.side] = Live(connection, thread)
        return binding

    async def wait_side_released(self, side: SideRef) -> None:
        """Wait until nothing of a failed open is left; see `tutti_side.contract.SideConversationAdapter`."""
        opening = self._openings.get(side)
        if opening is None or side in self._live:
            await self.close(side)
            return
        try:
            await opening.wait_released()
        finally:
            self._openings.pop(side, None)


def _settler(connection: Connection) -> Callable[[CodexThread, TurnId], None]:
    """Return what a thread calls when a turn of it has perhaps ended without a word."""
    return lambda thread, turn_id: connection.settle_later(partial(settle_turn, connection, thread, turn_id))


@asynccontextmanager
async def open_adapter(
    open_connection: OpenConnection, *, metrics: Metrics = NO_METRICS
) -> AsyncIterator[CodexAdapter]:
    """Open the adapter with its nursery.

    Args:
      open_connection: makes a connection to a fresh app-server; called when the first session needs one, and again
        after it was lost or given up.

    Cancellation: connections are closed, and their processes ended.
    """
    async with open_service_nursery() as nursery:
        adapter = CodexAdapter(nursery, open_connection, metrics)
        try:
            yield adapter
        finally:
            adapter.close_all()
