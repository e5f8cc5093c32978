"""The ``turn/start`` of a live thread, from the call to its answer or beyond: who begins a turn and leaves, stops it.

The answer is taken in its hook, at its place in the wire order. So the thread learns which turn it has even when the
caller has gone, and then the turn is interrupted.
"""

import msgspec
import trio

from tutti_providers.codex._connection import Connection
from tutti_providers.codex._settings import side_turn_params, turn_params
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.schema.items import Turn
from tutti_providers.codex.schema.requests import TurnStartParams, TurnStartResult
from tutti_side.contract import (
    ExecTurn,
    ProviderLostError,
    ProviderProtocolError,
    TurnActiveError,
    TurnId,
    TurnMergedError,
)
from tutti_side.jsonrpc import Outcome

__all__ = ["Live", "start_turn"]

START_ANSWER_WAIT_S = 30.0
"""How long a thread counts as busy after the caller of an unanswered ``turn/start`` has gone. A turn that the server
began all the same says so by its ``turn/started``, which makes the thread busy again."""


class Live:
    """A thread with the connection it is on."""

    def __init__(self, connection: Connection, thread: CodexThread) -> None:
        self.connection = connection
        self.thread = thread
        self.starting = trio.CancelScope()
        """Around the ``turn/start`` that is on its way, if one is; a close gives it up."""


async def start_turn(live: Live, request: ExecTurn) -> TurnId:
    """Start a turn and return its id, as the server names it.

    Raises:
      TurnActiveError: the thread has a turn, or may be about to.
      TurnMergedError: the server put it into a turn that was over, which is being interrupted.
      ProviderLostError: the connection is gone, or the thread is being closed.
      ProviderProtocolError, RequestRefusedError, UnansweredError: what the server made of it.

    Cancellation: not sent, or interrupted in the background as soon as the server names the turn.
    """
    if live.thread.is_busy:
        raise TurnActiveError
    start = _TurnStart(live)
    result: TurnStartResult | None = None
    try:
        with trio.CancelScope() as live.starting:
            result = await live.connection.request(
                _start_params(live.thread, request), TurnStartResult, hook=start.take_answer
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


class _TurnStart:
    """A ``turn/start`` on its way; its hook names the turn even when its caller has gone."""

    _decode = staticmethod(msgspec.json.Decoder(TurnStartResult).decode)

    def __init__(self, live: Live) -> None:
        self._live = live
        self._turn_id: TurnId | None = None
        self._abandoned = False
        self._ended_before = frozenset(live.thread.turns.over)
        self.merged_into: TurnId | None = None
        """The turn that was over before this was sent, and yet is what the server answered with."""
        live.thread.turns.begin_start()
        self._settled = live.thread.turns.start_settled

    def take_answer(self, outcome: Outcome) -> None:
        turn: Turn | None = None
        try:
            if not isinstance(outcome, Exception):
                turn = self._read(outcome)
                if turn.id in self._ended_before:
                    self.merged_into, turn = TurnId(turn.id), None
        finally:
            if not self._settled.is_set():
                self._live.thread.turns.end_start(turn)
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
            self._live.thread.turns.end_start(None)

    def _interrupt(self) -> None:
        turn_id = self._turn_id
        if turn_id is not None and self._live.thread.turns.active == turn_id:
            self._live.connection.interrupt_later(self._live.thread, turn_id)


def _start_params(thread: CodexThread, request: ExecTurn) -> TurnStartParams:
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
