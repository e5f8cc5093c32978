"""The sweeper: goes on closing what would not close, with bounded retries, and then ends it by force.

One task, woken by a registration or by the next retry that is due; it never polls. It outlives the providers, so that
what they could not close in their own end is still somebody's; when the host ends, what is left is forced.

Source: specification, Codex reference adapter: a failed physical close is retried through a bounded sweeper.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from tutti_side.contract import NO_METRICS, CleanupOwner, CleanupRow, Metrics
from tutti_side.nursery import open_service_nursery
from tutti_side.runtime._log import log

__all__ = ["SWEEP_TRIES_MAX", "RetryTable", "Sweeper", "open_sweeper"]

SWEEP_TRIES_MAX = 5
"""Tries before force: with the pauses below, a quarter of a minute."""

SWEEP_PAUSE_S = 0.5
"""Pause before the first retry; doubled each time."""

SWEEP_CLOSE_S = 5.0
"""How long one try may take."""

OWNERS_MAX = 256
"""Things that wait to be closed; one more is forced at once."""


class RetryTable:
    """Which thing is tried when, and when it has been tried often enough. Pure: `now` is an argument."""

    def __init__(self) -> None:
        self._rows: dict[CleanupOwner, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, owner: CleanupOwner, now: float) -> bool:
        """Take a thing, due after the first pause; False when the table is full."""
        if len(self._rows) >= OWNERS_MAX:
            return False
        self._rows.setdefault(owner, (0, now + SWEEP_PAUSE_S))
        return True

    def next_due(self) -> float:
        """Return when the next try is due; infinity when nothing waits."""
        return min((due for _, due in self._rows.values()), default=float("inf"))

    def take_due(self, now: float) -> list[CleanupOwner]:
        """Return what is due, oldest first."""
        return [owner for owner, (_, due) in self._rows.items() if due <= now]

    def succeeded(self, owner: CleanupOwner) -> None:
        """Forget a thing that has closed."""
        self._rows.pop(owner, None)

    def failed(self, owner: CleanupOwner, now: float) -> bool:
        """Note a failed try; True when that was the last, and the thing is to be forced (and is forgotten)."""
        tries = self._rows[owner][0] + 1
        if tries >= SWEEP_TRIES_MAX:
            del self._rows[owner]
            return True
        self._rows[owner] = (tries, now + SWEEP_PAUSE_S * 2**tries)
        return False

    def drop_all(self) -> list[CleanupOwner]:
        """Forget everything, and return it."""
        owners = list(self._rows)
        self._rows.clear()
        return owners

    def rows(self, now: float) -> tuple[CleanupRow, ...]:
        """Return the table, for a person."""
        return tuple(
            CleanupRow(label=owner.label, tries=tries, due_s=max(0.0, due - now))
            for owner, (tries, due) in self._rows.items()
        )


class Sweeper:
    """Implements `tutti_side.contract.CleanupPort`; made by `open_sweeper`."""

    def __init__(self, metrics: Metrics, now: Callable[[], float] = trio.current_time) -> None:
        self._table = RetryTable()
        self._metrics = metrics
        self._now = now
        self._wake = trio.Event()
        self._ended = False
        self.forced = 0

    def register(self, owner: CleanupOwner) -> None:
        """Take over what would not close. Synchronous; after the sweeper's end it is forced at once."""
        if self._ended or not self._table.add(owner, self._now()):
            self._force(owner)
        else:
            self._wake.set()

    def rows(self) -> tuple[CleanupRow, ...]:
        """Return what waits to be closed."""
        return self._table.rows(self._now())

    async def run(self) -> None:
        """Retry for ever; the owner of the nursery cancels it."""
        while True:
            with trio.move_on_at(self._table.next_due()):
                await self._wake.wait()
            self._wake = trio.Event()
            for owner in self._table.take_due(self._now()):
                await self._try(owner)

    async def _try(self, owner: CleanupOwner) -> None:
        closed = False
        with trio.move_on_after(SWEEP_CLOSE_S):
            try:
                await owner.close()
                closed = True
            except Exception:  # contained: it is tried again, and then forced
                closed = False
        if closed:
            self._table.succeeded(owner)
            self._metrics.count("cleanups", outcome="closed")
        elif self._table.failed(owner, self._now()):
            self._force(owner)

    def end(self) -> None:
        """Force what is left; nothing is taken over afterwards but by force."""
        self._ended = True
        for owner in self._table.drop_all():
            self._force(owner)

    def _force(self, owner: CleanupOwner) -> None:
        self.forced += 1
        self._metrics.count("cleanups", outcome="forced")
        log(logging.WARNING, "what would not close was ended by force", child_id=owner.label, phase="cleanup")
        owner.force()


@asynccontextmanager
async def open_sweeper(metrics: Metrics = NO_METRICS) -> AsyncIterator[Sweeper]:
    """Open a sweeper; what it could not close by the end of the block is forced.

    Cancellation: as the end of the block.
    """
    sweeper = Sweeper(metrics)
    try:
        async with open_service_nursery() as nursery:
            nursery.start_soon(sweeper.run, name="sweeper")
            yield sweeper
    finally:
        sweeper.end()
