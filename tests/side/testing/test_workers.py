"""A seed that never ends, or takes its process along, is named all the same: its parent looks from outside."""

import os
import pathlib
import subprocess
import sys

import pytest

SILENCE_S = 8.0
"""Real time: a process has to start, and to run a seed, in less."""

LIMIT_S = 120.0

BED = '''
import os

from tutti_providers.codex.testing.testbed import make_testbed


class Bed:
    """The third run of a process comes to this end; those before are Codex's."""

    def __init__(self):
        self.runs = 0

    def simulate(self, *arguments):
        self.runs += 1
        if self.runs == 3:
            {end}
        return make_testbed().simulate(*arguments)
'''


def run_command(folder: pathlib.Path, end: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulator's command with a test bed of ours, which is installed in a folder."""
    (folder / "ending_bed.py").write_text(BED.format(end=end), "utf-8")
    installed = folder / "ending_bed-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: ending-bed\nVersion: 1\n", "utf-8")
    (installed / "entry_points.txt").write_text("[tutti_side.testbeds]\nending = ending_bed:Bed\n", "utf-8")
    command = [sys.executable, "-m", "tutti_side.testing.simulate", "--provider", "ending", "--processes", "2"]
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [*command, "--silence", str(SILENCE_S), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


@pytest.mark.process
def test_a_seed_with_a_step_that_never_yields_is_named_with_its_stack(tmp_path: pathlib.Path) -> None:
    """R9: nothing in its process could; the command waited for ever. Source: our choice."""
    ran = run_command(tmp_path, "while True: pass", "--seed", "40", "--seeds", "5")

    said = ran.stdout.splitlines()
    assert ran.returncode == 1
    assert said[-2] == f"seed 42, digest unknown: R9 the run has no end: no word for {SILENCE_S:g} s of real time"
    assert said[-1] == "reproduce: python -m tutti_side.testing.simulate --jobs 16 --provider ending --seed 42 --trace"
    assert "ending_bed.py" in ran.stderr


@pytest.mark.process
def test_a_process_that_ends_is_named_by_its_seed_and_the_others_are_run_all_the_same(tmp_path: pathlib.Path) -> None:
    """Each new process gets a seed further. Source: our choice."""
    ran = run_command(tmp_path, "os._exit(7)", "--seed", "40", "--seeds", "4", "--keep-going")

    said = ran.stdout.splitlines()
    assert ran.returncode == 1
    assert "seed 42: R9 the run has no end: its process ended, with status 7" in said
    assert "FAILED 2 of 4 seeds: 42 43" in said
