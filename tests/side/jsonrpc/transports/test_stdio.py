import collections
import os
import pathlib
import signal
import sys
from typing import Any

import pytest
import trio

from tutti_side.jsonrpc.errors import LocalError, TransportBrokenError
from tutti_side.jsonrpc.transports import stdio
from tutti_side.jsonrpc.transports._stderr_tail import StderrTail
from tutti_side.jsonrpc.transports.errors import ProcessStartError
from tutti_side.jsonrpc.transports.process_table import read_process
from tutti_side.jsonrpc.transports.stdio import StdioTransport, open_stdio

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("open_fds")]

Lab = Any
BOUND_S = 30.0
"""No test comes near it; it ends one that would hang."""


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


async def read_all(child: StdioTransport) -> bytes:
    data = b""
    while more := await child.receive_some(65536):
        data += more
    return data


async def test_what_is_sent_comes_back_whole_and_in_order(lab: Lab) -> None:
    """Our choice: a transport moves bytes; also a line of 3 MB (T22), while both directions are busy."""
    line = b"".join(b"%07d," % number for number in range(400_000)) + b"\n"
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env) as child, trio.open_nursery() as nursery:
            nursery.start_soon(child.send_all, line)
            received = b""
            while len(received) < len(line):
                received += await child.receive_some(65536)
    assert received == line


async def test_at_most_the_asked_number_of_bytes_is_received_and_a_cancel_loses_none(lab: Lab) -> None:
    """Transport: 1 to max_bytes bytes; nothing received is lost by a cancel."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env) as child:
            with trio.move_on_after(0):
                await child.receive_some(10)
            await child.send_all(b"abcdef")
            with trio.move_on_after(0):
                await child.receive_some(10)
            received = b""
            while len(received) < 6:
                received += (part := await child.receive_some(2))
                assert 1 <= len(part) <= 2
    assert received == b"abcdef"


async def test_the_child_gets_the_given_environment_the_marker_and_nothing_else(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our choice: the environment passed on is explicit."""
    monkeypatch.setenv("TUTTI_SECRET_OF_THE_HOST", "x")
    given = lab.env | {"EMPTY": "", "UMLAUT": "ä", "NOT_UTF8": "\udcff", "LINES": "a\nb=c"}
    with trio.fail_after(BOUND_S):
        async with open_stdio(["env", "-0"], env=given) as child:
            output = await read_all(child)
            marker = child.marker
    entries = [f"{name}={value}" for name, value in given.items()] + [marker]
    assert sorted(output.split(b"\0")[:-1]) == sorted(os.fsencode(entry) for entry in entries)


async def test_arguments_arrive_unchanged_and_no_shell_reads_them(lab: Lab) -> None:
    """Our choice: a command is a list."""
    arguments = ["", "$HOME `ls` ; *", "a\nb", "ä\udcff"]
    with trio.fail_after(BOUND_S):
        async with open_stdio(["printf", "%s|", *arguments], env=lab.env) as child:
            assert await read_all(child) == b"".join(os.fsencode(text) + b"|" for text in arguments)


async def test_the_child_runs_in_the_given_directory_and_else_in_ours(lab: Lab, tmp_path: pathlib.Path) -> None:
    """Our choice; a guard has its own working directory, the child must not get that one."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["pwd"], env=lab.env, cwd=tmp_path) as child:
            assert await read_all(child) == os.fsencode(tmp_path) + b"\n"
        async with open_stdio(["pwd"], env=lab.env) as child:
            assert await read_all(child) == os.fsencode(pathlib.Path.cwd()) + b"\n"


async def test_the_child_has_default_signals_and_no_descriptor_but_its_three(lab: Lab) -> None:
    """Our choice: neither what the guard ignores nor what Python does is passed on."""
    script = "grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd"
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh(script), env=lab.env) as child:
            words = (await read_all(child)).split()
    assert words[:4] == [b"SigBlk:", b"0" * 16, b"SigIgn:", b"0" * 16]
    assert words[4:] == [b"0", b"1", b"2", b"3"]  # 3 is the directory that ls reads


async def test_the_exit_status_and_the_last_of_stderr_are_told_after_the_end_of_the_stream(lab: Lab) -> None:
    """Spec of the transport; T19: a start-up failure is on stderr only."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh("echo why >&2; exit 3"), env=lab.env) as child:
            assert child.started
            assert await child.receive_some(100) == b""
            ended = await child.wait_exit()
            assert child.exit_status == 3
    assert (ended.status, ended.stderr_tail) == (3, ("why",))


async def test_what_the_last_descendant_says_on_stderr_is_waited_for(lab: Lab) -> None:
    """Our choice: the status is known first, but the reason may stand in what comes a moment later."""
    leftover = "trap 'echo late >&2; exit' TERM; echo up; exec >&-; while :; do sleep 0.01; done"
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh(f'setsid sh -c "{leftover}" & cat; exit 4'), env=lab.env) as child:
            assert await child.receive_some(100) == b"up\n"
            child._close_stdin()
            assert await child.receive_some(100) == b""
            ended = await child.wait_exit()
    assert (ended.status, ended.stderr_tail[-1:]) == (4, ("late",))  # the shell may mourn its `sleep` before


async def test_a_signal_is_a_negative_status(lab: Lab) -> None:
    """Our choice, as in subprocess."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh("kill -KILL $$"), env=lab.env) as child:
            assert await child.receive_some(100) == b""
            assert (await child.wait_exit()).status == -signal.SIGKILL


async def test_wait_exit_is_bounded_for_a_child_that_lives(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: a child may close its stdout and live on."""
    monkeypatch.setattr(stdio, "EXIT_WAIT_S", 0.05)
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh("exec >&-; read line"), env=lab.env) as child:
            assert await child.receive_some(100) == b""
            assert (await child.wait_exit()).status is None
    assert child.exit_status == 1


async def test_a_flood_of_stderr_before_the_first_byte_of_stdout_does_not_block(lab: Lab) -> None:
    """F13: stderr isn't read; after 64 KiB the child blocks. 16 MB here, of which a bounded tail is kept."""
    script = "i=0; head -c 16000000 /dev/zero | tr '\\0' x >&2; seq 1 100000 >&2; echo first"
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh(script), env=lab.env) as child:
            assert await read_all(child) == b"first\n"
            tail = (await child.wait_exit()).stderr_tail
    assert tail == tuple(str(number) for number in range(100_000 - 199, 100_001))


async def test_what_the_child_says_on_stderr_stands_in_no_repr(lab: Lab) -> None:
    """Architecture, errors: stderr can hold model text."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh("echo secret words >&2"), env=lab.env, name="app") as child:
            ended = await child.wait_exit()
    assert child.stderr_tail == ("secret words",)
    assert "secret" not in repr(child) + repr(ended)
    assert repr(child) == f"<StdioTransport app pid={child.pid} exit_status=0>"


async def test_writing_to_a_child_that_has_ended_is_a_broken_transport(lab: Lab) -> None:
    """F14: a write into a closed pipe ends, with a typed error."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["true"], env=lab.env) as child:
            await child.wait_exit()
            with pytest.raises(TransportBrokenError, match="cannot write to child: Broken pipe"):
                await child.send_all(b"x")


async def test_a_write_that_waits_for_a_child_that_dies_is_a_broken_transport(lab: Lab) -> None:
    """F14: a write that beats the pipe's closing waits for ever."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["sleep", "1000"], env=lab.env) as child, trio.open_nursery() as nursery:

            async def write() -> None:
                with pytest.raises(TransportBrokenError):
                    await child.send_all(b"x" * 1_000_000)

            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(child.pid, signal.SIGKILL)


async def test_a_closed_transport_is_broken_for_both_directions_and_its_waiters(lab: Lab) -> None:
    """Transport: this end was closed."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env) as child:
            await child.aclose()
            with pytest.raises(TransportBrokenError, match="this end was closed"):
                await child.receive_some(1)
            with pytest.raises(TransportBrokenError, match="this end was closed"):
                await child.send_all(b"x")
            assert lab.alive() == []
            await child.aclose()
            assert (await child.wait_exit()).status == 0


async def test_two_tasks_may_close_while_a_third_reads(lab: Lab) -> None:
    """Transport: aclose is idempotent; a reader sees the end of the stream."""
    ends = collections.deque[bytes]()
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env) as child, trio.open_nursery() as nursery:

            async def read() -> None:
                ends.append(await child.receive_some(10))

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(child.aclose)
            nursery.start_soon(child.aclose)
    assert list(ends) == [b""]


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("cat", 0),
        ("trap 'exit 7' TERM; echo; while :; do sleep 0.01; done", 7),
        ("echo; exec sleep 1000", -signal.SIGTERM),
        ("trap '' TERM; echo; exec sleep 1000", -signal.SIGKILL),
    ],
    ids=["ends with stdin", "handles SIGTERM", "ends by SIGTERM", "deaf to both"],
)
async def test_leaving_asks_by_stdin_then_sigterm_then_kills(lab: Lab, script: str, status: int) -> None:
    """T16: prefer closing stdin, then SIGTERM, then SIGKILL; each step is bounded (R12)."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh(script), env=lab.env) as child:
            if script != "cat":
                await child.receive_some(1)
        assert child.exit_status == status


async def test_a_stopped_child_is_killed(lab: Lab) -> None:
    """R12: a stopped process takes notice neither of its stdin nor of SIGTERM."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env) as child:
            os.kill(child.pid, signal.SIGSTOP)
        assert child.exit_status == -signal.SIGKILL


async def test_a_child_that_still_writes_while_it_ends_is_not_stuck_in_a_full_pipe(lab: Lab) -> None:
    """Our choice: nobody reads any more, so what it writes is read and dropped."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh("cat; head -c 4000000 /dev/zero; exit 5"), env=lab.env) as child:
            pass
        assert child.exit_status == 5


async def test_leaving_by_a_cancel_asks_all_the_same(lab: Lab) -> None:
    """F32: cancelling the owner ends the process, and in the same steps."""
    with trio.fail_after(BOUND_S):
        with trio.CancelScope() as scope:
            async with open_stdio(["cat"], env=lab.env) as child:
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert child.exit_status == 0
        assert lab.alive() == []


async def test_a_cancelled_aclose_kills(lab: Lab) -> None:
    """Transport: what is owned is ended all the same, by force."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(sh("trap '' TERM; echo; exec sleep 1000"), env=lab.env) as child:
            await child.receive_some(1)
            with trio.move_on_after(0.05) as scope:
                await child.aclose()
            assert scope.cancelled_caught
            assert child.exit_status == -signal.SIGKILL
            assert lab.alive() == []


@pytest.mark.parametrize("error", [ValueError("mine"), ExceptionGroup("mine", [KeyError("a")])], ids=["plain", "group"])
async def test_an_exception_of_the_block_leaves_as_itself(lab: Lab, error: Exception) -> None:
    """Architecture §2: only failures of our own tasks come as a group."""
    with trio.fail_after(BOUND_S):
        with pytest.raises(type(error)) as caught:
            async with open_stdio(["cat"], env=lab.env):
                raise error
    assert caught.value is error
    assert error.__context__ is None


async def test_a_crash_of_our_own_task_ends_the_child_and_comes_as_a_group(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: the same on a crash of our own task."""

    def crash(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(StderrTail, "feed", crash)
    with trio.fail_after(BOUND_S):
        with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="a bug of ours")):
            async with open_stdio(sh("echo x >&2; cat"), env=lab.env):
                await trio.sleep_forever()
        assert lab.alive() == []


@pytest.fixture
def broken(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory with files that can't be executed, each for its reason."""
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "no-line").write_text("nothing")
    (tmp_path / "no-line").chmod(0o755)
    (tmp_path / "no-interpreter").write_text("#!/does/not/exist\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("program", "cwd", "stage", "words"),
    [
        ("not-a-command", None, "exec", "cannot execute 'not-a-command': No such file or directory; check the path"),
        ("./plain", ".", "exec", r"Permission denied; .*chmod \+x"),
        ("./no-line", ".", "exec", "Exec format error; it is neither"),
        ("./no-interpreter", ".", "exec", "No such file or directory"),
        ("/", None, "exec", "Permission denied"),
        ("true", "missing", "cwd", "cannot start 'true' in '.*missing': No such file or directory; the working dir"),
        ("true", "plain", "cwd", "Not a directory"),
    ],
)
async def test_a_command_that_cannot_be_executed_is_named_with_the_reason_and_leaves_nothing(
    lab: Lab, broken: pathlib.Path, program: str, cwd: str | None, stage: str, words: str
) -> None:
    """F31, for the start itself: an error that says what, where and what to do, and no process."""
    with trio.fail_after(BOUND_S):
        with pytest.raises(ProcessStartError, match=words) as caught:
            async with open_stdio([program, "argument"], env=lab.env, cwd=None if cwd is None else broken / cwd):
                raise AssertionError("not reached")
        assert lab.alive() == []
    assert (caught.value.stage, caught.value.command) == (stage, program)
    assert "argument" not in str(caught.value)


async def test_arguments_too_large_for_the_system_are_a_start_error(lab: Lab) -> None:
    """Our choice: an environment is as large as it is, the error says so."""
    with trio.fail_after(BOUND_S):
        with pytest.raises(ProcessStartError, match="too large"):
            async with open_stdio(["true", "x" * 5_000_000], env=lab.env):
                raise AssertionError("not reached")


async def test_a_guard_that_cannot_start_is_a_start_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """F31: the interpreter is missing, or ends at once; the last words of stderr are an attribute."""
    with trio.fail_after(BOUND_S):
        monkeypatch.setattr(sys, "executable", "/does/not/exist")
        with pytest.raises(ProcessStartError, match=r"guard process of 'true'.*sys\.executable"):
            async with open_stdio(["true"], env=lab.env):
                raise AssertionError("not reached")
        monkeypatch.setattr(sys, "executable", "/bin/ls")
        with pytest.raises(ProcessStartError, match="it ended at once") as caught:
            async with open_stdio(["true"], env=lab.env):
                raise AssertionError("not reached")
    assert caught.value.stderr_tail


async def test_a_guard_that_does_not_answer_is_given_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """R12: the start is bounded, and what was started is ended, though it holds the guard's end of the socket."""
    silent = tmp_path / "silent"
    silent.write_text(f"#!/bin/sh\ntrap '' TERM\nexport {lab.marker}\nsleep 1000\n")
    silent.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(silent))
    monkeypatch.setattr(stdio, "START_WAIT_S", 0.1)
    monkeypatch.setattr(stdio, "KILL_WAIT_S", 0.1)
    with trio.fail_after(BOUND_S):
        with pytest.raises(ProcessStartError, match=r"no answer within 0\.1 s"):
            async with open_stdio(["true"], env=lab.env):
                raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("command", "env"),
    [
        ([], {}),
        ([""], {}),
        ("true", {}),
        (["a\0b"], {}),
        (["true"], {"A": "\0"}),
        (["true"], {"A=B": ""}),
        (["x"], {"": ""}),
    ],
)
async def test_what_no_process_can_be_given_is_refused_before_anything_starts(
    command: list[str], env: dict[str, str]
) -> None:
    """Our choice: a bad call is told from a bad machine."""
    with pytest.raises(LocalError):
        async with open_stdio(command, env=env):
            raise AssertionError("not reached")


async def test_fifty_children_leave_no_descriptor_and_no_zombie(lab: Lab) -> None:
    """R13: neither descriptors nor zombies add up (`open_fds` compares the descriptors)."""
    guards = []
    with trio.fail_after(BOUND_S):
        for _ in range(50):
            async with open_stdio(["cat"], env=lab.env) as child:
                guards.append(child.guard_pid)
    assert lab.zombies() == []
    assert [pid for pid in guards if read_process(pid)] == []


async def test_a_healthy_child_lives_after_twelve_idle_seconds(lab: Lab) -> None:
    """PR_SET_PDEATHSIG set from a host's worker thread kills a child when that thread idles out, after about 10 s."""
    with trio.fail_after(BOUND_S):
        async with open_stdio(["cat"], env=lab.env) as child:
            await trio.sleep(12)  # the one real sleep: what is tested is the end of an idle thread of Trio's
            await child.send_all(b"still here")
            assert await child.receive_some(100) == b"still here"
            assert child.exit_status is None
