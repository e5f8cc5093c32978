"""The memory transport, cut after the k-th step of any task: its promises are those of `Transport`."""

import trio
import trio.testing

from tutti_side.jsonrpc import PeerExit, TransportBrokenError, memory_pair
from tutti_side.testing.cuts import Cut, cut_at_every_step

CUTS = {
    "receive": ("MemoryTransport.receive_some",),
    "send": ("MemoryTransport.send_all",),
    "close": ("MemoryTransport.aclose", "MemoryTransport.wait_exit"),
}


async def test_nothing_is_lost_of_what_a_cut_receiver_was_about_to_get(autojump_clock: trio.testing.MockClock) -> None:
    """R14; `Transport.receive_some`: a cancel loses nothing, and the next reader goes on."""

    async def once(cut: Cut) -> None:
        near, far = memory_pair(4)
        got: list[bytes] = []

        async def send() -> None:
            await far.send_all(b"abcdefgh")
            await far.aclose()

        async def read() -> None:
            while data := await near.receive_some(3):
                got.append(data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with cut.cancelling() as scope:
                await read()
            if scope.cancelled_caught:
                await read()
        assert b"".join(got) == b"abcdefgh"

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["receive"])


async def test_a_cut_sender_has_sent_a_beginning_and_the_stream_can_still_be_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """R14; `Transport.send_all`: a part may have been sent, in order; then it is good for closing."""

    async def once(cut: Cut) -> None:
        near, far = memory_pair(3)
        got = bytearray()

        async def read() -> None:
            while data := await far.receive_some(2):
                got.extend(data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            with cut.cancelling() as scope:
                await near.send_all(b"abcdefghij")
            await near.aclose()
        assert b"abcdefghij".startswith(got)
        assert scope.cancelled_caught or got == b"abcdefghij"

    report = await cut_at_every_step(once)

    assert report.cuts > 3
    assert report.inside >= set(CUTS["send"])


async def test_a_close_that_is_cut_has_closed(autojump_clock: trio.testing.MockClock) -> None:
    """R14; `Transport.aclose`: what is owned is ended all the same."""

    async def once(cut: Cut) -> None:
        near, far = memory_pair()
        near.exit = PeerExit(status=3)
        with cut.cancelling():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(near.aclose)
                nursery.start_soon(far.wait_exit)
        await near.aclose()
        assert await far.receive_some(1) == b""
        assert (await far.wait_exit()).status == 3
        try:
            await far.send_all(b"x")
        except TransportBrokenError:
            return
        raise AssertionError("sent to an end that is closed")

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["close"])
