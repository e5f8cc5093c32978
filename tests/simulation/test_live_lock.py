"""A run always ends: one whose tasks spin, so that the virtual clock stands still, is cut off and says who spins."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tutti_providers.codex import _closing
from tutti_side.testing import simulate as command
from tutti_side.testing.simulate import find_bed
from tutti_side.testing.simulation import Result, _live_lock, simulate

STEPS_MAX = 60_000
"""Twice what a seed may take; the real bound takes half a minute to reach."""

Plant = Callable[[], Awaitable[None]]


async def spin() -> None:
    """Give all others their turn, and never wait for anything."""
    while True:  # noqa: ASYNC110 - spinning is the fault
        await trio.lowlevel.checkpoint()


async def spin_behind_a_shield() -> None:
    """The same where no cancel comes to, until its deadline, which needs the clock to move."""
    with trio.move_on_after(5.0, shield=True):
        await spin()


def run_with(patch: pytest.MonkeyPatch, plant: Plant) -> Result:
    """Run a seed in which every unsubscribe spins."""

    async def quietly(*_arguments: Any, **_named: Any) -> bool:
        await plant()
        return True

    patch.setattr(_live_lock, "STEPS_MAX", STEPS_MAX)
    patch.setattr(_closing, "_quietly", quietly)
    return simulate(0, find_bed("codex"))


@pytest.mark.parametrize("plant", [spin, spin_behind_a_shield])
def test_a_run_whose_clock_stands_still_is_cut_off_and_says_who_spins(
    monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    """R9: such a run hung for ever, and nothing named its seed. Source: our choice."""
    result = run_with(monkeypatch, plant)

    first = next(violation for violation in result.violations if f"no end after {STEPS_MAX} steps" in violation)
    assert first.startswith("R9 at ")
    assert "of 1000 more took: " in first
    assert not any("the run itself ended by" in violation for violation in result.violations)


def test_a_run_that_is_cut_off_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are counted, not seconds, so that the same seed is cut off at the same step. Source: our choice."""
    one, again = run_with(monkeypatch, spin), run_with(monkeypatch, spin)

    assert one.digest == again.digest
    assert one.violations == again.violations


def test_the_command_names_a_seed_that_was_cut_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Source: our choice."""
    result = run_with(monkeypatch, spin)
    monkeypatch.undo()
    monkeypatch.setattr(command, "simulate", lambda seed, bed, *, jobs: result)

    status = command.main(["--seed", "0"])

    said = capsys.readouterr().out.splitlines()
    assert status == 1
    assert said[-2].startswith(f"seed 0, digest {result.digest}: R9 ")
    assert said[-1] == "reproduce: python -m tutti_side.testing.simulate --jobs 16 --provider codex --seed 0 --trace"


def test_no_seed_comes_near_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that healthy runs meet would be a false alarm. Source: our choice."""
    monkeypatch.setattr(_live_lock, "STEPS_MAX", _live_lock.STEPS_MAX // 25)
    bed = find_bed("codex")

    assert [violation for seed in range(20) for violation in simulate(seed, bed).violations] == []
