"""Asking how a turn ended whose end was perhaps not told, so that nobody waits for it for ever. The waiting half.

And asking whether a thread is still loaded, when that is in doubt, and what runs in one that was loaded.

Something gives rise to doubt: the thread rests while a turn of it is active, another turn began, the server refused an
interrupt, or it was silent and needed a sign of life. Nothing is asked while the thread still speaks; then at most
`TRIES_MAX` times. A turn of which nobody can say how it ended fails, with a reason of its own.
"""

import trio

from tutti_providers.codex._connection import CLEANUP_DEADLINE_S, Connection
from tutti_providers.codex._reconcile import (
    StatusVerdict,
    TurnVerdict,
    judge_status,
    judge_turns,
    says_not_loaded,
)
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.errors import RequestRefusedError, UnansweredError
from tutti_providers.codex.schema.items import ThreadStatus, Turn
from tutti_providers.codex.schema.requests import ReadParams, ReadResult, TurnsListParams, TurnsPage
from tutti_side.contract import ProviderLostError, ProviderProtocolError, TurnId

__all__ = ["DOUBT_S", "settle_load", "settle_turn", "stop_earlier_turn"]

DOUBT_S = 5.0
"""A doubted turn's end may still come for so long before the server is asked: it stands some milliseconds behind the
word that its thread rests."""

POSTPONED_MAX = 12
"""So often that is prolonged while the thread still speaks; a thread that never stops speaking is asked about too."""

TRIES_MAX = 3
"""So often the server is asked at most; a list of turns can lag behind them."""

PAUSE_S = 1.0
"""Pause after the first try without a result; doubled each time."""

TURNS_LOOKED_AT = 16
"""The newest turns that are asked for: more cannot have begun while one was in doubt."""


async def settle_turn(connection: Connection, thread: CodexThread, turn_id: TurnId) -> None:
    """Find out whether a turn still runs, and if not, end it; bounded, and over at once when its end comes.

    Cancellation: harmless.
    """
    for _ in range(POSTPONED_MAX):
        seen = thread.deliveries
        if await _ends_within(thread, turn_id, DOUBT_S):
            return
        if thread.deliveries == seen:
            break
    is_side = thread.source is not None
    verdict: TurnVerdict | StatusVerdict = "unknown"
    for attempt in range(TRIES_MAX):
        verdict = await _ask(connection, thread, turn_id)
        if thread.has_ended(turn_id):
            return
        if isinstance(verdict, Turn):
            thread.conclude(verdict)
            return
        if verdict == "running":
            thread.turns.trust(turn_id)
            return
        if is_side and verdict == "resting":
            break
        if attempt + 1 < TRIES_MAX and await _ends_within(thread, turn_id, PAUSE_S * 2**attempt):
            return
    thread.give_up(turn_id)
    if verdict != "resting":
        connection.interrupt_over(thread, turn_id)  # perhaps it runs: then nobody would hear of it any more


async def settle_load(connection: Connection, thread: CodexThread) -> None:
    """Find out whether a thread is still loaded that was said to be unloaded before its load was answered; bounded.

    That word can have been of an earlier time. Without an answer the thread stays; the next request for it will tell.

    Cancellation: harmless.
    """
    for attempt in range(TRIES_MAX):
        if thread.is_over:
            return
        try:
            status = await _status(connection, thread)
        except RequestRefusedError as error:
            is_loaded = not says_not_loaded(error)
        except (UnansweredError, ProviderProtocolError):
            if attempt + 1 < TRIES_MAX:
                await trio.sleep(PAUSE_S * 2**attempt)
            continue
        except ProviderLostError:
            return
        else:
            is_loaded = status is None or status.type != "notLoaded"
        if not is_loaded:
            thread.note_unloaded()
        return


async def stop_earlier_turn(connection: Connection, thread: CodexThread) -> None:
    """Interrupt the turn that runs in a thread which was just loaded; bounded.

    It is of an earlier time, whose interrupt came to nothing. The server would put the next input into it. Nothing is
    heard of it, unless the server has told its begin since the load was asked for: then its end is told as well.

    Cancellation: the turn may run on; input that is put into it is `TurnMergedError`, and interrupts it.
    """
    try:
        page = await _newest_turns(connection, thread)
    except (RequestRefusedError, UnansweredError, ProviderProtocolError, ProviderLostError):
        return
    for turn in page.data:
        if turn.status == "inProgress":
            if thread.turns.active != turn.id:
                thread.turns.give_up(TurnId(turn.id))
            await connection.send_interrupt(thread, TurnId(turn.id))
            return


async def _status(connection: Connection, thread: CodexThread) -> ThreadStatus | None:
    params = ReadParams(thread_id=thread.thread_id)
    return (await connection.request(params, ReadResult, deadline_s=CLEANUP_DEADLINE_S, cleanup=True)).thread.status


async def _newest_turns(connection: Connection, thread: CodexThread) -> TurnsPage:
    params = TurnsListParams(
        thread_id=thread.thread_id, limit=TURNS_LOOKED_AT, sort_direction="desc", items_view="notLoaded"
    )
    return await connection.request(params, TurnsPage, deadline_s=CLEANUP_DEADLINE_S, cleanup=True)


async def _ends_within(thread: CodexThread, turn_id: TurnId, seconds: float) -> bool:
    """Wait for the turn's end, for so long; True when nothing is left to find out."""
    with trio.move_on_after(seconds):
        await thread.turns.wait_ended(turn_id)
    return thread.has_ended(turn_id)


async def _ask(connection: Connection, thread: CodexThread, turn_id: TurnId) -> TurnVerdict | StatusVerdict:
    """Ask once: for the thread's status, and when it rests or another turn runs, for its turns, if it lists any."""
    try:
        status = judge_status(await _status(connection, thread))
        is_replaced = thread.turns.is_replaced(turn_id)
        if status == "running" and not is_replaced:
            return "running"
        if thread.source is not None:
            return "resting" if is_replaced else status
        return judge_turns((await _newest_turns(connection, thread)).data, turn_id)
    except (RequestRefusedError, UnansweredError, ProviderProtocolError, ProviderLostError):
        return "unknown"
