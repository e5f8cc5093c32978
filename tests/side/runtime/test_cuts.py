"""A cancel wherever it lands: each operation is cut after the k-th step of any task, for every k."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import AgentHost, TuttiSideError, open_host
from tutti_side.contract import SideId, SideRef, TurnCompleted
from tutti_side.runtime import MemoryMetadata

Provider = Any  # tests/side/conftest.py: HeldProvider


class CutAfter(trio.abc.Instrument):
    """Cancels a scope after the k-th step of any task."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self.steps = 0
        self._cut_at = steps
        self._scope = scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self._cut_at:
            self._scope.cancel()


async def ask_and_be_answered(host: AgentHost, adapter: Any) -> None:
    """Ask an open Side; its answer comes as soon as the turn runs."""
    side = host.controller.find_side(SideRef(host.identity.workspace, SideId("open")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.ask, "q")
        await trio.testing.wait_all_tasks_blocked()
        assert side.active_turn is not None
        adapter.sinks[side.scope.ref].emit([TurnCompleted(side.active_turn.id)], 1)


async def hold_a_side_for_a_block(host: AgentHost, adapter: Any) -> None:
    session = await host.resume_session("kept")
    async with session.side(side_id="block") as side:
        await side.send("q")


OPERATIONS: dict[str, Callable[[AgentHost, Any], Awaitable[Any]]] = {
    "start session": lambda host, adapter: host.start_session(cwd=".", session_id="new"),
    "resume session": lambda host, adapter: host.resume_session("kept"),
    "open": lambda host, adapter: host.open_side("main", "s", "r", subscribe=True),
    "open from history": lambda host, adapter: host.open_side("kept", "s", "r"),
    "send": lambda host, adapter: host.send_side("main", "open", "r", "q"),
    "ask": ask_and_be_answered,
    "hold a Side for a block": hold_a_side_for_a_block,
    "close": lambda host, adapter: host.close_side("main", "open", "r"),
    "close session": lambda host, adapter: close_main(host),
    "delete session": lambda host, adapter: host.delete_session("main"),
}


async def close_main(host: AgentHost) -> None:
    (session,) = (scope for scope in host.controller.registry.sessions.values() if scope.ref.session == "main")
    await host.controller.close_session(session)


@asynccontextmanager
async def staged(provider: Provider) -> AsyncIterator[tuple[AgentHost, Any]]:
    """A host with a live session, a kept one, and an open Side."""
    adapter = provider.adapter
    adapter.offers_history = True
    async with open_host(provider, metadata=MemoryMetadata()) as host:
        await host.start_session(cwd=".", session_id="main")
        await (await host.start_session(cwd=".", session_id="kept")).close()
        await host.open_side("main", "open", "r")
        yield host, adapter


def alive_at_the_provider(log: list[str]) -> set[str]:
    """Return the Sides that the provider has forked and not released."""
    alive: set[str] = set()
    for line in log:
        verb, _, name = line.partition(" ")
        if verb == "fork":
            alive.add(name)
        elif verb in ("close", "release"):
            alive.discard(name)
    return alive


async def cut(host: AgentHost, adapter: Any, operation: str, steps: int) -> bool:
    """Run an operation, cancelled after so many steps; say whether it was cut."""
    scope = trio.CancelScope()
    instrument = CutAfter(steps, scope)
    trio.lowlevel.add_instrument(instrument)
    with scope, trio.fail_after(60):
        await OPERATIONS[operation](host, adapter)
    trio.lowlevel.remove_instrument(instrument)
    await trio.testing.wait_all_tasks_blocked()
    return instrument.steps >= steps


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_cancel_after_any_step_of_any_task_leaves_everything_consistent(
    make_provider: Callable[[], Provider], operation: str
) -> None:
    """R14, R6, R13: what the provider holds is what is open here, nothing is locked, and the host still works."""
    steps = 0
    while True:
        steps += 1
        provider = make_provider()
        async with staged(provider) as (host, adapter):
            was_cut = await cut(host, adapter, operation, steps)
            seen = host.statistics()
            assert set(seen.sides) <= {"open"}, steps
            here = {ref.side for ref in host.controller.registry.sides}
            assert alive_at_the_provider(adapter.log) == here, steps
            assert (seen.locks_in_use, seen.locks_waiting, seen.buffered_events) == (0, 0, 0), steps
            assert {scope.state for scope in host.controller.registry.sessions.values()} <= {"open"}, steps
            for side in host.controller.registry.sides.values():
                turns = side.events.turns
                assert not turns._starting, steps
                assert turns.active is None or adapter.active.get(side.ref) == turns.active.turn_id, steps
            again = await host.start_session(cwd=".", session_id="afterwards")
            assert (await again.open_side()).is_open, steps
            try:
                await host.open_side("kept" if operation == "open from history" else "main", "s", "r")
            except TuttiSideError:
                assert operation == "delete session", steps
            if not was_cut:
                break
        assert host.statistics().sides == {}, steps
    assert steps > 2, "the operation has steps to be cut at"


async def test_a_host_that_is_cancelled_at_any_step_of_its_stop_is_left_empty(
    make_provider: Callable[[], Provider],
) -> None:
    """R13, R14: controller shutdown with an open in flight and a Side in a turn."""
    steps = 0
    while True:
        steps += 1
        provider = make_provider()
        scope = trio.CancelScope()
        instrument = CutAfter(steps, scope)
        with scope, trio.fail_after(60):
            async with staged(provider) as (host, adapter), trio.open_nursery() as nursery:
                await host.send_side("main", "open", "r", "q")
                adapter.opening.hold()
                nursery.start_soon(host.open_side, "main", "s", "r")
                await adapter.opening.reached.wait()
                trio.lowlevel.add_instrument(instrument)
                nursery.cancel_scope.cancel()
        trio.lowlevel.remove_instrument(instrument)
        assert (host.statistics().sides, host.statistics().sessions) == ({}, 0), steps
        assert alive_at_the_provider(adapter.log) == set(), steps
        if instrument.steps < steps:
            break
    assert steps > 5
