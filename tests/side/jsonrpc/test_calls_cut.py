"""One request, cancelled after the k-th step of any task, for every k, in every situation it can be in."""

import random
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side.jsonrpc import ConnectionClosedError, NotSentError, Outcome, RemoteError


class CancelAfter(trio.abc.Instrument):
    """Cancels a scope after the given number of task steps, whosever they are."""

    def __init__(self, scope: trio.CancelScope, steps: int) -> None:
        self._scope = scope
        self._left = steps
        self.has_hit = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count."""
        self._left -= 1
        if self._left == 0:
            self.has_hit = True
            self._scope.cancel()


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


async def cut_once(connect: Any, situation: str, steps: int) -> bool:
    """Run one request, cut it after so many steps, check what is left; return whether the cut came in time."""
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
        with trio.CancelScope() as scope:
            cut = CancelAfter(scope, steps)
            trio.lowlevel.add_instrument(cut)
            try:
                result.append(await line.peer.request("cut", {"x": "x" * 100}, result_type=int, hook=hook))
            except (RemoteError, ConnectionClosedError, ValueError) as error:
                result.append(error)
            finally:
                trio.lowlevel.remove_instrument(cut)
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
    return cut.has_hit


@pytest.mark.parametrize(
    "situation", ["answered", "error", "overload", "waits for a slot", "hook fails", "end"], ids=lambda name: name
)
async def test_a_cancel_after_any_step_leaves_everything_consistent(
    connect: Any, autojump_clock: trio.testing.MockClock, situation: str
) -> None:
    """R14: after the k-th step of any task during the call, for every k; F15, R9."""
    steps = 1
    while await cut_once(connect, situation, steps):
        steps += 1

    assert steps > 10, "the cuts did not reach the wire"
