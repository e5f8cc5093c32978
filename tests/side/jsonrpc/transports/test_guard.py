"""The guard by itself: its launch, what it withstands, whom it spares."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest
import trio

from tutti_side.jsonrpc.transports import _guard, _orphans
from tutti_side.jsonrpc.transports.process_table import ProcessRow, read_process
from tutti_side.jsonrpc.transports.stdio import open_stdio

pytestmark = pytest.mark.process

Lab = Any
BOUND_S = 30.0

DEADLY = [
    number
    for number in signal.valid_signals()
    if number not in {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGCHLD, 32, 33}
]


def start_guard(lab: Lab, host: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the script as a host would, with another idea of who the host is."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _guard.__file__, str(theirs.fileno()), str(host)],
            pass_fds=(theirs.fileno(),),
            env=lab.env,
        )
    ours.settimeout(BOUND_S)
    return process, ours


def start_stranger() -> subprocess.Popen[bytes]:
    """Start a process that has nothing to do with any guard."""
    return subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"]}, start_new_session=True)


def children_and_zombies(pid: int) -> list[str]:
    """Return the pids of the children, the unreaped ones included."""
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize(
    ("command", "env", "cwd"),
    [
        (["a"], {}, None),
        (["a", "", "b c\n"], {"X": "", "Y": "1=2", "Z": "\n"}, "/tmp/ä"),
        (["\udcff"], {"\udcfe": "\udcfd"}, "\udcfc"),
    ],
)
def test_a_launch_arrives_as_it_was_given(command: list[str], env: dict[str, str], cwd: str | None) -> None:
    """Our choice: bytes that are no UTF-8 included, as the system allows them."""
    data = _guard.encode_launch(command, env, cwd)
    assert int.from_bytes(data[:8], "big") == len(data) - 8
    assert _guard.decode_launch(data[8:]) == (
        [os.fsencode(word) for word in command],
        {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        os.fsencode(cwd or ""),
    )


def test_a_guard_whose_host_died_before_it_could_look_starts_nothing(lab: Lab, tmp_path: pathlib.Path) -> None:
    """The race of a lifeline: the host's pid may be gone, or another's, before the guard opens its pidfd."""
    process, control = start_guard(lab, host=os.getppid())
    with control:
        control.send(_guard.encode_launch(["touch", "started"], lab.env, str(tmp_path)))
        assert process.wait(BOUND_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_guard_whose_host_is_lost_in_the_middle_of_the_launch_starts_nothing(
    lab: Lab, tmp_path: pathlib.Path
) -> None:
    """F32 for the launch itself: half a command is no command."""
    process, control = start_guard(lab, host=os.getpid())
    with control:
        control.send(_guard.encode_launch(["touch", "started"], lab.env, str(tmp_path))[:-3])
        control.shutdown(socket.SHUT_WR)
        assert process.wait(BOUND_S) == 0
        assert control.recv(100) == b""
    assert list(tmp_path.iterdir()) == []


def test_commands_sent_right_behind_the_launch_are_obeyed(lab: Lab) -> None:
    """A cancelled start sends both in one go."""
    process, control = start_guard(lab, host=os.getpid())
    with control:
        control.send(_guard.encode_launch(["sleep", "1000"], lab.env, None) + _guard.TERMINATE)
        assert process.wait(BOUND_S) == 0
        words = control.recv(1000).split()
    assert words[0] == b"start"
    assert words[2:] == [b"exit", b"-15", b"gone", b"0"]


async def test_the_guard_withstands_every_signal_that_can_be_withstood(lab: Lab) -> None:
    """Required: not of SIGPIPE, SIGHUP, SIGINT, SIGTERM, one by one or in storms."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env) as child:
            for number in DEADLY * 20:
                os.kill(child.guard_pid, number)
            for _ in range(3):
                await child.send_all(b"x")
                assert await child.receive_some(1) == b"x"
            for _ in range(2000):
                os.kill(child.guard_pid, signal.SIGCHLD)
            await child.send_all(b"y")
            assert await child.receive_some(1) == b"y"
        assert child.exit_status == 0


async def test_a_child_that_kills_its_own_process_group_does_not_kill_the_guard(lab: Lab) -> None:
    """Our choice: the child has a group of its own, so that its status is still told."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["sh", "-c", "sleep 1000 & kill -KILL 0"], env=lab.env) as child:
            assert await child.receive_some(1) == b""
            assert (await child.wait_exit()).status == -signal.SIGKILL


async def test_the_guard_holds_no_pipe_of_the_child_and_no_directory(lab: Lab, tmp_path: pathlib.Path) -> None:
    """Or the host would never see the end of the child's stdout, and the directory could not be unmounted."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env, cwd=tmp_path) as child:
            links = [os.readlink(f"/proc/{child.guard_pid}/fd/{fd}") for fd in (0, 1, 2)]
            assert links == ["/dev/null"] * 3
            assert os.readlink(f"/proc/{child.guard_pid}/cwd") == "/"


async def test_orphans_are_reaped_while_the_child_runs(lab: Lab) -> None:
    """A subreaper that doesn't reap collects zombies for as long as the app-server lives."""
    script = "for i in 1 2 3 4 5; do (setsid true &); done; echo; cat"
    with trio.fail_after(BOUND_S):
        async with open_stdio(["sh", "-c", script], env=lab.env) as child:
            await child.receive_some(1)
            while True:
                if children_and_zombies(child.guard_pid) == [str(child.pid)]:
                    break
                await trio.sleep(0.005)
            assert child.exit_status is None


async def test_what_outlives_the_child_may_clean_up_first(lab: Lab, tmp_path: pathlib.Path) -> None:
    """Our choice: a tool server gets SIGTERM and `LEFTOVER_GRACE_S` before SIGKILL."""
    server = "trap ': > cleaned; exit' TERM; sleep 1000 & echo up; wait"
    with trio.fail_after(BOUND_S):
        async with open_stdio(["sh", "-c", f'setsid sh -c "{server}" & cat'], env=lab.env, cwd=tmp_path) as child:
            assert await child.receive_some(10) == b"up\n"
        assert child.exit_status == 0
    assert (tmp_path / "cleaned").exists()


RELAY_HOPS_MAX = 4000
"""The relay ends by itself after so many, if the guard should not end it; only one of it lives at a time."""


async def test_a_relay_of_processes_that_each_start_the_next_and_end_is_ended(lab: Lab, tmp_path: pathlib.Path) -> None:
    """R13: each in a new session, deaf to SIGTERM, gone before a list of processes is read to its end."""
    (tmp_path / "relay").write_text(
        f"trap '' TERM; echo $1 > hop; [ $1 -lt {RELAY_HOPS_MAX} ] && setsid sh relay $(($1 + 1)) & exit"
    )
    with trio.fail_after(BOUND_S):
        async with open_stdio(["sh", "-c", "sh relay 1; echo; cat"], env=lab.env, cwd=tmp_path) as child:
            await child.receive_some(1)
        assert lab.alive() == []
    assert int((tmp_path / "hop").read_text() or 0) < RELAY_HOPS_MAX


async def test_strangers_are_spared(lab: Lab) -> None:
    """A process that is not ours is never killed: beside a normal close and beside the host's own search."""
    stranger = start_stranger()
    try:
        with trio.fail_after(BOUND_S):
            async with open_stdio(lab.zoo, env=lab.env) as child:
                await child.receive_some(100)
            async with open_stdio(lab.zoo, env=lab.env) as child:
                await child.receive_some(100)
                os.kill(child.guard_pid, signal.SIGKILL)
                assert await child.receive_some(1) == b""
        assert read_process(stranger.pid) is not None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_pid_that_has_become_another_process_is_not_held() -> None:
    """Pid reuse: what was found and what the pidfd is of must have the same start."""
    row = read_process(os.getpid())
    assert row is not None
    reused = ProcessRow(pid=row.pid, parent=row.parent, session=row.session, started_ticks=row.started_ticks - 1)
    held: dict[int, int] = {}
    assert not _orphans._hold(reused, held)
    assert held == {}
    assert _orphans._hold(row, held)
    _orphans._release(held)


@pytest.mark.parametrize("missing", ["pidfd_open", "pidfd_send_signal"])
def test_a_python_that_was_built_without_pidfds_has_them_all_the_same(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standalone builds of Python are made beside kernel headers without them."""
    monkeypatch.delattr(os if missing == "pidfd_open" else signal, missing)
    process = subprocess.Popen(["sleep", "1000"])
    pidfd = _guard.open_pidfd(process.pid)
    assert pidfd is not None
    assert not os.get_inheritable(pidfd)
    _guard.signal_pidfd(pidfd, signal.SIGKILL)
    assert process.wait(BOUND_S) == -signal.SIGKILL
    _guard.signal_pidfd(pidfd, signal.SIGKILL)  # it has ended: nothing happens
    os.close(pidfd)
    assert _guard.open_pidfd(process.pid) is None
