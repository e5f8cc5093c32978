"""Who survives whose end: a forking shell command, a daemon of it and a deaf tool server, against every way to end."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tutti_side.jsonrpc.transports import stdio
from tutti_side.jsonrpc.transports._orphans import end_orphans
from tutti_side.jsonrpc.transports.process_table import has_environment_entry, read_table
from tutti_side.jsonrpc.transports.stdio import StdioTransport, open_stdio
from tutti_side.testing.processes import descendants_of, is_alive, wait_no_marked_process, wait_processes_ended

pytestmark = pytest.mark.process

Lab = Any
BOUND_S = 30.0

QUIET = "app-server that ends with its stdin"
DEAF = "app-server that is deaf"
APP_SERVERS = pytest.mark.parametrize("arguments", [[], ["deaf"]], ids=[QUIET, DEAF])


@asynccontextmanager
async def open_zoo(lab: Lab, arguments: list[str]) -> AsyncIterator[tuple[StdioTransport, dict[int, int]]]:
    """Open the zoo; yield it and everything below its guard."""
    async with open_stdio([*lab.zoo, *arguments], env=lab.env) as child:
        assert await child.receive_some(100) == b"ready\n"
        below = descendants_of(child.guard_pid)
        assert_is_a_zoo(lab, child.guard_pid, child.pid, below)
        yield child, below


def assert_is_a_zoo(lab: Lab, guard: int, child: int, below: dict[int, int]) -> None:
    """The three kinds are there, or the tests here would show nothing."""
    table = read_table()
    rows = [table[pid] for pid in below]
    sessions = {row.session for row in rows}
    assert len(sessions) == 3  # the child's with its tool server, the shell command's, the daemon's
    assert guard in sessions
    daemons = [row for row in rows if row.parent == guard and row.pid != child]
    assert len(daemons) == 1  # its parent has gone, so it is the guard's by now
    assert any(row.parent == child and not has_environment_entry(row.pid, lab.marker) for row in rows)


@APP_SERVERS
async def test_nobody_survives_a_normal_close(lab: Lab, arguments: list[str]) -> None:
    """F30: closing kills the leader, grandchildren live on."""
    with trio.fail_after(BOUND_S):
        async with open_zoo(lab, arguments) as (child, below):
            pass
        assert [pid for pid, start in below.items() if is_alive(pid, start)] == []
        assert child.exit_status == (-signal.SIGKILL if arguments else 0)


@APP_SERVERS
async def test_nobody_survives_the_kill_of_the_child(lab: Lab, arguments: list[str]) -> None:
    """T16: SIGKILL orphans grandchildren in other sessions. They end at once, not only when the transport is closed."""
    with trio.fail_after(BOUND_S):
        async with open_zoo(lab, arguments) as (child, below):
            os.kill(child.pid, signal.SIGKILL)
            assert await child.receive_some(1) == b""
            assert (await child.wait_exit()).status == -signal.SIGKILL
            await wait_processes_ended(below)


@APP_SERVERS
async def test_nobody_survives_the_kill_of_the_guard(lab: Lab, arguments: list[str]) -> None:
    """Required: if the guard itself is killed, the host ends what is left, and the stream ends."""
    with trio.fail_after(BOUND_S):
        async with open_zoo(lab, arguments) as (child, below):
            os.kill(child.guard_pid, signal.SIGKILL)
            assert await child.receive_some(1) == b""
            ended = await child.wait_exit()
            assert ended.status is None
            await wait_processes_ended(below)


@APP_SERVERS
async def test_nobody_survives_a_close_with_a_stopped_guard(lab: Lab, arguments: list[str]) -> None:
    """R12: a guard that doesn't answer has a bound, and then the host does its work."""
    with trio.fail_after(BOUND_S):
        async with open_zoo(lab, arguments) as (child, below):
            os.kill(child.guard_pid, signal.SIGSTOP)
        assert [pid for pid, start in below.items() if is_alive(pid, start)] == []


@asynccontextmanager
async def open_host(lab: Lab, mode: str, command: list[str]) -> AsyncIterator[tuple[trio.Process, "Words"]]:
    """Start a host to be killed; yield it, and the words it says, the first of which was heard."""
    host = await trio.lowlevel.open_process([*lab.host, mode, *command], env=lab.env, stdout=subprocess.PIPE)
    assert host.stdout is not None
    words = Words(host.stdout)
    try:
        assert await words.line() == b"opening"
        yield host, words
    finally:
        host.kill()
        with trio.move_on_after(BOUND_S, shield=True):
            await host.wait()
            await host.stdout.aclose()


class Words:
    """The lines of a stream, one by one."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._data = b""

    async def line(self) -> bytes:
        """Return the next line."""
        while b"\n" not in self._data:
            data = await self._stream.receive_some(1000)
            assert data
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        return line


@pytest.mark.parametrize("mode", ["plain", "forked"])
@APP_SERVERS
async def test_nobody_survives_the_kill_of_the_host(lab: Lab, arguments: list[str], mode: str) -> None:
    """R13 when our host is killed; also when it had forked a process that holds a copy of every descriptor of ours."""
    with trio.fail_after(BOUND_S):
        async with open_host(lab, mode, [*lab.zoo, *arguments]) as (host, words):
            who = json.loads(await words.line())
            try:
                below = descendants_of(who["guard"])
                assert_is_a_zoo(lab, who["guard"], who["child"], below)
                guard = {who["guard"]: read_table()[who["guard"]].started_ticks}
                host.kill()
                await wait_processes_ended(below | guard)
            finally:
                if who["copy"]:
                    os.kill(who["copy"], signal.SIGKILL)


async def test_the_child_is_asked_to_end_when_guard_and_host_are_killed_together(lab: Lab) -> None:
    """Our choice: PR_SET_PDEATHSIG is SIGTERM, so that Codex still ends its shell commands when nobody else is left."""
    with trio.fail_after(BOUND_S):
        async with open_host(lab, "plain", ["sh", "-c", "echo; exec sleep 1000"]) as (host, words):
            who = json.loads(await words.line())
            child = {who["child"]: read_table()[who["child"]].started_ticks}
            host.send_signal(signal.SIGSTOP)  # so that it can't do the guard's work
            os.kill(who["guard"], signal.SIGKILL)
            host.kill()
            await wait_processes_ended(child)


async def test_nobody_survives_a_host_that_is_killed_while_it_opens(lab: Lab) -> None:
    """Our choice: PR_SET_PDEATHSIG is SIGTERM: Codex then ends its shell commands itself, when nobody else is left."""
    with trio.fail_after(BOUND_S):
        for moment in range(12):
            async with open_host(lab, "plain", lab.zoo) as (host, _):
                with trio.move_on_after(moment * 0.004):  # not a wait for anything: it is where the axe falls
                    await trio.sleep_forever()
                host.kill()
            await wait_no_marked_process(lab.marker)


async def test_nobody_survives_a_start_that_is_cancelled_in_its_first_moment(lab: Lab) -> None:
    """F32: cancelling the owner leaves nothing, also when it comes before the child had a chance."""
    with trio.fail_after(BOUND_S):
        for _ in range(10):
            with trio.move_on_after(0.015):
                async with open_zoo(lab, []):
                    pass
            assert lab.alive() == []


async def test_many_children_end_side_by_side(lab: Lab) -> None:
    """R12: one child's grace is not another's wait; each ends with all its own and none of its neighbours'."""
    with trio.fail_after(BOUND_S):
        async with open_zoo(lab, []) as (neighbour, below), trio.open_nursery() as nursery:

            async def open_and_close() -> None:
                async with open_zoo(lab, []):
                    pass

            for _ in range(4):
                nursery.start_soon(open_and_close)
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert [pid for pid, start in below.items() if not is_alive(pid, start)] == []
            assert neighbour.exit_status is None


async def test_what_could_not_be_ended_is_logged_by_number_only(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R12: the last step of the ladder is to say so; R2: ids only."""

    def end_but_two(*arguments: Any) -> int:
        return end_orphans(*arguments) + 2

    monkeypatch.setattr(stdio, "end_orphans", end_but_two)
    with trio.fail_after(BOUND_S):
        async with open_zoo(lab, []) as (child, below):
            os.kill(child.guard_pid, signal.SIGKILL)
            await wait_processes_ended(below)
    assert caplog.messages == [f"2 processes below child child (pid {child.pid}) did not end"]
