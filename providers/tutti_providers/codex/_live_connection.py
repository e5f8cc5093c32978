"""The adapter's one live connection: begun when the first session needs one, and again after it was lost or given up.

Each connection runs in a task of the adapter's nursery until it is lost, or its last lease is given back. Its failure
ends with it: its sessions are lost, and the next one gets a fresh connection.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import cast

import trio

from tutti_providers.codex._connection import Connection, ConnectionStatistics
from tutti_side.contract import Metrics, ProviderLostError, ScopeRef

__all__ = ["LiveConnection", "OpenConnection"]

OpenConnection = Callable[[], AbstractAsyncContextManager[Connection]]

_log = logging.getLogger("tutti_providers.codex")


class LiveConnection:
    """Leases the live connection, and starts one when there is none."""

    def __init__(self, nursery: trio.Nursery, open_connection: OpenConnection, metrics: Metrics) -> None:
        self.current: Connection | None = None
        """The newest one; perhaps lost, or given up."""
        self._nursery = nursery
        self._open_connection = open_connection
        self._metrics = metrics
        self._connecting = trio.Lock()
        self._is_closing = False

    def close(self) -> None:
        """Begin no connection any more: the adapter's block has ended, and its nursery ends now."""
        self._is_closing = True

    async def lease(self, ref: ScopeRef) -> Connection:
        """Return the live connection, started if need be, with a lease of `ref` on it.

        Raises:
          ProviderLostError: the adapter is closing.
          StartFailedError, HandshakeError, …: what beginning a connection raises.

        Cancellation: no lease; a connection that was being started is ended.
        """
        async with self._connecting:
            if self._is_closing:
                raise ProviderLostError(None)
            connection = self.current
            if connection is None or not connection.is_usable:
                began = trio.current_time()
                connection = self.current = await self._nursery.start(self._run_connection)
                self._metrics.observe("side_open_phase", trio.current_time() - began, phase="initialize")
            connection.lease(ref)
            return connection

    async def _run_connection(self, *, task_status: trio.TaskStatus[Connection]) -> None:
        """Own one connection: until it is lost, or its last lease is given back."""
        started = False
        try:
            async with self._open_connection() as connection:
                started = True
                task_status.started(connection)
                try:
                    await connection.ended.wait()
                finally:
                    self._count_dropped(connection.statistics())
        except Exception as error:
            if not started:
                raise
            # Contained: its sessions are lost, and told so by their routes. A process that ends raises nothing, so this
            # is a bug of ours, and must be seen; of the error only its type, since its text can hold anything.
            self._metrics.count("crashed_connections")
            names = ", ".join(sorted(set(_type_names(error))))
            _log.error("a connection to Codex failed by an error of ours: %s (please report this bug)", names)

    def _count_dropped(self, ended: ConnectionStatistics) -> None:
        """Count what a connection dropped until its end: no messages, and messages that reached nobody.

        A method that we don't model is no loss, and a request that was refused is no drop.
        """
        unread = {cause: count for cause, count in ended.unread.items() if cause == "malformed"}
        for cause, count in (*ended.peer.dropped.items(), *ended.router.dropped.items(), *unread.items()):
            self._metrics.count("dropped_frames", count, cause=cause)


def _type_names(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _type_names(part)
    else:
        yield type(error).__name__
