"""Subscribers: bounded batches, one wake-up each, and what happens to a slow one."""

import pytest
import trio
import trio.testing

from tutti_side.contract import EventBatch, Gap, MessageDelta, SessionExpired, TurnId
from tutti_side.runtime import SubscriptionInUseError
from tutti_side.runtime.event_hub import CHECKPOINT_EVENTS, EventHub, Subscription


def batch(first: int, count: int = 1) -> EventBatch:
    return EventBatch(first, tuple(MessageDelta(TurnId("t"), "i", str(first + n)) for n in range(count)))


def subscribe(hub: EventHub) -> Subscription:
    subscription = hub.new_subscription()
    hub.attach(subscription)
    return subscription


async def collect(subscription: Subscription) -> list[EventBatch]:
    return [item async for item in subscription]


async def test_everyone_gets_every_batch_in_order() -> None:
    """R3; contract: a batch is one object, shared."""
    hub = EventHub()
    one, two = subscribe(hub), subscribe(hub)
    first, second = batch(1, 3), batch(4)
    assert hub.publish(first, 3) == []
    assert hub.publish(second, 1) == []
    for subscription in (one, two):
        assert await anext(subscription) is first
        assert await anext(subscription) is second


async def test_a_batch_into_an_empty_queue_is_always_admitted() -> None:
    """Architecture §3: however large; what comes on top counts against the bound."""
    hub = EventHub(events_max=2, bytes_max=10)
    subscription = subscribe(hub)
    assert hub.publish(batch(1, 100), 1_000) == []
    assert hub.publish(batch(101), 1) == [subscription]
    assert len((await anext(subscription)).events) == 100
    assert hub.publish(batch(102), 1) == []


@pytest.mark.parametrize(("events_max", "bytes_max"), [(3, 1_000), (1_000, 3)])
async def test_a_subscriber_over_its_bound_gets_what_was_queued_then_a_gap(events_max: int, bytes_max: int) -> None:
    """R12: bounded in events and in bytes; F36: the others do not notice."""
    hub = EventHub(events_max=events_max, bytes_max=bytes_max)
    slow, fast = subscribe(hub), subscribe(hub)
    got = []
    for first in range(1, 6):
        for over in hub.publish(batch(first), 1):
            hub.cut_off(over, first, first)
        got.append(await anext(fast))
    assert [item.first_sequence for item in got] == [1, 2, 3, 4, 5]
    rest = await collect(slow)
    assert [item.first_sequence for item in rest] == [1, 2, 3, 4]
    assert rest[-1].events == (Gap(4, 4),)
    assert len(hub) == 1


async def test_terminal_event_and_gap_arrive_outside_the_bound() -> None:
    """Architecture §3: the end is never what is dropped."""
    hub = EventHub(events_max=1, bytes_max=1)
    full, missed = subscribe(hub), subscribe(hub)
    hub.publish(batch(1), 1)
    assert set(hub.publish(batch(2), 1)) == {full, missed}
    end = EventBatch(3, (SessionExpired("overflow"),))
    hub.finish(end, {missed: (2, 2)})
    assert len(hub) == 0
    assert (await collect(full))[-1] is end
    rest = await collect(missed)
    assert rest[-2].events == (Gap(2, 2),)
    assert rest[-1] is end


async def test_a_waiting_subscriber_is_woken_once_for_a_batch() -> None:
    """Architecture §3: one wake-up per subscriber and batch."""
    hub = EventHub()
    subscription = subscribe(hub)
    steps = 0
    got: list[EventBatch] = []

    async def read() -> None:
        nonlocal steps
        async for item in subscription:
            steps += 1
            got.append(item)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            hub.publish(batch(1, 500), 500)
            hub.publish(batch(501, 10), 10)
            await trio.testing.wait_all_tasks_blocked()
            assert (steps, len(got)) == (2, 2)
            hub.finish(batch(511), {})


async def test_a_cancelled_wait_loses_nothing() -> None:
    """R14."""
    hub = EventHub()
    subscription = subscribe(hub)
    with trio.move_on_after(0) as scope:
        await anext(subscription)
    assert scope.cancelled_caught
    hub.publish(batch(1), 1)
    assert (await anext(subscription)).first_sequence == 1


async def test_two_tasks_may_not_wait_on_one_subscription() -> None:
    """Our choice: they would share its events at random."""
    hub = EventHub()
    subscription = subscribe(hub)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(anext, subscription)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(SubscriptionInUseError):
            await anext(subscription)
        hub.publish(batch(1), 1)


async def test_a_closed_subscription_ends_its_waiter_and_keeps_nothing() -> None:
    """R12: its queue is released."""
    hub = EventHub()
    with trio.fail_after(5), subscribe(hub) as subscription:
        hub.publish(batch(1), 1)
        subscription.close()
        subscription.close()
        assert await collect(subscription) == []
        assert len(hub) == 0
        assert hub.publish(batch(2), 1) == []
    waiting = subscribe(hub)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, waiting)
            await trio.testing.wait_all_tasks_blocked()
            waiting.close()


def test_a_subscription_that_was_closed_before_it_is_attached_stays_closed() -> None:
    """R12: an opener that left must not make a Side overflow."""
    hub = EventHub()
    subscription = hub.new_subscription()
    subscription.close()
    hub.attach(subscription)
    assert len(hub) == 0


async def test_a_subscriber_that_never_has_to_wait_lets_others_run() -> None:
    """Our choice: a checkpoint every `CHECKPOINT_EVENTS` events, not each."""
    hub = EventHub(events_max=100_000, bytes_max=1 << 40)
    subscription = subscribe(hub)
    for first in range(0, CHECKPOINT_EVENTS * 6, 10):
        hub.publish(batch(first + 1, 10), 10)
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            await trio.lowlevel.checkpoint()
            others += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(CHECKPOINT_EVENTS * 6 // 10):
            await anext(subscription)
        nursery.cancel_scope.cancel()
    assert 2 <= others <= 12
