"""One request, cancelled after the k-th step of any task, for every k, in every situation it can be in; and a
connection, in its whole life.

`CUTS` names what the cuts must have fallen into; `tests/side/test_cuts_complete.py` reads it.
"""

import random
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side.jsonrpc import ConnectionClosedError, NotSentError, Outcome, RemoteError, memory_pair, open_peer
from tutti_side.testing.cuts import Cut, cut_at_every_step

CUTS = {
    "a request": ("Peer.request",),
    "the wait for the end": ("Peer.wait_closed",),
    "the life of a connection": ("open_peer", "Peer.request"),
}


async def serve(line: Any, situation: str, seen: list[str]) -> None:
    """Answer every request; the first `cut` as the situation has it. Whatever isn't whole and valid fails here."""
    while True:
        try:
            [message] = await line.far.read()
        except AssertionError:  # the end of the stream
            return
        seen.append(message["method"])
        first = message["method"] == "cut" and seen.count("cut") == 1
        if first and situation == "end":
            await line.far.end(1)
            return
        if first and situation == "overload":
            await line.far.send({"id": message["id"], "error": {"code": -32001, "message": "m"}})
        elif first and situation == "error":
            await line.far.send({"id": message["id"], "error": {"code": -1, "message": "m"}})
        else:
            await line.far.send({"method": "before"}, {"id": message["id"], "result": 1}, {"method": "after"})


async def cut_once(connect: Any, situation: str, cut: Cut) -> None:
    """Run one request, cut it, check what is left."""
    outcomes: list[Outcome] = []
    seen: list[str] = []
    result: list[Any] = []

    def hook(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if situation == "hook fails":
            raise ValueError("hook")

    async with (
        connect(buffer_bytes=20, in_flight_max=1, cleanup_slots=0, rng=random.Random(1)) as line,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(serve, line, situation, seen)
        if situation == "waits for a slot":
            nursery.start_soon(line.peer.request, "neighbour", {"x": "x" * 50})
            await trio.lowlevel.checkpoint()
        with cut.cancelling() as scope:
            try:
                result.append(await line.peer.request("cut", {"x": "x" * 100}, result_type=int, hook=hook))
            except (RemoteError, ConnectionClosedError, ValueError) as error:
                result.append(error)
        await trio.sleep(100)

        assert len(outcomes) == 1, "the hook was not called exactly once"
        assert bool(result) is not scope.cancelled_caught, "neither a result nor a cancel, or both"
        if situation == "overload" and seen.count("cut") == 1:  # refused: in the backoff, or when nobody waited
            assert isinstance(outcomes[0], NotSentError | RemoteError)
        else:
            assert isinstance(outcomes[0], NotSentError) is ("cut" not in seen)
        statistics = line.peer.statistics()
        left = (statistics.in_flight, statistics.waiting, statistics.expired, statistics.write_queue_bytes)
        assert left == (0, 0, 0, 0), "something is left"
        if situation != "end" or line.peer.closed is None:
            assert await line.peer.request("next", result_type=int) == 1
            assert line.peer.closed is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "situation", ["answered", "error", "overload", "waits for a slot", "hook fails", "end"], ids=lambda name: name
)
async def test_a_cancel_after_any_step_leaves_everything_consistent(
    connect: Any, autojump_clock: trio.testing.MockClock, situation: str
) -> None:
    """R14: after the k-th step of any task during the call, for every k; F15, R9."""
    report = await cut_at_every_step(lambda cut: cut_once(connect, situation, cut))

    assert report.cuts >= 10, "the cuts did not reach the wire"
    assert report.inside >= set(CUTS["a request"])


async def test_a_wait_for_the_end_of_a_connection_that_is_cut_ends_nothing(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """R14: harmless, as its docstring says."""

    async def once(cut: Cut) -> None:
        async with connect() as line, trio.open_nursery() as nursery:
            with cut.cancelling() as scope:
                nursery.start_soon(line.far.end, 1)
                assert (await line.peer.wait_closed()).reason == "eof"
            if scope.cancelled_caught:
                assert (await line.peer.wait_closed()).reason == "eof"

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["the wait for the end"])


async def test_a_connection_that_is_cut_at_any_step_of_its_life_settles_every_call_and_leaves_its_transport(
    make_router: Any, params_type: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """R14, R9, R13: its own calls and a stranger's; the router is told once, and the transport is the caller's."""

    async def once(cut: Cut) -> None:
        near, far = memory_pair(16)
        router = make_router()
        outcomes: list[Outcome] = []
        errors: list[Exception] = []

        async def outside(peer: Any) -> None:
            try:
                await peer.request("outside", {"x": "x" * 30}, hook=outcomes.append)
            except ConnectionClosedError as error:
                errors.append(error)

        async def discard() -> None:
            while await far.receive_some(8):
                pass

        asked = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(discard)
            with cut.cancelling():
                async with open_peer(near, router, params_type=params_type) as peer:
                    nursery.start_soon(outside, peer)  # noqa: ASYNC111 - the end of the peer is what it is told of
                    asked = 1
                    with trio.move_on_after(5):
                        await peer.request("never", hook=outcomes.append)
            await near.aclose()
        assert [error.reason for error in router.lost] == ["closed"] * len(router.lost)
        assert len(router.lost) <= 1
        if asked:
            assert len(router.lost) == 1
            assert len(errors) == 1
            assert 1 <= len(outcomes) <= 2

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["the life of a connection"])
