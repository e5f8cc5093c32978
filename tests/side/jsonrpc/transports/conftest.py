"""What the tests of real child processes share."""

import dataclasses
import os
import pathlib
import sys
import uuid
from collections.abc import Iterator

import pytest

from tutti_side.testing.processes import marked_processes

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class ProcessLab:
    """A unique marker, an environment that holds it, and commands to run with it."""

    marker: str
    env: dict[str, str]

    @property
    def zoo(self) -> list[str]:
        """A child with a forking shell command, a daemon and a deaf tool server; says ``ready``."""
        return [sys.executable, "-I", "-S", str(HERE / "stdio_zoo.py")]

    @property
    def host(self) -> list[str]:
        """A host to be killed; takes a mode and a command."""
        return [sys.executable, str(HERE / "stdio_host.py")]

    def alive(self) -> list[int]:
        """Living processes that carry the marker, and what descends from them."""
        return marked_processes(self.marker)

    @staticmethod
    def zombies() -> list[int]:
        """One child of this process that has ended and was not reaped, if any; what lives is somebody else's."""
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return []
        return [] if ended is None else [ended.si_pid]


@pytest.fixture
def lab() -> Iterator[ProcessLab]:
    """A place to start processes in; at its end none may be left."""
    name, value = "TUTTI_TEST_LAB", uuid.uuid4().hex
    lab = ProcessLab(marker=f"{name}={value}", env={"PATH": os.environ["PATH"], name: value})
    yield lab
    assert lab.alive() == []


@pytest.fixture
def open_fds() -> Iterator[None]:
    """Nothing may have been left open when the test ends."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before
