"""Closing a live thread, with what its agent started: each step bounded, and what fails handed to the connection.

The order is what the binary needs: decline what it asks, since a pending request would survive the unsubscribe;
interrupt the turn and wait for its end, since an unsubscribe during a turn loses it; end commands; unsubscribe.
"""

from contextlib import suppress
from typing import Any

import trio

from tutti_providers.codex._connection import CLEANUP_DEADLINE_S, Connection
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex._turn_control import interrupt_turn
from tutti_providers.codex._turn_start import Live
from tutti_providers.codex.errors import RequestRefusedError, UnansweredError
from tutti_providers.codex.schema.requests import (
    BackgroundTerminalsCleanParams,
    Empty,
    UnsubscribeParams,
    UnsubscribeResult,
)
from tutti_side.contract import ProviderLostError, ProviderProtocolError, TurnNotActiveError

__all__ = ["SUB_AGENT_BEGIN_WAIT_S", "TURN_END_WAIT_S", "close_thread", "end_commands_quietly"]

TURN_END_WAIT_S = 5.0
"""How long a close waits for the end of the turn that it interrupted; some milliseconds when the server is well."""

SUB_AGENT_BEGIN_WAIT_S = 1.0
"""How long a close waits for a sub-agent's first turn, so that it can be interrupted; it begins in milliseconds."""


async def close_thread(live: Live) -> None:
    """Stop what runs in a thread, its sub-agents included, and take its route away.

    Cancellation: interrupt, end of commands and unsubscribe are handed to the connection's nursery.
    """
    thread = live.thread
    released = thread.lost
    try:
        if not thread.lost:
            thread.begin_close()
            await _end_turn(live)
            live.starting.cancel(reason="its thread is being closed")  # or it might be sent again afterwards
            await _close_sub_agents(live)
            await _clean(live)
            thread.detach()
            released = await _unsubscribe(live)
    finally:
        live.starting.cancel(reason="its thread is being closed")
        thread.detach()
        for agent in thread.sub_agents:
            _let_go(Live(live.connection, agent), released=False)
        _let_go(live, released=released)


async def end_commands_quietly(connection: Connection, thread: CodexThread) -> None:
    """End the commands that a thread has left in the background; a failure is none of the caller's."""
    await _quietly(connection, BackgroundTerminalsCleanParams(thread_id=thread.thread_id), Empty)


async def _close_sub_agents(live: Live) -> None:
    """Close what the thread's agent started, all at once, each as the thread itself is closed.

    Bounded: at most `SUB_AGENTS_MAX` of them, each step with a deadline of its own.
    """
    if not live.thread.sub_agents:
        return
    async with trio.open_nursery() as nursery:
        for agent in live.thread.sub_agents:
            nursery.start_soon(_close_sub_agent, live.thread, Live(live.connection, agent))


async def _close_sub_agent(parent: CodexThread, live: Live) -> None:
    agent = live.thread
    if not agent.turns.has_any:  # it was only just started: its turn would begin when nobody hears of it any more
        with trio.move_on_after(SUB_AGENT_BEGIN_WAIT_S):
            await agent.first_item.wait()
    await _end_turn(live)
    await _clean(live)
    agent.detach()
    if await _unsubscribe(live):
        parent.sub_agents.remove(agent)
        _let_go(live, released=True)


async def _end_turn(live: Live) -> None:
    """Interrupt what runs, once, and wait for its end; bounded."""
    thread = live.thread
    if thread.turns.starting:
        with trio.move_on_after(CLEANUP_DEADLINE_S):
            await thread.turns.start_settled.wait()
    turn_id, ended = thread.turns.active, thread.turns.ended
    if turn_id is None:
        return
    # What counts is the turn's end, which is waited for.
    with suppress(TurnNotActiveError, ProviderLostError, ProviderProtocolError, RequestRefusedError, UnansweredError):
        await interrupt_turn(live.connection, thread, turn_id, CLEANUP_DEADLINE_S)
    with trio.move_on_after(TURN_END_WAIT_S):
        await ended.wait()


async def _clean(live: Live) -> None:
    """End the commands that the thread has left in the background."""
    await end_commands_quietly(live.connection, live.thread)
    live.thread.is_stopped = True


async def _unsubscribe(live: Live) -> bool:
    params = UnsubscribeParams(thread_id=live.thread.thread_id)
    return await _quietly(live.connection, params, UnsubscribeResult)


def _let_go(live: Live, *, released: bool) -> None:
    """Take a thread's route away; what could not be unsubscribed is the connection's to release."""
    live.thread.detach()
    if released or live.thread.lost:
        live.connection.router.retire(live.thread.thread_id)
    elif live.thread.is_stopped:
        live.connection.releases.begin(live.thread.thread_id)
    else:  # cut short: what a turn does would go on, and nobody would hear of it
        live.connection.releases.begin(live.thread.thread_id, first=lambda: _stop_late(live))


async def _stop_late(live: Live) -> None:
    """Stop what runs in a thread whose close was cut short. Of its end nothing is heard any more."""
    thread = live.thread
    if thread.turns.starting:
        with trio.move_on_after(CLEANUP_DEADLINE_S):
            await thread.turns.start_settled.wait()
    if thread.turns.active is not None:
        await live.connection.interrupt_unheard(thread, thread.turns.active)
    await _clean(live)


async def _quietly(connection: Connection, params: Any, result_type: Any) -> bool:
    """Do one step of a cleanup; False when it failed."""
    try:
        await connection.request(params, result_type, deadline_s=CLEANUP_DEADLINE_S, cleanup=True)
    except (ProviderLostError, ProviderProtocolError, RequestRefusedError, UnansweredError):
        return False
    return True
