"""What a person is told of the Codex on this machine."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tutti_providers.codex._launch import (
    FoundBinary,
    Handshake,
    app_server_command,
    find_binary,
    handshake,
    launch_environment,
)
from tutti_providers.codex.errors import (
    HOW_TO_GET_ONE,
    BinaryNotFoundError,
    BinaryUnusableError,
    HandshakeError,
    StartFailedError,
)
from tutti_providers.codex.schema.notifications import Head
from tutti_side.contract.capabilities import SideCapabilities
from tutti_side.contract.diagnosis import Diagnosis, Fact
from tutti_side.jsonrpc import ConnectionClosedError, Message, open_peer
from tutti_side.jsonrpc.transports.errors import ProcessStartError
from tutti_side.jsonrpc.transports.stdio import open_stdio

__all__ = ["diagnose_codex"]

NAME = "codex"

ESCAPES = "on this system a command of the agent that leaves its process group can outlive Codex"
"""What a person must know where the guard process can't see every descendant (anywhere but on Linux)."""


class _Deaf:
    """A router that wants nothing: no thread is opened, so nothing that matters is said."""

    def feed(self, messages: Sequence[Message[Head]]) -> None:
        """Ignore what the server says of itself."""

    def connection_lost(self, error: ConnectionClosedError) -> None:
        """Ignore the end; the handshake hears of it."""


async def diagnose_codex(
    argument: str | Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    codex_home: Path | None = None,
) -> Diagnosis:
    """Find Codex, start it, ask it for its version, end it, and say what was found.

    It is started with the home that a session would have, because most of what keeps it from starting lies there; it
    may write its own state files in it, as any start does.

    Args:
      argument: the path that the user gave for the binary.
      environ: our environment; None: the process' own.
      codex_home: the home that the user gave; None: what `environ` says.

    Returns:
      Always a diagnosis: a missing binary, a failed start and an unknown version are what it is for.

    Cancellation: the process is ended.
    """
    environ = os.environ if environ is None else environ
    try:
        binary = find_binary(argument, environ)
    except (BinaryNotFoundError, BinaryUnusableError) as error:
        return Diagnosis(
            provider=NAME, found=False, reason=str(error), capabilities=SideCapabilities.unsupported(str(error))
        )
    facts = (Fact(name="binary", value=str(binary.path)), Fact(name="found through", value=binary.origin))
    if sys.platform != "linux":
        facts = (*facts, Fact(name="leftovers", value=ESCAPES))
    return await _ask(binary, facts, launch_environment(environ, codex_home=codex_home))


async def _ask(binary: FoundBinary, facts: tuple[Fact, ...], env: Mapping[str, str]) -> Diagnosis:
    def failed(reason: str, output: tuple[str, ...]) -> Diagnosis:
        return Diagnosis(
            provider=NAME,
            found=True,
            facts=facts,
            reason=reason,
            capabilities=SideCapabilities.unsupported(reason),
            startup_output=output,
        )

    answer: Handshake | HandshakeError
    try:
        async with (
            open_stdio(app_server_command(binary.path), env=env, name=NAME) as transport,
            open_peer(transport, _Deaf(), params_type=Head, name=NAME) as peer,
        ):
            try:
                answer = await handshake(peer)
            except HandshakeError as error:
                answer = error
    except StartFailedError as error:
        return failed(str(error), error.startup_output)
    except ProcessStartError as error:
        return failed(str(error), error.stderr_tail)
    if isinstance(answer, HandshakeError):
        # Only now, after its end, is all that it wrote to stderr in.
        return failed(f"{answer}; {HOW_TO_GET_ONE}", transport.stderr_tail)
    attestation = answer.attestation
    return Diagnosis(
        provider=NAME,
        found=True,
        facts=(*facts, Fact(name="home", value=answer.codex_home or "not told")),
        version=attestation.version,
        supported=attestation.supported,
        reason=None if attestation.reason is None else f"{attestation.reason}; {HOW_TO_GET_ONE}",
        capabilities=attestation.capabilities(),
    )
