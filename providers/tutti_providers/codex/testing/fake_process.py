"""The fake app-server as a process, in place of the binary: standard library and msgspec only, so it starts fast.

``python -m tutti_providers.codex.testing.fake_process app-server --listen stdio://``; `--version` is answered too.
``TUTTI_FAKE_SETUP`` names a JSON file with a `FakeSetup`, ``TUTTI_FAKE_STORM`` asks for a benchmark's delta storm
instead of a script: ``DELTAS`` or ``DELTAS,THREADS``. `write_fake_binary` makes an executable file that is called as
`codex` is.
"""

import heapq
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ._fake_outbox import Action, SendBytes, SendMessage, StopsReading, Wake
from ._fake_storm import Storm
from .app_server_script import AppServerMachine, FakeSetup

__all__ = ["SETUP_VARIABLE", "STORM_VARIABLE", "main", "write_fake_binary", "write_setup"]

SETUP_VARIABLE = "TUTTI_FAKE_SETUP"
"""Names the JSON file with the `FakeSetup`."""

STORM_VARIABLE = "TUTTI_FAKE_STORM"
"""Asks for a delta storm: how many deltas, then over how many threads."""

READ_BYTES = 65536
"""What a pipe holds."""

_LAUNCHER = """#!{python} -I
import sys, types

# The packages without their __init__ modules: those load the whole provider, which costs a tenth of a second.
path = {home!r}
for name in ("tutti_providers", "tutti_providers.codex", "tutti_providers.codex.testing"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [path]
    path += "/" + {{"tutti_providers": "codex", "tutti_providers.codex": "testing"}}.get(name, "")

from tutti_providers.codex.testing.fake_process import main

sys.exit(main(sys.argv[1:]))
"""

_encode = msgspec.json.Encoder().encode


def write_setup(path: Path, setup: FakeSetup) -> Path:
    """Write the file that ``TUTTI_FAKE_SETUP`` names, and return its path."""
    path.write_bytes(msgspec.json.encode(setup))
    return path


def write_fake_binary(path: Path) -> Path:
    """Write an executable that behaves as `codex`, and return its path."""
    path.write_text(_LAUNCHER.format(python=sys.executable, home=str(Path(__file__).parents[2])), "utf-8")
    path.chmod(0o755)
    return path


def main(arguments: list[str]) -> int:
    """Be the binary; return the exit status."""
    setup = _read_setup()
    if "--version" in arguments:
        sys.stdout.write(f"codex-cli {setup.version}\n")
        return 0
    if "app-server" not in arguments:
        sys.stderr.write("the fake app-server only knows `app-server --listen stdio://` and `--version`\n")
        return 2
    storm = os.environ.get(STORM_VARIABLE)
    if storm is not None:
        return Storm.parse(storm, setup).serve(_read, _write_all)
    return _Shell(AppServerMachine(setup)).run()


def _read_setup() -> FakeSetup:
    name = os.environ.get(SETUP_VARIABLE)
    return msgspec.json.decode(Path(name).read_bytes(), type=FakeSetup) if name else FakeSetup()


def _read() -> bytes:
    return os.read(0, READ_BYTES)


def _write_all(data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class _Shell:
    """Reads lines, keeps timers, writes: one thread, so there is one writer."""

    def __init__(self, machine: AppServerMachine) -> None:
        self._machine = machine
        self._timers: list[tuple[float, int]] = []
        self._rest = b""
        self._reading = True
        self._status: int | None = None

    def run(self) -> int:
        """Serve until the machine exits."""
        try:
            while self._status is None:
                self._wait()
        except BrokenPipeError:
            return 0
        return self._status

    def _wait(self) -> None:
        now = time.monotonic()
        if self._timers and self._timers[0][0] <= now:
            _, token = heapq.heappop(self._timers)
            self._act(lambda: self._machine.wake(token))
            return
        timeout = self._timers[0][0] - now if self._timers else None
        readable, _, _ = select.select([0] if self._reading else [], [], [], timeout)
        if readable:
            self._read_lines()

    def _read_lines(self) -> None:
        data = _read()
        if not data:
            self._act(self._machine.end_of_input)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._act(lambda line=line: self._machine.receive_line(line))  # type: ignore[misc]
            if self._status is not None or not self._reading:
                return

    def _act(self, step: Callable[[], list[Action]]) -> None:
        out: list[bytes] = []
        for action in step():
            if isinstance(action, SendMessage):
                out.append(_line(action.message))
            elif isinstance(action, SendBytes):
                out.append(action.data)
            elif isinstance(action, Wake):
                heapq.heappush(self._timers, (time.monotonic() + action.after_s, action.token))
            elif isinstance(action, StopsReading):
                self._reading = False
            else:
                self._status = action.status
                break
        if out:
            _write_all(b"".join(out))


def _line(message: dict[str, Any]) -> bytes:
    return _encode(message) + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
