"""What an adapter raises ends one Side, or one session, and nothing else; every shield ends with the host."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import AgentHost, OpenFailedError, SideHandle, open_host
from tutti_side.runtime import SideInProgressError
from tutti_side.runtime._sessions import SNAPSHOT_WAIT_S
from tutti_side.runtime._side_scope import CLOSE_BOUND_S
from tutti_side.runtime.controller import HOST_STOP_S

Provider = Any  # tests/side/conftest.py: HeldProvider


async def fail(*_: object) -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError


async def fail_in_a_group_when_cancelled(*_: object) -> None:
    """Do as an adapter with a nursery of its own: its cancel comes mixed with what went wrong in it."""

    async def fail_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_late)
        nursery.start_soon(trio.sleep_forever)


async def set_up(host: AgentHost) -> tuple[Any, SideHandle]:
    """Start a session with a Side that has to survive."""
    session = await host.start_session(cwd=".", session_id="main")
    return session, await session.open_side(side_id="sibling")


async def check_survivors(host: AgentHost, session: Any, sibling: SideHandle, failed_closes: int) -> None:
    assert host.statistics().sides == {"open": 1}
    assert host.statistics().failed_closes == failed_closes
    assert (await sibling.send("q")).is_active
    assert (await session.send("q")).is_active


@pytest.mark.parametrize("step", ["side_capabilities", "open_side"])
async def test_an_adapter_that_raises_while_opening_ends_this_open_only(provider: Provider, step: str) -> None:
    """Architecture §2: a failure inside is contained at one place; of a foreign error only the type is shown."""
    async with open_host(provider) as host:
        session, sibling = await set_up(host)
        setattr(provider.adapter, step, fail)
        with pytest.raises(OpenFailedError, match="ValueError in the adapter"):
            await session.open_side()
        await trio.testing.wait_all_tasks_blocked()
        await check_survivors(host, session, sibling, 0)


async def test_an_adapter_that_cannot_release_a_failed_open_ends_nothing_else(provider: Provider) -> None:
    """R6: counted as a close that failed; the id is free again."""
    async with open_host(provider) as host:
        session, sibling = await set_up(host)
        provider.adapter.open_error = ValueError()
        provider.adapter.wait_side_released = fail
        with pytest.raises(OpenFailedError):
            await session.open_side(side_id="s", request_id="r")
        await trio.testing.wait_all_tasks_blocked()
        provider.adapter.open_error = None
        await check_survivors(host, session, sibling, 1)
        assert (await session.open_side(side_id="s", request_id="r")).is_open


async def test_a_cancelled_open_that_fails_as_well_ends_nothing_else(provider: Provider) -> None:
    """R14: the adapter's own failure came in one group with the cancel, and ended the whole host."""
    async with open_host(provider) as host:
        session, sibling = await set_up(host)
        provider.adapter.open_side = fail_in_a_group_when_cancelled
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.open_side)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        await check_survivors(host, session, sibling, 0)


async def test_a_close_that_fails_when_its_bound_ends_it_ends_nothing_else(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """R12: the same in a close; of a session too."""
    async with open_host(provider) as host:
        session, sibling = await set_up(host)
        other = await host.start_session(cwd=".", session_id="other")
        side = await session.open_side()
        close = provider.adapter.close
        provider.adapter.close = fail_in_a_group_when_cancelled
        for closing, bound_s in ((side.close, CLOSE_BOUND_S), (other.close, SNAPSHOT_WAIT_S)):
            began = trio.current_time()
            await closing()
            assert trio.current_time() - began == pytest.approx(bound_s)
        provider.adapter.close = close
        assert host.statistics().sessions == 1
        await check_survivors(host, session, sibling, 2)


async def test_a_session_whose_provider_cannot_close_it_is_over(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """R12: a hanging close is cut off, counted, and the session is over for everybody."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        provider.adapter.closing.hold()
        began = trio.current_time()
        await session.close()
        assert trio.current_time() - began == pytest.approx(SNAPSHOT_WAIT_S)
        assert await session.wait_ended() == "closed"
        assert (host.statistics().sessions, host.statistics().failed_closes) == (0, 1)
        provider.adapter.closing.release()


async def test_a_lost_session_is_released_in_the_background_for_a_bound(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """R12, R9: nobody waits for it."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        provider.adapter.closing.hold()
        provider.adapter.sinks[session.ref].end("lost")
        await trio.testing.wait_all_tasks_blocked()
        assert provider.adapter.log == ["close main"]
        await trio.sleep(SNAPSHOT_WAIT_S + 1)
        assert host.statistics().failed_closes == 1
        provider.adapter.closing.release()


LONG: dict[str, Callable[[Any, SideHandle], Any]] = {
    "a close of a session": lambda session, side: session.close(),
    "a close of a Side": lambda session, side: side.close(),
}


@pytest.mark.parametrize("case", LONG)
async def test_a_host_stop_caps_the_shields_that_began_before_it(
    provider: Provider, autojump_clock: trio.testing.MockClock, case: str
) -> None:
    """Architecture, Ends: one host-wide deadline (10 s) caps every shield, in both orders."""
    provider.adapter.closing.hold()
    async with trio.open_nursery() as nursery:
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".", session_id="main")
            side = await session.open_side()
            nursery.start_soon(LONG[case], session, side)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() - began == pytest.approx(HOST_STOP_S)


async def test_a_session_that_the_host_had_no_time_to_close_is_told(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """R9, R13: whoever still waits for it, outside the host's block, gets its end."""
    ends: list[str] = []
    with trio.fail_after(60):
        await end_while_somebody_waits(provider, ends)
    assert ends == ["host_stopped"]


async def end_while_somebody_waits(provider: Provider, ends: list[str]) -> None:
    async with trio.open_nursery() as nursery:
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".", session_id="main")
            await session.open_side()
            events = session.events()

            async def wait() -> None:
                ends.append(await session.wait_ended())

            nursery.start_soon(wait)
            provider.adapter.closing.hold()
        assert [getattr(event, "reason", None) async for batch in events for event in batch.events] == ["host_stopped"]


async def test_a_joiner_that_leaves_takes_its_subscription_along(provider: Provider) -> None:
    """F36: or the others' Side would overflow for a subscriber that nobody reads."""
    adapter = provider.adapter
    adapter.opening.hold()
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".", session_id="main")
        leaving = trio.CancelScope()

        async def leave() -> None:
            with leaving:
                await host.open_side("main", "s", "r", subscribe=True)

        nursery.start_soon(leave)
        nursery.start_soon(host.open_side, "main", "s", "r")
        await adapter.opening.reached.wait()
        leaving.cancel()
        await trio.testing.wait_all_tasks_blocked()
        adapter.opening.release()
        await trio.testing.wait_all_tasks_blocked()
        assert host.statistics().subscribers == 0
        assert (await session.open_side(side_id="s", request_id="r")).is_open


async def test_an_open_that_everybody_left_is_not_joined(provider: Provider) -> None:
    """Architecture §4.2: it is rolled back already; who comes now is told to try again."""
    adapter = provider.adapter
    adapter.opening.hold()
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        await host.start_session(cwd=".", session_id="main")
        nursery.start_soon(host.open_side, "main", "s", "r")
        await adapter.opening.reached.wait()
        (side,) = host.controller.registry.sides.values()
        side.abort("as the last to leave does")
        with pytest.raises(SideInProgressError) as caught:
            await host.open_side("main", "s", "r")
        assert caught.value.state == "draining"
        nursery.cancel_scope.cancel()
