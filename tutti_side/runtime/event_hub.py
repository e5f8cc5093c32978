"""Subscribers of one scope: bounded batches, one wake-up per subscriber and batch, and what happens to a slow one.

`EventHub.publish` is synchronous and is called in the reader; it never waits for a subscriber. A batch for an *empty*
queue is always admitted, however large; on top of something that waits it counts against the bound. A subscriber over
its bound is cut off: it still gets what was queued, then one `Gap`, and nobody else notices. The hub says who is over;
whether that ends the scope is the scope's decision. Terminal events and gaps lie outside the bound and always arrive.
"""

from collections import deque
from types import TracebackType

import trio

from tutti_side.contract import EventBatch, Gap
from tutti_side.runtime.errors import SubscriptionInUseError

__all__ = ["QUEUE_BYTES_MAX", "QUEUE_EVENTS_MAX", "EventHub", "Subscription"]

QUEUE_EVENTS_MAX = 8_192
"""Events that wait for one subscriber: some seconds of the fastest model."""

QUEUE_BYTES_MAX = 8 << 20
"""The same bound in bytes, as the adapter counts them."""

CHECKPOINT_EVENTS = 512
"""A subscriber that never has to wait still lets other tasks run after so many events; each batch would cost 3.6 µs."""


class Subscription:
    """The events of one scope for one task: ``async for batch in subscription``.

    Use it as a context manager, or call `close`, so that its queue is released. Iteration ends after the terminal
    event, after a `Gap` that cut this subscriber off, or after `close`.
    """

    def __init__(self, hub: "EventHub", events_max: int, bytes_max: int) -> None:
        self._hub: EventHub | None = hub
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._queue: deque[tuple[EventBatch, int]] = deque()
        self._queued_events = 0
        self._queued_bytes = 0
        self._reader: trio.lowlevel.Task | None = None
        self._since_checkpoint = 0

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> EventBatch:
        """Return the next batch.

        Raises:
          SubscriptionInUseError: another task waits on this subscription.

        Cancellation: no batch is lost. A batch that is there is returned with a checkpoint only now and then.
        """
        if not self._queue:
            if self._hub is None:
                await trio.lowlevel.checkpoint()
                raise StopAsyncIteration
            await self._wait()
            if not self._queue:
                raise StopAsyncIteration
        elif self._since_checkpoint >= CHECKPOINT_EVENTS:
            await trio.lowlevel.checkpoint()
            self._since_checkpoint = 0
            if not self._queue:  # closed meanwhile
                raise StopAsyncIteration
        batch, size_bytes = self._queue.popleft()
        count = len(batch.events)
        self._queued_events -= count
        self._queued_bytes -= size_bytes
        self._since_checkpoint += count
        return batch

    async def _wait(self) -> None:
        if self._reader is not None:
            raise SubscriptionInUseError
        self._reader = trio.lowlevel.current_task()
        self._since_checkpoint = 0

        def abort(_: object) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            trio.lowlevel.reschedule(reader)

    def _offer(self, batch: EventBatch, size_bytes: int) -> bool:
        """Queue a batch; False when it does not fit."""
        count = len(batch.events)
        if self._queue and (
            self._queued_events + count > self._events_max or self._queued_bytes + size_bytes > self._bytes_max
        ):
            return False
        self._queue.append((batch, size_bytes))
        self._queued_events += count
        self._queued_bytes += size_bytes
        self._wake()
        return True

    def _finish(self, *last: EventBatch) -> None:
        """Append what lies outside the bound, and end."""
        for batch in last:
            self._queue.append((batch, 0))
            self._queued_events += len(batch.events)
        self._hub = None
        self._wake()

    def close(self) -> None:
        """Stop; what is queued is dropped. Idempotent."""
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.detach(self)
        self._queue.clear()
        self._queued_events = self._queued_bytes = 0
        self._wake()


class EventHub:
    """The subscribers of one scope."""

    def __init__(self, events_max: int = QUEUE_EVENTS_MAX, bytes_max: int = QUEUE_BYTES_MAX) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._subscribers: list[Subscription] = []

    def __len__(self) -> int:
        return len(self._subscribers)

    def new_subscription(self) -> Subscription:
        """Make a subscription that is not attached yet; it sees nothing before `attach`."""
        return Subscription(self, self._events_max, self._bytes_max)

    def attach(self, subscription: Subscription) -> None:
        """Let a subscription take part from the next batch on, unless it was closed already."""
        if subscription._hub is self:
            self._subscribers.append(subscription)

    def detach(self, subscription: Subscription) -> None:
        """Forget a subscription. Idempotent."""
        if subscription in self._subscribers:
            self._subscribers.remove(subscription)

    def publish(self, batch: EventBatch, size_bytes: int) -> list[Subscription]:
        """Queue a batch for everyone, and return the subscribers that it does not fit for."""
        over: list[Subscription] = []
        for subscriber in self._subscribers:
            if not subscriber._offer(batch, size_bytes):
                over.append(subscriber)
        return over

    def cut_off(self, subscriber: Subscription, first: int, last: int) -> None:
        """End one subscriber that missed the events `first` to `last`."""
        self.detach(subscriber)
        subscriber._finish(EventBatch(first, (Gap(first, last),)))

    def finish(self, terminal: EventBatch, missed: dict[Subscription, tuple[int, int]]) -> None:
        """Publish the terminal event to everyone, after a gap for those that missed something, and end all."""
        subscribers, self._subscribers = self._subscribers, []
        for subscriber in subscribers:
            gap = missed.get(subscriber)
            if gap is None:
                subscriber._finish(terminal)
            else:
                subscriber._finish(EventBatch(gap[0], (Gap(*gap),)), terminal)
