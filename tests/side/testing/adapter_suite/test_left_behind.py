"""What a broken adapter leaves behind when it is closed: the kit's case fails, and names it."""

import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio

from tutti_providers.scripted.testing import ScriptedKitBed
from tutti_side.testing.adapter_suite import AdapterSuite, LeftBehindError, _left_behind
from tutti_side.testing.processes import descendants_of, is_alive

BOUND_S = 30.0
SECRET = "1000.25"
"""An argument of the process that is left; nobody may be told."""

Leave = Callable[[], AbstractContextManager[object]]
"""Does its mistake at its start, and puts it right at its end, when the kit has looked."""


@contextmanager
def a_task() -> Iterator[None]:
    """A task that its nursery does not know; it ends with its run."""
    trio.lowlevel.spawn_system_task(trio.sleep_forever, name="its reader")
    yield


@contextmanager
def a_thread(*, daemon: bool) -> Iterator[None]:
    """A thread that nobody tells to end."""
    told = threading.Event()
    thread = threading.Thread(target=told.wait, name="its ear", daemon=daemon)
    thread.start()
    try:
        yield
    finally:
        told.set()
        thread.join(BOUND_S)


@contextmanager
def a_thread_at_work() -> Iterator[None]:
    """One of Trio's threads, at work for somebody who has gone."""
    told, ended = threading.Event(), threading.Event()

    trio.lowlevel.start_thread_soon(told.wait, lambda _: ended.set(), "its work")
    try:
        yield
    finally:
        told.set()
        assert ended.wait(BOUND_S)


@contextmanager
def a_process() -> Iterator[None]:
    """A child that nobody ends."""
    with subprocess.Popen(["sleep", SECRET]) as process:
        try:
            yield
        finally:
            process.kill()


class LeavesBehind:
    """The scripted provider, which is closed as it should be, and something beside it, which is not."""

    name = "scripted"

    def __init__(self, inner: Any, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._inner = inner
        self._begin = begin
        self._end = end

    @asynccontextmanager
    async def open(self, ports: Any) -> AsyncIterator[Any]:
        async with self._inner.open(ports) as adapter:
            self._begin()
            yield adapter
            self._end()

    async def diagnose(self) -> Any:
        return await self._inner.diagnose()


class Suite(AdapterSuite):
    """The kit over an adapter that leaves something."""

    virtual_time = True

    def __init__(self, begin: Callable[[], object], end: Callable[[], object] = lambda: None) -> None:
        self._begin = begin
        self._end = end

    @asynccontextmanager
    async def open_bed(self, directory: pathlib.Path) -> AsyncIterator[Any]:
        bed: Any = ScriptedKitBed(directory)
        bed.provider = LeavesBehind(bed.scripted, self._begin, self._end)
        yield bed


async def do_nothing(stage: Any) -> None:
    """A case that finds no fault itself."""
    await trio.lowlevel.checkpoint()


def run_leaving(leave: Leave, directory: pathlib.Path) -> str:
    """Run a case over an adapter that leaves something; return what the case is told."""
    left = leave()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_left_behind, "GRACE_S", 0.05)
        try:
            with pytest.raises(LeftBehindError) as caught:
                Suite(left.__enter__).run_case(do_nothing, directory)
        finally:
            left.__exit__(None, None, None)
    return str(caught.value)


def test_a_task_that_is_left_is_named(tmp_path: pathlib.Path) -> None:
    """R13: a system task outlives every nursery of its adapter."""
    assert run_leaving(a_task, tmp_path) == "the closed provider left task 'its reader'"


@pytest.mark.parametrize("daemon", [True, False], ids=["a daemon", "no daemon"])
def test_a_thread_that_is_left_is_named(daemon: bool, tmp_path: pathlib.Path) -> None:
    """R13: it works on, whether or not the program would wait for it."""
    told = run_leaving(lambda: a_thread(daemon=daemon), tmp_path)
    assert told == "the closed provider left thread 'its ear'"


def test_a_thread_of_trios_cache_that_still_works_is_named(tmp_path: pathlib.Path) -> None:
    """R13: only the idle ones of the cache are excepted, also when it was idle before."""
    told = threading.Event()
    trio.lowlevel.start_thread_soon(lambda: None, lambda _: told.set())
    assert told.wait(BOUND_S)
    assert run_leaving(a_thread_at_work, tmp_path) == "the closed provider left thread 'its work'"


@pytest.mark.process
def test_a_process_that_is_left_is_named_without_its_arguments(tmp_path: pathlib.Path) -> None:
    """R13, R2: by pid and command name; arguments hold keys and prompts."""
    before = descendants_of(os.getpid())
    pids: list[int] = []

    @contextmanager
    def noted() -> Iterator[None]:
        with a_process():
            pids.extend(pid for pid in descendants_of(os.getpid()) if pid not in before)
            yield

    told = run_leaving(noted, tmp_path)
    assert told == f"the closed provider left process {pids[0]} ('sleep')"


@pytest.mark.process
def test_a_process_whose_parent_was_ended_is_found_all_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: who kills a wrapper leaves what it wraps, and that is no child of ours any more."""
    monkeypatch.setattr(_left_behind, "GRACE_S", 0.05)
    started: list[subprocess.Popen[bytes]] = []
    wrapped: dict[int, int] = {}

    def begin() -> None:
        shell = subprocess.Popen(["sh", "-c", f"sleep {SECRET} & echo; wait"], stdout=subprocess.PIPE)
        started.append(shell)
        assert shell.stdout is not None
        with shell.stdout:
            shell.stdout.readline()
        wrapped.update(descendants_of(shell.pid))

    def end() -> None:
        started[0].kill()
        started[0].wait(BOUND_S)

    try:
        with pytest.raises(LeftBehindError, match=r"left process \d+ \('sleep'\)$"):
            Suite(begin, end).run_case(do_nothing, tmp_path)
    finally:
        for pid, started_ticks in wrapped.items():
            if is_alive(pid, started_ticks):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.process
def test_what_ends_a_moment_later_is_not_left(tmp_path: pathlib.Path) -> None:
    """Our choice: who was told to end may need a moment; a zombie is no process, an idle thread of Trio's is none."""
    told = threading.Event()
    threads: list[threading.Thread] = []
    processes: list[subprocess.Popen[bytes]] = []

    async def rest() -> None:
        await trio.to_thread.run_sync(told.wait)
        await trio.sleep(0.5)

    def begin() -> None:
        threads.append(threading.Thread(target=told.wait))
        threads[0].start()
        processes.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        trio.lowlevel.spawn_system_task(rest)

    def end() -> None:
        told.set()
        assert processes[0].stdin is not None
        processes[0].stdin.close()

    Suite(begin, end).run_case(do_nothing, tmp_path)
    threads[0].join(BOUND_S)
    assert processes[0].wait(BOUND_S) == 0


def test_what_was_there_before_or_belongs_to_the_bed_is_not_left(tmp_path: pathlib.Path) -> None:
    """Our choice: the bed is still open, and so is whatever runs the case."""

    class Beside(Suite):
        @asynccontextmanager
        async def open_bed(self, directory: pathlib.Path) -> AsyncIterator[Any]:
            trio.lowlevel.spawn_system_task(trio.sleep_forever)
            async with super().open_bed(directory) as bed, trio.open_nursery() as nursery:
                bed.provider._begin = lambda: nursery.start_soon(trio.sleep_forever)
                yield bed
                nursery.cancel_scope.cancel()

    with a_thread(daemon=True):
        Beside(lambda: None).run_case(do_nothing, tmp_path)


def test_much_that_is_left_is_told_in_short(tmp_path: pathlib.Path) -> None:
    """R12: a message is bounded as well."""

    @contextmanager
    def many() -> Iterator[None]:
        for _ in range(_left_behind.NAMED_MAX + 3):
            trio.lowlevel.spawn_system_task(trio.sleep_forever, name="one of many")
        yield

    told = run_leaving(many, tmp_path)
    assert told.count("one of many") == _left_behind.NAMED_MAX
    assert told.endswith(", and 3 more")


def test_the_grace_is_not_the_end_of_a_clock_that_jumps(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our choice: the case says what is left, not that it took too long; also where looking takes no time at all."""
    monkeypatch.setattr(_left_behind, "descendants_of", lambda _: {})
    monkeypatch.setattr(_left_behind, "GRACE_S", 0.3)
    monkeypatch.setattr(Suite, "bound_s", 1.5)
    suite = Suite(lambda: trio.lowlevel.spawn_system_task(trio.sleep_forever, name="its reader"))
    with pytest.raises(LeftBehindError, match="its reader"):
        suite.run_case(do_nothing, tmp_path)
