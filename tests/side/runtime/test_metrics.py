"""What a controller counts: every open once, every event that reached nobody, every end."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import SideConflictError, SideExpiredError, TuttiSideError, open_host
from tutti_side.contract import (
    InteractionId,
    InteractionRequested,
    MessageDelta,
    SideCapabilities,
    TurnId,
)
from tutti_side.runtime import HostStoppedError, MemoryMetadata, SideInProgressError
from tutti_side.runtime._side_scope import CLOSE_BOUND_S

Provider = Any  # tests/side/conftest.py: HeldProvider
Metrics = Any  # tests/side/conftest.py: RecordingMetrics

DELTA = MessageDelta(TurnId("t"), "i", "x")


def unsupported(adapter: Any) -> None:
    adapter.promised = SideCapabilities.unsupported("no")


def failing(adapter: Any) -> None:
    adapter.open_error = ValueError()


def lying(adapter: Any) -> None:
    adapter.child_id = "p-main"


OUTCOMES: dict[str, tuple[Callable[[Any], None], str]] = {
    "accepted": (lambda adapter: None, "accepted"),
    "not attested": (unsupported, "unsupported"),
    "an error of the adapter": (failing, "failed"),
    "a foreign identity": (lying, "failed"),
}


@pytest.mark.parametrize("case", OUTCOMES)
async def test_an_open_counts_as_attempted_and_as_one_outcome(provider: Provider, metrics: Metrics, case: str) -> None:
    """Required."""
    prepare, outcome = OUTCOMES[case]
    prepare(provider.adapter)
    async with open_host(provider, metrics=metrics) as host:
        session = await host.start_session(cwd=".", session_id="main")
        with contextlib.suppress(TuttiSideError):
            await session.open_side()
        assert metrics.outcomes() == {"attempted": 1, outcome: 1}


async def test_joiners_count_each_and_share_one_fork(provider: Provider, metrics: Metrics) -> None:
    """Our choice: a call is a call; the one that leaves is cancelled, the others are what the open becomes."""
    adapter = provider.adapter
    adapter.opening.hold()
    async with open_host(provider, metrics=metrics) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        leaving = trio.CancelScope()

        async def leave() -> None:
            with leaving:
                await session.open_side(side_id="s", request_id="r")

        async def stay() -> None:
            await session.open_side(side_id="s", request_id="r")

        for opener in (leave, stay, stay):
            nursery.start_soon(opener)
        await adapter.opening.reached.wait()
        leaving.cancel()
        await trio.testing.wait_all_tasks_blocked()
        adapter.opening.release()
        await trio.testing.wait_all_tasks_blocked()
        await stay()
        assert metrics.outcomes() == {"attempted": 4, "cancelled": 1, "accepted": 3}
        assert metrics.counts["side_opens_by_source", "idle"] == 1
        assert [duration[2] for duration in metrics.durations] == [{"phase": "total", "provider": "held"}]


async def test_what_is_in_the_way_of_an_open_counts_as_refused_and_an_end_as_expired(
    provider: Provider, metrics: Metrics
) -> None:
    """Our choice: neither says anything about the provider."""
    adapter = provider.adapter
    async with open_host(provider, metrics=metrics) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="s", request_id="r")
        with pytest.raises(SideConflictError):
            await session.open_side(side_id="s", request_id="other")
        await side.close()
        with pytest.raises(SideExpiredError):
            await session.open_side(side_id="s", request_id="r")
        adapter.open_error = ValueError()
        adapter.releasing.hold()
        with pytest.raises(TuttiSideError):
            await session.open_side(side_id="t", request_id="r")
        with pytest.raises(SideInProgressError):
            await session.open_side(side_id="t", request_id="r")
        adapter.releasing.release()
    with pytest.raises(HostStoppedError):
        await session.open_side()
    assert metrics.outcomes() == {"attempted": 6, "accepted": 1, "refused": 3, "expired": 1, "failed": 1}


async def test_the_kind_of_the_source_is_counted(provider: Provider, metrics: Metrics) -> None:
    """Required: opens with active and idle source; a historical one is neither."""
    provider.adapter.offers_history = True
    async with open_host(provider, metrics=metrics, metadata=MemoryMetadata()) as host:
        session = await host.start_session(cwd=".", session_id="main")
        await session.open_side()
        await session.send("q")
        await session.open_side()
        await session.close()
        await host.open_side("main", "later", "r")
        kinds = {key[1]: count for key, count in metrics.counts.items() if key[0] == "side_opens_by_source"}
        assert kinds == {"idle": 1, "active": 1, "historical": 1}


async def test_the_time_of_an_open_runs_from_its_reservation_to_its_commit(
    provider: Provider, metrics: Metrics, autojump_clock: trio.testing.MockClock
) -> None:
    """Required: what the user waits for, the lifecycle locks included."""
    adapter = provider.adapter
    adapter.opening.hold()
    async with open_host(provider, metrics=metrics) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        nursery.start_soon(session.open_side)
        await trio.sleep(3)
        adapter.opening.release()
        await trio.testing.wait_all_tasks_blocked()
        (duration,) = metrics.durations
        assert duration == ("side_open_phase", pytest.approx(3), {"phase": "total", "provider": "held"})


async def test_buffered_and_discarded_events_are_counted_also_after_the_side_is_forgotten(
    provider: Provider, metrics: Metrics
) -> None:
    """Required; R8: late events reach nobody, and are seen to."""
    adapter = provider.adapter
    adapter.early = [DELTA, DELTA]
    async with open_host(provider, metrics=metrics) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side()
        assert metrics.counts["side_events", "buffered"] == 2
        await side.close()
        adapter.sinks[side.scope.ref].emit([DELTA] * 3, 3)
        assert metrics.counts["side_events", "discarded"] == 3
        adapter.open_error = ValueError()
        with pytest.raises(TuttiSideError):
            await session.open_side()
        assert metrics.counts["side_events", "discarded"] == 5
        await session.close()
        adapter.sinks[session.ref].emit([DELTA], 1)
        assert metrics.counts["side_events", "discarded"] == 5
        assert host.statistics().dropped_events == 6


async def test_live_sides_and_their_ends_are_counted(provider: Provider, metrics: Metrics) -> None:
    """Required: the gauge goes up at the commit and down at the end, whatever the reason."""
    adapter = provider.adapter
    async with open_host(provider, metrics=metrics) as host:
        session = await host.start_session(cwd=".", session_id="main")
        sides = [await session.open_side() for _ in range(3)]
        assert metrics.gauges["live_sides"] == 3
        await sides[0].close()
        adapter.sinks[sides[1].scope.ref].end("lost")
        await trio.testing.wait_all_tasks_blocked()
        assert metrics.gauges["live_sides"] == 1
        await host.delete_session("main")
        await (await host.start_session(cwd=".")).open_side()
    ends = {key[1]: count for key, count in metrics.counts.items() if key[0] == "side_ends"}
    assert ends == {"closed": 1, "lost": 1, "source_deleted": 1, "host_stopped": 1}
    assert metrics.gauges["live_sides"] == 0


async def test_a_close_that_takes_longer_than_its_bound_is_counted(
    provider: Provider, metrics: Metrics, autojump_clock: trio.testing.MockClock
) -> None:
    """R12: what happens when a shield's time runs out is visible."""
    async with open_host(provider, metrics=metrics) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side()
        provider.adapter.closing.hold()
        began = trio.current_time()
        await side.close()
        assert trio.current_time() - began == pytest.approx(CLOSE_BOUND_S)
        assert metrics.counts["failed_closes", "held"] == 1
        assert host.statistics().failed_closes == 1
        provider.adapter.closing.release()


async def test_statistics_show_what_waits_and_who_listens(provider: Provider) -> None:
    """Required: interactions open, subscribers, buffered events, Sides by state, locks."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="first", subscribe=True)
        subscription = session.events()
        asked = InteractionRequested(InteractionId("i"), None, "approval", "may I?")
        adapter.ask(side.scope.ref, asked)
        adapter.early = [DELTA]
        adapter.opening.hold()
        nursery.start_soon(session.open_side)
        await adapter.opening.reached.wait()
        seen = host.statistics()
        assert seen.sides == {"open": 1, "opening": 1}
        assert (seen.sessions, seen.interactions_open, seen.subscribers, seen.buffered_events) == (1, 1, 2, 1)
        assert (seen.locks_in_use, seen.locks_waiting) == (2, 0)
        assert (seen.cleanup, seen.forced_cleanups, seen.refused_durable_writes) == ((), 0, 0)
        subscription.close()
        adapter.opening.release()
        await trio.testing.wait_all_tasks_blocked()
        await side.close()
        seen = host.statistics()
        assert (seen.interactions_open, seen.subscribers, seen.buffered_events, seen.locks_in_use) == (0, 0, 0, 0)
        assert seen.remembered_ends == 1
