"""The simulator's command: what it says first and last, and its exit status."""

import subprocess
import sys
from importlib import metadata

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


def test_a_run_that_passes_says_its_seed_first_and_how_to_repeat_it_last(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    status = command.main(["--seed", "5", "--seeds", "2"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0].startswith("SEED=5 SEEDS=2 JOBS=16 PROVIDER=codex ")
    assert lines[-2].startswith("PASSED 2 seeds, 2 distinct traces, digest ")
    assert lines[-1].startswith("reproduce: ")


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
    assert capsys.readouterr().out.splitlines()[-2].startswith("PASSED 20 seeds, 1 distinct traces, digest ")


@pytest.mark.process
def test_several_processes_find_what_one_finds(capsys: pytest.CaptureFixture[str]) -> None:
    """A seed is the same whoever runs it. Source: our choice."""
    one, two = command.main(["--seeds", "12"]), command.main(["--seeds", "12", "--processes", "2"])

    said = capsys.readouterr().out
    assert (one, two) == (0, 0)
    last = [line for line in said.splitlines() if line.startswith("PASSED 12 seeds, 12 distinct traces, digest ")]
    assert len(last) == 2
    assert last[0] == last[1]


def test_an_unknown_test_bed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    with pytest.raises(SystemExit):
        command.main(["--provider", "nobody"])

    assert "no test bed 'nobody' that offers a simulation is installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seeds", "0"),
        ("--seeds", "-1"),
        ("--seed", "-5"),
        ("--jobs", "0"),
        ("--processes", "0"),
        ("--least", "-1"),
        ("--seconds", "-1"),
        ("--seconds", "nan"),
        ("--seconds", "inf"),
    ],
)
def test_numbers_that_would_run_nothing_or_for_ever_are_refused(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing run would pass; a negative seed draws what its positive one draws. Source: our choice."""
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)

    assert refused.value.code == 2
    assert f"argument {arguments[0]}: it has to be " in capsys.readouterr().err


def test_no_seed_at_all_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    assert command.main(["--seconds", "0"]) == 1

    said = capsys.readouterr().out.splitlines()
    assert "FELL SHORT: only 0 seeds were run, not 1" in said
    assert said[-1].startswith("reproduce: ")
    assert said[-1].endswith(" --seed 0 --seconds 0")


@pytest.mark.parametrize("is_grouped", [False, True])
def test_an_interrupt_says_which_seeds_were_under_way(
    is_grouped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever interrupts a seed that seems to hang wants it again; Trio gives an interrupt in a group. Our choice."""

    def interrupt(seed: int, bed: SimulationBed, *, jobs: int) -> Result:
        if seed == 17:
            raise BaseExceptionGroup("", [KeyboardInterrupt()]) if is_grouped else KeyboardInterrupt
        return result_of(seed, "")

    monkeypatch.setattr(command, "simulate", interrupt)

    status = command.main(["--seed", "3", "--seeds", "50"])

    said = capsys.readouterr().out.splitlines()
    assert status == command.INTERRUPTED_STATUS
    assert said[-2].startswith("INTERRUPTED: 10 seeds had passed")
    assert said[-1].startswith("reproduce: ")
    assert said[-1].endswith(" --seed 13 --seeds 10")


def test_a_seed_that_breaks_the_judge_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of the simulation itself is repeated like any other. Source: our choice."""

    def fail(seed: int, bed: SimulationBed, *, jobs: int) -> Result:
        if seed == 8:
            raise KeyError("a record")
        return result_of(seed, "")

    monkeypatch.setattr(command, "simulate", fail)

    status = command.main(["--seed", "7", "--seeds", "5"])

    said = capsys.readouterr()
    assert status == 1
    assert "seed 8: the simulation itself failed: KeyError" in said.out
    assert said.out.splitlines()[-1].endswith(" --seed 8 --trace")
    assert "Traceback" in said.err


def test_a_test_bed_that_lacks_an_import_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its extra a provider's bed can't be loaded: one line, not a traceback. Source: our choice."""

    def lack(self: metadata.EntryPoint) -> object:
        raise ModuleNotFoundError("No module named 'h11'")

    monkeypatch.setattr(metadata.EntryPoint, "load", lack)

    with pytest.raises(SystemExit):
        command.main([])

    assert "test bed 'codex' can't be loaded: No module named 'h11'; is an extra " in capsys.readouterr().err


@pytest.mark.process
def test_a_reader_that_leaves_gets_no_traceback() -> None:
    """As with ``| head -1``. Source: our choice."""
    ours = [sys.executable, "-m", "tutti_side.testing.simulate", "--seeds", "2"]
    with subprocess.Popen(ours, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        assert ran.stdout.readline().startswith("SEED=0 ")
        ran.stdout.close()
        said = ran.stderr.read()

    assert (said, ran.returncode) == ("", 1)
