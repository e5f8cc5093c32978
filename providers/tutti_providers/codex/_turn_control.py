"""A turn that runs: interrupting it, and giving it more input.

Either is held back until the server has said that the turn began. Of an interrupt neither the answer nor a refusal
proves the turn's end: the thread is made to doubt it, and `_settling` finds out.
"""

import trio

from tutti_providers.codex._connection import Connection
from tutti_providers.codex._input import input_of
from tutti_providers.codex._reconcile import names_another_turn, says_not_active
from tutti_providers.codex._thread import TURN_BEGIN_WAIT_S, CodexThread
from tutti_providers.codex.errors import RequestRefusedError
from tutti_providers.codex.schema.requests import Empty, TurnInterruptParams, TurnSteerParams, TurnSteerResult
from tutti_side.contract import Content, ProviderProtocolError, TurnId, TurnNotActiveError

__all__ = ["INTERRUPT_DEADLINE_S", "interrupt_turn", "steer_turn"]

INTERRUPT_DEADLINE_S = 10.0
"""How long an interrupt may take. 0.163 leaves a surplus one unanswered, so the turn's end ends the wait too."""


async def interrupt_turn(
    connection: Connection, thread: CodexThread, turn_id: TurnId, deadline_s: float = INTERRUPT_DEADLINE_S
) -> None:
    """Send one interrupt at a time for a turn; its end ends the wait as well as an answer does.

    Raises:
      TurnNotActiveError: it is not the thread's active turn, for us or for the server.
      ProviderLostError, ProviderProtocolError, UnansweredError: what became of the request.

    Cancellation: may have been sent.
    """
    ended = thread.turns.ended
    if thread.turns.active != turn_id:
        raise TurnNotActiveError(turn_id)
    if thread.interrupting == turn_id:
        with trio.move_on_after(deadline_s):
            await ended.wait()
        return
    refused: RequestRefusedError | None = None
    failed: Exception | None = None
    with thread.being_interrupted(turn_id):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, ended, nursery.cancel_scope)
            with trio.move_on_after(TURN_BEGIN_WAIT_S):
                await thread.turns.began.wait()
            params = TurnInterruptParams(thread_id=thread.thread_id, turn_id=turn_id)
            try:
                await connection.request(params, Empty, deadline_s=deadline_s, cleanup=True)
            except RequestRefusedError as error:
                refused = error
            except Exception as error:
                failed = error
            nursery.cancel_scope.cancel(reason="the interrupt was answered")
    _doubt(thread, turn_id, refused)
    if failed is not None:
        raise failed
    if refused is not None:
        raise TurnNotActiveError(turn_id) from refused


async def steer_turn(
    connection: Connection, thread: CodexThread, turn_id: TurnId, content: tuple[Content, ...]
) -> None:
    """Give a turn more input, or nothing; see `tutti_side.contract.SteeringAdapter.steer`."""
    if thread.turns.active == turn_id:
        with trio.move_on_after(TURN_BEGIN_WAIT_S):
            await thread.turns.began.wait()
    if thread.turns.active != turn_id:
        raise TurnNotActiveError(turn_id)
    params = TurnSteerParams(thread_id=thread.thread_id, expected_turn_id=turn_id, input=input_of(content))
    try:
        taken = await connection.request(params, TurnSteerResult)
    except RequestRefusedError as error:
        if not says_not_active(error):
            raise  # a turn of a kind that takes no input, for example
        _doubt(thread, turn_id, error)
        raise TurnNotActiveError(turn_id) from error
    if taken.turn_id != turn_id:
        raise ProviderProtocolError(params.METHOD, "another turn took the input")


def _doubt(thread: CodexThread, turn_id: TurnId, refused: RequestRefusedError | None) -> None:
    """Neither an answer to an interrupt nor a refusal proves a turn's end: it is asked about if none comes."""
    if refused is not None and names_another_turn(refused) and not thread.has_ended(turn_id):
        thread.turns.doubt_replaced(turn_id)
    elif thread.turns.active == turn_id:
        thread.doubt()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel(reason="the turn has ended")
