"""The turns of one scope: who may start one, whose text is whose, and how each ended. Pure but for the waiters' events.

One turn at a time: `begin` reserves the slot, `bind` gives it the provider's id, a terminal event frees it. Events may
come before `bind` (the provider's notifications can overtake its answer), so a record is made by whichever comes first.
A turn's text lives here, not in a subscriber's queue: `ask` and `wait` need no subscription.
"""

from collections.abc import Sequence
from typing import Literal

import trio

from tutti_side.contract import (
    Event,
    FailureReason,
    MessageDelta,
    MessageUpdated,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
    TurnStarted,
)

__all__ = ["TURN_TEXT_MAX", "TurnRecord", "TurnStatus", "TurnTable"]

TURN_TEXT_MAX = 16 << 20
"""Characters kept of one turn's deltas; past that the text comes from the completed item."""

TURN_MESSAGES_MAX = 64 << 20
"""Characters kept of one turn's completed messages together, the newest always: as much as one line of a provider. Past
that the oldest message goes, since what a turn concludes with is its last."""

MESSAGES_MAX = 65_536
"""Messages kept of one turn; a model that says more is mad, and the oldest goes as well."""

RECENT_MAX = 64
"""Ended turns whose late events are still known as such (an item may complete after its turn, or never)."""

UNBOUND_MAX = 16
"""Turns that began while one of ours was starting; one of them is ours, and its starter is about to be told."""

TurnStatus = Literal["active", "completed", "failed", "canceled", "lost"]


class TurnRecord:
    """One turn as the runtime knows it."""

    def __init__(self, turn_id: TurnId) -> None:
        self.turn_id = turn_id
        self.status: TurnStatus = "active"
        self.failure = ""
        self.reason: FailureReason | None = None
        self.settled = trio.Event()
        self.parts: dict[str, list[str]] = {}
        self._size = 0
        self._whole: dict[str, int] = {}
        self._whole_size = 0

    def add(self, item_id: str, text: str) -> None:
        """Append a piece of an item, as much of it as the bound allows."""
        room = TURN_TEXT_MAX - self._size
        self._size += len(text)
        if len(text) > room:
            text = text[: max(room, 0)]
            if not text:
                return
        parts = self.parts.get(item_id)
        if parts is None:
            self.parts[item_id] = [text]
            self._forget_oldest(item_id)
        else:
            parts.append(text)

    def replace(self, item_id: str, text: str) -> None:
        """Take an item's whole text: it is the authority, whatever the deltas made."""
        self.parts[item_id] = [text]
        self._whole_size += len(text) - self._whole.get(item_id, 0)
        self._whole[item_id] = len(text)
        self._forget_oldest(item_id)

    def _forget_oldest(self, newest: str) -> None:
        """Let the oldest messages go while there is too much; never the one that just came."""
        while len(self.parts) > MESSAGES_MAX or (self._whole_size > TURN_MESSAGES_MAX and len(self.parts) > 1):
            oldest = next(item_id for item_id in self.parts if item_id != newest)
            del self.parts[oldest]
            self._whole_size -= self._whole.pop(oldest, 0)

    def settle(self, status: TurnStatus, failure: str = "", reason: FailureReason | None = None) -> bool:
        """End the turn, once; False when it had ended."""
        if self.status != "active":
            return False
        self.status = status
        self.failure = failure
        self.reason = reason
        self.settled.set()
        return True

    def messages(self) -> tuple[str, ...]:
        """Return the text of each message, in the order in which they began."""
        return tuple("".join(parts) for parts in self.parts.values())


class TurnTable:
    """All turns of one scope that have not ended, and those whose starter has not been told their id yet."""

    def __init__(self) -> None:
        self._records: dict[TurnId, TurnRecord] = {}
        self._recent: dict[TurnId, None] = {}
        self._starting = False
        self._active: TurnRecord | None = None
        self.late_events = 0

    @property
    def is_busy(self) -> bool:
        """True while a turn is active or starting."""
        return self._starting or self._active is not None

    @property
    def active(self) -> TurnRecord | None:
        """The turn that runs, as far as is known."""
        return self._active

    def begin(self) -> bool:
        """Reserve the slot for a new turn; False when it is taken."""
        if self.is_busy:
            return False
        self._starting = True
        return True

    def end_start(self) -> None:
        """Give the reserved slot back, if it was not bound: the start failed or was cancelled. Idempotent."""
        self._starting = False
        self._forget_ended()

    def bind(self, turn_id: TurnId) -> TurnRecord:
        """Name the turn that was begun, and return its record; it may have ended already."""
        record = self._records.get(turn_id)
        if record is None:
            record = self._records[turn_id] = TurnRecord(turn_id)
        if record.status == "active":
            self._active = record
        self.end_start()
        return record

    def apply(self, events: Sequence[Event]) -> None:
        """Follow events in their order. Deltas in a row of one item are taken together: they are most of a stream."""
        turn_id: TurnId | None = None
        item_id = ""
        texts: list[str] = []
        for event in events:
            if type(event) is MessageDelta:
                if event.item_id != item_id or event.turn_id != turn_id:
                    if turn_id is not None:
                        self._add(turn_id, item_id, texts)
                    turn_id, item_id, texts = event.turn_id, event.item_id, []
                texts.append(event.text)
            else:
                if turn_id is not None:
                    self._add(turn_id, item_id, texts)
                    turn_id = None
                self._apply(event)
        if turn_id is not None:
            self._add(turn_id, item_id, texts)

    def _add(self, turn_id: TurnId, item_id: str, texts: list[str]) -> None:
        record = self._record(turn_id, len(texts))
        if record is not None:
            record.add(item_id, "".join(texts))

    def _apply(self, event: Event) -> None:
        """Follow an event that is no delta."""
        if type(event) is MessageUpdated:
            updated = self._record(event.turn_id)
            if updated is not None:
                updated.replace(event.item_id, event.text)
        elif type(event) is TurnStarted:
            started = self._record(event.turn_id)
            if started is not None and started.status == "active":
                self._active = started
        elif type(event) is TurnCompleted:
            self._settle(event.turn_id, "completed")
        elif type(event) is TurnFailed:
            self._settle(event.turn_id, "failed", event.message, event.reason)
        elif type(event) is TurnCanceled:
            self._settle(event.turn_id, "canceled")

    def lose(self) -> None:
        """Settle what is unsettled: the scope is over."""
        self._starting = False
        self._active = None
        for record in self._records.values():
            record.settle("lost")
        self._records.clear()

    def _settle(
        self, turn_id: TurnId, status: TurnStatus, failure: str = "", reason: FailureReason | None = None
    ) -> None:
        record = self._record(turn_id)
        if record is None:
            return
        if not record.settle(status, failure, reason):
            self.late_events += 1
            return
        if self._active is record:
            self._active = None
        if not self._starting:
            self._forget_ended()

    def _record(self, turn_id: TurnId, events: int = 1) -> TurnRecord | None:
        """Return the record of a turn, made if need be; None, and so many late events, for one over and done with."""
        record = self._records.get(turn_id)
        if record is None:
            if turn_id in self._recent or len(self._records) >= UNBOUND_MAX:
                self.late_events += events
                return None
            record = self._records[turn_id] = TurnRecord(turn_id)
        return record

    def _forget_ended(self) -> None:
        """Drop ended turns: whoever waits for one holds its record."""
        for turn_id in [turn_id for turn_id, record in self._records.items() if record.status != "active"]:
            del self._records[turn_id]
            self._recent[turn_id] = None
            if len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]
