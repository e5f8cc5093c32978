"""What a user holds: how `ask` leaves things when its caller goes."""

from typing import Any

import trio
import trio.testing

from tutti_side import open_host
from tutti_side.contract import TurnCanceled, TurnCompleted
from tutti_side.runtime._scope_handle import CANCEL_BOUND_S


async def test_after_a_cancelled_ask_the_next_may_be_asked_at_once(
    provider: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """F33. Seen on 0.163: the interrupt is answered some ms before the turn's end; in between the Side was busy."""
    adapter = provider.adapter

    async def take_the_interrupt(ref: Any, turn_id: Any) -> None:
        await trio.lowlevel.checkpoint()
        nursery.start_soon(end_later, ref, turn_id)

    async def end_later(ref: Any, turn_id: Any) -> None:
        await trio.sleep(0.01)
        adapter.sinks[ref].emit([TurnCanceled(turn_id)], 10)

    async def end_the_next(ref: Any) -> None:
        await trio.testing.wait_all_tasks_blocked()
        adapter.sinks[ref].emit([TurnCompleted(adapter.active[ref])], 10)

    adapter.cancel = take_the_interrupt
    with trio.fail_after(60):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".")
            async with session.side() as side, trio.open_nursery() as nursery:
                with trio.move_on_after(1):
                    await side.ask("Something long")
                nursery.start_soon(end_the_next, side.scope.ref)
                assert (await side.ask("What?")).turn_id == "turn-2"


async def test_a_cancelled_ask_waits_for_a_turn_that_does_not_end_as_long_as_its_bound(
    provider: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """R12: the provider takes the interrupt, and the turn goes on."""

    async def take_the_interrupt(ref: Any, turn_id: Any) -> None:
        await trio.lowlevel.checkpoint()

    provider.adapter.cancel = take_the_interrupt
    with trio.fail_after(60):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".")
            with trio.move_on_after(1) as caller:
                await session.ask("Something long")
            assert caller.cancelled_caught
            assert trio.current_time() == caller.deadline + CANCEL_BOUND_S
            assert session.active_turn is not None
