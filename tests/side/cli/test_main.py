"""The command group: usage, errors, exit codes."""

import argparse
import importlib.metadata
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_side.cli import main
from tutti_side.cli._terminal import plain
from tutti_side.errors import TuttiSideError

command_group = sys.modules["tutti_side.cli.main"]


class OddError(TuttiSideError):
    """Has an exit code of its own, and the last lines of a process."""

    exit_code = 7
    startup_output = ("\x1b[31mfirst\x1b[0m", "second\r\x07")


class Thrower:
    """A command that raises what it is given."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def register(self, subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        subparsers.add_parser("throw").set_defaults(run=self.run)

    def run(self, args: argparse.Namespace) -> int:
        raise self.error


@pytest.fixture
def throwing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Run a command that raises the given error, and return the exit code."""

    def run(error: BaseException) -> int:
        monkeypatch.setattr(command_group, "COMMANDS", (Thrower(error),))
        return main(["throw"])

    return run


def test_an_error_of_ours_is_one_sentence_and_the_exit_code_one(
    throwing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """STYLE: an error knows its sentence."""
    assert throwing(TuttiSideError("nothing is there")) == 1
    assert capsys.readouterr().err == "tutti-side: nothing is there\n"


def test_an_error_may_carry_its_exit_code_and_the_lines_that_a_failed_start_left(
    throwing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """T19: start-up failures are printed for the person who started it, as plain text."""
    assert throwing(OddError("did not start")) == 7
    assert capsys.readouterr().err == "  first\n  second  \ntutti-side: did not start\n"


def test_a_group_of_our_errors_is_a_sentence_each(
    throwing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Our choice: failures of several tasks come as a group, which is no reason for a traceback."""
    inner = ExceptionGroup("inner", [TuttiSideError("two")])
    assert throwing(ExceptionGroup("outer", [OddError("one"), inner])) == 7
    assert capsys.readouterr().err.splitlines()[2:] == ["tutti-side: one", "tutti-side: two"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("g", [KeyboardInterrupt()])])
def test_an_interrupt_is_the_exit_code_that_shells_use_and_no_traceback(
    throwing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    """Our choice: 128 + SIGINT."""
    assert throwing(error) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "error",
    [ValueError("bug"), BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError("bug")])],
)
def test_a_bug_leaves_as_it_is(throwing: Callable[[BaseException], int], error: BaseException) -> None:
    """STYLE: never catch what nobody expects; beside an interrupt neither."""
    with pytest.raises(type(error)) as caught:
        throwing(error)
    assert caught.value is error


def run_talking(redirections: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command that says a word, as a shell with these redirections does."""
    program = (
        "import sys, types, tutti_side.cli.main; group = sys.modules['tutti_side.cli.main']; "
        "run = lambda args: 0 if sys.stdout.write('word') else 1; "
        "register = lambda parsers: parsers.add_parser('talk').set_defaults(run=run); "
        "group.COMMANDS = (types.SimpleNamespace(register=register),); sys.exit(group.main(['talk']))"
    )
    command = ["sh", "-c", f'exec "$0" -E -c "$1" {redirections}', sys.executable, program]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


def test_a_full_disk_is_a_sentence_and_no_traceback() -> None:
    """Our choice: what the system refuses is nobody's bug."""
    ended = run_talking(">/dev/full")
    assert (ended.returncode, ended.stderr) == (1, b"tutti-side: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str) -> None:
    """Our choice: a service manager may start us without them; Python has None there then."""
    ended = run_talking(closed)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_no_command_prints_the_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Our choice: as argparse does for a wrong one."""
    assert main([]) == 2
    assert "doctor" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nonsense"], ["doctor", "--nonsense"], ["doctor", "too", "many"]])
def test_a_command_line_that_is_not_understood_is_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Our choice: exit code 2, usage on stderr, nothing on stdout."""
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: tutti-side" in captured.err


@pytest.mark.parametrize("words", [["--help"], ["doctor", "--help"]])
def test_help_is_no_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Our choice."""
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("usage: tutti-side")


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Our choice."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tutti-side {importlib.metadata.version('tutti-side')}\n"


@pytest.mark.parametrize("many", [True, False], ids=["in the middle", "at the last flush"])
def test_a_reader_that_goes_away_ends_the_command_without_a_traceback(many: bool) -> None:
    """Our choice: `tutti-side … | head` is normal use; 128 + SIGPIPE."""
    program = (
        "import sys, types, tutti_side.cli.main\n"
        "group = sys.modules['tutti_side.cli.main']\n"
        "def run(args):\n"
        "    sys.stdin.read()\n"
        f"    sys.stdout.write('x' * {10_000_000 if many else 1})\n"
        "def register(parsers): parsers.add_parser('talk').set_defaults(run=run)\n"
        "group.COMMANDS = (types.SimpleNamespace(register=register, run=run),)\n"
        "sys.exit(group.main(['talk']))\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-E", "-c", program], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        errors = process.stderr.read()
        assert process.wait(30) == 141
    assert errors == b""


def test_the_installed_command_is_this_main() -> None:
    """pyproject: the entry point of the script."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="tutti-side")
    assert script.load() is main


@given(st.text())
def test_foreign_text_becomes_one_plain_line(text: str) -> None:
    """Our choice: what a process wrote can't move a person's cursor or change a title."""
    shown = plain(text)
    assert shown.isprintable()
    assert plain(shown) == shown
    if text.isprintable():
        assert shown == text
