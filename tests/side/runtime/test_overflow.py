"""A flood into a Side: nobody reads, nobody is there, one keeps up; what it costs and who notices."""

import gc
import itertools
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import SideExpiredError, SideHandle, open_host
from tutti_side.contract import EventBatch, Gap, MessageDelta, MessageUpdated, SessionExpired, TurnCompleted
from tutti_side.runtime import QUEUE_BYTES_MAX, QUEUE_EVENTS_MAX

Provider = Any  # tests/side/conftest.py: HeldProvider

DELTAS = 200_000
BATCH = 100
"""Deltas of one delivery, as one read of a pipe brings them."""

DELTA_BYTES = 400
"""What one delta holds in memory at most: the struct, its text of 64 characters, its place in a tuple."""


@contextmanager
def peak_of(limit_bytes: int) -> Iterator[None]:
    """Require that the block's allocations never exceed a bound."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit_bytes, f"{peak} bytes"


def flood(sink: Any, turn_id: Any, deltas: int = DELTAS) -> None:
    """Deliver a stream, each delta with a text of its own."""
    for start in range(0, deltas, BATCH):
        batch = [MessageDelta(turn_id, "i", f"{number:<64}") for number in range(start, start + BATCH)]
        sink.emit(batch, 64 * BATCH)


async def working_side(host: Any, adapter: Any, *, subscribe: bool) -> tuple[Any, SideHandle, Any, Any]:
    session = await host.start_session(cwd=".", session_id="main")
    side = await session.open_side(subscribe=subscribe)
    turn = await side.send("q")
    return session, side, turn, adapter.sinks[side.scope.ref]


async def collect(subscription: Any) -> list[EventBatch]:
    return [batch async for batch in subscription]


async def test_a_side_whose_subscriber_never_reads_ends_with_overflow_within_the_bounds(provider: Provider) -> None:
    """F36, R12: 200,000 deltas; its terminal event arrives; memory stays within the named bounds."""
    async with open_host(provider) as host:
        session, side, turn, sink = await working_side(host, provider.adapter, subscribe=True)
        events = side.events()
        with peak_of((QUEUE_EVENTS_MAX + 2 * BATCH) * DELTA_BYTES):
            flood(sink, turn.id)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(SideExpiredError) as caught:
            await turn.wait()
        assert caught.value.reason == "overflow"
        batches = await collect(events)
        assert sum(len(batch.events) for batch in batches[:-2]) <= QUEUE_EVENTS_MAX
        assert isinstance(batches[-2].events[0], Gap)
        assert batches[-1].events == (SessionExpired("overflow"),)
        assert host.statistics().sides == {}
        assert (await session.send("q")).is_active


async def test_what_a_stalled_subscriber_holds_is_bounded_in_bytes_too(provider: Provider) -> None:
    """R12, F36: few and large events end at the bound in bytes, long before that in number."""
    async with open_host(provider) as host:
        _, side, turn, sink = await working_side(host, provider.adapter, subscribe=True)
        events = side.events()
        size = 1 << 20
        with peak_of(QUEUE_BYTES_MAX + 4 * size):
            for number in range(100):
                sink.emit([MessageDelta(turn.id, f"i{number}", "x" * size)], size)
        await trio.testing.wait_all_tasks_blocked()
        assert side.scope.events.ended == "overflow"
        texts = [event.text for batch in await collect(events) for event in batch.events if hasattr(event, "text")]
        assert sum(map(len, texts)) <= QUEUE_BYTES_MAX


async def test_a_side_with_no_subscriber_takes_the_flood_and_answers(provider: Provider) -> None:
    """Architecture §3: with none attached nothing is kept but the turn's text."""
    async with open_host(provider) as host:
        _, side, turn, sink = await working_side(host, provider.adapter, subscribe=False)
        with peak_of(DELTAS * 64 * 5 // 4):
            flood(sink, turn.id)
        sink.emit([MessageUpdated(turn.id, "i", "whole"), TurnCompleted(turn.id)], 10)
        result = await turn.wait()
        assert (result.status, result.answer.text) == ("completed", "whole")
        assert side.is_open


async def test_an_attentive_subscriber_takes_the_flood_and_one_item_of_10_mb(provider: Provider) -> None:
    """Architecture §3: a batch into an empty queue is admitted, however large."""
    seen: list[tuple[int, int]] = []
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        _, side, turn, sink = await working_side(host, provider.adapter, subscribe=True)
        events = side.events()

        async def listen() -> None:
            async for batch in events:
                seen.append((batch.first_sequence, len(batch.events)))

        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        for start in range(0, DELTAS, BATCH * 50):
            flood(sink, turn.id, BATCH * 50)
            await trio.testing.wait_all_tasks_blocked()
            assert side.is_open, start
        sink.emit([MessageUpdated(turn.id, "i", "x" * (10 << 20))], 10 << 20)
        await trio.testing.wait_all_tasks_blocked()
        assert side.is_open
        assert sum(count for _, count in seen) == DELTAS + 3  # session.started, turn.started, the item
        assert all(after[0] == before[0] + before[1] for before, after in itertools.pairwise(seen))
        events.close()


class Wakes(trio.abc.Instrument):
    """Counts the steps of tasks by their name."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps[task.name] = self.steps.get(task.name, 0) + 1


async def neighbours_while(provider: Provider, *, flooded: bool) -> tuple[list[list[int]], int]:
    """Let four neighbours listen while a Side is flooded, or not; return their batches and their wake-ups."""
    adapter = provider.adapter
    wakes = Wakes()
    seen: list[list[int]] = []
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session, _, turn, sink = await working_side(host, adapter, subscribe=True)
        sides = [await session.open_side() for _ in range(4)]

        async def listen(events: Any, sizes: list[int]) -> None:
            async for batch in events:
                sizes.append(len(batch.events))

        for side in sides:
            seen.append([])
            nursery.start_soon(listen, side.events(), seen[-1], name="neighbour")
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(wakes)
        for _ in range(50):
            if flooded:
                flood(sink, turn.id, DELTAS // 50)
            for side in sides:
                adapter.sinks[side.scope.ref].emit([MessageDelta(turn.id, "i", "x")] * 7, 7)
            await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(wakes)
        assert host.statistics().sides == {"open": 4 if flooded else 5}
        nursery.cancel_scope.cancel()
    return seen, wakes.steps["neighbour"]


async def test_the_neighbours_of_a_flooded_side_notice_nothing(provider: Provider) -> None:
    """R10, F36: the same events per wake-up as without it; counts, not times."""
    flooded = await neighbours_while(provider, flooded=True)
    calm = await neighbours_while(type(provider)(), flooded=False)
    assert flooded == calm
    assert calm == ([[7] * 50] * 4, 4 * 50)


async def test_an_idle_subscriber_costs_no_thread_and_no_wake_up(provider: Provider) -> None:
    """F37: a thousand idle streams, and an interrupt runs beside them."""
    wakes = Wakes()
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        _, side, turn, _ = await working_side(host, provider.adapter, subscribe=False)

        async def listen() -> None:
            async for _ in side.events():
                pass

        for _ in range(1_000):
            nursery.start_soon(listen, name="idle")
        await trio.testing.wait_all_tasks_blocked()
        threads = trio.to_thread.current_default_thread_limiter().borrowed_tokens
        trio.lowlevel.add_instrument(wakes)
        await trio.testing.wait_all_tasks_blocked()
        assert "idle" not in wakes.steps
        await turn.cancel()
        assert (await turn.wait()).status == "canceled"
        await trio.testing.wait_all_tasks_blocked()
        assert wakes.steps["idle"] == 1_000  # turn.canceled, one wake-up each
        trio.lowlevel.remove_instrument(wakes)
        assert threads == 0
        nursery.cancel_scope.cancel()
