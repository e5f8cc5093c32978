"""The names of Trio's that a repeatable schedule needs."""

import random

import pytest
import trio
import trio.testing

from tutti_side.testing._schedule import seeded_schedule

TASKS = 5

KEPT = 50
"""Objects that are kept after each run, so that what comes later lies at other addresses."""


def interleaving(seed: int) -> list[int]:
    """Let five tasks take turns, and return in which order they did."""
    order: list[int] = []

    async def task(number: int) -> None:
        for _ in range(5):
            order.append(number)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(TASKS):
                nursery.start_soon(task, number)

    with seeded_schedule(seed):
        trio.run(main)
    return order


def test_trio_still_has_the_names() -> None:
    """Trio promises none of them: when this fails, `_schedule` must learn their new place. Source: our choice."""
    run = trio._core._run
    assert isinstance(run._r, random.Random)
    assert isinstance(run._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert {"_tasks", "_children"} <= set(run.CancelStatus.__slots__)
    assert callable(run.CancelStatus.__attrs_post_init__)
    assert callable(run.Deadlines.add)


def test_the_seed_decides_the_interleaving() -> None:
    """That the names are there doesn't yet mean that Trio heeds them. Source: our choice."""
    assert interleaving(1) == interleaving(1)
    assert len({tuple(interleaving(seed)) for seed in range(20)}) > 15


def told_order(seed: int, *, deadline: float, own_scopes: bool) -> tuple[int, ...]:
    """Cancel five tasks in one moment, and return in which order Trio told them.

    Args:
      seed: of the schedule.
      deadline: of each task's own scope; infinite: all are cancelled by one scope around them.
      own_scopes: whether they have a scope each.
    """
    told: list[int] = []

    async def wait(number: int) -> None:
        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            told.append(number)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def task(number: int) -> None:
        if own_scopes:
            with trio.CancelScope(deadline=deadline):
                await wait(number)
        else:
            await wait(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(TASKS):
                nursery.start_soon(task, number)
            await trio.testing.wait_all_tasks_blocked()
            if deadline == float("inf"):
                nursery.cancel_scope.cancel(reason="all are told at once")

    with seeded_schedule(seed):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return tuple(told)


@pytest.mark.parametrize(
    ("deadline", "own_scopes"),
    [
        pytest.param(float("inf"), False, id="tasks_of_one_scope"),
        pytest.param(float("inf"), True, id="scopes_inside_one"),
        pytest.param(1.0, True, id="deadlines_at_one_moment"),
    ],
)
def test_the_seed_decides_who_is_told_first_of_a_cancel(deadline: float, own_scopes: bool) -> None:
    """A fixed bug: addresses decided, so a seed could not always be repeated. Source: our choice."""
    kept: list[object] = []
    seen: set[tuple[int, ...]] = set()
    for _ in range(20):
        seen.add(told_order(1, deadline=deadline, own_scopes=own_scopes))
        kept.extend(trio.CancelScope() for _ in range(KEPT))

    assert len(seen) == 1
    assert sorted(seen.pop()) == list(range(TASKS))
    others = {told_order(seed, deadline=deadline, own_scopes=own_scopes) for seed in range(20)}
    assert len(others) > 10, "the order is fixed, not drawn"


def test_afterwards_the_schedule_is_as_it_was() -> None:
    """A test that runs later must not find its schedule fixed; blocks may nest. Source: our choice."""
    run = trio._core._run

    def state() -> tuple[object, ...]:
        methods = (run.CancelStatus.__attrs_post_init__, run.Deadlines.add)
        return (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate(), *methods)

    before = state()

    with seeded_schedule(2):
        inside = state()
        interleaving(1)
        assert state() == inside
    assert state() == before
