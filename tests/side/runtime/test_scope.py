"""Where an adapter's events arrive: gate, numbers, hub, end."""

from tutti_side.contract import (
    EndReason,
    EventBatch,
    Gap,
    MessageDelta,
    SessionClosed,
    SessionExpired,
    SessionStarted,
    TurnId,
)
from tutti_side.runtime import _gate
from tutti_side.runtime._scope import EventScope
from tutti_side.runtime.event_hub import QUEUE_EVENTS_MAX, Subscription


def delta(text: str = "x") -> MessageDelta:
    return MessageDelta(TurnId("t"), "i", text)


class Watched:
    """A scope with a list of its ends."""

    def __init__(self, *, side: bool = True) -> None:
        self.ends: list[EndReason] = []
        self.scope = EventScope(ends_when_all_lag=side, on_end=self.ends.append)

    def subscribe(self) -> Subscription:
        subscription = self.scope.hub.new_subscription()
        self.scope.hub.attach(subscription)
        return subscription


async def collect(subscription: Subscription) -> list[EventBatch]:
    return [batch async for batch in subscription]


async def test_started_comes_first_then_the_buffer_then_live() -> None:
    """Specification: open buffering; R3: numbers from 1 without a gap."""
    watched = Watched()
    watched.scope.emit([delta("early"), delta("early too")], 10)
    subscription = watched.scope.hub.new_subscription()
    watched.scope.commit("p", [subscription])
    watched.scope.emit([delta("live")], 4)
    watched.scope.close("closed")
    batches = await collect(subscription)
    numbered = [pair for batch in batches for pair in batch.numbered()]
    assert [number for number, _ in numbered] == [1, 2, 3, 4, 5]
    assert [event for _, event in numbered] == [
        SessionStarted("p"),
        delta("early"),
        delta("early too"),
        delta("live"),
        SessionClosed(),
    ]
    assert watched.ends == []


def test_an_ended_scope_takes_nothing_and_counts_it() -> None:
    """R8, R6: late events reach nobody."""
    watched = Watched()
    watched.scope.commit("p", [])
    watched.scope.end("lost")
    watched.scope.end("overflow")
    watched.scope.emit([delta(), delta()], 2)
    assert watched.scope.ended == "lost"
    assert watched.ends == ["lost"]
    assert watched.scope.dropped_events == 2


def test_too_much_before_the_commit_ends_the_open() -> None:
    """R12."""
    watched = Watched()
    for _ in range(_gate.GATE_EVENTS_MAX):
        watched.scope.emit([delta()], 1)
    assert watched.scope.ended is None
    watched.scope.emit([delta()], 1)
    assert watched.ends == ["overflow"]
    assert watched.scope.buffered_events == 0


async def test_a_side_whose_only_subscriber_never_reads_ends_with_overflow() -> None:
    """Architecture §3, F36: gap and terminal event still arrive; memory stays within the bound."""
    watched = Watched()
    stalled = watched.subscribe()
    watched.scope.commit("p", [])
    sent = 0
    while watched.scope.ended is None:
        watched.scope.emit([delta()] * 100, 100)
        sent += 100
    assert watched.ends == ["overflow"]
    batches = await collect(stalled)
    assert sum(len(batch.events) for batch in batches[:-2]) <= QUEUE_EVENTS_MAX
    (gap,) = batches[-2].events
    assert isinstance(gap, Gap)
    assert batches[-1].events == (SessionExpired("overflow"),)
    expected = 1
    for batch in batches:
        assert batch.first_sequence == expected
        expected = gap.last + 1 if batch.events == (gap,) else expected + len(batch.events)


async def test_a_side_with_one_attentive_subscriber_lives_and_the_stalled_one_is_cut_off() -> None:
    """Architecture §3: a stalled subscriber alone loses its subscription."""
    watched = Watched()
    stalled, attentive = watched.subscribe(), watched.subscribe()
    watched.scope.commit("p", [])
    await anext(attentive)
    for _ in range(QUEUE_EVENTS_MAX + 10):
        watched.scope.emit([delta()], 1)
        await anext(attentive)
    assert watched.scope.ended is None
    rest = await collect(stalled)
    assert isinstance(rest[-1].events[0], Gap)
    assert watched.scope.last_sequence == QUEUE_EVENTS_MAX + 11


def test_a_side_with_no_subscriber_never_overflows() -> None:
    """Architecture §3: with none attached nothing is kept."""
    watched = Watched()
    watched.scope.commit("p", [])
    for _ in range(QUEUE_EVENTS_MAX * 3):
        watched.scope.emit([delta()], 1_000)
    assert watched.scope.ended is None


async def test_a_single_huge_item_does_not_end_an_attentive_side() -> None:
    """Architecture §3: a batch into an empty queue is admitted, however large."""
    watched = Watched()
    subscription = watched.subscribe()
    watched.scope.commit("p", [])
    await anext(subscription)
    watched.scope.emit([delta("x" * (10 << 20))], 10 << 20)
    assert watched.scope.ended is None
    assert len((await anext(subscription)).events) == 1


async def test_a_canonical_session_cuts_its_slow_subscriber_off_and_lives() -> None:
    """Architecture §3."""
    watched = Watched(side=False)
    stalled = watched.subscribe()
    watched.scope.commit("p", [])
    for _ in range(QUEUE_EVENTS_MAX + 10):
        watched.scope.emit([delta()], 1)
    assert watched.scope.ended is None
    assert watched.ends == []
    assert isinstance((await collect(stalled))[-1].events[0], Gap)
