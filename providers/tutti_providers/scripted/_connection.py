"""One connection of the scripted provider: the threads on it, the tasks that play for them, and its loss.

What plays is a task of the connection's nursery and ends with it. What waits for it in a caller's task stands inside
`call`, so that a loss ends the wait. A connection lives while it has threads; one that a Side has for itself is closed
by the adapter.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

from tutti_providers.scripted._gates import Gates
from tutti_providers.scripted._thread import ScriptedThread
from tutti_providers.scripted._transcript import KeptSessions
from tutti_providers.scripted.script import Closing, Drop, EndStep, Fail, LateStep, Wait
from tutti_side.contract import ProviderLostError

__all__ = ["RELEASE_RETRY_MAX_S", "RELEASE_RETRY_S", "RELEASE_TRIES_MAX", "Connection", "Counts"]

RELEASE_RETRY_S = 1.0
"""Before the first further attempt to release a thread; doubled for each that follows."""

RELEASE_RETRY_MAX_S = 8.0
"""Never longer than this."""

RELEASE_TRIES_MAX = 5
"""Further attempts; then the thread is dropped by force."""


class Counts:
    """What an adapter counts over all its connections."""

    def __init__(self) -> None:
        self.dropped_events = 0
        self.forced_releases = 0
        self.crashed_connections = 0

    def drop(self, events: int) -> None:
        """Count events that nobody wanted any more."""
        self.dropped_events += events


class Connection:
    """Made by the adapter, which runs it as a task."""

    def __init__(self, gates: Gates, kept: KeptSessions, counts: Counts, *, is_dedicated: bool) -> None:
        self.is_dedicated = is_dedicated
        self.lost = False
        self.threads: dict[str, ScriptedThread] = {}
        self.releasing = 0
        self.close_attempts = 0
        self.gone = trio.Event()
        """Set when its last task has ended."""
        self._gates = gates
        self._kept = kept
        self._counts = counts
        self._nursery: trio.Nursery | None = None
        self._calls: list[trio.CancelScope] = []
        self._on_loss: dict[object, Callable[[], None]] = {}
        self._is_shut = False

    @property
    def is_usable(self) -> bool:
        """True while it takes new threads."""
        return not self.lost and not self._is_shut

    @property
    def nursery(self) -> trio.Nursery:
        """Where everything of this connection plays."""
        assert self._nursery is not None, "it is begun before anybody gets it"
        return self._nursery

    def begin(self, nursery: trio.Nursery) -> None:
        """Play in this nursery from now on; its owner calls `lose` when it has ended."""
        self._nursery = nursery

    # Threads

    def add(self, thread: ScriptedThread) -> None:
        """Carry a thread; the connection lives as long as it carries one."""
        self.threads[thread.thread_id] = thread

    def remove(self, thread: ScriptedThread) -> None:
        """Carry a thread no longer; the last one shuts a shared connection. Idempotent."""
        thread.detach()
        if thread.kill is not None:
            thread.kill()
        if self.threads.pop(thread.thread_id, None) is None:
            return
        self._kept.release(thread.thread_id)
        if not self.threads and not self.is_dedicated:
            self.shut()

    def carries(self, thread: ScriptedThread) -> bool:
        """True until a thread was removed or lost."""
        return thread.thread_id in self.threads

    def shut(self) -> None:
        """End in good order. Idempotent."""
        self._is_shut = True
        self.nursery.cancel_scope.cancel(reason="the connection was shut")

    def watch_loss(self, owner: object, on_loss: Callable[[], None]) -> None:
        """Call back if the connection is lost, before any thread is told."""
        self._on_loss[owner] = on_loss

    def unwatch_loss(self, owner: object) -> None:
        """Do not call back any more. Idempotent."""
        self._on_loss.pop(owner, None)

    def lose(self) -> None:
        """The process is gone: everyone on it is told, every wait for it ends. Idempotent."""
        if self.lost:
            return
        self.lost = True
        for on_loss in tuple(self._on_loss.values()):
            on_loss()
        for thread in tuple(self.threads.values()):
            self._kept.release(thread.thread_id)
            thread.lose()
        self.threads.clear()
        for scope in self._calls:
            scope.cancel(reason="the connection is lost")
        self.nursery.cancel_scope.cancel(reason="the connection is lost")

    # Waiting

    @contextmanager
    def call(self) -> Iterator[None]:
        """Stand around a wait in a caller's task.

        Raises:
          ProviderLostError: the connection is lost, or was before the block ended.
        """
        if self.lost:
            raise ProviderLostError
        scope = trio.CancelScope()
        self._calls.append(scope)
        try:
            with scope:
                yield
        finally:
            self._calls.remove(scope)
        if self.lost:
            raise ProviderLostError

    async def wait(self, step: Wait) -> None:
        """Play a `Wait`."""
        if step.gate is not None:
            await self._gates.pass_through(step.gate)
        else:
            await trio.sleep(step.seconds or 0)

    # Ends

    async def play_end(self, thread: ScriptedThread, steps: Sequence[EndStep]) -> str | None:
        """Play what happens before something begins or ends; return the words of a `Fail`, or None."""
        await trio.lowlevel.checkpoint()
        for step in steps:
            if isinstance(step, Fail):
                return step.message
            if isinstance(step, Drop):
                self.lose()
                await trio.sleep_forever()  # whoever waits is being cancelled
            elif isinstance(step, Wait):
                await self.wait(step)
            else:
                thread.emit(*step.events)
        return None

    def play_late(self, thread: ScriptedThread, steps: Sequence[LateStep]) -> None:
        """Let the provider say something of a thread that is over; it must reach nobody."""
        if steps and self.is_usable:
            self.nursery.start_soon(self.play_end, thread, steps, name=f"scripted:{thread.thread_id}/late")

    def release_later(self, thread: ScriptedThread, next_closing: Callable[[], Closing]) -> None:
        """Try again to release a thread, in the connection's own time; by force in the end."""
        self.releasing += 1
        self.nursery.start_soon(self._release, thread, next_closing, name=f"scripted:{thread.thread_id}/release")

    async def _release(self, thread: ScriptedThread, next_closing: Callable[[], Closing]) -> None:
        try:
            delay_s = RELEASE_RETRY_S
            late: Sequence[LateStep] = ()
            for _ in range(RELEASE_TRIES_MAX):
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, RELEASE_RETRY_MAX_S)
                closing = next_closing()
                if await self.play_end(thread, closing.steps) is None:
                    late = closing.late
                    break
            else:
                self._counts.forced_releases += 1
            self.remove(thread)
            self.play_late(thread, late)
        finally:
            self.releasing -= 1
