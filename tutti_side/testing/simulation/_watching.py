"""Subscribers: attentive, slow, leaving in mid-stream, stalled until the calm. Each event that one sees is recorded."""

import random
from collections.abc import Callable
from typing import Literal

import msgspec
import trio

from tutti_side.contract import (
    Event,
    InteractionRequested,
    InteractionResolved,
    MessageDelta,
    MessageUpdated,
    SessionClosed,
    SessionExpired,
    SessionStarted,
    SubAgentEvent,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from tutti_side.runtime import Subscription
from tutti_side.testing.simulation._recorder import Recorder
from tutti_side.testing.simulation.records import SeenEvent, SideEnded, SubscriptionBegan, SubscriptionEnded

__all__ = ["Temper", "Watchers", "draw_temper"]

Temper = Literal["attentive", "slow", "leaving", "stalled"]

TEMPERS: tuple[Temper, ...] = ("attentive", "slow", "leaving", "stalled")
WEIGHTS = (7, 1, 1, 1)
"""How often each."""

SLOW_S = (0.0, 0.01, 0.2, 3.0)
"""A slow one waits one of these before each batch."""

LEAVES_AFTER = 12
"""A leaving one goes after at most so many batches."""


def draw_temper(rng: random.Random) -> Temper:
    """Draw what a subscriber is like."""
    return rng.choices(TEMPERS, weights=WEIGHTS)[0]


class Watchers:
    """All subscribers of a run, who record each event."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._count = 0
        self.reading = 0
        """Subscriptions that somebody reads, or will."""

    async def watch(
        self,
        events: Subscription,
        owner: str,
        temper: Temper,
        rng: random.Random,
        asked: Callable[[InteractionRequested], None],
        calm: trio.Event,
        opened_by: int = 0,
    ) -> None:
        """See the events of one subscription to its end.

        Args:
          events: closed at the end.
          owner: whose they are.
          temper: how to read them.
          rng: the watcher's own source.
          asked: told of each interaction that is seen.
          calm: set when the faults have ended, or the host: who was stalled or slow reads on.
          opened_by: see `SubscriptionBegan`.
        """
        self._count += 1
        number = self._count
        self.reading += 1
        self._recorder.add(
            SubscriptionBegan(at_s=trio.current_time(), subscription=number, owner=owner, opened_by=opened_by)
        )
        leaves_after = rng.randint(0, LEAVES_AFTER) if temper == "leaving" else None
        with events:
            if temper == "stalled":
                self._recorder.fault("stalled_consumer")
                await calm.wait()
            async for batch in events:
                for sequence, event in batch.numbered():
                    self._see(number, owner, sequence, event)
                    if isinstance(event, InteractionRequested):
                        asked(event)
                if leaves_after is not None:
                    leaves_after -= 1
                    if leaves_after < 0:
                        self._recorder.fault("consumer_leaves")
                        break
                if temper == "slow" and not calm.is_set():
                    self._recorder.fault("slow_consumer")
                    await trio.sleep(rng.choice(SLOW_S))
        self.reading -= 1
        self._recorder.add(SubscriptionEnded(at_s=trio.current_time(), subscription=number, owner=owner))

    def _see(self, subscription: int, owner: str, sequence: int, event: Event) -> None:
        now = trio.current_time()
        seen = SeenEvent(at_s=now, subscription=subscription, owner=owner, sequence=sequence, type="")
        self._recorder.add(msgspec.structs.replace(seen, **_fields(event)))
        if "/" in owner and isinstance(event, SessionClosed | SessionExpired):
            reason = event.reason if isinstance(event, SessionExpired) else "closed"
            self._recorder.add(SideEnded(at_s=now, owner=owner, reason=reason))


def _fields(event: Event) -> dict[str, str | tuple[str, ...]]:
    """Return what a record says of an event."""
    fields: dict[str, str | tuple[str, ...]] = {"type": str(event.__struct_config__.tag)}
    if isinstance(event, MessageDelta | MessageUpdated):
        fields |= {"turn": event.turn_id, "item": event.item_id, "text": event.text}
    elif isinstance(event, TurnStarted | TurnCompleted | TurnFailed | TurnCanceled):
        fields["turn"] = event.turn_id
        if isinstance(event, TurnFailed):
            fields["status"] = event.reason
    elif isinstance(event, InteractionRequested):
        fields |= {"interaction": event.interaction_id, "turn": event.turn_id or "", "status": event.kind}
        fields["options"] = tuple(option.id for option in event.options)
    elif isinstance(event, InteractionResolved):
        fields |= {"interaction": event.interaction_id, "status": event.status}
    elif isinstance(event, SessionStarted):
        fields["child"] = event.provider_session_id
    elif isinstance(event, SessionExpired):
        fields["status"] = event.reason
    elif isinstance(event, SubAgentEvent):
        fields |= {"child": event.agent_id, "status": str(event.event.__struct_config__.tag)}
    return fields
