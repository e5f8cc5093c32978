"""An identity that has just ended: its task has not run yet, and nobody gets it back as open."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

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
