"""The two names of Trio's that a repeatable schedule needs."""

import random

import trio

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


def test_trio_still_has_the_two_names() -> None:
    """Trio promises neither: when this fails, `_schedule` must learn their new place. Source: our choice."""
    assert isinstance(trio._core._run._r, random.Random)
    assert isinstance(trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING, bool)


def test_the_seed_decides_the_interleaving() -> None:
    """That the names are there doesn't yet mean that Trio heeds them. Source: our choice."""
    assert interleaving(1) == interleaving(1)
    assert len({tuple(interleaving(seed)) for seed in range(20)}) > 15


def test_afterwards_the_schedule_is_as_it_was() -> None:
    """A test that runs later must not find its schedule fixed. Source: our choice."""
    run = trio._core._run
    before = (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate())

    interleaving(1)

    assert (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()) == before
