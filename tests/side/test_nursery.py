"""The nursery around user code: whose exception leaves, and in which form."""

import pytest
import trio

from tutti_side.nursery import open_service_nursery


class Oops(Exception):
    """The user's."""


async def fail_soon(event: trio.Event) -> None:
    await event.wait()
    raise ValueError("a task of ours")


async def test_the_blocks_exception_leaves_as_itself() -> None:
    """Architecture, Ends: a plain `except` of the user goes on working."""
    with pytest.raises(Oops) as caught:
        async with open_service_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise Oops
    assert caught.value.__cause__ is None


async def test_a_task_of_ours_that_fails_ends_the_block_and_comes_as_a_group() -> None:
    """Architecture, Ends: only failures of our own tasks come as a group."""
    event = trio.Event()
    with pytest.RaisesGroup(ValueError):
        async with open_service_nursery() as nursery:
            nursery.start_soon(fail_soon, event)
            event.set()
            await trio.sleep_forever()


async def test_both_failures_are_kept() -> None:
    """Our choice: neither of two errors hides the other, and no cancellation of ours leaks with them."""
    event = trio.Event()
    with pytest.RaisesGroup(Oops, ValueError):
        async with open_service_nursery() as nursery:
            nursery.start_soon(fail_soon, event)
            event.set()
            try:
                await trio.sleep_forever()
            finally:
                raise Oops


async def test_a_cancel_from_outside_passes_through() -> None:
    """R14: the scope that was cancelled catches it, and the tasks have ended."""
    ended = []

    async def serve() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(True)

    with trio.CancelScope() as scope:
        async with open_service_nursery() as nursery:
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert ended == [True]


async def test_the_blocks_exception_leaves_as_itself_out_of_a_cancelled_scope() -> None:
    """Architecture, Ends: a cancel from outside that reaches our tasks is no failure of theirs."""
    with pytest.raises(Oops) as caught, trio.CancelScope() as scope:
        async with open_service_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            raise Oops
    assert caught.value.__cause__ is None
    assert not scope.cancelled_caught


async def test_tasks_are_cancelled_when_the_block_ends() -> None:
    """Our choice: they serve the block."""
    with trio.fail_after(5):
        async with open_service_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
