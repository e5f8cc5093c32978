"""What an adapter does that no cancel ends: the case fails all the same, and says where that was."""

import pathlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tutti_providers.scripted.testing import ScriptedKitBed
from tutti_side.testing.adapter_suite import AdapterSuite, CaseHangsError

PROCESS_S = 120
"""Real time after which a process that hangs is killed."""


async def shield_itself(stage: Any) -> None:
    """Wait for ever, and let no cancel in."""
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


async def shield_itself_again(stage: Any) -> None:
    """The same, twice: what falls is built again."""
    try:
        await shield_itself(stage)
    finally:
        await shield_itself(stage)  # noqa: ASYNC102 - the mistake that is tested


OUTSIDE = """
import pathlib, sys, time
from contextlib import asynccontextmanager
import trio
from tutti_providers.scripted.testing import ScriptedKitBed
from tutti_side.testing.adapter_suite import AdapterSuite, CaseHangsError, _hard_end

async def swallow_each_cancel(stage):
    while True:
        try:
            await trio.sleep_forever()
        except BaseException:
            continue

async def block(stage):
    time.sleep(3600)

class Suite(AdapterSuite):
    virtual_time = True
    bound_s = 0.2

    @asynccontextmanager
    async def open_bed(self, directory):
        yield ScriptedKitBed(directory)

_hard_end.GRACE_S = 0.2
try:
    Suite().run_case(globals()[sys.argv[1]], pathlib.Path(sys.argv[2]))
except CaseHangsError as error:
    print(error, flush=True)
"""
"""A run that is ended from outside leaves coroutines that were never closed, so it has a process of its own."""


class Suite(AdapterSuite):
    """Cases over the scripted provider."""

    virtual_time = True

    @asynccontextmanager
    async def open_bed(self, directory: pathlib.Path) -> AsyncIterator[ScriptedKitBed]:
        """Open one."""
        yield ScriptedKitBed(directory)


@pytest.mark.parametrize("hang", [shield_itself, shield_itself_again])
def test_a_case_that_shields_itself_ends_and_says_where_it_was(
    hang: Callable[[Any], Awaitable[None]], tmp_path: pathlib.Path
) -> None:
    """R12: a shield without a deadline would hold up the whole kit."""
    with pytest.raises(CaseHangsError, match=r"still there: .*test_hard_end\.py:\d+"):
        Suite().run_case(hang, tmp_path)


@pytest.mark.process
@pytest.mark.parametrize("hang", ["swallow_each_cancel", "block"])
def test_a_case_for_which_the_clock_stands_still_is_ended_from_outside(hang: str, tmp_path: pathlib.Path) -> None:
    """Our choice: who swallows each cancel, or blocks, ends in real time."""
    command = [sys.executable, "-c", OUTSIDE, hang, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROCESS_S)

    assert ran.stdout.startswith("it spins or blocks at ")


def test_an_alarm_that_is_the_authors_own_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Our choice: a plugin that bounds each test has set it already."""
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))

    async def ring(stage: Any) -> None:
        signal.raise_signal(signal.SIGALRM)
        await trio.lowlevel.checkpoint()

    try:
        Suite().run_case(ring, tmp_path)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert heard == [signal.SIGALRM]


def test_a_case_that_only_hangs_is_cancelled_as_ever(tmp_path: pathlib.Path) -> None:
    """Our choice: no shield falls that keeps to its deadline."""

    async def hang(stage: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10) as scope:
                await trio.sleep(5)
            assert not scope.cancelled_caught

    with pytest.raises(trio.TooSlowError):
        Suite().run_case(hang, tmp_path)
