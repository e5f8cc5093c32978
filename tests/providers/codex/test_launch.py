"""Finding the binary, its environment and command, and the handshake."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_providers.codex import _launch
from tutti_providers.codex._launch import app_server_command, find_binary, handshake, launch_environment
from tutti_providers.codex.errors import BinaryNotFoundError, BinaryUnusableError, HandshakeError, StartFailedError
from tutti_providers.codex.schema.notifications import Head
from tutti_side.jsonrpc import ConnectionClosedError, MemoryTransport, Peer, PeerExit, memory_pair, open_peer


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


@pytest.mark.parametrize("origin", ["argument", "CODEX_BIN"])
def test_a_path_in_the_home_of_an_unknown_user_is_a_sentence(origin: str) -> None:
    """Our choice: ``~name`` can't be looked up for everyone."""
    name = "~no-such-user-at-all/codex"
    with pytest.raises(BinaryUnusableError, match="unknown"):
        find_binary(*((name, {}) if origin == "argument" else (None, {"CODEX_BIN": name})))


def test_an_empty_variable_counts_as_unset(tmp_path: Path, no_wheel: None) -> None:
    """Our choice: `CODEX_BIN= tutti-side …` is how a shell unsets it for one command."""
    on_path = make_program(tmp_path / "codex")
    assert find_binary(None, {"CODEX_BIN": "", "PATH": str(tmp_path)}).path == on_path


@pytest.mark.parametrize("environ", [{}, {"PATH": ""}, {"PATH": "/nonexistent"}])
def test_without_any_the_error_names_all_four_places_and_how_to_get_one(
    no_wheel: None, environ: dict[str, str]
) -> None:
    """Required: a clear error naming all four."""
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
    """Required: the wheel carries the real binary."""
    found = find_binary(None, {})
    assert found.origin == "wheel"
    assert found.path.is_file()


# starting it


def test_the_environment_holds_what_codex_needs_and_no_secret_of_ours() -> None:
    """Required: environment passed on is explicit. The account's own two keys are needed; others aren't."""
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


class Deaf:
    """A router that wants nothing."""

    def feed(self, messages: object) -> None:
        pass

    def connection_lost(self, error: object) -> None:
        pass


class Server:
    """The other end: keeps the lines that came, and answers the first with prepared bytes, or by ending."""

    def __init__(self, transport: MemoryTransport, *, ends: bool = False) -> None:
        self.transport = transport
        self.ends = ends
        self.received = b""

    @property
    def messages(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.received.splitlines()]

    async def run(self, answer: bytes) -> None:
        while chunk := await self.transport.receive_some(65536):
            first = b"\n" not in self.received
            self.received += chunk
            if first and answer:
                await self.transport.send_all(answer)
            if first and self.ends:
                await self.transport.aclose()
                return


@asynccontextmanager
async def served(answer: bytes, *, exit: PeerExit | None = None) -> AsyncIterator[tuple[Peer[Head], Server]]:
    """Give a peer whose first request is answered with `answer`; with `exit` the server ends after it, like that."""
    near, far = memory_pair()
    server = Server(far, ends=exit is not None)
    far.exit = exit or PeerExit()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run, answer)
            async with open_peer(near, Deaf(), params_type=Head) as peer:
                yield peer, server
            await near.aclose()


def result(**fields: str) -> bytes:
    return msgspec.json.encode({"id": 1, "result": fields}) + b"\n"


async def test_the_handshake_says_who_we_are_asks_for_experimental_methods_and_reads_the_version() -> None:
    """PROTOCOL, initialize: backgroundTerminals and collaborationMode need experimentalApi; `initialized` follows."""
    answer = result(userAgent="tutti-side/0.163.0 (Debian) xterm", codexHome="/h", platformOs="linux")
    async with served(answer) as (peer, server):
        shaken = await handshake(peer, client_version="0.1.0")
        await trio.testing.wait_all_tasks_blocked()
        sent = server.messages
    assert shaken.attestation.supported
    assert shaken.codex_home == "/h"
    info = {"name": "tutti-side", "title": "tutti-side", "version": "0.1.0"}
    assert sent == [
        {"id": 1, "method": "initialize", "params": {"clientInfo": info, "capabilities": {"experimentalApi": True}}},
        {"method": "initialized", "params": {}},
    ]


async def test_a_banner_before_the_answer_does_no_harm() -> None:
    """F12: a log line on stdout is one dropped frame."""
    answer = b"Welcome to Codex!\n\n" + result(userAgent="tutti-side/0.163.0 (Debian) xterm")
    async with served(answer) as (peer, _):
        assert (await handshake(peer)).attestation.supported


async def test_an_unsupported_version_is_an_attestation_and_no_error() -> None:
    """F38: the caller must refuse before the first fork; `doctor` must be able to say which version it is."""
    async with served(result(userAgent="tutti-side/0.100.0 (Debian) xterm")) as (peer, _):
        shaken = await handshake(peer)
    assert shaken.attestation.version == "0.100.0"
    assert not shaken.attestation.supported
    assert shaken.codex_home is None


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "not answered within 20 s"),
        (b"garbage without an end", "not answered within 20 s"),
        (b'\xff\xfe{"id":1}\n[]\n{"id":"1","result":{}}\n{"id":2,"result":{}}\n', "not answered within 20 s"),
        (b'{"id":1,"error":{"code":-32600,"message":"Invalid clientInfo.name"}}\n', "Invalid clientInfo.name"),
        (b'{"id":1,"result":{"userAgent":5}}\n', "userAgent"),
        (b'{"id":1,"result":[]}\n', "unexpected form"),
        (b'{"id":1,"result":{}}\n', "unexpected form"),
    ],
)
async def test_silence_garbage_and_a_refusal_are_one_handshake_error_that_says_which(
    answer: bytes, says: str, autojump_clock: trio.testing.MockClock
) -> None:
    """R9, T14: bad input of all kinds is one clear error within a named bound; nothing more is sent."""
    async with served(answer) as (peer, server):
        with pytest.raises(HandshakeError, match=says) as caught:
            await handshake(peer)
        await trio.testing.wait_all_tasks_blocked()
        assert [m["method"] for m in server.messages] == ["initialize"]
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("status", [1, -9, None])
async def test_an_end_before_the_answer_is_a_failed_start_with_status_and_last_lines_as_attributes(
    status: int | None,
) -> None:
    """T19, R9: start-up failures are on stderr alone. Its lines are an attribute, in no message and no repr."""
    tail = ("Error: CODEX_HOME points to nowhere",)
    async with served(b"", exit=PeerExit(status=status, stderr_tail=tail)) as (peer, _):
        with pytest.raises(StartFailedError) as caught:
            await handshake(peer)
    assert caught.value.status == status
    assert caught.value.startup_output == tail
    assert (f"exit status {status}" in str(caught.value)) == (status is not None)
    assert "nowhere" not in str(caught.value) + repr(caught.value)


async def test_a_server_that_we_gave_up_has_not_ended() -> None:
    """Our choice: one that floods us and reads nothing was said to have ended."""
    async with served(b"") as (peer, _):
        peer.fail(ConnectionClosedError("peer_not_reading"))
        with pytest.raises(HandshakeError, match="does not read what is sent to it"):
            await handshake(peer)
