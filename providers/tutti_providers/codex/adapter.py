"""The Codex adapter: sessions and Sides of one provider, over one live app-server that they lease.

Which connection, which thread and in which order; the parts decide the rest: `_connection` (process, peer, late work),
`_router` (which message goes where), `_creation` and `_side_open` (threads on their way), `_thread` (normalising, the
active turn), `_asking` (what waits for its user), `_settings` (what a Side carries).
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

import msgspec
import trio

from tutti_providers.codex._connection import CLEANUP_DEADLINE_S, RECLAIM_S, Connection, ConnectionStatistics
from tutti_providers.codex._creation import ThreadCreation
from tutti_providers.codex._input import input_of
from tutti_providers.codex._reconcile import names_another_turn, says_not_active
from tutti_providers.codex._settings import (
    check_resumed,
    check_started,
    resume_params,
    settings_of,
    side_turn_params,
    start_params,
    turn_params,
)
from tutti_providers.codex._settling import settle_turn
from tutti_providers.codex._side_open import SideOpening
from tutti_providers.codex._thread import TURN_BEGIN_WAIT_S, CodexThread
from tutti_providers.codex.errors import RequestRefusedError, UnansweredError
from tutti_providers.codex.schema.items import Turn
from tutti_providers.codex.schema.requests import (
    BackgroundTerminalsCleanParams,
    Empty,
    OpenedThread,
    ResumeParams,
    StartParams,
    TurnInterruptParams,
    TurnStartParams,
    TurnStartResult,
    TurnSteerParams,
    TurnSteerResult,
    UnsubscribeParams,
    UnsubscribeResult,
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
    ProviderProtocolError,
    ResumeSession,
    ScopeRef,
    SessionBinding,
    SideBinding,
    SideCapabilities,
    SideRef,
    SourceMetadata,
    StartSession,
    TurnActiveError,
    TurnId,
    TurnMergedError,
    TurnNotActiveError,
)
from tutti_side.jsonrpc import Outcome
from tutti_side.nursery import open_service_nursery

__all__ = ["TURN_END_WAIT_S", "CodexAdapter", "open_adapter"]

TURN_END_WAIT_S = 5.0
"""How long a close waits for the end of the turn that it interrupted; some milliseconds when the server is well."""

SUB_AGENT_BEGIN_WAIT_S = 1.0
"""How long a close waits for a sub-agent's first turn, so that it can be interrupted; it begins in milliseconds."""

START_ANSWER_WAIT_S = 30.0
"""How long a thread counts as busy after the caller of an unanswered ``turn/start`` has gone. A turn that the server
began all the same says so by its ``turn/started``, which makes the thread busy again."""

INTERRUPT_DEADLINE_S = 10.0
"""How long an interrupt may take. 0.163 leaves a surplus one unanswered, so the turn's end ends the wait too."""

OpenConnection = Callable[[], AbstractAsyncContextManager[Connection]]

_log = logging.getLogger("tutti_providers.codex")


class _Live:
    """A thread with the connection it is on."""

    def __init__(self, connection: Connection, thread: CodexThread) -> None:
        self.connection = connection
        self.thread = thread
        self.starting = trio.CancelScope()
        """Around the ``turn/start`` that is on its way, if one is; a close gives it up."""


class _TurnStart:
    """A ``turn/start`` on its way; its hook names the turn even when its caller has gone."""

    _decode = staticmethod(msgspec.json.Decoder(TurnStartResult).decode)

    def __init__(self, live: _Live) -> None:
        self._live = live
        self._turn_id: TurnId | None = None
        self._abandoned = False
        self._ended_before = live.thread.ended_before()
        self.merged_into: TurnId | None = None
        """The turn that was over before this was sent, and yet is what the server answered with."""
        live.thread.begin_start()
        self._settled = live.thread.start_settled

    def take_answer(self, outcome: Outcome) -> None:
        turn: Turn | None = None
        try:
            if not isinstance(outcome, Exception):
                turn = self._read(outcome)
                if turn.id in self._ended_before:
                    self.merged_into, turn = TurnId(turn.id), None
        finally:
            if not self._settled.is_set():
                self._live.thread.end_start(turn)
        if self.merged_into is not None:
            self._live.connection.interrupt_over(self._live.thread, self.merged_into)
        if turn is not None:
            self._turn_id = TurnId(turn.id)
            if self._abandoned:
                self._live.thread.note_late_start(self._turn_id)
                self._interrupt()

    def _read(self, result: msgspec.Raw) -> Turn:
        try:
            return self._decode(result).turn
        except (msgspec.DecodeError, RecursionError) as error:  # its text can quote the answer
            problem = f"it has another form ({type(error).__name__})"
            raise ProviderProtocolError(TurnStartParams.METHOD, problem) from None

    def abandon(self) -> None:
        """Its caller has gone: the turn, known or still to come, is interrupted."""
        self._abandoned = True
        self._interrupt()
        if not self._settled.is_set():
            self._live.connection.start_late(self._stop_waiting)

    async def _stop_waiting(self) -> None:
        """Call the thread idle again when the answer does not come: some requests are never answered."""
        with trio.move_on_after(START_ANSWER_WAIT_S):
            await self._settled.wait()
        if not self._settled.is_set():
            self._live.thread.end_start(None)

    def _interrupt(self) -> None:
        turn_id = self._turn_id
        if turn_id is not None and self._live.thread.active_turn == turn_id:
            self._live.connection.interrupt_later(self._live.thread, turn_id)


class CodexAdapter:
    """Implements `Adapter` and its additions for Sides, interactions, steering and commands; made by `open_adapter`."""

    name = "codex"

    def __init__(self, nursery: trio.Nursery, open_connection: OpenConnection, metrics: Metrics = NO_METRICS) -> None:
        self._nursery = nursery
        self._metrics = metrics
        self._open_connection = open_connection
        self._connecting = trio.Lock()
        self._is_closing = False
        self._connection: Connection | None = None
        self._live: dict[ScopeRef, _Live] = {}
        self._closings: dict[ScopeRef, trio.Event] = {}
        self._openings: dict[SideRef, SideOpening] = {}

    def statistics(self) -> Mapping[str, ConnectionStatistics]:
        """Return counts of the live connection, if there is one."""
        return {} if self._connection is None else {"live": self._connection.statistics()}

    def cleanup_rows(self) -> tuple[CleanupRow, ...]:
        """Return the threads that the live connection is still unsubscribing."""
        return () if self._connection is None else self._connection.cleanup_rows()

    def close_all(self) -> None:
        """Begin no connection any more: the adapter's block has ended, and its nursery ends now."""
        self._is_closing = True

    # Connection

    async def _lease(self, ref: ScopeRef) -> Connection:
        """Return the live connection, started if need be, with a lease of `ref` on it."""
        async with self._connecting:
            if self._is_closing:
                raise ProviderLostError(None)
            connection = self._connection
            if connection is None or not connection.is_usable:
                began = trio.current_time()
                connection = self._connection = await self._nursery.start(self._run_connection)
                self._metrics.observe("side_open_phase", trio.current_time() - began, phase="initialize")
            connection.lease(ref)
            return connection

    async def _run_connection(self, *, task_status: trio.TaskStatus[Connection]) -> None:
        """Own one connection: until it is lost, or its last lease is given back."""
        started = False
        try:
            async with self._open_connection() as connection:
                started = True
                task_status.started(connection)
                try:
                    await connection.ended.wait()
                finally:
                    self._count_dropped(connection.statistics())
        except Exception as error:
            if not started:
                raise
            # Contained: its sessions are lost, and told so by their routes. A process that ends raises nothing, so this
            # is a bug of ours, and must be seen; of the error only its type, since its text can hold anything.
            self._metrics.count("crashed_connections")
            names = ", ".join(sorted(set(_type_names(error))))
            _log.error("a connection to Codex failed by an error of ours: %s (please report this bug)", names)

    def _count_dropped(self, ended: ConnectionStatistics) -> None:
        """Count what a connection dropped until its end: no messages, and messages that reached nobody.

        A method that we don't model is no loss, and a request that was refused is no drop.
        """
        unread = {cause: count for cause, count in ended.unread.items() if cause == "malformed"}
        for cause, count in (*ended.peer.dropped.items(), *ended.router.dropped.items(), *unread.items()):
            self._metrics.count("dropped_frames", count, cause=cause)

    def _find(self, ref: ScopeRef) -> _Live:
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
        connection = await self._lease(ref)
        thread = CodexThread(
            sink,
            connection.peer,
            on_busy=connection.note_busy,
            on_doubt=_settler(connection),
            on_sub_agent=connection.follow,
            unread=connection.unread,
        )
        creation = ThreadCreation(connection, thread, check)
        try:
            opened = await creation.run(params)
            if thread.lost:
                raise ProviderLostError(thread.exit_status)
        except BaseException:
            creation.abandon()
            connection.give_back(ref)
            raise
        self._live[ref] = _Live(connection, thread)
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
        live = self._find(ref)
        if live.thread.is_busy:
            raise TurnActiveError
        start = _TurnStart(live)
        result: TurnStartResult | None = None
        try:
            with trio.CancelScope() as live.starting:
                result = await live.connection.request(
                    _exec_params(live.thread, request), TurnStartResult, hook=start.take_answer
                )
        except BaseException:
            start.abandon()
            raise
        if result is None:
            start.abandon()
            raise ProviderLostError(live.thread.exit_status)
        if start.merged_into is not None:
            raise TurnMergedError(start.merged_into)
        return TurnId(result.turn.id)

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        """Interrupt that turn or nothing; see `tutti_side.contract.Adapter.cancel`."""
        await self._interrupt(self._find(ref), turn_id, INTERRUPT_DEADLINE_S)

    async def close(self, ref: ScopeRef) -> None:
        """Release a session or Side; see `tutti_side.contract.Adapter.close`.

        Source: the order that the binary needs: a pending request would survive the unsubscribe, and an unsubscribe
        during a turn loses the turn's end.
        """
        live = self._live.pop(ref, None)
        if isinstance(ref, SideRef):
            self._openings.pop(ref, None)
        if live is None:
            await trio.lowlevel.checkpoint()
            return
        thread, connection = live.thread, live.connection
        released = thread.lost
        closing = self._closings[ref] = trio.Event()
        try:
            if not thread.lost:
                thread.begin_close()
                await self._end_turn(live)
                live.starting.cancel(reason="its thread is being closed")  # or it might be sent again afterwards
                await self._close_sub_agents(live)
                await self._clean(live)
                thread.detach()
                released = await self._unsubscribe(live)
        finally:
            live.starting.cancel(reason="its thread is being closed")
            thread.detach()
            for agent in thread.sub_agents:
                self._let_go(_Live(connection, agent), released=False)
            self._let_go(live, released=released)
            connection.give_back(ref)
            if self._closings.get(ref) is closing:
                del self._closings[ref]
            closing.set()

    async def _close_sub_agents(self, live: _Live) -> None:
        """Close what the thread's agent started, all at once, each as the thread itself is closed."""
        if not live.thread.sub_agents:
            return
        async with trio.open_nursery() as nursery:
            for agent in live.thread.sub_agents:
                nursery.start_soon(self._close_sub_agent, live.thread, _Live(live.connection, agent))

    async def _close_sub_agent(self, parent: CodexThread, live: _Live) -> None:
        agent = live.thread
        if not agent.has_turn:  # it was only just started: its turn would begin when nobody hears of it any more
            with trio.move_on_after(SUB_AGENT_BEGIN_WAIT_S):
                await agent.first_item.wait()
        await self._end_turn(live)
        await self._clean(live)
        agent.detach()
        if await self._unsubscribe(live):
            parent.sub_agents.remove(agent)
            self._let_go(live, released=True)

    async def _unsubscribe(self, live: _Live) -> bool:
        params = UnsubscribeParams(thread_id=live.thread.thread_id)
        return await self._quietly(live.connection, params, UnsubscribeResult)

    def _let_go(self, live: _Live, *, released: bool) -> None:
        """Take a thread's route away; what could not be unsubscribed is the connection's to release."""
        live.thread.detach()
        if released or live.thread.lost:
            live.connection.router.retire(live.thread.thread_id)
        elif live.thread.is_stopped:
            live.connection.release_thread(live.thread.thread_id)
        else:  # cut short: what a turn does would go on, and nobody would hear of it
            live.connection.release_thread(live.thread.thread_id, first=lambda: self._stop_late(live))

    # SteeringAdapter, CommandAdapter

    async def steer(self, ref: ScopeRef, turn_id: TurnId, content: tuple[Content, ...]) -> None:
        """Give that turn more input, or nothing; see `tutti_side.contract.SteeringAdapter.steer`."""
        live = self._find(ref)
        thread = live.thread
        if thread.active_turn == turn_id:
            with trio.move_on_after(TURN_BEGIN_WAIT_S):
                await thread.turn_began.wait()
        if thread.active_turn != turn_id:
            raise TurnNotActiveError(turn_id)
        params = TurnSteerParams(
            thread_id=thread.thread_id,
            expected_turn_id=turn_id,
            input=input_of(content),
        )
        try:
            taken = await live.connection.request(params, TurnSteerResult)
        except RequestRefusedError as error:
            if not says_not_active(error):
                raise  # a turn of a kind that takes no input, for example
            self._doubt(thread, turn_id, error)
            raise TurnNotActiveError(turn_id) from error
        if taken.turn_id != turn_id:
            raise ProviderProtocolError(params.METHOD, "another turn took the input")

    async def end_commands(self, ref: ScopeRef) -> None:
        """End what was left running; see `tutti_side.contract.CommandAdapter.end_commands`."""
        live = self._find(ref)
        for agent in live.thread.sub_agents:  # one that the server has closed meanwhile has none
            await self._quietly(live.connection, BackgroundTerminalsCleanParams(thread_id=agent.thread_id), Empty)
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
        if not live.thread.has_turn:
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
        self._live[request.side] = _Live(connection, thread)
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

    # Turns

    async def _end_turn(self, live: _Live) -> None:
        """Interrupt what runs, once, and wait for its end; bounded."""
        thread = live.thread
        if thread.starting:
            with trio.move_on_after(CLEANUP_DEADLINE_S):
                await thread.start_settled.wait()
        turn_id, ended = thread.active_turn, thread.turn_ended
        if turn_id is None:
            return
        # What counts is the turn's end, which is waited for.
        with suppress(
            TurnNotActiveError, ProviderLostError, ProviderProtocolError, RequestRefusedError, UnansweredError
        ):
            await self._interrupt(live, turn_id, CLEANUP_DEADLINE_S)
        with trio.move_on_after(TURN_END_WAIT_S):
            await ended.wait()

    async def _clean(self, live: _Live) -> None:
        """End the commands that the thread has left in the background."""
        await self._quietly(live.connection, BackgroundTerminalsCleanParams(thread_id=live.thread.thread_id), Empty)
        live.thread.is_stopped = True

    async def _stop_late(self, live: _Live) -> None:
        """Stop what runs in a thread whose close was cut short. Of its end nothing is heard any more."""
        thread = live.thread
        if thread.starting:
            with trio.move_on_after(CLEANUP_DEADLINE_S):
                await thread.start_settled.wait()
        if thread.active_turn is not None:
            await live.connection.interrupt_unheard(thread, thread.active_turn)
        await self._clean(live)

    async def _interrupt(self, live: _Live, turn_id: TurnId, deadline_s: float) -> None:
        """Send one interrupt at a time for a turn; its end ends the wait as well as an answer does."""
        thread = live.thread
        ended = thread.turn_ended
        if thread.active_turn != turn_id:
            raise TurnNotActiveError(turn_id)
        if thread.interrupting == turn_id:
            with trio.move_on_after(deadline_s):
                await ended.wait()
            return
        thread.interrupting = turn_id
        refused: RequestRefusedError | None = None
        failed: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, ended, nursery.cancel_scope)
                with trio.move_on_after(TURN_BEGIN_WAIT_S):
                    await thread.turn_began.wait()
                params = TurnInterruptParams(thread_id=thread.thread_id, turn_id=turn_id)
                try:
                    await live.connection.request(params, Empty, deadline_s=deadline_s, cleanup=True)
                except RequestRefusedError as error:
                    refused = error
                except Exception as error:
                    failed = error
                nursery.cancel_scope.cancel(reason="the interrupt was answered")
        finally:
            if thread.interrupting == turn_id:
                thread.interrupting = None
        self._doubt(thread, turn_id, refused)
        if failed is not None:
            raise failed
        if refused is not None:
            raise TurnNotActiveError(turn_id) from refused

    @staticmethod
    def _doubt(thread: CodexThread, turn_id: TurnId, refused: RequestRefusedError | None) -> None:
        """Neither an answer to an interrupt nor a refusal proves a turn's end: it is asked about if none comes."""
        if refused is not None and names_another_turn(refused) and not thread.has_ended(turn_id):
            thread.doubt_replaced(turn_id)
        elif thread.active_turn == turn_id:
            thread.doubt()

    async def _quietly(self, connection: Connection, params: Any, result_type: Any) -> bool:
        """Do one step of a cleanup; False when it failed."""
        try:
            await connection.request(params, result_type, deadline_s=CLEANUP_DEADLINE_S, cleanup=True)
        except (ProviderLostError, ProviderProtocolError, RequestRefusedError, UnansweredError):
            return False
        return True


def _settler(connection: Connection) -> Callable[[CodexThread, TurnId], None]:
    """Return what a thread calls when a turn of it has perhaps ended without a word."""
    return lambda thread, turn_id: connection.settle_later(partial(settle_turn, connection, thread, turn_id))


def _type_names(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _type_names(part)
    else:
        yield type(error).__name__


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel(reason="the turn has ended")


def _exec_params(thread: CodexThread, request: ExecTurn) -> TurnStartParams:
    mode = thread.mode_of_turn(request.mode)
    if thread.source is None:
        had_context, thread.had_context = thread.had_context, thread.had_context or request.host_context is not None
        return turn_params(
            thread.thread_id,
            request.content,
            request.client_submit_id,
            thread.settings,
            request.host_context,
            had_context=had_context,
            mode=mode,
        )
    return side_turn_params(
        thread.thread_id,
        request.content,
        request.client_submit_id,
        thread.source.settings,
        thread.instructions,
        mode=mode or thread.source.mode,
    )


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
