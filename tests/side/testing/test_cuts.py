"""The cutter itself: it falls after each step once, it sees what it hits, and it says where a run failed."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tutti_side.testing.cuts import Cut, CutsUnendingError, CutUnusedError, cut_at_every_step

CUTS = {"the cutter": ("cut_at_every_step",)}


class Counter:
    """Something that is cut."""

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint()


class Child(Counter):
    """Inherits what is cut."""


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    await trio.lowlevel.checkpoint()
    yield
    await trio.lowlevel.checkpoint()


async def test_a_call_is_cut_after_each_of_its_steps_and_then_runs_to_its_end() -> None:
    """Our choice: three checkpoints and the start of the block are four places; the last run is uncut."""
    reached: list[int] = []

    async def once(cut: Cut) -> None:
        done = 0
        with cut.cancelling():
            for _ in range(3):
                await trio.lowlevel.checkpoint()
                done += 1
        reached.append(done)

    report = await cut_at_every_step(once)

    assert reached == [0, 1, 2, 3]
    assert report.cuts == 3


async def test_a_cut_falls_in_steps_of_other_tasks_too_and_cancels_the_block_alone() -> None:
    """Our choice: a step is a turn of any task; what stands outside the block is not cancelled."""
    ends: list[str] = []

    async def once(cut: Cut) -> None:
        async with trio.open_nursery() as nursery:
            asked, answered = trio.Event(), trio.Event()

            async def serve() -> None:
                await asked.wait()
                for _ in range(5):
                    await trio.lowlevel.checkpoint()
                answered.set()

            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            with cut.cancelling() as scope:
                asked.set()
                await answered.wait()
            ends.append("cut" if scope.cancelled_caught else "answered")
            await answered.wait()

    report = await cut_at_every_step(once)

    assert report.cuts > 5
    assert ends[:6] == ["cut"] * 6
    assert ends[-1] == "answered"


async def test_the_report_names_what_was_hit_by_the_class_of_its_object() -> None:
    """Our choice: inherited methods, context managers on their way in and out, and tasks below the block."""

    async def once(cut: Cut) -> None:
        with cut.cancelling():
            async with opened(), trio.open_nursery() as nursery:
                nursery.start_soon(Child().wait)
                nursery.start_soon(Child().wait)

    report = await cut_at_every_step(once)

    assert {"opened", "Child.wait"} <= report.inside
    assert "Counter.wait" not in report.inside


async def test_a_failed_run_says_after_which_step_it_was_cut_and_how_to_get_there_again() -> None:
    """Our choice."""

    async def once(cut: Cut) -> None:
        done = 0
        with cut.cancelling():
            for _ in range(3):
                await Counter().wait()
                done += 1
        assert done != 1

    with pytest.raises(AssertionError) as caught:
        await cut_at_every_step(once, seed=7)

    assert any("step 2" in note and "Counter.wait" in note for note in caught.value.__notes__)
    assert any("seed=7, first=2" in note for note in caught.value.__notes__)
    with pytest.raises(AssertionError):
        await cut_at_every_step(once, seed=7, first=2, cuts_max=1)


async def test_the_same_seed_is_the_same_schedule_up_to_the_cut() -> None:
    """Our choice: each run repeats the one before it."""

    async def trace(seed: int) -> list[str]:
        runs: list[str] = []

        async def once(cut: Cut) -> None:
            steps: list[str] = []

            async def walk(name: str) -> None:
                for _ in range(4):
                    steps.append(name)
                    await trio.lowlevel.checkpoint()

            with cut.cancelling():
                async with trio.open_nursery() as nursery:
                    for name in "abcd":
                        nursery.start_soon(walk, name)
            runs.append("".join(steps))

        await cut_at_every_step(once, seed=seed)
        assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(runs))
        return runs

    assert await trace(1) == await trace(1)
    assert await trace(1) != await trace(2)


async def test_something_else_can_strike_and_its_failure_is_not_lost() -> None:
    """Our choice: Trio itself only logs what an instrument raises."""
    struck: list[int] = []

    async def once(cut: Cut) -> None:
        with cut.striking(lambda: struck.append(cut.after_steps)):
            await trio.lowlevel.checkpoint()

    assert (await cut_at_every_step(once)).cuts == len(struck) == 1

    def fail() -> None:
        raise ValueError("strike")

    async def failing(cut: Cut) -> None:
        with cut.striking(fail):
            await trio.lowlevel.checkpoint()

    with pytest.raises(ValueError, match="strike"):
        await cut_at_every_step(failing)


async def test_what_never_ends_by_itself_what_hangs_and_what_is_never_cut_are_errors(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Our choice: each loop and each wait of the cutter is bounded."""

    async def endless(cut: Cut) -> None:
        with cut.cancelling():
            while True:
                await Counter().wait()

    async def hanging(cut: Cut) -> None:
        with cut.cancelling():
            await trio.lowlevel.checkpoint()
        await trio.sleep_forever()

    async def uncut(cut: Cut) -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(CutsUnendingError):
        await cut_at_every_step(endless, cuts_max=20)
    with pytest.raises(trio.TooSlowError):
        await cut_at_every_step(hanging, run_s=100)
    with pytest.raises(CutUnusedError):
        await cut_at_every_step(uncut)


async def test_a_task_that_a_run_leaves_behind_is_an_error() -> None:
    """R13: nothing of a run outlives it."""
    async with trio.open_nursery() as nursery:

        async def once(cut: Cut) -> None:
            with cut.cancelling():
                nursery.start_soon(trio.sleep_forever)
                await trio.lowlevel.checkpoint()

        with pytest.raises(AssertionError, match="1 tasks are left"):
            await cut_at_every_step(once)
        nursery.cancel_scope.cancel()


async def test_a_cancel_of_the_driver_ends_it_at_any_of_its_own_steps() -> None:
    """R14: the cutter, cut by itself."""
    ends: list[bool] = []

    async def inner(cut: Cut) -> None:
        with cut.cancelling():
            await Counter().wait()

    async def once(cut: Cut) -> None:
        with cut.cancelling() as scope:
            await cut_at_every_step(inner)
        ends.append(scope.cancelled_caught)

    report = await cut_at_every_step(once)

    assert ends[0]
    assert not ends[-1]
    assert report.inside >= set(CUTS["the cutter"])
