"""Unsubscribes that nobody waits for: retried within a bound, and taken back when the thread is loaded again."""

from collections.abc import Awaitable, Callable

import trio

from tutti_providers.codex.errors import RequestRefusedError, UnansweredError
from tutti_side.contract import CleanupRow, ProviderLostError, ProviderProtocolError

__all__ = ["RECLAIM_S", "Release", "Releases"]

RELEASE_TRIES_MAX = 12
"""An unsubscribe is tried so often, which takes up to 4 minutes: longer than a server that is still taken for alive can
stand still, or refuse. After that the child ends with its process."""

RELEASE_PAUSE_S = 0.2
"""Pause after the first failed try; doubled each time…"""

RELEASE_PAUSE_S_MAX = 30.0
"""…but never longer than this."""

RECLAIM_S = 30.0
"""Who loads a thread again waits so long for the answer to an earlier load that was given up, which would be released
when it came, and for the end of an earlier close."""


class Release:
    """An unsubscribe in the background."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.tries = 0
        self.due = 0.0
        self.done = trio.Event()
        self.claims = 0
        """Those who wait for its end because they load the thread again."""
        self.claimed = trio.Event()


class Releases:
    """Those of one connection.

    Args:
      unsubscribe: sends one, with its deadline.
      retire: takes a thread's route away.
      start: starts work in the connection's nursery, and sets the event when it is over; False when it is ending.
    """

    def __init__(
        self,
        unsubscribe: Callable[[str], Awaitable[None]],
        retire: Callable[[str], None],
        start: Callable[..., bool],
    ) -> None:
        self._unsubscribe = unsubscribe
        self._retire = retire
        self._start = start
        self._retrying: dict[Release, None] = {}
        self.abandoned_loads: dict[str, trio.Event] = {}
        """Threads that were to be loaded by somebody who has gone, until the answer comes."""

    def begin(self, thread_id: str, *, first: Callable[[], Awaitable[None]] | None = None) -> Release:
        """Unsubscribe a thread in the background, with bounded retries; `first`, bounded too, comes before."""
        release = Release(thread_id)
        self._retire(thread_id)
        if self._start(release.done, self._run, release, first):
            self._retrying[release] = None
        return release

    async def reclaim(self, thread_id: str) -> bool:
        """Let no unsubscribe of this thread follow, since it is about to be loaded again.

        What is on the wire already is answered first, or has its deadline: done late, it would undo the load. So this
        takes at most `RECLAIM_S` for a load that was abandoned, and then 25 s: an unsubscribe that was cut short first
        stops what runs, in four steps of `CLEANUP_DEADLINE_S` at most.

        Returns:
          True when an unsubscribe was still owed: a load that fails has to begin it anew.

        Cancellation: the unsubscribe goes on.
        """
        owed = False
        abandoned = self.abandoned_loads.get(thread_id)
        if abandoned is not None:
            with trio.move_on_after(RECLAIM_S):
                await abandoned.wait()
        for release in [release for release in self._retrying if release.thread_id == thread_id]:
            owed = True
            release.claims += 1
            release.claimed.set()
            try:
                await release.done.wait()
            finally:
                release.claims -= 1
                if not release.claims:
                    release.claimed = trio.Event()
        return owed

    def rows(self) -> tuple[CleanupRow, ...]:
        """Return the unsubscribes that are being retried."""
        now = trio.current_time()
        return tuple(
            CleanupRow(label=f"thread {release.thread_id}", tries=release.tries, due_s=max(0.0, release.due - now))
            for release in self._retrying
        )

    async def _run(self, release: Release, first: Callable[[], Awaitable[None]] | None) -> None:
        try:
            if first is not None:
                await first()
            for attempt in range(RELEASE_TRIES_MAX):
                try:
                    await self._unsubscribe(release.thread_id)
                except (UnansweredError, RequestRefusedError, ProviderProtocolError):
                    if attempt == RELEASE_TRIES_MAX - 1:
                        raise
                    pause_s = min(RELEASE_PAUSE_S * 2**attempt, RELEASE_PAUSE_S_MAX)
                    release.tries, release.due = attempt + 1, trio.current_time() + pause_s
                    with trio.move_on_after(pause_s):
                        await release.claimed.wait()
                    if release.claims:
                        return
                except ProviderLostError:
                    return  # gone with its process
                else:
                    return
        finally:
            self._retrying.pop(release, None)
