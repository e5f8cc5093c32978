"""The guard: a small process between the host and its child that outlives the host and ends everything below it.

This file is run as a script, ``python -I -S _guard.py CONTROL_FD HOST_PID``, and imports the standard library only.
It is imported as well, for the names and bounds that both sides share; importing it does nothing.

Theory of operation. The guard is a *subreaper*: a descendant whose parent ends becomes the guard's own child,
whatever session, group or double fork it made. So "no child left" means "no descendant left", and killing all
children again and again until ``waitpid`` says that there are none ends the whole subtree without a race and without
a list of pids. It is the leader of its own session (a terminal's ^C does not reach it), ignores every signal that can
be ignored, and holds ``/dev/null`` as its own stdio, so that the host sees the end of the child's pipes.

One socket joins guard and host. Host to guard: the launch (`encode_launch`), then single bytes, `TERMINATE` and
`END`. Guard to host: lines. ``start PID`` (it was executed) or ``fail STAGE ERRNO``; ``exit STATUS`` when the child
has ended, however it did; ``gone N`` last, N being how many descendants outlived `SWEEP_S`. The end of that socket
means that the host is lost, and so does the host's pidfd: the socket alone is not enough, because a process that the
host has forked holds a copy of it.

What ends the subtree: the child's own end, `END`, or the loss of the host (SIGTERM to the child and
`HOST_LOST_GRACE_S` first). If the guard itself is killed the child gets SIGTERM (PR_SET_PDEATHSIG: safe here, the
guard has one thread and that is the one that forks; set from a host's worker thread it kills a healthy child when
that thread idles out), and the host does the rest.

Linux is what is proven. Elsewhere there is neither subreaper nor pidfd nor /proc: the host's loss is noticed by the
socket and by `getppid`, and only the child's process group is ended; a descendant in a session of its own escapes.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence

MARKER_NAME = "TUTTI_SIDE_GUARD"
"""The environment variable that marks the guard, its child and what inherits their environment; its value is unique."""

TERMINATE = b"T"
"""Host to guard: send SIGTERM to the child."""

END = b"K"
"""Host to guard: no more patience, kill everything."""

HOST_LOST_GRACE_S = 1.0
"""After the host's death the child has this long between SIGTERM and SIGKILL: Codex ends within 0.13 s of either its
stdin's end or SIGTERM, and then ends its own shell commands."""

LEFTOVER_GRACE_S = 0.5
"""What outlives the child gets SIGTERM and this long, so that a tool server may remove what it made; then SIGKILL."""

SWEEP_S = 2.0
"""How long SIGKILL is repeated. Only a process that the kernel or another user's rights protect is left then."""

_SWEEP_POLL_MS = 5
_PARENT_POLL_MS = 1000
_LENGTH_BYTES = 8
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NR_PIDFD_SEND_SIGNAL = 424
_NR_PIDFD_OPEN = 434


def encode_launch(command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> bytes:
    """Return what the guard needs to start the child, length first. No part may hold a NUL; the caller has checked."""
    parts = [str(len(command)), *command, cwd or "", *(f"{name}={value}" for name, value in env.items())]
    body = b"\0".join(os.fsencode(part) for part in parts)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_launch(body: bytes) -> tuple[list[bytes], dict[bytes, bytes], bytes]:
    """Return command, environment and working directory (empty: the host's) of a launch without its length."""
    count, *parts = body.split(b"\0")
    size = int(count)
    entries = (part.partition(b"=") for part in parts[size + 1 :])
    return parts[:size], {name: value for name, _, value in entries}, parts[size]


class _Guard:
    """One child, one host, one loop."""

    def __init__(self, control: int, host: int) -> None:
        self._control = control
        self._host = host
        self._events = select.poll()
        self._events.register(control, select.POLLIN)
        self._host_fd = self._watch_host()
        self._wake_fd = self._watch_children()
        self._child = 0
        self._child_running = False

    def _watch_host(self) -> int | None:
        fd = open_pidfd(self._host)
        if fd is not None:
            self._events.register(fd, select.POLLIN)
        return fd

    def _host_is_parent(self) -> bool:
        """Whether the host lives; asked after its pidfd was opened, it also proves whose pidfd that is."""
        return os.getppid() == self._host

    def _watch_children(self) -> int:
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._events.register(readable, select.POLLIN)
        return readable

    def run(self) -> None:
        """Start the child, watch, end the subtree, tell the host; returns when nothing is left to do."""
        if not self._host_is_parent():
            return
        body = self._read_launch()
        if body is None or not self._start(*decode_launch(body)):
            return
        grace_s = 0.0
        try:
            grace_s = self._watch()
        finally:
            self._tell(b"gone %d\n" % self._end_subtree(grace_s))

    def _read_launch(self) -> bytes | None:
        """Return the launch without its length, or None when the host is lost before it is complete."""
        length = self._read_exactly(_LENGTH_BYTES)
        return None if length is None else self._read_exactly(int.from_bytes(length, "big"))

    def _read_exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            ready = self._wait(None)
            if self._control in ready:
                chunk = _read(self._control, size - len(data))
                if not chunk:
                    return None
                data += chunk
            elif self._host_lost(ready):
                return None
        return data

    def _start(self, command: list[bytes], env: dict[bytes, bytes], cwd: bytes) -> bool:
        """Fork and execute; tell the host how that went, and return whether there is a child to watch."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        problem_fd, child_problem_fd = os.pipe()  # both close on exec: the end of the pipe says that it was executed
        guard = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            stage = b"start"
            try:
                os.setpgid(0, 0)  # so that a child that kills its own group doesn't kill the guard
                signal.set_wakeup_fd(-1)
                _set_signals(signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
                if os.getppid() != guard:
                    os._exit(127)  # it died before the line above
                stage = b"cwd"
                if cwd:
                    os.chdir(cwd)
                stage = b"exec"
                os.execvpe(command[0], command, env)
            except Exception as error:
                os.write(child_problem_fd, b"%s %d" % (stage, getattr(error, "errno", None) or 0))
            finally:
                os._exit(127)
        self._child_running = True
        os.close(child_problem_fd)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.chdir("/")
        problem = os.read(problem_fd, 64)
        os.close(problem_fd)
        self._tell(b"fail %s\n" % problem if problem else b"start %d\n" % self._child)
        return not problem

    def _watch(self) -> float:
        """Wait for a reason to end the subtree; return how long what is left may take to end by itself."""
        patience_ends: float | None = None
        while True:
            self._reap()
            if not self._child_running:
                return LEFTOVER_GRACE_S
            if patience_ends is not None and time.monotonic() >= patience_ends:
                return 0.0
            ready = self._wait(patience_ends)
            lost = self._host_lost(ready)
            if self._control in ready:
                data = _read(self._control, 64)
                if END in data:
                    return 0.0
                if TERMINATE in data:
                    self._signal_child(signal.SIGTERM)
                lost = lost or not data
            if lost and patience_ends is None:
                self._events.unregister(self._control)
                if self._host_fd is not None:
                    self._events.unregister(self._host_fd)
                patience_ends = time.monotonic() + HOST_LOST_GRACE_S
                self._signal_child(signal.SIGTERM)

    def _host_lost(self, ready: set[int]) -> bool:
        return self._host_fd in ready or not self._host_is_parent()

    def _wait(self, until: float | None) -> set[int]:
        """Wait for an event, bounded by `until` (monotonic seconds), and return what is ready."""
        timeout_ms = _PARENT_POLL_MS if self._host_fd is None else None
        if until is not None:
            timeout_ms = max(0, int((until - time.monotonic()) * 1000) + 1)
        ready = {fd for fd, _ in self._events.poll(timeout_ms)}
        if self._wake_fd in ready:
            _read(self._wake_fd, 4096)
        return ready

    def _signal_child(self, number: int) -> None:
        """Signal the child; its pid is its own until `_reap` has seen its end."""
        if self._child_running:
            os.kill(self._child, number)

    def _reap(self) -> bool:
        """Collect what has ended, report the child's status; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._child_running = False
                self._tell(b"exit %d\n" % os.waitstatus_to_exitcode(status))

    def _end_subtree(self, grace_s: float) -> int:
        """SIGTERM to every descendant once; `grace_s` seconds later SIGKILL until none is left or `SWEEP_S` is over."""
        kill_from = time.monotonic() + grace_s
        asked: set[int] = set()
        while self._reap():
            now = time.monotonic()
            force = now >= kill_from
            if now >= kill_from + SWEEP_S:
                return len(_descendants(os.getpid()))
            if force:
                for pid in _own_children():  # first and at once, so that none has the time to start the next
                    os.kill(pid, signal.SIGKILL)  # its pid is its own until `_reap`
            for pid, parent in _descendants(os.getpid()).items():
                if force:
                    _signal_descendant(pid, parent, signal.SIGKILL)
                elif pid not in asked:
                    asked.add(pid)
                    _signal_descendant(pid, parent, signal.SIGTERM)
            if sys.platform != "linux":
                _signal_group(self._child, signal.SIGKILL if force else signal.SIGTERM)
            self._wait(now + _SWEEP_POLL_MS / 1000)
        return 0

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # the host may be gone; the work is the same
            os.write(self._control, line)


def _read(fd: int, size: int) -> bytes:
    """Read up to `size` bytes; a socket that was reset has ended."""
    try:
        return os.read(fd, size)
    except OSError:
        return b""


def open_pidfd(pid: int) -> int | None:
    """Return a pidfd, or None: the process is gone, or the platform or the kernel has none."""
    if sys.platform != "linux":
        return None
    if hasattr(os, "pidfd_open"):
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None
    fd = _system_call(_NR_PIDFD_OPEN, pid, 0)
    if fd < 0:
        return None
    os.set_inheritable(fd, False)
    return fd


def signal_pidfd(pidfd: int, number: int) -> None:
    """Send a signal to the process that the pidfd is of; one that has ended, or isn't ours to signal, is left alone."""
    if sys.platform != "linux":
        return
    if hasattr(signal, "pidfd_send_signal"):
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, number)
    else:
        _system_call(_NR_PIDFD_SEND_SIGNAL, pidfd, number, None, 0)


def _system_call(number: int, *arguments: int | None) -> int:
    """Do what Python would do, had it been built beside newer kernel headers (the standalone builds are not)."""
    import ctypes

    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def _own_children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return []  # a kernel that was built without it: `_descendants` finds them too, only slower


def _descendants(root: int) -> dict[int, int]:
    """Return the living and unreaped descendants of `root`, top down, each with its parent; without /proc, none.

    A look at a moving tree can miss one; its parent is then ended, it becomes the guard's child, and the next look
    sees it.
    """
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return {}
    children: dict[int, list[int]] = {}
    for pid in pids:
        parent = _parent_of(pid)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    todo = [root]
    for parent in todo:
        for pid in children.get(parent, ()):
            if pid not in found:
                found[pid] = parent
                todo.append(pid)
    return found


def _signal_descendant(pid: int, parent: int, number: int) -> None:
    """Signal a process found a moment ago, if its pid is still its own: a pidfd is held while parents are compared."""
    pidfd = open_pidfd(pid)
    try:
        if _parent_of(pid) not in (parent, os.getpid()):
            return
        if pidfd is None:
            os.kill(pid, number)
        else:
            signal_pidfd(pidfd, number)
    except OSError:
        pass  # ended in between, or another user's: the sweep counts it
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(leader, number)


def _set_signals(handler: signal.Handlers) -> None:
    """Give every signal that has a choice this handler."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):  # some are reserved by the C library
            signal.signal(number, handler)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes  # here, because the host imports this module for its names and needs no ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    """Run as the guard of this process' parent."""
    control, host = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    _set_signals(signal.SIG_IGN)
    _Guard(control, host).run()
    os._exit(0)


if __name__ == "__main__":
    main()
