"""Finding the Codex binary, what it is started with, and the first two messages on its pipe."""

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from tutti_providers.codex._versions import Attestation, attest
from tutti_providers.codex.errors import BinaryNotFoundError, BinaryUnusableError, HandshakeError, StartFailedError
from tutti_providers.codex.schema.requests import (
    INITIALIZED,
    ClientInfo,
    InitializeCapabilities,
    InitializeParams,
    InitializeResult,
)
from tutti_side.jsonrpc import (
    ConnectionClosedError,
    InvalidResultError,
    Peer,
    PeerExit,
    RemoteError,
    RequestTimeoutError,
)

__all__ = [
    "CLIENT_NAME",
    "CLIENT_VERSION",
    "FoundBinary",
    "Handshake",
    "Origin",
    "app_server_command",
    "find_binary",
    "handshake",
    "launch_environment",
]

BINARY_VARIABLE = "CODEX_BIN"
"""The environment variable that names the binary."""

WHEEL_MODULE = "codex_cli_bin"
"""The module of the wheel that carries the binary, ``openai-codex-cli-bin``."""

CLIENT_NAME = "tutti-side"
"""What we call ourselves; it comes back at the head of the user agent."""

CLIENT_VERSION = importlib.metadata.version("tutti-side")
"""Our own version, as installed."""

REFUSAL_CHARS_MAX = 200
"""How much of the server's words about a refused handshake is shown; they can be several kB."""

HANDSHAKE_DEADLINE_S = 20
"""How long ``initialize`` may take. Real ones: 0.06 to 0.1 s, the first after an install 0.5 s; busy: a few."""

Origin = Literal["argument", "CODEX_BIN", "wheel", "PATH"]
"""Where a binary was found, in the order of the search."""


class FoundBinary(msgspec.Struct, frozen=True, kw_only=True):
    """A Codex binary, and where it was found."""

    path: Path
    origin: Origin


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """What the server said of itself."""

    user_agent: str
    codex_home: str | None
    """Its resolved home; sources of Sides are looked for there and nowhere else."""
    attestation: Attestation


# finding it -----------------------------------------------------------------------------------------------------------


def find_binary(argument: str | Path | None, environ: Mapping[str, str]) -> FoundBinary:
    """Return the Codex binary: the given one, else ``CODEX_BIN``'s, else the wheel's, else the one on ``PATH``.

    Who names a path outright (argument or variable) gets that one or an error, never another.

    Raises:
      BinaryUnusableError: the named path can't be run.
      BinaryNotFoundError: none of the four has one.
    """
    if argument is not None:
        return _named(argument, "argument")
    if variable := environ.get(BINARY_VARIABLE):
        return _named(variable, "CODEX_BIN")
    bundled, wheel_says = _bundled_binary()
    if bundled is not None:
        return FoundBinary(path=bundled, origin="wheel")
    if on_path := shutil.which("codex", path=environ.get("PATH", "")):
        return FoundBinary(path=Path(on_path).absolute(), origin="PATH")
    raise BinaryNotFoundError(
        ("no path was given", f"{BINARY_VARIABLE} is not set", wheel_says, "there is no `codex` on PATH")
    )


def _named(name: str | Path, origin: Literal["argument", "CODEX_BIN"]) -> FoundBinary:
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        raise BinaryUnusableError(str(name), origin, "is in the home of a user who is unknown here") from None
    problem = _why_unusable(path)
    if problem is not None:
        raise BinaryUnusableError(str(path), origin, problem)
    return FoundBinary(path=path.absolute(), origin=origin)


def _why_unusable(path: Path) -> str | None:
    try:
        if path.is_dir():
            return "is a directory"
        if not path.exists():
            return "does not exist"
    except (OSError, ValueError):
        return "can't be looked at"
    if not os.access(path, os.X_OK):
        return "is not executable"
    return None


def _bundled_binary() -> tuple[Path | None, str]:
    """Return the wheel's binary, or None and the sentence part that says why there is none."""
    if importlib.util.find_spec(WHEEL_MODULE) is None:
        return None, "the wheel openai-codex-cli-bin is not installed"
    try:
        path = Path(importlib.import_module(WHEEL_MODULE).bundled_codex_path())
    except (ImportError, AttributeError, OSError):
        return None, "the wheel openai-codex-cli-bin is installed without its binary"
    problem = _why_unusable(path)
    if problem is not None:
        return None, f"the binary in the wheel openai-codex-cli-bin {problem}"
    return path, ""


# starting it ----------------------------------------------------------------------------------------------------------

PASSED_VARIABLES = frozenset(
    {
        # Who and where the user is, and what a shell command needs to behave.
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
        # How to reach the model's provider from this network.
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "CODEX_CA_CERTIFICATE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        # Codex' own home and account.
        *("CODEX_HOME", "OPENAI_API_KEY", "CODEX_API_KEY"),
    }
)
"""What Codex gets of our environment; ``LC_*`` too. Everything else stays out.

An agent runs commands that a model chose: a variable that it doesn't need is a secret that it could print. Out on
purpose are also ``RUST_LOG`` (it fills stderr with prompts) and ``CODEX_INTERNAL_ORIGINATOR_OVERRIDE`` (it changes the
user agent by which we read the version). A model provider whose key is in a variable of its own needs that one in
`extra`.
"""


def launch_environment(
    environ: Mapping[str, str], *, codex_home: Path | None = None, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the whole environment of an app-server.

    Args:
      environ: our own environment, of which only `PASSED_VARIABLES` are taken.
      codex_home: the directory of its configuration and sessions; None: what `environ` says. It must exist.
      extra: what the user adds; wins over `environ`, and loses to `codex_home`.
    """
    passed = {k: v for k, v in environ.items() if k in PASSED_VARIABLES or k.startswith("LC_")}
    passed.update(extra or {})
    if codex_home is not None:
        passed["CODEX_HOME"] = str(codex_home)
    return passed


UNLOAD_AT_ONCE = "thread_unload_delay_secs=0"
"""An override for a server of our own: a thread that we let go of is unloaded, and its tool servers end, at once.

By itself 0.171 waits a minute, and 0.163 more than ten: each closed Side then keeps its tool servers and about 1 MB of
the server's memory (677 MB after 500 Sides; 165 MB with this). Only the configuration counts: 0.163 takes no such
setting with a fork.
"""


def app_server_command(binary: Path, *, overrides: Sequence[str] = ()) -> list[str]:
    """Return the command of an app-server on its standard streams.

    Args:
      binary: the program.
      overrides: configuration in the form ``key=value`` (the value is TOML), each over what the user's file says.
    """
    return [str(binary), "app-server", "--listen", "stdio://", *(word for item in overrides for word in ("-c", item))]


# the first two messages -----------------------------------------------------------------------------------------------


async def handshake(
    peer: Peer[Any], *, client_name: str = CLIENT_NAME, client_version: str = CLIENT_VERSION
) -> Handshake:
    """Say who we are, and return what the server says of itself.

    An unproven version is no error: sessions may be tried on it, but its attestation offers no Side.

    Args:
      peer: a connection on which nothing was sent yet.
      client_name: stands at the head of the server's user agent; a valid HTTP header value.
      client_version: ours.

    Raises:
      StartFailedError: the process ended or its pipe broke before it answered.
      HandshakeError: it refused, answered something else, or nothing within `HANDSHAKE_DEADLINE_S`; or reads nothing.

    Cancellation: the connection is good for nothing but closing.
    """
    params = InitializeParams(
        client_info=ClientInfo(name=client_name, title=client_name, version=client_version),
        capabilities=InitializeCapabilities(experimental_api=True),
    )
    try:
        result = await peer.request(
            InitializeParams.METHOD, params, result_type=InitializeResult, deadline_s=HANDSHAKE_DEADLINE_S
        )
        peer.notify(INITIALIZED)
    except ConnectionClosedError as error:
        if error.reason not in ("eof", "broken_pipe"):
            raise HandshakeError(str(error)) from error  # it has not ended: we gave it up
        end = error.exit or PeerExit()
        raise StartFailedError(end.status, end.stderr_tail) from error
    except RemoteError as error:
        # Nothing of a user's was sent yet, so the server's words can be shown.
        raise HandshakeError(f"it refused `initialize`: {error.message[:REFUSAL_CHARS_MAX]}") from error
    except (RequestTimeoutError, InvalidResultError) as error:
        raise HandshakeError(str(error)) from error
    return Handshake(
        user_agent=result.user_agent,
        codex_home=result.codex_home,
        attestation=attest(result.user_agent, client_name),
    )
