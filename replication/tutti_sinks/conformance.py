"""The SQL sink as the conformance suite wants it: several handles on one projection that may be emptied."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import Connection, delete, update

from tutti_replication.acknowledgement import ApplyResponse
from tutti_replication.conformance.ports import OpenSink, StoredEntity
from tutti_replication.keys import EntityKey
from tutti_replication.ports import Authorizer

from ._engine import is_in_memory, run_transaction
from ._schema import ENTITY, LEDGER, OBSERVED, STATE
from .errors import SinkNotEmptyError
from .sql import SqlSink, open_sql_sink

__all__ = ["ConformanceSqlSink", "open_conformance_sink"]


class ConformanceSqlSink:
    """One handle. Implements `tutti_replication.conformance.ports.ConformanceSink`."""

    def __init__(self, sink: SqlSink, close: Callable[[], object]) -> None:
        """Wrap a sink; ``close`` ends this handle."""
        self._sink = sink
        self._close = close

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        """Apply a batch; see `SqlSink.apply`."""
        return self._sink.apply(batch, authorize=authorize)

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        """Return what a reader sees of an entity; None also for a tombstone."""
        found = self._sink.lookup(workspace_id, key, source_device_id=source_device_id)
        if found is None or found.snapshot is None or found.scope is None:
            return None
        return StoredEntity(found.snapshot, found.scope)

    def reset(self) -> None:
        """Empty the projection and begin its cursors anew."""
        run_transaction(self._sink._engine, _empty)

    def close(self) -> None:
        """End this handle."""
        self._close()


@contextmanager
def open_conformance_sink(database_url: str) -> Iterator[OpenSink]:
    """Open a projection for `tutti_replication.conformance.run_sink`, and leave it empty.

    Args:
      database_url: of a database whose projection is new; it is emptied again and again.

    Yields:
      What opens a handle of its own each time. Handles on ``sqlite://`` share their only connection.

    Raises:
      SinkNotEmptyError: something was applied there once; nothing was changed.
      SinkError: as `open_sql_sink`.
    """
    with open_sql_sink(database_url) as first:
        if first.last_cursor() > 0:
            raise SinkNotEmptyError
        in_memory = is_in_memory(first._engine.url)

        def open_sink() -> ConformanceSqlSink:
            stack = ExitStack()
            sink = first if in_memory else stack.enter_context(open_sql_sink(database_url))
            return ConformanceSqlSink(sink, stack.close)

        try:
            yield open_sink
        finally:
            run_transaction(first._engine, _empty)


def _empty(connection: Connection) -> None:
    for table in (LEDGER, ENTITY, OBSERVED):
        connection.execute(delete(table))
    connection.execute(update(STATE).values(last_cursor=0))
