"""Every state of the lifecycle table with everything that can happen to a Side, and what is left afterwards.

`OUTCOMES` is written out by hand: one line for each pair, with the state that the Side ends in and the reason that its
id is remembered with. `IMPOSSIBLE` has the pairs that cannot happen, each with why.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
import trio
import trio.testing

from tutti_side import AgentHost, SideExpiredError, TuttiSideError, open_host
from tutti_side.contract import (
    EventBatch,
    Gap,
    MessageDelta,
    SessionClosed,
    SessionExpired,
    SessionStarted,
    TurnId,
)
from tutti_side.runtime import QUEUE_EVENTS_MAX, SideNotFoundError
from tutti_side.runtime._gate import GATE_EVENTS_MAX
from tutti_side.runtime._side_scope import SideScope
from tutti_side.runtime._side_state import SideState

Provider = Any  # tests/side/conftest.py: HeldProvider

STATES: tuple[SideState, ...] = get_args(SideState)
ENDED = ("closed", "failed", "expired")
NOT_ASKED = "the provider has not been asked for anything yet, so it has nothing to say"
ANSWERED = "the opener has its answer, and has left"


class Stage:
    """A host with one session in a turn, and one Side of it brought into a state."""

    def __init__(self, host: AgentHost, adapter: Any, nursery: trio.Nursery) -> None:
        self.host = host
        self.adapter = adapter
        self.nursery = nursery
        self.session: Any = None
        self.turn: Any = None
        self.scope: SideScope | None = None
        self.subscription: Any = None
        self.opener = trio.CancelScope()
        self.opened: list[Any] = []
        self.unlock = trio.Event()

    @property
    def side(self) -> SideScope:
        assert self.scope is not None
        return self.scope

    async def set_up(self, state: SideState) -> None:
        """Bring the Side into a state, and hold it there."""
        self.session = await self.host.start_session(cwd=".", session_id="main")
        self.turn = await self.session.send("q")
        if state == "reserved":
            self.nursery.start_soon(self._hold_the_source)
            await trio.testing.wait_all_tasks_blocked()
        elif state == "opening":
            self.adapter.opening.hold()
        elif state in ("draining", "failed"):
            self.adapter.open_error = ValueError()
            self.adapter.releasing.hold()
        self.nursery.start_soon(self._open)
        await trio.testing.wait_all_tasks_blocked()
        (self.scope,) = self.host.controller.registry.sides.values()
        if self.opened and not isinstance(self.opened[0], TuttiSideError):
            self.subscription = self.opened[0].events()
        if state == "closing":
            self.adapter.closing.hold()
            self.nursery.start_soon(self.host.close_side, "main", "s", "r")
        elif state == "closed":
            await self.host.close_side("main", "s", "r")
        elif state == "failed":
            self.adapter.releasing.release()
        elif state == "expired":
            self.adapter.sinks[self.side.ref].end("lost")
        await trio.testing.wait_all_tasks_blocked()
        assert self.side.lifecycle.state == state

    async def _hold_the_source(self) -> None:
        """Stand for another lifecycle operation on the source."""
        async with self.host.controller.locks.hold(self.session.ref):
            await self.unlock.wait()

    async def _open(self) -> None:
        with self.opener:
            try:
                self.opened.append(await self.host.open_side("main", "s", "r", subscribe=True))
            except TuttiSideError as error:
                self.opened.append(error)

    def let_go(self) -> None:
        """Release everything that is held."""
        self.unlock.set()
        for hold in (self.adapter.opening, self.adapter.closing, self.adapter.releasing):
            hold.release()


async def source_closes(stage: Stage) -> None:
    await stage.session.close()


async def side_closes(stage: Stage) -> None:
    await stage.host.close_side("main", "s", "r")


async def host_stops(stage: Stage) -> None:
    await stage.host.controller.stop()


async def source_is_deleted(stage: Stage) -> None:
    await stage.host.delete_session("main")


async def side_is_lost(stage: Stage) -> None:
    await trio.lowlevel.checkpoint()
    stage.adapter.sinks[stage.side.ref].end("lost")


async def side_overflows(stage: Stage) -> None:
    await trio.lowlevel.checkpoint()
    sink = stage.adapter.sinks[stage.side.ref]
    for _ in range(max(QUEUE_EVENTS_MAX, GATE_EVENTS_MAX) // 100 + 2):
        sink.emit([MessageDelta(TurnId("t"), "i", "x")] * 100, 100)


async def opener_is_cancelled(stage: Stage) -> None:
    await trio.lowlevel.checkpoint()
    stage.opener.cancel()


EVENTS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    function.__name__: function
    for function in (
        source_closes,
        side_closes,
        host_stops,
        source_is_deleted,
        side_is_lost,
        side_overflows,
        opener_is_cancelled,
    )
}

OUTCOMES: dict[tuple[SideState, str], tuple[SideState, str | None]] = {
    ("reserved", "source_closes"): ("open", None),
    ("reserved", "side_closes"): ("closed", "closed"),
    ("reserved", "host_stops"): ("expired", "host_stopped"),
    ("reserved", "source_is_deleted"): ("expired", "source_deleted"),
    ("reserved", "opener_is_cancelled"): ("failed", None),
    ("opening", "source_closes"): ("open", None),
    ("opening", "side_closes"): ("closed", "closed"),
    ("opening", "host_stops"): ("expired", "host_stopped"),
    ("opening", "source_is_deleted"): ("expired", "source_deleted"),
    ("opening", "side_is_lost"): ("expired", "lost"),
    ("opening", "side_overflows"): ("expired", "overflow"),
    ("opening", "opener_is_cancelled"): ("failed", None),
    ("open", "source_closes"): ("open", None),
    ("open", "side_closes"): ("closed", "closed"),
    ("open", "host_stops"): ("expired", "host_stopped"),
    ("open", "source_is_deleted"): ("expired", "source_deleted"),
    ("open", "side_is_lost"): ("expired", "lost"),
    ("open", "side_overflows"): ("expired", "overflow"),
    ("closing", "source_closes"): ("closed", "closed"),
    ("closing", "side_closes"): ("closed", "closed"),
    ("closing", "host_stops"): ("closed", "closed"),
    ("closing", "source_is_deleted"): ("closed", "closed"),
    ("closing", "side_is_lost"): ("expired", "lost"),
    ("closing", "side_overflows"): ("expired", "overflow"),
    ("draining", "source_closes"): ("failed", None),
    ("draining", "side_closes"): ("closed", "closed"),
    ("draining", "host_stops"): ("expired", "host_stopped"),
    ("draining", "source_is_deleted"): ("expired", "source_deleted"),
    ("draining", "side_is_lost"): ("failed", None),
    ("draining", "side_overflows"): ("failed", None),
    **{("closed", name): ("closed", "closed") for name in EVENTS if name != "opener_is_cancelled"},
    **{("failed", name): ("failed", None) for name in EVENTS if name != "opener_is_cancelled"},
    **{("expired", name): ("expired", "lost") for name in EVENTS if name != "opener_is_cancelled"},
}

IMPOSSIBLE: dict[tuple[SideState, str], str] = {
    ("reserved", "side_is_lost"): NOT_ASKED,
    ("reserved", "side_overflows"): NOT_ASKED,
    **{(state, "opener_is_cancelled"): ANSWERED for state in STATES if state not in ("reserved", "opening")},
}


def test_each_pair_has_its_outcome_or_the_reason_why_it_cannot_be() -> None:
    """Required: each state of the lifecycle table with each event."""
    pairs = {(state, event) for state in STATES for event in EVENTS}
    assert set(OUTCOMES) | set(IMPOSSIBLE) == pairs
    assert not set(OUTCOMES) & set(IMPOSSIBLE)


@asynccontextmanager
async def staged(provider: Provider, state: SideState) -> AsyncIterator[Stage]:
    """Open a stage; at the end of the block everything is let go, and the host stops."""
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        stage = Stage(host, provider.adapter, nursery)
        await stage.set_up(state)
        try:
            yield stage
        finally:
            stage.let_go()


def numbered(batches: list[EventBatch]) -> list[tuple[int, object]]:
    return [pair for batch in batches for pair in batch.numbered()]


async def check_the_stream(stage: Stage, reason: str | None) -> None:
    """A subscriber from the commit saw 1, 2, 3… without a hole, and one end, or none while the Side is open: R3, R1."""
    if stage.subscription is None:
        return
    if reason is None:
        stage.subscription.close()
        return
    events = numbered([batch async for batch in stage.subscription])
    expected = 1
    for number, event in events:
        assert number == expected
        expected = event.last + 1 if isinstance(event, Gap) else number + 1
    assert isinstance(events[0][1], SessionStarted)
    ends = [event for _, event in events if isinstance(event, SessionClosed | SessionExpired)]
    assert ends == [SessionClosed() if reason == "closed" else SessionExpired(reason)]  # type: ignore[arg-type]
    assert events[-1][1] == ends[0]


def check_the_id(stage: Stage, state: SideState, reason: str | None) -> None:
    """An ended id never comes back to life; that of a failed open is free: R8."""
    controller, ref = stage.host.controller, stage.side.ref
    if state == "open":
        assert controller.find_side(ref).is_open
    elif reason is None:
        with pytest.raises(SideNotFoundError):
            controller.find_side(ref)
    else:
        with pytest.raises(SideExpiredError) as caught:
            controller.find_side(ref)
        assert caught.value.reason == reason


@pytest.mark.parametrize(("state", "event"), list(OUTCOMES))
async def test_whatever_happens_in_whatever_state_leaves_nothing_behind(
    provider: Provider, autojump_clock: trio.testing.MockClock, state: SideState, event: str
) -> None:
    """R1, R3, R5, R6, R7, R8, R12: the Side ends as it should, and what it had with it; its source goes on."""
    final, reason = OUTCOMES[state, event]
    adapter = provider.adapter
    async with staged(provider, state) as stage:
        began = trio.current_time()
        stage.nursery.start_soon(EVENTS[event], stage)
        await trio.testing.wait_all_tasks_blocked()
        stage.let_go()
        with trio.fail_after(60):
            await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == began  # nothing had to wait for a deadline
        assert stage.side.lifecycle.state == final

        seen = stage.host.statistics()
        assert seen.sides == ({"open": 1} if final == "open" else {})
        assert (seen.locks_in_use, seen.interactions_open, seen.buffered_events) == (0, 0, 0)
        check_the_id(stage, final, reason)
        await check_the_stream(stage, reason)

        forks = adapter.log.count("fork s")
        releases = adapter.log.count("close s") + adapter.log.count("release s")
        assert forks <= 1
        assert releases == (0 if final == "open" or (state == "reserved" and not forks) else 1)
        goes_on = event not in ("source_closes", "source_is_deleted", "host_stops")
        assert (stage.session.scope.state == "open") == goes_on
        assert stage.turn.is_active == goes_on
        assert not [line for line in adapter.log if line.startswith("cancel")]

        before = seen.dropped_events
        late = adapter.sinks.get(stage.side.ref)
        if late is not None and final != "open":
            late.emit([MessageDelta(TurnId("t"), "i", "late")], 4)
            late.end("lost")
            assert stage.host.statistics().dropped_events == before + 1
            assert stage.side.lifecycle.state == final


@pytest.mark.parametrize(("state", "event"), list(OUTCOMES))
async def test_whatever_happens_is_bounded_while_the_provider_does_nothing(
    provider: Provider, autojump_clock: trio.testing.MockClock, state: SideState, event: str
) -> None:
    """R12, R13: every hold stays held; still each pair ends, within the longest bound, and so does the host."""
    adapter = provider.adapter
    with trio.fail_after(120):
        async with open_host(provider) as host, trio.open_nursery() as nursery:
            stage = Stage(host, adapter, nursery)
            await stage.set_up(state)
            stage.unlock.set()  # the lock is ours; a provider cannot hold it
            ends: list[str] = []

            async def wait_for_the_session() -> None:
                ends.append(await stage.session.wait_ended())

            nursery.start_soon(wait_for_the_session)
            began = trio.current_time()
            await EVENTS[event](stage)
            assert trio.current_time() - began <= 60
            await trio.testing.wait_all_tasks_blocked()
            await host.controller.stop()
        assert len(ends) == 1
        assert (host.statistics().sides, host.statistics().sessions) == ({}, 0)
