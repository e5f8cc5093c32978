"""What the kit notices: all that one subscriber is told, what several who wait are told, and which error was raised."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, overload

import trio

from tutti_side.contract import (
    Event,
    EventBatch,
    MessageDelta,
    MessageUpdated,
    SessionClosed,
    SessionExpired,
    TurnId,
)
from tutti_side.errors import TuttiSideError
from tutti_side.runtime import SessionExpiredError, SideExpiredError, Subscription, TurnResult

__all__ = ["WAITERS", "Caught", "Heard", "Waiters", "refused"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Error = TypeVar("Error", bound=TuttiSideError)

WAITERS = 3
"""So many wait for each end: each must be told, and told the same."""


class Heard:
    """Everything that one subscriber is told, until its subscription ends."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.over = trio.Event()
        self._grown = trio.Event()

    async def listen(self, subscription: Subscription) -> None:
        """Read a subscription to its end."""
        with subscription:
            async for batch in subscription:
                self.batches.append(batch)
                self._grown.set()
        self.over.set()
        self._grown.set()

    @property
    def events(self) -> list[Event]:
        """All events, in order."""
        return [event for batch in self.batches for event in batch.events]

    @property
    def sequences(self) -> list[int]:
        """Their numbers."""
        return [number for batch in self.batches for number, _ in batch.numbered()]

    @property
    def text(self) -> str:
        """All texts of messages, pieces and wholes together: for looking whether something is in them."""
        return "\n".join(event.text for event in self.events if isinstance(event, MessageDelta | MessageUpdated))

    @property
    def ends(self) -> list[str]:
        """How the session or Side ended, as this subscriber was told: once, or it is wrong."""
        reasons: list[str] = []
        for event in self.events:
            if isinstance(event, SessionClosed):
                reasons.append("closed")
            elif isinstance(event, SessionExpired):
                reasons.append(event.reason)
        return reasons

    @property
    def turns(self) -> set[TurnId]:
        """The turns that it was told anything of, by whatever kind of event."""
        told: list[TurnId | None] = [getattr(event, "turn_id", None) for event in self.events]
        return {turn_id for turn_id in told if turn_id is not None}

    @overload
    def of(self, kind: type[A], /) -> list[A]: ...
    @overload
    def of(self, kind: type[A], other: type[B], /) -> list[A | B]: ...
    @overload
    def of(self, kind: type[A], other: type[B], third: type[C], /) -> list[A | B | C]: ...

    def of(self, *kinds: type[Any]) -> list[Any]:
        """Return the events of these kinds, in their order."""
        return [event for event in self.events if isinstance(event, kinds)]

    async def wait_for(self, kind: type[A], count: int = 1) -> A:
        """Wait until there are so many events of a kind, and return the last of them.

        Raises:
          AssertionError: the subscription ended before that.
        """
        while len(found := self.of(kind)) < count:
            assert not self.over.is_set(), f"the stream ended before {kind.__name__} number {count}"
            self._grown = trio.Event()
            await self._grown.wait()
        return found[count - 1]


class Waiters:
    """Several tasks that wait for the same end."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._all = trio.Event()

    async def wait(self, wanted: Callable[[], Awaitable[object]]) -> None:
        """Be one of them: keep what is returned, or which error is raised."""
        try:
            outcome: object = await wanted()
        except TuttiSideError as error:
            outcome = error
        self._told.append(_in_a_word(outcome))
        if len(self._told) == WAITERS:
            self._all.set()

    async def told(self) -> str:
        """Wait until everybody was told, and return what: a turn's status, or the reason of an end.

        Raises:
          AssertionError: they were not told the same.
        """
        await self._all.wait()
        assert len(set(self._told)) == 1, f"those who waited were told {self._told}"
        return self._told[0]


def _in_a_word(outcome: object) -> str:
    if isinstance(outcome, TurnResult):
        return outcome.status
    if isinstance(outcome, SideExpiredError | SessionExpiredError):
        return outcome.reason
    return outcome if isinstance(outcome, str) else type(outcome).__name__


class Caught(Generic[Error]):
    """The error that a block of `refused` raised."""

    def __init__(self) -> None:
        self._error: Error | None = None

    @property
    def error(self) -> Error:
        """It; only after the block."""
        assert self._error is not None
        return self._error

    def take(self, error: Error) -> None:
        """Keep it."""
        self._error = error


@contextmanager
def refused(kind: type[Error]) -> Iterator[Caught[Error]]:
    """Require that the block raises this error."""
    caught: Caught[Error] = Caught()
    try:
        yield caught
    except kind as error:
        caught.take(error)
    else:
        raise AssertionError(f"nothing was refused; a {kind.__name__} was expected")
