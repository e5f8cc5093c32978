"""The command group `tutti-side`: what commands there are, and how an error becomes a sentence and an exit code."""

import argparse
import importlib.metadata
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol, cast

from tutti_side.cli import _demo, _doctor, _sink
from tutti_side.cli._terminal import plain
from tutti_side.errors import TuttiSideError

__all__ = ["main"]

EXIT_ERROR = 1
"""An error of ours that names no exit code of its own in ``exit_code``."""
EXIT_USAGE = 2
"""The command line was not understood; argparse's own."""
EXIT_INTERRUPTED = 130
"""Interrupted from the keyboard: 128 + SIGINT, as shells have it."""
EXIT_PIPE = 141
"""Whoever read our output has gone: 128 + SIGPIPE, as shells have it."""


class Command(Protocol):
    """A module that is one command."""

    def register(self, subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Add the command's parser, its `run` as the default ``run``."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it, and return the exit code."""
        ...


COMMANDS: tuple[Command, ...] = (_demo, _doctor, _sink)
"""Every command, in the order of the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    An error of ours, or of the system (a full disk), is one sentence on stderr, after the last lines that a process
    wrote which did not start. Any other exception is a bug, and leaves as it is.

    Args:
      argv: the words after the program's name; None: the process' own.
    """
    _open_missing_streams()
    parser = _parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    if not hasattr(args, "run"):
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        with _terminated_as_interrupted():
            code: int = args.run(args)
            sys.stdout.flush()
    except (TuttiSideError, KeyboardInterrupt, OSError, BaseExceptionGroup) as error:
        return _report(error)
    return code


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does: what it opened is closed, and its temporary directory removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tutti-side", description="Ask a working agent a question without stopping its turn."
    )
    version = importlib.metadata.version("tutti-side")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        command.register(subparsers)
    return parser


def _report(error: BaseException) -> int:
    """Say what `error` is, if it is one that we expect, and return its exit code; else raise it again."""
    leaves = _leaves(error)
    if not all(isinstance(leaf, TuttiSideError | KeyboardInterrupt | OSError) for leaf in leaves):
        raise error
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        return EXIT_INTERRUPTED
    if any(isinstance(leaf, BrokenPipeError) for leaf in leaves):
        _forget_stdout()
        return EXIT_PIPE
    if any(isinstance(leaf, OSError) for leaf in leaves):
        _forget_stdout()  # it may be what failed
    for leaf in leaves:
        output: tuple[str, ...] = getattr(leaf, "startup_output", ())
        sys.stderr.writelines(f"  {plain(line)}\n" for line in output)
        sys.stderr.write(f"tutti-side: {plain(str(leaf))}\n")
    return int(getattr(leaves[0], "exit_code", EXIT_ERROR))


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for inner in group.exceptions for leaf in _leaves(inner)]


def _open_missing_streams() -> None:
    """Let what is said go nowhere when we were started with stdout or stderr closed: Python has None for them then."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def _forget_stdout() -> None:
    """Send what is still buffered nowhere, so that it doesn't fail once more when the interpreter closes stdout."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
