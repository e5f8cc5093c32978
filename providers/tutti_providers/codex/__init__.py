"""Codex as a provider: ``open_host(codex())``.

`adapter` is the front of it; `_launch`, `_connection`, `_live_connection`, `_creation`, `_side_open`, `_turn_start`,
`_turn_control`, `_settling`, `_closing` do the waiting, `_router`, `_pool`, `_thread`, `_thread_turns`, `_subagents`,
`_items`, `_notices`, `_input`, `_asking`, `_interactions`, `_forms`, `_declines`, `_reconcile`, `_settings`,
`_versions` the deciding; `_diagnosis` is for a person, `schema` is the wire, `testing` a scripted model and a fake
app-server. Nothing in `tutti_side` imports this package.
"""

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from tutti_providers.codex._connection import Connection, ConnectionStatistics, open_connection
from tutti_providers.codex._diagnosis import diagnose_codex
from tutti_providers.codex._launch import UNLOAD_AT_ONCE, app_server_command, find_binary, launch_environment
from tutti_providers.codex._settings import CodexSettings
from tutti_providers.codex._versions import PROVEN
from tutti_providers.codex.adapter import CodexAdapter, open_adapter
from tutti_providers.codex.errors import (
    BinaryNotFoundError,
    BinaryUnusableError,
    CodexError,
    HandshakeError,
    RequestRefusedError,
    StartFailedError,
    UnansweredError,
)
from tutti_side.contract import Diagnosis, NoticePort, ProviderPorts
from tutti_side.jsonrpc.transports.stdio import open_stdio

__all__ = [
    "PROVEN",
    "BinaryNotFoundError",
    "BinaryUnusableError",
    "CodexAdapter",
    "CodexError",
    "CodexProvider",
    "CodexSettings",
    "ConnectionStatistics",
    "HandshakeError",
    "RequestRefusedError",
    "StartFailedError",
    "UnansweredError",
    "codex",
]


logging.getLogger(__name__).addHandler(logging.NullHandler())

NO_PORTS = ProviderPorts()
"""Opened without a host."""


class CodexProvider:
    """Codex, not yet started; made by `codex`. Implements `tutti_side.contract.Provider`."""

    name = "codex"

    def __init__(
        self,
        binary: str | Path | None,
        codex_home: str | Path | None,
        environ: Mapping[str, str],
        extra_environ: Mapping[str, str],
    ) -> None:
        self._binary = binary
        self._codex_home = None if codex_home is None else Path(codex_home)
        self._environ = environ
        self._extra_environ = extra_environ

    def open(self, ports: ProviderPorts = NO_PORTS) -> AbstractAsyncContextManager[CodexAdapter]:
        """Open the adapter; a process is started when the first session needs one."""
        return open_adapter(partial(self._open_app_server, ports.notices), metrics=ports.metrics)

    async def diagnose(self) -> Diagnosis:
        """Say which Codex this would use, and what it attests.

        Cancellation: the process that was asked is ended.
        """
        return await diagnose_codex(self._binary, environ=self._environ, codex_home=self._codex_home)

    @asynccontextmanager
    async def _open_app_server(self, notices: NoticePort) -> AsyncIterator[Connection]:
        binary = find_binary(self._binary, self._environ)
        environment = launch_environment(self._environ, codex_home=self._codex_home, extra=self._extra_environ)
        command = app_server_command(binary.path, overrides=(UNLOAD_AT_ONCE,))
        async with (
            open_stdio(command, env=environment, name=self.name) as transport,
            open_connection(transport, name=self.name, notices=notices) as connection,
        ):
            yield connection


def codex(
    binary: str | Path | None = None,
    *,
    codex_home: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    extra_environ: Mapping[str, str] | None = None,
) -> CodexProvider:
    """Name Codex as a provider.

    Args:
      binary: the program; by default ``CODEX_BIN``, the wheel's, or the one on ``PATH``.
      codex_home: its home; by default what `environ` says.
      environ: the environment of which the few variables that Codex needs are passed on; by default this process's.
      extra_environ: variables that are passed on besides, such as the key of a model provider.
    """
    return CodexProvider(binary, codex_home, os.environ if environ is None else environ, extra_environ or {})
