"""The memory pair behaves like two pipes."""

import pytest
import trio
import trio.testing

from tutti_side.jsonrpc import PeerExit, TransportBrokenError, memory_pair


async def test_bytes_arrive_in_order_in_both_directions() -> None:
    """Transport: a byte stream."""
    one, other = memory_pair()
    with trio.fail_after(5):
        await one.send_all(b"abc")
        await one.send_all(b"def")
        await other.send_all(b"xyz")

        assert await other.receive_some(4) == b"abcd"
        assert await other.receive_some(4) == b"ef"
        assert await one.receive_some(100) == b"xyz"


async def test_a_side_that_does_not_read_blocks_the_one_that_writes() -> None:
    """R12: each direction is bounded."""
    one, other = memory_pair(buffer_bytes=10)
    received = b""
    done: list[str] = []

    async def write() -> None:
        await one.send_all(b"0123456789abcdefghijklmno")
        done.append("written")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            assert done == []
            while len(received) < 25:
                part = await other.receive_some(100)
                assert len(part) <= 10
                received += part

    assert received == b"0123456789abcdefghijklmno"
    assert done == ["written"]


async def test_after_a_close_the_other_end_reads_the_rest_then_the_end_and_can_send_no_more() -> None:
    """Transport: ``b""`` is the end of the stream; our choice: as a process whose pipes close."""
    one, other = memory_pair()
    with trio.fail_after(5):
        await one.send_all(b"last words")
        await one.aclose()
        await one.aclose()

        assert await other.receive_some(4) == b"last"
        assert await other.receive_some(100) == b" words"
        assert await other.receive_some(100) == b""
        assert await other.receive_some(100) == b""
        with pytest.raises(TransportBrokenError):
            await other.send_all(b"x")
        with pytest.raises(TransportBrokenError):
            await one.send_all(b"x")
        with pytest.raises(TransportBrokenError):
            await one.receive_some(1)


async def test_a_close_wakes_whoever_waits_at_the_other_end() -> None:
    """F14: neither a read nor a write waits for ever on an end that is gone."""
    one, other = memory_pair(buffer_bytes=4)
    outcome: list[object] = []

    async def read() -> None:
        outcome.append(await other.receive_some(10))

    async def write() -> None:
        with pytest.raises(TransportBrokenError):
            await other.send_all(b"too long for it")
        outcome.append("broken")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            await one.aclose()

    assert sorted(map(str, outcome)) == ["b''", "broken"]


async def test_a_break_loses_what_is_buffered_and_fails_both_ends() -> None:
    """Our choice: an abrupt break is an error, not an end."""
    one, other = memory_pair()
    with trio.fail_after(5):
        await one.send_all(b"lost")
        one.break_()

        for end in (one, other):
            with pytest.raises(TransportBrokenError):
                await end.receive_some(10)
            with pytest.raises(TransportBrokenError):
                await end.send_all(b"x")


async def test_the_exit_that_one_end_sets_is_what_the_other_end_waits_for() -> None:
    """Transport: `wait_exit` tells how the other side ended."""
    one, other = memory_pair()
    one.exit = PeerExit(status=-9, stderr_tail=("gone",))
    await one.aclose()

    assert await other.wait_exit() == PeerExit(status=-9, stderr_tail=("gone",))
    assert await one.wait_exit() == PeerExit()


async def test_a_cancelled_read_loses_nothing() -> None:
    """Transport: a cancelled receive loses nothing."""
    one, other = memory_pair()
    with trio.fail_after(5):
        await one.send_all(b"kept")
        with trio.CancelScope() as scope:
            scope.cancel()
            await other.receive_some(10)

        assert scope.cancelled_caught
        assert await other.receive_some(10) == b"kept"


async def test_two_tasks_in_one_direction_are_a_bug_that_is_told() -> None:
    """Transport: one task may receive while another sends, two may not do the same."""
    one, _other = memory_pair(buffer_bytes=1)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.receive_some, 1)
            nursery.start_soon(one.send_all, b"ab")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await one.receive_some(1)
            with pytest.raises(trio.BusyResourceError):
                await one.send_all(b"c")
            nursery.cancel_scope.cancel()
