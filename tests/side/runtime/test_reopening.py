"""An identity that has just ended: its task has not run yet, and nobody gets it back as open."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import SideExpiredError, open_host

Provider = Any  # tests/side/conftest.py: HeldProvider


@pytest.mark.parametrize("how", ["lost", "overflow", "closed", "source_deleted"])
async def test_a_side_that_ended_in_this_instant_is_expired_for_who_opens_it_again(
    provider: Provider, how: Any
) -> None:
    """R8. Seen after a crash: whoever was told of it first, and asked again, was given the Side that was lost."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        side = await host.open_side("main", "s", "r", subscribe=True)
        if how in ("lost", "overflow"):
            provider.adapter.sinks[side.scope.ref].end(how)
        else:
            side.scope.request_close(how)
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: host.open_side("main", "s", "r"),
            lambda: session.open_side(side_id="s", request_id="r", subscribe=True),
        ]
        for again in calls:
            with pytest.raises(SideExpiredError) as caught:
                await again()
            assert caught.value.reason == how
        assert provider.adapter.log.count("fork s") == 1


async def test_a_side_that_is_closing_is_expired_for_who_opens_it_again(provider: Provider) -> None:
    """R8: its task waits for the provider; who asked again would be given a Side that takes no question."""
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        await host.start_session(cwd=".", session_id="main")
        side = await host.open_side("main", "s", "r")
        provider.adapter.closing.hold()
        nursery.start_soon(side.close)
        await provider.adapter.closing.reached.wait()
        with pytest.raises(SideExpiredError):
            await host.open_side("main", "s", "r")
        provider.adapter.closing.release()


async def test_who_joins_an_open_that_is_being_closed_is_told_that_it_is_over(provider: Provider) -> None:
    """R8: not that it drains, for then it could be opened again; its task has not run since the close."""
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        await host.start_session(cwd=".", session_id="main")
        provider.adapter.opening.hold()
        outcomes: list[Exception] = []

        async def open_it() -> None:
            try:
                await host.open_side("main", "s", "r")
            except Exception as error:
                outcomes.append(error)

        nursery.start_soon(open_it)
        await provider.adapter.opening.reached.wait()
        [side] = host.controller.registry.sides.values()
        side.request_close()
        await open_it()
        await trio.testing.wait_all_tasks_blocked()
        assert [type(error) for error in outcomes] == [SideExpiredError] * 2
        assert provider.adapter.log.count("fork s") == 1
