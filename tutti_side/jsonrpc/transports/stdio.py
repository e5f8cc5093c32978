"""A child process as a transport: launched behind a guard, its stderr drained, ended with everything that it started.

What owns what: `open_stdio` owns one nursery with two tasks, one that drains the child's stderr and one that follows
the guard. Both are shielded, because they are needed most while a cancelled block ends its child; `_shut_down` is
what ends them. It asks in steps, each bounded: stdin close, SIGTERM, SIGKILL by the guard, and, if the guard doesn't
answer, SIGKILL of the guard and the host's own search for what is left. Why there is a guard, and what it does, is
told in `_guard.py`.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from tutti_side.jsonrpc.errors import LocalError, TransportBrokenError
from tutti_side.jsonrpc.transports import PeerExit, Transport, _guard
from tutti_side.jsonrpc.transports._orphans import end_orphans
from tutti_side.jsonrpc.transports._stderr_tail import StderrTail
from tutti_side.jsonrpc.transports.errors import ProcessStartError
from tutti_side.nursery import open_service_nursery

__all__ = ["StdioTransport", "open_stdio"]

START_WAIT_S = 20.0
"""How long guard and command may take to be executed: about 20 ms, but machines do stall."""

CLOSE_GRACE_S = 1.0
"""From stdin's end to SIGTERM: Codex ends in 0.02 to 0.13 s; who ignores it costs no more than this."""

TERM_GRACE_S = 1.0
"""From SIGTERM to SIGKILL."""

KILL_WAIT_S = _guard.LEFTOVER_GRACE_S + _guard.SWEEP_S + 0.5
"""How long the guard may take to report that everything below it is gone; then the guard itself is killed."""

FORCE_WAIT_S = 3.0
"""How long the host's own search, itself bounded by `ORPHANS_S`, may take; then what is left is logged and given up."""

SHUT_DOWN_S = 10.0
"""The shield around all steps, which are bounded themselves and take 8 s at most; after it the pipes are closed."""

EXIT_WAIT_S = 2.0
"""How long `wait_exit` waits for the status and the last of stderr: the stream ends some ms before both are known."""

PIPE_BYTES = 256 * 1024
"""Asked for as the size of the child's stdout pipe: fewer stalls in a burst, and far from the user's pipe limit."""

_READ_BYTES = 64 * 1024
_GUARD_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What the guard's own Python may need to be loaded. The child doesn't get it."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    name: str = "child",
) -> AsyncGenerator["StdioTransport"]:
    """Start a child process whose stdin and stdout are a byte stream; leaving the block ends it and all it started.

    Args:
      command: the program and its arguments, no shell. A program without a slash is looked up in the ``PATH`` of
        `env`; one with a slash that is relative is relative to `cwd`.
      env: the child's whole environment; beside it stands only the marker variable `_guard.MARKER_NAME`.
      cwd: working directory; None for the host's.
      name: how tasks and log records call this child.

    Leaving, for whatever reason, takes at most the sum of the bounds above (8 s, for a child that resists everything)
    and usually as long as the child needs after stdin's end. Then neither the child nor a descendant lives, in
    whatever session, nor the guard, and no zombie is left. The same holds, without the waiting, when the start fails
    or is cancelled; and when the host is killed, through the guard. Not covered: processes of another user (setuid); if
    the guard itself is killed, a daemon that has left its session and its parent and cleared its environment as well;
    off Linux, descendants with a process group of their own.

    Raises:
      ProcessStartError: it could not be executed.
      LocalError: command or environment can't be passed to any process (empty, a NUL, a ``=`` in a name).

    Cancellation: at any moment, nothing is left. An exception of the block leaves as itself.

    Source: our choice, after measuring what survives a closed, killed and orphaned Codex app-server.
    """
    launch_env = {**env, _guard.MARKER_NAME: secrets.token_hex(16)}
    working_directory = None if cwd is None else os.fspath(cwd)
    launch = _encode_launch(command, launch_env, working_directory)
    marker = f"{_guard.MARKER_NAME}={launch_env[_guard.MARKER_NAME]}"
    process, control = await _start_guard(command[0], launch_env[_guard.MARKER_NAME])
    async with open_service_nursery() as nursery:
        transport = StdioTransport(process, control, marker=marker, name=name)
        nursery.start_soon(transport._drain_stderr, name=f"stdio:{name}/stderr")
        nursery.start_soon(transport._follow_guard, name=f"stdio:{name}/guard")
        try:
            await transport._start(launch, command[0], working_directory)
            yield transport
        finally:
            with trio.move_on_after(SHUT_DOWN_S, shield=True):
                await transport._shut_down(gently=transport.started)
            transport._stop_tasks()


class StdioTransport(Transport):
    """The stdin and stdout of a child process; made by `open_stdio`."""

    def __init__(self, process: trio.Process, control: socket.socket, *, marker: str, name: str) -> None:
        self._process = process
        self._stdin = _pipe(process.stdin)
        self._stdout = _pipe(process.stdout)
        self._stderr = _pipe(process.stderr)
        self._control = control
        self._control_stream = trio.SocketStream(trio.socket.from_stdlib_socket(control))
        self._name = name
        self._marker = marker
        self._tail = StderrTail()
        self._scopes = (trio.CancelScope(shield=True), trio.CancelScope(shield=True))
        self._pid: int | None = None
        self._refusal: tuple[str, int] | None = None
        self._status: int | None = None
        self._swept = False
        self._reaping = False
        self._answered = trio.Event()
        self._exited = trio.Event()
        self._stderr_ended = trio.Event()
        self._finished = trio.Event()

    def __repr__(self) -> str:
        return f"<StdioTransport {self._name} pid={self._pid} exit_status={self._status}>"

    @property
    def pid(self) -> int:
        """The child's process id."""
        if self._pid is None:
            raise AssertionError("not started")
        return self._pid

    @property
    def guard_pid(self) -> int:
        """The guard's process id; also the id of the session that the child was started in."""
        return self._process.pid

    @property
    def marker(self) -> str:
        """``NAME=value``, as it stands in the environment of the guard, the child and what inherits from it."""
        return self._marker

    @property
    def started(self) -> bool:
        """Whether the command was executed; always true inside the block of `open_stdio`."""
        return self._pid is not None

    @property
    def exit_status(self) -> int | None:
        """The child's exit status, negative for a signal; None while it runs, or if the guard was killed before it."""
        return self._status

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last stderr lines, bounded in number and length. They can hold model text: not for logs or messages."""
        return self._tail.lines()

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return 1 to `max_bytes` bytes of the child's stdout, or ``b""`` at its end. See `Transport.receive_some`."""
        try:
            return bytes(await self._stdout.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise TransportBrokenError(f"cannot read from {self._name}: {_what(error)}") from error

    async def send_all(self, data: bytes) -> None:
        """Write all of `data` to the child's stdin. See `Transport.send_all`."""
        try:
            await self._stdin.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise TransportBrokenError(f"cannot write to {self._name}: {_what(error)}") from error

    async def wait_exit(self) -> PeerExit:
        """Wait, at most `EXIT_WAIT_S`, for exit status and end of stderr. See `Transport.wait_exit`."""
        with trio.move_on_after(EXIT_WAIT_S):
            await self._exited.wait()
            await self._stderr_ended.wait()
        return PeerExit(status=self._status, stderr_tail=self.stderr_tail)

    async def aclose(self) -> None:
        """End the child and all it started, in the steps of leaving the block of `open_stdio`; idempotent.

        Cancellation: the steps that ask are left out; it is killed, which is bounded by `KILL_WAIT_S` and
        `FORCE_WAIT_S`.
        """
        try:
            await self._shut_down(gently=True)
        finally:
            if not self._finished.is_set():
                with trio.move_on_after(SHUT_DOWN_S, shield=True):
                    await self._shut_down(gently=False)

    async def _start(self, launch: bytes, program: str, cwd: str | None) -> None:
        """Hand the guard its launch and wait for its answer."""
        with trio.move_on_after(START_WAIT_S) as patience:
            with contextlib.suppress(trio.BrokenResourceError):  # the guard has ended: `_follow_guard` says so
                await self._control_stream.send_all(launch)
            await self._answered.wait()
        if self._refusal is not None:
            stage, number = self._refusal
            raise ProcessStartError(program, stage=stage, errno=number, cwd=cwd, stderr_tail=self.stderr_tail)
        if self._pid is None:
            detail = f"no answer within {START_WAIT_S:g} s" if patience.cancelled_caught else "it ended at once"
            raise ProcessStartError(program, stage="guard", detail=detail, stderr_tail=self.stderr_tail)
        with contextlib.suppress(OSError):  # refused to a user who has many large pipes: it works without
            if sys.platform == "linux":
                fcntl.fcntl(self._stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    async def _drain_stderr(self) -> None:
        with self._scopes[0], contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._stderr.receive_some(_READ_BYTES):
                self._tail.feed(bytes(data))
        self._stderr_ended.set()
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _follow_guard(self) -> None:
        """Hear what the guard says until it ends; if it ends too early, do its work; reap it."""
        with self._scopes[1]:
            unfinished = b""
            with contextlib.suppress(trio.BrokenResourceError):
                while data := await self._control_stream.receive_some(_READ_BYTES):
                    *lines, unfinished = (unfinished + data).split(b"\n")
                    for line in lines:
                        self._hear(line)
            if not self._swept:
                self._kill_guard()
                self._report_left(await trio.to_thread.run_sync(end_orphans, self.guard_pid, self._pid, self._marker))
            self._reaping = True
            await self._process.wait()
            self._answered.set()
            self._exited.set()
            self._finished.set()

    def _hear(self, line: bytes) -> None:
        word, *values = line.split()
        if word == b"start":
            self._pid = int(values[0])
            self._answered.set()
        elif word == b"fail":
            self._refusal = (values[0].decode(), int(values[1]))
            self._answered.set()
        elif word == b"exit":
            self._status = int(values[0])
            self._exited.set()
        elif word == b"gone":
            self._swept = True
            self._report_left(int(values[0]))

    def _report_left(self, count: int) -> None:
        if count:
            _log.warning("%d processes below child %s (pid %s) did not end", count, self._name, self._pid)

    async def _shut_down(self, *, gently: bool) -> None:
        """Go through the steps until guard and subtree are gone; several callers at once do no harm."""
        steps = [(self._kill, KILL_WAIT_S), (self._kill_guard, FORCE_WAIT_S)]
        if gently:
            steps = [(self._close_stdin, CLOSE_GRACE_S), (self._terminate, TERM_GRACE_S), *steps]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._discard_stdout, name=f"stdio:{self._name}/discard")
            for ask, patience_s in steps:
                if not self._finished.is_set():
                    ask()
                    with trio.move_on_after(patience_s):
                        await self._finished.wait()
            nursery.cancel_scope.cancel()
        self._close_pipes()

    async def _discard_stdout(self) -> None:
        """Read what the child writes while it ends, so that no full pipe holds it up; unless someone else reads."""
        with contextlib.suppress(trio.BusyResourceError, trio.BrokenResourceError, trio.ClosedResourceError):
            while await self._stdout.receive_some(_READ_BYTES):
                pass
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _close_stdin(self) -> None:
        self._stdin.close()

    def _terminate(self) -> None:
        self._command(_guard.TERMINATE)

    def _kill(self) -> None:
        self._stdin.close()
        self._command(_guard.END)
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)  # also for a guard that still waits for the rest of its launch

    def _kill_guard(self) -> None:
        """End the guard, and what `_follow_guard` hears of it, even if something else holds the guard's end."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        if self._reaping:
            self._process.kill()  # looks first whether it has been reaped
        else:
            os.kill(self.guard_pid, signal.SIGKILL)  # not reaped: the pid is still its own

    def _command(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # the guard has ended, or doesn't read: the next step is for that
            self._control.send(word)

    def _close_pipes(self) -> None:
        for stream in (self._stdin, self._stdout):
            stream.close()

    def _stop_tasks(self) -> None:
        for scope in self._scopes:
            scope.cancel()
        self._stderr.close()
        self._control_stream.socket.close()


def _encode_launch(command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> bytes:
    if isinstance(command, str) or not command or not command[0]:
        raise LocalError("the command must be a list that begins with a program")
    if any("\0" in text for text in (*command, *env, *env.values(), cwd or "")):
        raise LocalError("neither command, environment nor working directory may hold a NUL character")
    if any(not name or "=" in name for name in env):
        raise LocalError("the name of an environment variable may neither be empty nor hold a '='")
    return _guard.encode_launch(command, env, cwd)


async def _start_guard(program: str, token: str) -> tuple[trio.Process, socket.socket]:
    """Start the guard; on failure or cancel nothing is left, and there is no checkpoint after it was started."""
    env = {name: os.environ[name] for name in _GUARD_ENVIRONMENT if name in os.environ}
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-I", "-S", _guard.__file__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={**env, _guard.MARKER_NAME: token},
                start_new_session=True,
            )
    except OSError as error:
        ours.close()
        raise ProcessStartError(program, stage="guard", errno=error.errno) from error
    except BaseException:
        ours.close()
        raise
    return process, ours


def _pipe(stream: object) -> trio.lowlevel.FdStream:
    """Return a stream that `trio.Process` declares as abstract as what it is on every POSIX system."""
    if not isinstance(stream, trio.lowlevel.FdStream):
        raise AssertionError("the guard was started without pipes")
    return stream


def _what(error: Exception) -> str:
    if isinstance(error, trio.ClosedResourceError):
        return "this end was closed"
    cause = error.__cause__
    return os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "the other end is gone"
