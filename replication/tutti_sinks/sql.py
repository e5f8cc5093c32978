"""One SQL sink over three dialects: SQLite, MySQL/MariaDB (PyMySQL) and PostgreSQL (psycopg).

A batch is one transaction. Its first statement locks the counter row, so writers of one database run one after another,
every later read sees all that was committed, and commit order is cursor order. Then three SELECTs load what deciding
needs, `plan_batch` decides in memory, and at most six statements write (on MySQL one more for each huge row). Safe to
share between threads.

Source: wire page, "What a sink decides" and "Details that keep replicas equal"; the paging of the reads is our choice.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Engine, Row, Table, bindparam, delete, select, update

from tutti_replication.acknowledgement import ApplyResponse, summarize_acknowledgements
from tutti_replication.admission import admit_batch
from tutti_replication.canonical import (
    ENTITY_INTERACTION,
    ENTITY_MESSAGE,
    ENTITY_SESSION,
    ENTITY_TARGET,
    ENTITY_TURN,
)
from tutti_replication.epoch import PROJECTION_EPOCH, check_epoch
from tutti_replication.keys import EntityKey, row_key
from tutti_replication.mutation import MessageUpsert
from tutti_replication.ports import Authorizer
from tutti_replication.rejection import PermanentRejection

from ._apply import Known, Stored
from ._engine import READ_ONLY, check_server, open_engine, our_errors, run_transaction, spelled
from ._migrations import migrate
from ._plan import Observed, Plan, Prepared, Values, digest, plan_batch, prepare, session_key, workspace_key
from ._read import Changes, Entity, Page, Position, read_changes, read_children, read_entity
from ._schema import ENTITY, LEDGER, OBSERVED, STATE
from .errors import SinkEpochError, SinkInternalError

__all__ = ["Changes", "Entity", "Page", "Position", "SqlSink", "open_sql_sink", "reset_projection"]

T = TypeVar("T")

_LOCK = select(STATE.c.projection_epoch, STATE.c.last_cursor).where(STATE.c.id == 1).with_for_update()
_KNOWN = (LEDGER.c.mutation_key, LEDGER.c.identity_key, LEDGER.c.at_cursor)
_STORED = (
    ENTITY.c.entity_key,
    ENTITY.c.deleted,
    ENTITY.c.closed,
    ENTITY.c.version,
    ENTITY.c.updated_at_ms,
    ENTITY.c.created_at_ms,
    ENTITY.c.anchor,
)
_OBSERVED = (OBSERVED.c.session_key, OBSERVED.c.version, OBSERVED.c.time_ms)
_COUNT = update(STATE).where(STATE.c.id == 1).values(last_cursor=bindparam("cursor"))


class SqlSink:
    """A projection in a SQL database: applies official batches, and reads what they made.

    Implements `tutti_replication.ports.Sink`. Every method is sync and blocks for the database; a Trio program calls it
    in a worker thread, where a cancel abandons nothing: the transaction ends first.

    Errors of all methods: `SinkUnavailableError` is transient; `SinkInternalError` is ours to mend.
    """

    def __init__(self, engine: Engine, *, projection_epoch: int = PROJECTION_EPOCH) -> None:
        """Wrap an engine whose database is migrated; `open_sql_sink` does both."""
        self._engine = engine
        self.projection_epoch = projection_epoch

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        """Apply one encoded batch in one transaction and answer in batch order.

        Args:
          batch: JSON, at most 8 MiB.
          authorize: the caller's rights, asked for each mutation; None permits everything.

        Raises:
          EpochMismatch: the batch is of another epoch than this sink, or the database was reset to another one.
          PermanentRejection: schema, permission or identity; nothing was written.
          BatchTooLarge: not read.
          SinkUnavailableError: not known whether it was applied; the same bytes may be sent again.
        """
        try:
            prepared = prepare(admit_batch(batch, epoch=self.projection_epoch, authorize=authorize))
        except PermanentRejection:
            self._read(self._check_epoch)  # the epoch comes before everything else, that of the database as well
            raise
        plan = run_transaction(self._engine, lambda connection: self._apply(connection, prepared))
        result = summarize_acknowledgements(plan.acknowledgements, epoch=self.projection_epoch)
        return ApplyResponse(result=result, acknowledgements=plan.acknowledgements)

    def lookup(self, workspace_id: str, key: EntityKey, *, source_device_id: str = "") -> Entity | None:
        """Read one entity, or its tombstone (no snapshot). None: never written, or inside a deleted session.

        Args:
          workspace_id: exactly as written.
          key: of any entity.
          source_device_id: needed for targets, of which each device has its own; ignored for the others.
        """
        entity_key = digest(row_key(workspace_id, source_device_id, key))
        return self._read(lambda connection: read_entity(connection, entity_key))

    def targets(self, workspace_id: str, *, after: Position | None = None, limit: int = 100) -> Page[Entity]:
        """Read a page of a workspace's targets, of all devices, oldest first."""
        return self._children(workspace_key(workspace_id), ENTITY_TARGET, after, limit)

    def sessions(self, workspace_id: str, *, after: Position | None = None, limit: int = 100) -> Page[Entity]:
        """Read a page of a workspace's sessions, newest first; deleted ones are left out."""
        return self._children(workspace_key(workspace_id), ENTITY_SESSION, after, limit, newest_first=True)

    def turns(
        self, workspace_id: str, session_id: str, *, after: Position | None = None, limit: int = 100
    ) -> Page[Entity]:
        """Read a page of a session's turns, oldest first; none of a deleted session."""
        return self._children(session_key(workspace_id, session_id), ENTITY_TURN, after, limit)

    def interactions(
        self, workspace_id: str, session_id: str, *, after: Position | None = None, limit: int = 100
    ) -> Page[Entity]:
        """Read a page of a session's interactions, oldest first; none of a deleted session."""
        return self._children(session_key(workspace_id, session_id), ENTITY_INTERACTION, after, limit)

    def messages(
        self,
        workspace_id: str,
        session_id: str,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Page[Entity]:
        """Read a page of a session's messages by when they occurred; none of a deleted session."""
        parent = session_key(workspace_id, session_id)
        return self._children(parent, ENTITY_MESSAGE, after, limit, newest_first=newest_first)

    def changes(self, after_cursor: int = 0, *, limit: int = 500) -> Changes:
        """Read what changed after a cursor in all workspaces, tombstones included.

        Nothing is skipped, also while others write: everything up to the cursor that is returned has been seen.
        A page holds one entity more than ``limit`` when its last message raised its session as well: both have the
        same cursor.
        A deleted session comes as its tombstone and hides its children: a reader drops them with it.
        """
        return self._read(lambda connection: read_changes(connection, after_cursor, limit))

    def last_cursor(self) -> int:
        """Return the cursor of the newest commit; 0 when nothing was applied yet."""
        return self._read(lambda connection: connection.scalar(select(STATE.c.last_cursor)) or 0)

    def _children(
        self, parent: bytes, entity_type: str, after: Position | None, limit: int, *, newest_first: bool = False
    ) -> Page[Entity]:
        return self._read(
            lambda connection: read_children(
                connection, parent, entity_type, after=after, limit=limit, newest_first=newest_first
            )
        )

    def _apply(self, connection: Connection, prepared: Sequence[Prepared]) -> Plan:
        epoch, last_cursor = _locked_state(connection)
        check_epoch(self.projection_epoch, epoch)
        known = {
            key: Known(identity_key, cursor)
            for key, identity_key, cursor in _load(connection, _KNOWN, {one.mutation_key for one in prepared})
        }
        stored = {
            key: Stored(deleted, closed, version, updated, created, None if anchor is None else anchor.decode())
            for key, deleted, closed, version, updated, created, anchor in _load(
                connection, _STORED, {one.entity_key for one in prepared}
            )
        }
        sessions = {one.parent_key for one in prepared if isinstance(one.mutation, MessageUpsert)}
        observed = {
            key: Observed(version, time_ms)
            for key, version, time_ms in (_load(connection, _OBSERVED, sessions) if sessions else ())
        }
        plan = plan_batch(prepared, known, stored, observed, last_cursor)
        if plan.ledger:
            _insert(connection, LEDGER, plan.ledger)
            _replace(connection, ENTITY, plan.entities, stored.keys() & plan.entities.keys())
            _replace(connection, OBSERVED, plan.observed, observed.keys() & plan.observed.keys())
            connection.execute(_COUNT, {"cursor": plan.last_cursor})
        return plan

    def _check_epoch(self, connection: Connection) -> None:
        recorded = connection.scalar(select(STATE.c.projection_epoch))
        if recorded is not None:
            check_epoch(self.projection_epoch, recorded)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with our_errors(), self._engine.connect().execution_options(**READ_ONLY) as connection, connection.begin():
            return work(connection)


@contextmanager
def open_sql_sink(database_url: str, *, projection_epoch: int = PROJECTION_EPOCH) -> Iterator[SqlSink]:
    """Open a projection, migrated to this release's tables, and close its connections at the end.

    Args:
      database_url: ``sqlite:///path``, ``sqlite://`` (in memory), ``mysql://…``, ``mariadb://…``, ``postgresql://…``.
      projection_epoch: recorded when the projection is created; later it must be the recorded one.

    Raises:
      SinkEpochError: the projection belongs to another epoch; nothing was changed.
      SinkVersionError: a newer release migrated it.
      SinkSetupError: a setting of the server must be changed.
      SinkUrlError, MissingDriverError, SinkUnavailableError: as their names say.
    """
    engine = open_engine(database_url)
    try:
        with our_errors():
            migrate(engine, projection_epoch)
            with engine.begin() as connection:
                check_server(connection)
                recorded, _ = _locked_state(connection)
        if recorded != projection_epoch:
            raise SinkEpochError(recorded, projection_epoch, "reset it, or run the release that belongs to it")
        yield SqlSink(engine, projection_epoch=projection_epoch)
    finally:
        engine.dispose()


def reset_projection(database_url: str, projection_epoch: int) -> None:
    """Delete everything in a projection and give it a new epoch, in one transaction. Cursors go on where they were.

    The new epoch must be greater than the recorded one unless nothing was ever applied: clients believe
    acknowledgements of an epoch that they know, and would never send again what is deleted here (F43).

    Raises:
      SinkEpochError: not greater; nothing was changed.
      SinkVersionError, SinkUrlError, MissingDriverError, SinkUnavailableError: as their names say.
    """
    engine = open_engine(database_url)
    try:
        with our_errors():
            migrate(engine, projection_epoch)
        run_transaction(engine, lambda connection: _reset(connection, projection_epoch))
    finally:
        engine.dispose()


def _reset(connection: Connection, projection_epoch: int) -> None:
    recorded, last_cursor = _locked_state(connection)
    if projection_epoch < recorded or (projection_epoch == recorded and last_cursor > 0):
        raise SinkEpochError(
            recorded, projection_epoch, "a reset needs a greater epoch, or clients believe old answers"
        )
    for table in (LEDGER, ENTITY, OBSERVED):
        connection.execute(delete(table))
    connection.execute(update(STATE).values(projection_epoch=projection_epoch))


def _locked_state(connection: Connection) -> tuple[int, int]:
    row = connection.execute(_LOCK).one_or_none()
    if row is None:
        raise SinkInternalError("the counter row is missing: the tables were changed by hand")
    return row.projection_epoch, row.last_cursor


def _load(connection: Connection, columns: Sequence[Column[Any]], keys: Set[bytes]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Read these columns, the first of which is the key, of the rows with these keys."""
    names = ", ".join(column.name for column in columns)
    statement = f"SELECT {names} FROM {columns[0].table.name} WHERE {columns[0].name} IN ({_marks(connection, keys)})"
    return connection.exec_driver_sql(statement, tuple(keys)).all()


def _replace(connection: Connection, table: Table, rows: Mapping[bytes, Values], present: Set[bytes]) -> None:
    """Write rows by key. Those present are deleted first: an upsert is spelled, and batched, differently everywhere."""
    if present:
        key = table.primary_key.columns[0].name
        statement = f"DELETE FROM {table.name} WHERE {key} IN ({_marks(connection, present)})"
        connection.exec_driver_sql(statement, tuple(present))
    if rows:
        _insert(connection, table, [*rows.values()])


def _insert(connection: Connection, table: Table, rows: list[Values]) -> None:
    names = table.columns.keys()
    into = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES"
    together: list[Values] = []
    for row in rows:
        if alone := spelled(connection, row):
            marks, values = alone
            connection.exec_driver_sql(f"{into} ({marks})", values)
        else:
            together.append(row)
    if together:
        connection.exec_driver_sql(f"{into} ({_marks(connection, names)})", together)


def _marks(connection: Connection, values: Collection[object]) -> str:
    return ", ".join(["?" if connection.dialect.paramstyle == "qmark" else "%s"] * len(values))
