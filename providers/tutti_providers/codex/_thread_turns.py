"""Which turn of a thread is active, which ones are over, and which are in doubt. Synchronous; its thread tells it.

A turn can end before its start is answered, end twice, or never be said to have ended. One runs at a time: when another
begins, the one before it has ended, perhaps without a word.
"""

from collections.abc import Callable

import trio

from tutti_providers.codex.schema.items import Turn
from tutti_side.contract import TurnId

__all__ = ["ENDED_TURNS_MAX", "ThreadTurns"]

ENDED_TURNS_MAX = 64
"""Ended turns remembered: a turn can end before its start is answered."""


class ThreadTurns:
    """The turns of one thread.

    Args:
      on_busy: called with True when a turn begins, or is about to; with False when none does any more.
      on_doubt: called when a turn has perhaps ended without a word: somebody must ask (see `_settling`).
    """

    def __init__(self, on_busy: Callable[[bool], None], on_doubt: Callable[[TurnId], None]) -> None:
        self.starting = False
        """True while a ``turn/start`` may be on its way."""
        self.start_settled = trio.Event()
        self.active: TurnId | None = None
        self.began = trio.Event()
        """Set once the server has said that the active turn began."""
        self.ended = trio.Event()
        """Set at the end of the active turn, or the last one."""
        self.has_any = False
        """True once the thread has a turn that it can be branched at."""
        self.is_resting = False
        """True when the server said that the thread rests, and of no turn since that it runs."""
        self.over: dict[str, None] = {}
        """Ended turns, as far as they are remembered."""
        self.given_up: dict[str, None] = {}
        """Those among them of which nobody could say how they ended."""
        self._open: dict[TurnId, trio.Event] = {}
        self._doubted: dict[TurnId, bool] = {}
        self._on_busy = on_busy
        self._on_doubt = on_doubt

    @property
    def is_busy(self) -> bool:
        """True while a turn is active, or one may be about to be."""
        return self.starting or self.active is not None

    # Their start

    def begin_start(self) -> None:
        """A ``turn/start`` is about to be sent."""
        self._on_busy(True)
        self.starting = True
        self.start_settled = trio.Event()

    def end_start(self, turn: Turn | None) -> None:
        """It has its outcome: the turn, or none. Runs at the answer's place in the wire order."""
        self.starting = False
        if turn is not None and turn.id not in self.over:
            self.begin(TurnId(turn.id))
        self.start_settled.set()
        if not self.is_busy:
            self._on_busy(False)

    def begin(self, turn_id: TurnId) -> None:
        """Take a turn that is not over for the active one. Idempotent."""
        self.has_any = True
        self.is_resting = False
        before = self.active
        if before != turn_id:
            self._on_busy(True)
            self.active = turn_id
            self.began = trio.Event()
            self.ended = self._open[turn_id] = trio.Event()
            if before is not None:
                self.doubt_replaced(before)

    # Their end

    def end(self, turn_id: TurnId) -> bool:
        """Note a turn's end; False when it had ended before."""
        if turn_id in self.over:
            return False
        self.over[turn_id] = None
        if len(self.over) > ENDED_TURNS_MAX:
            del self.over[next(iter(self.over))]
        self._doubted.pop(turn_id, None)
        ended = self._open.pop(turn_id, None)
        if ended is not None:
            ended.set()
        if self.active == turn_id:
            self.active = None
            self.began.set()
            self.ended.set()
            if not self.starting:
                self._on_busy(False)
        return True

    def give_up(self, turn_id: TurnId) -> bool:
        """Note that nobody can say how a turn ended; False when it had ended before."""
        if not self.end(turn_id):
            return False
        self.given_up[turn_id] = None
        if len(self.given_up) > ENDED_TURNS_MAX:
            del self.given_up[next(iter(self.given_up))]
        return True

    def lose(self) -> None:
        """The connection is gone: nothing of any turn comes any more. Idempotent."""
        self.starting = False
        self.start_settled.set()
        self.active = None
        self.began.set()
        for ended in self._open.values():
            ended.set()
        self._open.clear()
        self.ended.set()

    async def wait_ended(self, turn_id: TurnId) -> None:
        """Wait for a turn's end, or its thread's loss. Cancellation: harmless."""
        ended = self._open.get(turn_id)
        if ended is None:
            await trio.lowlevel.checkpoint()
        else:
            await ended.wait()

    # Those whose end was perhaps not told

    def doubt(self) -> None:
        """Have it found out whether the active turn still runs: something says that it may not. Idempotent."""
        if self.active is not None and self.active not in self._doubted:
            self._doubted[self.active] = False
            self._on_doubt(self.active)

    def doubt_replaced(self, turn_id: TurnId) -> None:
        """Have it found out how a turn ended: another one is active in its place, and one runs at a time."""
        is_new = turn_id not in self._doubted
        self._doubted[turn_id] = True
        if is_new:
            self._on_doubt(turn_id)

    def is_replaced(self, turn_id: TurnId) -> bool:
        """True for a turn that can't be the one that runs."""
        return self._doubted.get(turn_id, False)

    def trust(self, turn_id: TurnId) -> None:
        """Take the server's word that a doubted turn runs."""
        self._doubted.pop(turn_id, None)
        self.is_resting = False
