"""What a run of the conformance kit says at its end."""

import os
import pathlib
import subprocess
import sys

import pytest

SUITE = '''
from contextlib import asynccontextmanager

from tutti_providers.scripted.testing import ScriptedKitBed
from tutti_side.testing.adapter_suite import AdapterSuite


class Forgetful(ScriptedKitBed):
    """Its agent is given the question alone."""

    def told_model(self):
        return ""


class TestMine(AdapterSuite):
    kit_name = "mine"
    virtual_time = True
    excluded = {"test_closing_twice_is_closing_once": "it closes once"}

    @asynccontextmanager
    async def open_bed(self, directory):
        yield Forgetful(directory)
'''
CONFTEST = 'pytest_plugins = ["tutti_side.testing.pytest_plugin"]\n'


def run_kit(folder: pathlib.Path, source: str, *arguments: str) -> tuple[int, str]:
    """Run pytest as an author does, with no other plugin; return its status and what it printed."""
    (folder / "conftest.py").write_text(CONFTEST, "utf-8")
    (folder / "test_mine.py").write_text(source, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return run.returncode, run.stdout


@pytest.mark.process
def test_the_report_counts_and_names_what_is_excluded_with_its_reason(tmp_path: pathlib.Path) -> None:
    """Our choice: who reads the end of a run knows what conforms, and in what not; a failure shows what differs."""
    status, said = run_kit(tmp_path, SUITE, "-k", "test_closing or given_what_its_source")
    assert status == 1
    assert "kit mine: 2 passed, 1 failed, 1 excluded" in said
    assert "  test_closing_twice_is_closing_once: it closes once" in said
    assert "AssertionError: assert 'this was said' in ''" in said


@pytest.mark.process
def test_a_suite_that_excludes_what_there_is_not_fails_the_run(tmp_path: pathlib.Path) -> None:
    """Our choice: an exclusion that a newer kit has no case for is a mistake to be seen."""
    status, said = run_kit(tmp_path, SUITE.replace("test_closing_twice", "test_closing_thrice"))
    assert status not in (0, 1)
    assert "which is no case of the kit" in said


@pytest.mark.process
def test_a_run_without_the_kit_says_nothing_of_it(tmp_path: pathlib.Path) -> None:
    """Our choice."""
    status, said = run_kit(tmp_path, "def test_something(): pass\n")
    assert (status, "kit" in said.replace("pytest", "")) == (0, False)
