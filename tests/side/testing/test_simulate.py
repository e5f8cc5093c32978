"""The simulator's command: what it says first and last, and its exit status."""

import pytest

import tutti_side.testing.simulate as command
from tutti_side.testing.simulation import Result, SimulationBed


def result_of(seed: int, violation: str) -> Result:
    """Make what one seed comes to; it knows one fault point, which never struck."""
    return Result(
        seed=seed,
        digest="d",
        violations=(violation,) if violation else (),
        outcomes={},
        faults={"late_answer": "an answer comes late"},
        impossible={},
        struck={},
        met=(),
        counted={},
        entries=(),
    )


def test_a_run_that_passes_says_its_seed_first_and_passed_last(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    status = command.main(["--seed", "5", "--seeds", "2"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0].startswith("SEED=5 SEEDS=2 JOBS=16 PROVIDER=codex ")
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
        return result_of(seed, "R1 a foreign text reached s0" if seed == 8 else "")

    monkeypatch.setattr(command, "simulate", fail)

    status = command.main(["--seed", "7", "--seeds", "5", "--jobs", "3"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert "seed 8: R1 a foreign text reached s0" in lines
    assert lines[-1] == "reproduce: python -m tutti_side.testing.simulate --jobs 3 --provider codex --seed 8 --trace"


def test_enough_seeds_that_meet_too_little_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Source: our choice: a fault point that never strikes tests nothing."""
    monkeypatch.setattr(command, "simulate", lambda seed, bed, *, jobs: result_of(seed, ""))
    monkeypatch.setattr(command, "COVERED_SEEDS", 20)

    few, enough = command.main(["--seeds", "19"]), command.main(["--seeds", "20"])

    said = capsys.readouterr().out
    assert (few, enough) == (0, 1)
    assert "FELL SHORT: the fault point late_answer never struck" in said
    assert "FELL SHORT: no sample has told in_flight, so its bound has judged nothing" in said
    assert said.splitlines()[-1].startswith("reproduce: ")


def test_fewer_seeds_than_demanded_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that is too slow must not pass for one that tried. Source: our choice."""
    status = command.main(["--seconds", "0", "--least", "10"])

    assert status == 1
    assert "FELL SHORT: only 0 seeds were run, not 10" in capsys.readouterr().out


def test_a_run_by_time_counts_its_seeds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    clock = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(command, "simulate", lambda seed, bed, *, jobs: result_of(seed, ""))

    status = command.main(["--seed", "40", "--seconds", "3"])

    assert status == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASSED 20 seeds, digest ")


@pytest.mark.process
def test_several_processes_find_what_one_finds(capsys: pytest.CaptureFixture[str]) -> None:
    """A seed is the same whoever runs it. Source: our choice."""
    one, two = command.main(["--seeds", "12"]), command.main(["--seeds", "12", "--processes", "2"])

    said = capsys.readouterr().out
    assert (one, two) == (0, 0)
    last = [line for line in said.splitlines() if line.startswith("PASSED 12 seeds, digest ")]
    assert len(last) == 2
    assert last[0] == last[1]


def test_an_unknown_test_bed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    with pytest.raises(SystemExit):
        command.main(["--provider", "nobody"])

    assert "no test bed 'nobody' that offers a simulation is installed" in capsys.readouterr().err
