import os
import subprocess
import uuid

import pytest
import trio

from tutti_side.jsonrpc.transports.process_table import read_process
from tutti_side.testing.cuts import Cut, cut_at_every_step
from tutti_side.testing.processes import (
    descendants_of,
    is_alive,
    marked_processes,
    wait_no_marked_process,
    wait_processes_ended,
)

pytestmark = pytest.mark.process

BOUND_S = 30.0


def start_pair(marker: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a marked shell whose child has an empty environment; return it and the child's pid."""
    name, _, value = marker.partition("=")
    shell = subprocess.Popen(
        ["sh", "-c", "env -i /bin/sleep 1000 & echo $!; wait"],
        env={"PATH": os.environ["PATH"], name: value},
        stdout=subprocess.PIPE,
    )
    assert shell.stdout is not None
    with shell.stdout:
        return shell, int(shell.stdout.readline())


async def test_the_marked_and_what_descends_from_them_are_found_until_they_have_ended() -> None:
    """Our choice: a child with another environment is found below its parent; a zombie is not alive."""
    marker = f"TUTTI_TEST={uuid.uuid4().hex}"
    assert marked_processes(marker) == []
    shell, sleep = start_pair(marker)
    assert marked_processes(marker) == sorted([shell.pid, sleep])
    below = descendants_of(shell.pid)
    assert list(below) == [sleep]
    assert is_alive(sleep, below[sleep])
    assert not is_alive(sleep, below[sleep] + 1)  # another process with the same pid
    os.kill(sleep, 9)
    with trio.fail_after(BOUND_S):
        await wait_processes_ended(below)
        await wait_no_marked_process(marker)  # the shell may be a zombie: nobody has waited for it
    assert shell.wait(BOUND_S) == 0  # noqa: ASYNC222 - it has ended


CUTS = {"wait for processes": ("wait_no_marked_process", "wait_processes_ended")}


async def test_a_wait_for_processes_is_harmless_to_cut() -> None:
    """R14: it waits for what ends by itself, and holds nothing."""
    inside: set[str] = set()

    async def once(cut: Cut) -> None:
        marker = f"TUTTI_TEST_CUT={uuid.uuid4().hex}"
        name, _, value = marker.partition("=")
        child = await trio.lowlevel.open_process(["sleep", "0.02"], env={"PATH": os.environ["PATH"], name: value})
        row = read_process(child.pid)
        assert row is not None
        with cut.cancelling():
            await wait_no_marked_process(marker)
            await wait_processes_ended({child.pid: row.started_ticks})
        with trio.fail_after(30):
            await wait_no_marked_process(marker)
            await child.wait()

    for _ in range(5):  # the second wait is one step long, and the first as long as the child takes
        inside |= (await cut_at_every_step(once, run_s=60)).inside
        if inside >= set(CUTS["wait for processes"]):
            return
    raise AssertionError(f"{set(CUTS['wait for processes']) - inside} was not cut")
