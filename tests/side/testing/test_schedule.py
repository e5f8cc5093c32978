"""The names of Trio's that a repeatable schedule needs."""

import random

import trio
import trio.testing

from tutti_side.testing._schedule import seeded_schedule


def interleaving(seed: int) -> list[int]:
    """Let five tasks take turns, and return in which order they did."""
    order: list[int] = []

    async def task(number: int) -> None:
        for _ in range(5):
            order.append(number)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(task, number)

    with seeded_schedule(seed):
        trio.run(main)
    return order


def test_trio_still_has_the_names() -> None:
    """Trio promises neither: when this fails, `_schedule` must learn their new place. Source: our choice."""
    assert isinstance(trio._core._run._r, random.Random)
    assert isinstance(trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert {"_tasks", "_children"} <= set(trio._core._run.CancelStatus.__slots__)


def test_the_seed_decides_the_interleaving() -> None:
    """That the names are there doesn't yet mean that Trio heeds them. Source: our choice."""
    assert interleaving(1) == interleaving(1)
    assert len({tuple(interleaving(seed)) for seed in range(20)}) > 15


def cancels(deadlines: bool) -> list[int]:
    """Let a hundred tasks be cancelled in one moment, and return in which order they were."""
    order: list[int] = []

    async def task(number: int) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            order.append(number)
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.CancelScope(deadline=1.0 if deadlines else float("inf")):
            await trio.lowlevel.wait_task_rescheduled(abort)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(task, number)
                await trio.testing.wait_all_tasks_blocked()
            if not deadlines:
                nursery.cancel_scope.cancel()

    with seeded_schedule(1):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return order


def test_what_is_cancelled_in_one_moment_is_cancelled_in_the_same_order_always() -> None:
    """Trio walks sets here, whose order is that of addresses. Source: a run of a seed that could not be repeated."""
    assert cancels(deadlines=False) == cancels(deadlines=False)
    assert cancels(deadlines=True) == list(range(100))


def test_afterwards_the_schedule_is_as_it_was() -> None:
    """A test that runs later must not find its schedule fixed. Source: our choice."""
    run = trio._core._run
    before = (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate(), run.CancelStatus, hasattr(run, "id"))

    interleaving(1)

    after = (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate(), run.CancelStatus, hasattr(run, "id"))
    assert after == before
