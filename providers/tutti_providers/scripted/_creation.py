"""A thread on its way: what the provider does between the request that makes it and its answer.

It plays in the connection's nursery, so that it goes on when its caller has gone: the answer then comes late, and what
it made is released. Until the answer the caller holds nothing but this object.
"""

import trio

from tutti_providers.scripted._connection import Connection
from tutti_providers.scripted._player import TurnPlayer
from tutti_providers.scripted._thread import ScriptedThread
from tutti_providers.scripted.errors import ScriptedFailureError
from tutti_providers.scripted.script import Emit, Fail, Opening, OwnTurn, Starting, Wait
from tutti_side.contract import ProviderLostError

__all__ = ["Creation"]


class Creation:
    """One start, resume or open; `run` once, and `abandon` when it did not end well."""

    def __init__(self, connection: Connection, thread: ScriptedThread, operation: str, cue: Starting | Opening) -> None:
        self.released = trio.Event()
        """Set once nothing of a creation that came to nothing is left."""
        self._connection = connection
        self._thread = thread
        self._operation = operation
        self._cue = cue
        self._answered = trio.Event()
        self._is_over = False
        self._is_abandoned = False
        self._error: Exception | None = None
        connection.add(thread)
        connection.watch_loss(self, self._lose)

    async def run(self) -> None:
        """Wait for the answer.

        Raises:
          ScriptedFailureError: the script says so; nothing is left.
          ProviderLostError: the connection went meanwhile.

        Cancellation: call `abandon`; the answer may still come.
        """
        self._connection.nursery.start_soon(self._work, name=f"scripted:{self._thread.thread_id}/{self._operation}")
        await self._answered.wait()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Nobody wants it: quiet from now on; released when the provider has answered. Idempotent."""
        self._is_abandoned = True
        self._thread.detach()
        if self._is_over:
            self._release()

    async def _work(self) -> None:
        failure = await self._play()
        self._is_over = True
        self._connection.unwatch_loss(self)
        if failure is not None:
            self._error = ScriptedFailureError(self._operation, failure)
        if failure is not None or self._is_abandoned:
            self._release()
        self._answered.set()

    async def _play(self) -> str | None:
        """Play up to the answer; return the words of a `Fail`, or None."""
        await trio.lowlevel.checkpoint()
        for step in self._cue.steps:
            await trio.lowlevel.checkpoint()
            if isinstance(step, Wait):
                await self._connection.wait(step)
            elif isinstance(step, Emit):
                self._thread.emit(*step.events)
            elif isinstance(step, OwnTurn):
                player = TurnPlayer(self._connection, self._thread, step.steps)
                self._connection.nursery.start_soon(player.run, name=f"scripted:{player.turn_id}")
                await player.has_waited.wait()
            elif isinstance(step, Fail):
                return step.message
            else:
                self._connection.lose()
                await trio.sleep_forever()  # the connection's tasks, this one among them, are being cancelled
        return None

    def _lose(self) -> None:
        """Follow the loss of the connection."""
        self._is_over = True
        self._connection.unwatch_loss(self)
        self._error = ProviderLostError()
        self._release()
        self._answered.set()

    def _release(self) -> None:
        if not self.released.is_set():
            self.released.set()
            self._connection.remove(self._thread)
            self._connection.play_late(self._thread, self._cue.late)
