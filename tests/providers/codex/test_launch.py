"""Finding the binary, its environment and command, and the handshake."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio

from tutti_providers.codex import _launch
from tutti_providers.codex._launch import app_server_command, find_binary, handshake, launch_environment
from tutti_providers.codex.errors import BinaryNotFoundError, BinaryUnusableError, HandshakeError, StartFailedError
from tutti_side.jsonrpc.errors import ConnectionClosedError, InvalidResultError, RemoteError, RequestTimeoutError
from tutti_side.jsonrpc.transports import PeerExit


def make_program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel's module can't be found, as on a machine without the extra."""
    monkeypatch.setattr(_launch, "WHEEL_MODULE", "no_such_module_at_all")


@pytest.fixture
def wheel_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Install a stand-in for the wheel's module, with the given body."""

    def install(body: str) -> None:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "stand_in_wheel.py").write_text(body)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(_launch, "WHEEL_MODULE", "stand_in_wheel")

    yield install
    sys.modules.pop("stand_in_wheel", None)


# finding it


def test_the_four_places_are_tried_in_order_and_the_answer_says_which_it_was(
    tmp_path: Path, wheel_with: Callable[[str], None]
) -> None:
    """Our choice, named in the README: argument, CODEX_BIN, the wheel, PATH."""
    given, variable, bundled, on_path = (make_program(tmp_path / n / "codex") for n in ("arg", "env", "whl", "bin"))
    wheel_with(f"def bundled_codex_path(): return {str(bundled)!r}")
    environ = {"CODEX_BIN": str(variable), "PATH": str(on_path.parent)}
    seen = [find_binary(given, environ), find_binary(None, environ), find_binary(None, {"PATH": environ["PATH"]})]
    assert [(f.path, f.origin) for f in seen] == [(given, "argument"), (variable, "CODEX_BIN"), (bundled, "wheel")]


def test_without_a_wheel_the_one_on_path_is_taken(tmp_path: Path, no_wheel: None) -> None:
    """Our choice: the fourth place."""
    on_path = make_program(tmp_path / "bin" / "codex")
    found = find_binary(None, {"PATH": f"{tmp_path / 'nothing'}:{on_path.parent}"})
    assert (found.path, found.origin) == (on_path, "PATH")


def test_an_empty_variable_counts_as_unset(tmp_path: Path, no_wheel: None) -> None:
    """Our choice: `CODEX_BIN= tutti-side …` is how a shell unsets it for one command."""
    on_path = make_program(tmp_path / "codex")
    assert find_binary(None, {"CODEX_BIN": "", "PATH": str(tmp_path)}).path == on_path


@pytest.mark.parametrize("environ", [{}, {"PATH": ""}, {"PATH": "/nonexistent"}])
def test_without_any_the_error_names_all_four_places_and_how_to_get_one(
    no_wheel: None, environ: dict[str, str]
) -> None:
    """Issue A, item 5: a clear error naming all four."""
    with pytest.raises(BinaryNotFoundError) as caught:
        find_binary(None, environ)
    sentence = str(caught.value)
    for part in ("no path was given", "CODEX_BIN is not set", "openai-codex-cli-bin", "PATH", "tutti-side[codex]"):
        assert part in sentence
    assert len(caught.value.searched) == 4


def test_a_path_relative_to_the_working_directory_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our choice: the session's own working directory must not change which program is run."""
    make_program(tmp_path / "here" / "codex")
    monkeypatch.chdir(tmp_path)
    assert find_binary("here/codex", {}).path == tmp_path / "here" / "codex"


@pytest.mark.parametrize("origin", ["argument", "CODEX_BIN"])
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.mkdir(), "is a directory"),
        (lambda p: make_program(p, 0o644), "is not executable"),
        (lambda p: p.symlink_to("nowhere"), "does not exist"),
    ],
)
def test_a_named_path_that_cannot_be_run_is_an_error_of_its_own_and_no_other_place_is_tried(
    tmp_path: Path, origin: str, make: Callable[[Path], object], problem: str
) -> None:
    """Our choice: who names a program gets that one, or a sentence."""
    path = tmp_path / "codex-here"
    make(path)
    elsewhere = make_program(tmp_path / "bin" / "codex")
    argument, environ = (path, {}) if origin == "argument" else (None, {"CODEX_BIN": str(path)})
    with pytest.raises(BinaryUnusableError, match=problem) as caught:
        find_binary(argument, environ | {"PATH": str(elsewhere.parent)})
    assert str(path) in str(caught.value)
    assert caught.value.origin == origin


@pytest.mark.parametrize("bad", ["a\0b", "x" * 5000])
def test_a_path_that_the_system_refuses_to_look_at_is_unusable_too(bad: str) -> None:
    """Bad input of all kinds is one clear error."""
    with pytest.raises(BinaryUnusableError):
        find_binary(bad, {})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("def bundled_codex_path(): raise FileNotFoundError('gone')", "without its binary"),
        ("raise ImportError('broken')", "without its binary"),
        ("", "without its binary"),
        ("def bundled_codex_path(): return '/nonexistent/codex'", "does not exist"),
    ],
)
def test_a_broken_wheel_is_passed_over_and_named_when_nothing_else_is_found(
    tmp_path: Path, wheel_with: Callable[[str], None], body: str, says: str
) -> None:
    """Our choice: nobody named the wheel, so PATH may still help."""
    wheel_with(body)
    with pytest.raises(BinaryNotFoundError, match=says):
        find_binary(None, {})
    on_path = make_program(tmp_path / "bin" / "codex")
    assert find_binary(None, {"PATH": str(on_path.parent)}).origin == "PATH"


@pytest.mark.codex
def test_the_installed_wheel_has_a_binary_that_is_found() -> None:
    """Issue A, item 5: the wheel carries the real binary."""
    found = find_binary(None, {})
    assert found.origin == "wheel"
    assert found.path.is_file()


# starting it


def test_the_environment_holds_what_codex_needs_and_no_secret_of_ours() -> None:
    """Issue A, item 4: environment passed on is explicit. The account's own two keys are needed; others aren't."""
    ours = {
        "PATH": "/bin",
        "HOME": "/home/u",
        "LC_ALL": "C.UTF-8",
        "https_proxy": "http://p",
        "OPENAI_API_KEY": "k",
        "CODEX_API_KEY": "k2",
        "AWS_SECRET_ACCESS_KEY": "s",
        "GITHUB_TOKEN": "s",
        "DATABASE_URL": "s",
        "LD_PRELOAD": "x",
        "RUST_LOG": "trace",
        "CODEX_INTERNAL_ORIGINATOR_OVERRIDE": "other",
        "PYTHONPATH": "x",
    }
    passed = launch_environment(ours)
    assert set(passed) == {"PATH", "HOME", "LC_ALL", "https_proxy", "OPENAI_API_KEY", "CODEX_API_KEY"}
    assert all(passed[k] == ours[k] for k in passed)


def test_what_the_user_adds_wins_and_the_given_home_wins_over_all(tmp_path: Path) -> None:
    """Our choice: a Side of a persisted source must run in exactly the home where the source is."""
    ours = {"PATH": "/bin", "CODEX_HOME": "/elsewhere"}
    assert launch_environment(ours)["CODEX_HOME"] == "/elsewhere"
    passed = launch_environment(ours, codex_home=tmp_path, extra={"PATH": "/x", "MY_KEY": "k", "CODEX_HOME": "/no"})
    assert passed == {"PATH": "/x", "MY_KEY": "k", "CODEX_HOME": str(tmp_path)}
    assert ours == {"PATH": "/bin", "CODEX_HOME": "/elsewhere"}


def test_the_command_serves_on_its_standard_streams_with_each_override_on_its_own() -> None:
    """`codex app-server --help`, 0.163."""
    assert app_server_command(Path("/x/codex")) == ["/x/codex", "app-server", "--listen", "stdio://"]
    command = app_server_command(Path("/x/codex"), overrides=["features.shell_snapshot=false", 'model="a b"'])
    assert command[4:] == ["-c", "features.shell_snapshot=false", "-c", 'model="a b"']


# the first two messages


T = TypeVar("T")


class ScriptedPeer:
    """Answers `initialize` with a prepared result or error, and keeps what was sent."""

    def __init__(self, outcome: dict[str, str] | Exception) -> None:
        self.outcome = outcome
        self.sent: list[tuple[str, Any, float | None]] = []

    async def request(self, method: str, params: object = None, *, result_type: type[T], deadline_s: float) -> T:
        self.sent.append((method, msgspec.json.decode(msgspec.json.encode(params)), deadline_s))
        await trio.lowlevel.checkpoint()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return msgspec.json.decode(msgspec.json.encode(self.outcome), type=result_type)

    def notify(self, method: str, params: object = None) -> None:
        self.sent.append((method, params, None))


async def test_the_handshake_says_who_we_are_asks_for_experimental_methods_and_reads_the_version() -> None:
    """PROTOCOL, initialize: backgroundTerminals and collaborationMode need experimentalApi; `initialized` follows."""
    peer = ScriptedPeer({"userAgent": "tutti-side/0.163.0 (Debian) xterm", "codexHome": "/h", "platformOs": "linux"})
    shaken = await handshake(peer, client_name="tutti-side", client_version="0.1.0")
    assert shaken.attestation.supported
    assert shaken.codex_home == "/h"
    info = {"name": "tutti-side", "title": "tutti-side", "version": "0.1.0"}
    params = {"clientInfo": info, "capabilities": {"experimentalApi": True}}
    assert peer.sent == [("initialize", params, 20), ("initialized", None, None)]


async def test_an_unsupported_version_is_an_attestation_and_no_error() -> None:
    """F38: the caller must refuse before the first fork; `doctor` must be able to say which version it is."""
    peer = ScriptedPeer({"userAgent": "tutti-side/0.100.0 (Debian) xterm"})
    shaken = await handshake(peer, client_name="tutti-side", client_version="0.1.0")
    assert not shaken.attestation.supported
    assert shaken.codex_home is None


@pytest.mark.parametrize(
    "error",
    [
        RequestTimeoutError("initialize", 20),
        RemoteError(-32600, "Invalid clientInfo.name", method="initialize"),
        InvalidResultError("initialize", "Expected `str`, got `int` - at `$.userAgent`"),
    ],
)
async def test_silence_a_refusal_and_nonsense_are_one_handshake_error_that_says_which(error: Exception) -> None:
    """R9; issue A: bad input of all kinds one clear error."""
    peer = ScriptedPeer(error)
    with pytest.raises(HandshakeError) as caught:
        await handshake(peer, client_name="tutti-side", client_version="0.1.0")
    assert str(error) in str(caught.value)
    assert caught.value.__cause__ is error
    assert [m for m, _, _ in peer.sent] == ["initialize"]


@pytest.mark.parametrize("status", [1, -9, None])
async def test_an_end_before_the_answer_is_a_failed_start_with_status_and_last_lines_as_attributes(
    status: int | None,
) -> None:
    """T19: start-up failures are on stderr alone. Its lines are an attribute, in no message and no repr."""
    tail = ("Error: CODEX_HOME points to nowhere",)
    peer = ScriptedPeer(ConnectionClosedError("eof", PeerExit(status=status, stderr_tail=tail)))
    with pytest.raises(StartFailedError) as caught:
        await handshake(peer, client_name="tutti-side", client_version="0.1.0")
    assert caught.value.status == status
    assert caught.value.startup_output == tail
    assert (f"exit status {status}" in str(caught.value)) == (status is not None)
    assert "nowhere" not in str(caught.value) + repr(caught.value)


async def test_an_end_of_which_nothing_is_known_is_a_failed_start_too() -> None:
    """R9: a transport without a process."""
    with pytest.raises(StartFailedError) as caught:
        await handshake(ScriptedPeer(ConnectionClosedError("broken_pipe")), client_name="x", client_version="1")
    assert (caught.value.status, caught.value.startup_output) == (None, ())
