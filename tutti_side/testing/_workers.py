"""Processes that work through seeds, and a parent that knows at which seed each of them is.

So a seed that never ends, or that takes its process along, has a name: a step that never yields can be seen from
outside only. The only place of the simulation that reads real time.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Generic, Protocol, TypeVar

import msgspec

__all__ = ["SILENCE_S", "Lost", "Work", "work_through"]

SILENCE_S = 300.0
"""Real time for one seed: it takes a tenth of a second, and up to a minute when it spins until it is cut off."""

STACK_S = 1.0
"""A process that is ended has so long to print its stack."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Lost(msgspec.Struct, frozen=True):
    """A seed that came to nothing."""

    seed: int
    why: str


class Work(Protocol[T_co]):
    """What a process does with a chunk; it is pickled, and so is what it returns, which is no int."""

    def __call__(self, seeds: Sequence[int], /, *, begin: Callable[[int], None]) -> T_co:
        """Work through the seeds, and call `begin` before each."""
        ...


def work_through(
    chunks: Iterator[Sequence[int]], work: Work[T], processes: int, silence_s: float = SILENCE_S
) -> Iterator[T | Lost]:
    """Yield what comes of each chunk, as it comes; closing this kills the processes.

    When a seed is lost, the others of its chunk are worked through once more, in a new process.

    Args:
      chunks: seeds; the next one is drawn when a process has nothing to do.
      work: what to do with each.
      processes: how many at once.
      silence_s: a process that says nothing for so long, in seconds of real time, is killed; its seed is lost.
    """
    workers = [_Worker(work) for _ in range(processes)]
    again: list[Sequence[int]] = []
    try:
        while True:
            for worker in workers:
                if not worker.seeds:
                    worker.give(again.pop() if again else next(chunks, ()))
            busy = [worker for worker in workers if worker.seeds]
            if not busy:
                return
            oldest_s = min(worker.heard_s for worker in busy)
            ready = wait([worker.pipe for worker in busy], max(0.0, oldest_s + silence_s - time.monotonic()))
            for worker in busy:
                result = worker.hear() if worker.pipe in ready else worker.doubt(silence_s)
                if isinstance(result, Lost):
                    again.append([seed for seed in worker.seeds if seed != result.seed])
                    worker.kill()
                    workers[workers.index(worker)] = _Worker(work)
                if result is not None:
                    yield result
    finally:
        for worker in workers:
            worker.kill()


class _Worker(Generic[T]):
    """One process, as its parent sees it."""

    def __init__(self, work: Work[T]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self._process.start()
        theirs.close()
        self.seeds: Sequence[int] = ()
        """What it has to do; empty when nothing."""
        self.heard_s = 0.0
        """When it was last heard of, or given something."""
        self._seed = 0

    def give(self, seeds: Sequence[int]) -> None:
        """Have it work through these; none: it goes on waiting."""
        if seeds:
            self.seeds, self._seed, self.heard_s = seeds, seeds[0], time.monotonic()
            with contextlib.suppress(BrokenPipeError):  # it has ended: that is heard next
                self.pipe.send(seeds)

    def hear(self) -> T | Lost | None:
        """Take what it said; return what came of its chunk, once that is known."""
        self.heard_s = time.monotonic()
        try:
            said: int | T = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(STACK_S)
            return Lost(self._seed, f"its process ended, with status {self._process.exitcode}")
        if isinstance(said, int):
            self._seed = said
            return None
        self.seeds = ()
        return said

    def doubt(self, silence_s: float) -> Lost | None:
        """It said nothing: return its seed, and have it print its stack, if that has been so for too long."""
        if time.monotonic() - self.heard_s < silence_s:
            return None
        if self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGUSR1)
            self._process.join(STACK_S)
        return Lost(self._seed, f"no word for {silence_s:g} s of real time")

    def kill(self) -> None:
        """End it, whatever it does. Idempotent."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection, work: Work[T]) -> None:
    """Be a process: work through what is given until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which kills this process then
    faulthandler.register(signal.SIGUSR1)  # says where it spins, even when no step of Python's ever ends
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone: so is this
        while True:
            pipe.send(work(pipe.recv(), begin=pipe.send))
