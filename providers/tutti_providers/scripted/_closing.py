"""How sessions and Sides are closed, and what an open that came to nothing leaves to be undone.

The order is the contract's: decline, interrupt, wait for the turn's end, release. What fails or is cut short is handed
on: a thread on the shared connection to that connection, a Side's own connection to the host's sweeper.
"""

from contextlib import suppress

import trio

from tutti_providers.scripted._connection import Connection
from tutti_providers.scripted._reader import ScriptReader
from tutti_providers.scripted._thread import ScriptedThread
from tutti_providers.scripted.errors import ConnectionNotClosedError
from tutti_providers.scripted.script import Closing
from tutti_side.contract import CleanupPort, ProviderLostError, ScopeRef, SideRef

__all__ = ["TURN_END_WAIT_S", "Closer", "Live"]

TURN_END_WAIT_S = 5.0
"""How long a close waits for the end of the turn that it interrupted; then the turn is killed."""


class Live:
    """A thread with the connection it is on."""

    def __init__(self, connection: Connection, thread: ScriptedThread) -> None:
        self.connection = connection
        self.thread = thread


class Closer:
    """Closes what an adapter holds."""

    def __init__(self, nursery: trio.Nursery, reader: ScriptReader, cleanup: CleanupPort) -> None:
        self._nursery = nursery
        self._reader = reader
        self._cleanup = cleanup
        self._draining: dict[SideRef, list[trio.Event]] = {}

    @property
    def draining(self) -> int:
        """Failed or given up opens of which something may be left."""
        return sum(not event.is_set() for events in self._draining.values() for event in events)

    async def close(self, ref: ScopeRef, live: Live) -> None:
        """Close a session or Side that is not lost.

        Cancellation: what is left to do is handed on.
        """
        if live.connection.is_dedicated and isinstance(ref, SideRef):
            await self._close_dedicated(ref, live)
        else:
            await self._close_shared(ref, live)

    async def _close_shared(self, ref: ScopeRef, live: Live) -> None:
        """Release a thread; what fails or is cut short is the connection's to finish."""
        connection, thread = live.connection, live.thread
        try:
            with suppress(ProviderLostError), connection.call():
                await _end_turn(thread)
                closing = self._next_closing(ref)
                if await connection.play_end(thread, closing.steps) is None:
                    connection.remove(thread)
                    connection.play_late(thread, closing.late)
        finally:
            thread.detach()
            if connection.carries(thread):
                connection.release_later(thread, lambda: self._next_closing(ref))

    async def _close_dedicated(self, ref: SideRef, live: Live) -> None:
        """Close a Side with its own connection; what fails or is cut short is the host's sweeper's to finish."""
        try:
            with suppress(ProviderLostError), live.connection.call():
                await _end_turn(live.thread)
            live.thread.detach()
            with suppress(ConnectionNotClosedError):
                await self.shut_down(ref, live)
        finally:
            live.thread.detach()
            if live.connection.is_usable:
                self._cleanup.register(_UnclosedConnection(self, ref, live))

    async def shut_down(self, ref: SideRef, live: Live) -> None:
        """Close a Side's own connection, once, and wait until it is gone.

        Raises:
          ConnectionNotClosedError: the script says so.
        """
        connection = live.connection
        failure: str | None = None
        with suppress(ProviderLostError), connection.call():
            connection.close_attempts += 1
            failure = await connection.play_end(live.thread, self._next_closing(ref).steps)
        if failure is not None:
            raise ConnectionNotClosedError(connection.close_attempts)
        connection.remove(live.thread)
        connection.shut()
        await connection.gone.wait()

    def _next_closing(self, ref: ScopeRef) -> Closing:
        return self._reader.closing(ref.side if isinstance(ref, SideRef) else ref.session)

    # Opens that came to nothing

    def undo_open(self, side: SideRef, child: Live, released: trio.Event) -> None:
        """Remember that something of a failed open may be left until `released`; a connection made for it is closed."""
        if child.connection.is_dedicated:
            released = trio.Event()
            self._nursery.start_soon(self._close_failed_open, side, child, released, name=f"scripted:{side.side}/undo")
        self._draining.setdefault(side, []).append(released)
        self._forget_drained(side)

    def _forget_drained(self, side: SideRef) -> None:
        left = [event for event in self._draining.pop(side, []) if not event.is_set()]
        if left:
            self._draining[side] = left

    async def _close_failed_open(self, side: SideRef, child: Live, released: trio.Event) -> None:
        """Close the connection that was made for a Side that never was."""
        try:
            await self._close_dedicated(side, child)
        finally:
            released.set()

    async def wait_released(self, side: SideRef) -> None:
        """Wait until nothing of a failed open is left. Cancellation: harmless."""
        await trio.lowlevel.checkpoint()
        for released in self._draining.get(side, ()):
            await released.wait()
        self._forget_drained(side)


class _UnclosedConnection:
    """A Side's own connection that would not close. Implements `tutti_side.contract.CleanupOwner`."""

    def __init__(self, closer: Closer, side: SideRef, live: Live) -> None:
        self.label = f"scripted connection of {live.thread.thread_id}"
        self._closer = closer
        self._side = side
        self._live = live

    async def close(self) -> None:
        """Try again."""
        await self._closer.shut_down(self._side, self._live)

    def force(self) -> None:
        """Kill it."""
        self._live.connection.lose()


async def _end_turn(thread: ScriptedThread) -> None:
    """Decline what is asked, interrupt what runs, and wait for its end; in the end by force."""
    thread.supersede_all()
    ended = thread.turn_ended
    if thread.interrupt is None:
        await trio.lowlevel.checkpoint()
        return
    thread.interrupt()
    with trio.move_on_after(TURN_END_WAIT_S):
        await ended.wait()
    if thread.kill is not None:
        thread.kill()
        await ended.wait()
