"""Who survives whose end, with the real Codex, its shell commands, their daemons and a deaf tool server."""

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import Answer, ModelScript, Pause, Reply, Say, ToolServer, run_command
from tutti_side import SessionExpiredError, SideExpiredError
from tutti_side.testing.processes import descendants_of, is_alive, wait_processes_ended

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any
Listen = Callable[[trio.Nursery, Any], Any]

TASK = "Run it"
QUESTION = "What does it do?"
REAL_HOST = pathlib.Path(__file__).with_name("real_host.py")
IDLE_S = 12
"""Longer than Trio keeps an idle worker thread: the one that started the guard has ended by then."""

COMMAND = """\
(setsid sleep 9876 > /dev/null 2>&1 &)
sh -c 'sleep 9877; echo never'
echo never"""
"""A forking shell command, and a `setsid` daemon of it."""

ZOO = ("sleep 9876", "sleep 9877", "mcp_server.py --ignore-eof --ignore-term")
"""How the daemon, the grandchild of the shell and the tool servers are told in the table of processes."""

SCRIPT = ModelScript(
    answers=(
        Answer(replies=(Reply(steps=(run_command(COMMAND),)), Reply(steps=(Say(tokens=("over",)),))), when=TASK),
        Answer.of(Say(tokens=("It ", "runs ")), Pause(gate="side"), Say(tokens=("on.",)), when=QUESTION),
    )
)
HOME: dict[str, Any] = {
    "approval_policy": "never",
    "sandbox_mode": "danger-full-access",
    "tool_servers": [ToolServer(options=("--ignore-eof", "--ignore-term"))],
}


def command_line(pid: int) -> str:
    """The words of a process; nothing when it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


async def wait_zoo(guard_pid: int) -> dict[int, int]:
    """Wait until all kinds run: daemon, grandchild, a tool server for each thread; return all below the guard."""
    while True:
        below = descendants_of(guard_pid)
        lines = [command_line(pid) for pid in below]
        if all(any(line == kind or line.endswith(f"/{kind}") for line in lines) for kind in ZOO):
            return below
        await trio.sleep(0.01)  # nobody tells us of a process that isn't our child


async def start_zoo(bench: Bench, host: Any) -> tuple[Any, Any, Any, Any]:
    """Start a parent whose turn runs a command, and a Side whose turn is held in its middle."""
    session = await host.start_session(cwd=bench.workspace)
    turn = await session.send(TASK)
    side = await session.open_side(subscribe=True)
    side_turn = await side.send(QUESTION)
    await bench.wire.wait_said("runs ")
    return session, turn, side, side_turn


async def test_a_host_that_stops_with_a_side_open_and_both_turns_active_leaves_no_process(lab: Lab) -> None:
    """R13, F30, T16, T17: closing reaches the shell command's session, its daemon and the server that is deaf."""
    async with lab.bench(SCRIPT, **HOME) as bench:
        async with bench.host() as host:
            _, turn, side, side_turn = await start_zoo(bench, host)
            below = await wait_zoo(bench.wire.transport.guard_pid)
            assert turn.is_active
            assert side_turn.is_active
        assert [pid for pid, start in below.items() if is_alive(pid, start)] == []
        assert lab.left_over() == []
        with pytest.raises(SideExpiredError) as caught:
            await side.ask("anything")
        assert caught.value.reason == "host_stopped"
        assert (await side_turn.wait()).status == "canceled"
        assert (await turn.wait()).status == "canceled"


class Oops(Exception):
    """The user's own."""


async def test_the_users_exception_leaves_as_itself_and_no_process_stays(lab: Lab) -> None:
    """Architecture, Ends; R13: through the Side's block and the host's, with both turns active."""
    async with lab.bench(SCRIPT, **HOME) as bench:
        error = Oops()
        with pytest.raises(Oops) as caught:
            await raise_in_a_side(bench, error)
        assert caught.value is error
        assert lab.left_over() == []


async def raise_in_a_side(bench: Bench, error: Oops) -> None:
    async with bench.host() as host:
        session, _, _, _ = await start_zoo(bench, host)
        await wait_zoo(bench.wire.transport.guard_pid)
        async with session.side():
            raise error


async def test_a_host_that_is_cancelled_in_mid_turn_leaves_no_process(lab: Lab) -> None:
    """F32, R13, R14: cancelling the owner."""
    async with lab.bench(SCRIPT, **HOME) as bench:
        with trio.CancelScope() as scope:
            async with bench.host() as host:
                await start_zoo(bench, host)
                await wait_zoo(bench.wire.transport.guard_pid)
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert lab.left_over() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_when_the_process_ends_both_turns_and_all_who_wait_are_told_and_nobody_survives(
    lab: Lab, listen: Listen, number: signal.Signals
) -> None:
    """R8, R9, R13, T16: a SIGKILL orphans what Codex started; after a SIGTERM its status 0 is no turn's completion."""
    async with lab.bench(SCRIPT, **HOME) as bench, bench.host() as host, trio.open_nursery() as nursery:
        session, turn, side, side_turn = await start_zoo(bench, host)
        heard = listen(nursery, side.events())
        parent = listen(nursery, session.events())
        below = await wait_zoo(bench.wire.transport.guard_pid)
        ended: list[Exception] = []

        async def expect(wait: Callable[[], Any]) -> None:
            try:
                await wait()
            except Exception as error:
                ended.append(error)

        async with trio.open_nursery() as waiters:
            for wait in (turn.wait, side_turn.wait):
                waiters.start_soon(expect, wait)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(bench.wire.transport.pid, number)
        assert {(type(error), error.reason) for error in ended} == {  # type: ignore[attr-defined]
            (SessionExpiredError, "lost"),
            (SideExpiredError, "lost"),
        }
        await wait_processes_ended(below)

        for late in (side.ask, side.send):
            with pytest.raises(SideExpiredError) as expired:
                await late("anything")
            assert expired.value.reason == "lost"
        with pytest.raises(SessionExpiredError):
            await session.send("anything")
        with pytest.raises(SessionExpiredError):
            await session.ask("anything")
        with pytest.raises(SideExpiredError):
            await host.controller.open_side(side.scope.ref, session.ref, side.scope.request_id)
        await side.close()
        await session.close()
        assert host.statistics().sides == {}
        assert host.statistics().sessions == 0

        again = await host.start_session(cwd=bench.workspace)
        assert (await again.ask("hello")).text == "Done."
        assert len(bench.wires) == 2
    assert (heard.kinds[-1], heard.events[-1].reason) == ("SessionExpired", "lost")
    assert (parent.kinds[-1], parent.events[-1].reason) == ("SessionExpired", "lost")
    assert heard.tokens == ["It ", "runs "]


async def test_an_ask_that_runs_when_the_process_is_killed_raises_that_its_side_expired(lab: Lab) -> None:
    """R8, R9: the shortest thing a user writes."""
    async with lab.bench(SCRIPT, **HOME) as bench, bench.host() as host:
        session, _, side, _ = await start_zoo(bench, host)
        await wait_zoo(bench.wire.transport.guard_pid)
        async with session.side() as other, trio.open_nursery() as nursery:

            async def kill() -> None:
                await bench.model.wait_reached("side", 2)
                os.kill(bench.wire.transport.pid, signal.SIGKILL)

            nursery.start_soon(kill)
            with pytest.raises(SideExpiredError) as caught:
                await other.ask(QUESTION)
            assert caught.value.reason == "lost"
        assert not side.is_open


@pytest.mark.parametrize(
    ("mode", "idle_s"), [("plain", 0), ("forked", 0), ("plain", IDLE_S)], ids=["plain", "forked", "idle"]
)
async def test_nobody_survives_the_kill_of_the_host_in_mid_turn(lab: Lab, mode: str, idle_s: int) -> None:
    """R13: also when the host had forked a process that holds a copy of all its descriptors."""
    async with lab.bench(SCRIPT, **HOME) as bench:
        name, _, value = lab.marker.partition("=")
        host = await trio.lowlevel.open_process(
            [sys.executable, str(REAL_HOST), mode, str(bench.workspace)],
            env={**bench.environ, name: value},
            stdout=subprocess.PIPE,
        )
        copy = 0
        try:
            assert host.stdout is not None
            who = json.loads(bytes(await host.stdout.receive_some(1000)))
            copy = who["copy"]
            below = await wait_zoo(who["guard"])
            assert who["child"] in below
            guard = {pid: start for pid, start in descendants_of(host.pid).items() if pid == who["guard"]}
            assert len(guard) == 1
            # The one real sleep in these tests: what is bound to the thread that started the guard dies with it, some
            # ten idle seconds later, and no clock of ours moves the one by which Trio lets that thread go.
            await trio.sleep(idle_s)
            assert [pid for pid, start in (below | guard).items() if not is_alive(pid, start)] == []
            host.kill()
            await wait_processes_ended(below | guard)
        finally:
            host.kill()
            if copy:
                os.kill(copy, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await host.wait()
            if host.stdout is not None:
                await host.stdout.aclose()
