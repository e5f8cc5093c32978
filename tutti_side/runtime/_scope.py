"""One scope, canonical session or Side: the sink of its adapter's events. Synchronous, called in the reader.

Events pass, in this order: the gate (kept until the commit), the turn records, numbering, the hub. A scope ends once;
what comes afterwards is dropped and counted, so that an adapter's late events reach nobody.
"""

from collections.abc import Callable, Sequence

from tutti_side.contract import EndReason, Event, EventBatch, SessionClosed, SessionExpired, SessionStarted
from tutti_side.runtime._gate import Gate
from tutti_side.runtime._interactions import InteractionTable
from tutti_side.runtime._turns import TurnTable
from tutti_side.runtime.event_hub import EventHub, Subscription

__all__ = ["EventScope"]


class EventScope:
    """Route target of one session or Side; implements `tutti_side.contract.EventSink`.

    Args:
      ends_when_all_lag: a Side ends (reason ``overflow``) when every attached subscriber is over its bound; a canonical
        session only cuts those subscribers off.
      tap: gets every batch besides; for what makes a canonical session durable. A Side has none.
      on_end: called once, when the scope ends for a reason that nobody asked for.
      on_drop: told how many events reached nobody: they came too late, or were not committed.
    """

    def __init__(
        self,
        *,
        ends_when_all_lag: bool,
        on_end: Callable[[EndReason], None],
        tap: Callable[[EventBatch], None] | None = None,
        on_drop: Callable[[int], None] | None = None,
    ) -> None:
        self.turns = TurnTable()
        self.interactions = InteractionTable()
        self.hub = EventHub()
        self.ended: EndReason | None = None
        self.dropped_events = 0
        self._gate = Gate()
        self._next_sequence = 1
        self._ends_when_all_lag = ends_when_all_lag
        self._on_end = on_end
        self._tap = tap
        self._on_drop = on_drop

    @property
    def is_committed(self) -> bool:
        """True once the gate is open."""
        return self._gate.is_open

    @property
    def buffered_events(self) -> int:
        """Events that wait for the commit."""
        return self._gate.kept

    @property
    def last_sequence(self) -> int:
        """Number of the last published event; 0 before the first."""
        return self._next_sequence - 1

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        """Take events of the adapter, in wire order."""
        if self.ended is not None:
            self._drop(len(events))
        elif self._gate.is_open:
            self._publish(tuple(events), size_bytes)
        elif not self._gate.hold(events, size_bytes):
            self._drop(len(events))
            self.end("overflow")

    def commit(self, provider_session_id: str, subscriptions: Sequence[Subscription]) -> None:
        """Attach subscriptions, publish ``session.started`` as sequence 1, then what waited; open the gate."""
        for subscription in subscriptions:
            self.hub.attach(subscription)
        kept, size_bytes = self._gate.open()
        self._publish((SessionStarted(provider_session_id), *kept), size_bytes)

    def end(self, reason: EndReason) -> None:
        """End the scope for a reason that nobody asked for; idempotent."""
        if self._finish(reason, {}):
            self._on_end(reason)

    def close(self, reason: EndReason) -> None:
        """End the scope on request; idempotent."""
        self._finish(reason, {})

    def _publish(self, events: tuple[Event, ...], size_bytes: int) -> None:
        if not events:
            return
        self.turns.apply(events)
        self.interactions.apply(events)
        first = self._next_sequence
        self._next_sequence = first + len(events)
        batch = EventBatch(first, events)
        if self._tap is not None:
            self._tap(batch)
        over = self.hub.publish(batch, size_bytes)
        if not over:
            return
        last = self._next_sequence - 1
        if self._ends_when_all_lag and len(over) == len(self.hub):
            if self._finish("overflow", dict.fromkeys(over, (first, last))):
                self._on_end("overflow")
        else:
            for subscriber in over:
                self.hub.cut_off(subscriber, first, last)

    def _finish(self, reason: EndReason, missed: dict[Subscription, tuple[int, int]]) -> bool:
        if self.ended is not None:
            return False
        self.ended = reason
        self._drop(self._gate.kept)
        was_committed = self._gate.is_open
        self._gate.drop()
        terminal = SessionClosed() if reason == "closed" else SessionExpired(reason)
        batch = EventBatch(self._next_sequence, (terminal,))
        if was_committed:
            self._next_sequence += 1
            if self._tap is not None:
                self._tap(batch)
        self.hub.finish(batch, missed)
        self.turns.lose()
        self.interactions.lose()
        return True

    def _drop(self, count: int) -> None:
        self.dropped_events += count
        if count and self._on_drop is not None:
            self._on_drop(count)
