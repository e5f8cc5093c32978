"""The simulator's command: what it says first and last, and its exit status."""

import pytest

import tutti_side.testing.simulate as command
from tutti_side.testing.simulation import Result, SimulationBed


def test_a_run_that_passes_says_its_seed_first_and_passed_last(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    status = command.main(["--seed", "5", "--seeds", "2"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0].startswith("SEED=5 SEEDS=2 JOBS=14 PROVIDER=codex ")
    assert lines[-1].startswith("PASSED 2 seeds, digest ")


def test_a_trace_is_printed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    command.main(["--seed", "5", "--trace"])

    assert "> thread/fork " in capsys.readouterr().out


def test_a_run_that_fails_ends_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Source: our choice."""

    def fail(seed: int, bed: SimulationBed, *, jobs: int) -> Result:
        violations = ("R1 a foreign text reached s0",) if seed == 8 else ()
        return Result(seed=seed, digest="d", violations=violations, counts={}, trace=())

    monkeypatch.setattr(command, "simulate", fail)

    status = command.main(["--seed", "7", "--seeds", "5", "--jobs", "3"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert "R1 a foreign text reached s0" in lines
    assert lines[-1] == ("reproduce: python -m tutti_side.testing.simulate --seed 8 --jobs 3 --provider codex --trace")


def test_an_unknown_test_bed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    with pytest.raises(SystemExit):
        command.main(["--provider", "nobody"])

    assert "no test bed 'nobody' that offers a simulation is installed" in capsys.readouterr().err
