"""Named steps that bring a database to the current tables.

A step is frozen text: it is never edited after a release, a change is a new step. Each step and the record of its
name are one transaction where the database allows it (SQLite, PostgreSQL). MySQL and MariaDB commit around every DDL
statement, so there each statement bears being run again after a crash in the middle (``IF NOT EXISTS``, indexes
inside ``CREATE TABLE``). Openers exclude each other with a lock of the database.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, func, insert, select

from ._schema import APPLIED, LEDGER, STATE
from .errors import SinkUnavailableError, SinkVersionError

LOCK_WAIT_S = 30
"""How long an opener waits for another one that is migrating; a first migration takes well under a second."""

_LOCK_NAME = "tutti_sinks"
_LOCK_NUMBER = 0x7475747469
"""PostgreSQL's advisory locks are numbers; this one spells "tutti"."""

_WORDS: dict[str, dict[str, str]] = {
    "sqlite": {"digest": "BLOB", "octets": "BLOB", "octets_512": "BLOB", "flag": "BOOLEAN", "options": ""},
    "postgresql": {"digest": "BYTEA", "octets": "BYTEA", "octets_512": "BYTEA", "flag": "BOOLEAN", "options": ""},
    "mysql": {
        "digest": "BINARY(32)",
        "octets": "LONGBLOB",
        "octets_512": "VARBINARY(512)",
        "flag": "BOOL",
        "options": " ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin",
    },
}
"""How each dialect spells a step's words.

Text columns hold our own ASCII words only; everything of a client is bytes.
"""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One migration.

    Attributes:
      name: never reused.
      tables: name → column definitions, with the words of `_WORDS` in braces.
      indexes: name, table and columns of each.
    """

    name: str
    tables: dict[str, tuple[str, ...]]
    indexes: tuple[tuple[str, str, str], ...] = ()

    def statements(self, dialect: str) -> Iterator[str]:
        """Spell the step for ``sqlite``, ``mysql`` or ``postgresql``."""
        words = _WORDS[dialect]
        for table, columns in self.tables.items():
            own = [(name, on) for name, of, on in self.indexes if of == table]
            inline = "".join(f", INDEX {name} ({on})" for name, on in own) if dialect == "mysql" else ""
            body = ", ".join(columns).format_map(words) + inline
            yield f"CREATE TABLE IF NOT EXISTS {table} ({body}){words['options']}"
            if dialect != "mysql":
                for name, on in own:
                    yield f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({on})"


STEPS: tuple[Step, ...] = (
    Step(
        name="m001_projection",
        tables={
            "tutti_state": (
                "id INTEGER NOT NULL PRIMARY KEY",
                "projection_epoch BIGINT NOT NULL",
                "last_cursor BIGINT NOT NULL",
            ),
            "tutti_ledger": (
                "mutation_key {digest} NOT NULL PRIMARY KEY",
                "identity_key {digest} NOT NULL",
                "at_cursor BIGINT NOT NULL",
            ),
            "tutti_entity": (
                "entity_key {digest} NOT NULL PRIMARY KEY",
                "parent_key {digest} NOT NULL",
                "entity_type VARCHAR(32) NOT NULL",
                "workspace_id {octets_512} NOT NULL",
                "source_device_id {octets_512} NOT NULL",
                "entity_ids {octets} NOT NULL",
                "deleted {flag} NOT NULL",
                "closed {flag} NOT NULL",
                "version BIGINT NOT NULL",
                "updated_at_ms BIGINT NOT NULL",
                "created_at_ms BIGINT NOT NULL",
                "anchor {octets_512}",
                "sort_time_ms BIGINT NOT NULL",
                "sort_rank BIGINT NOT NULL",
                "at_cursor BIGINT NOT NULL",
                "payload {octets}",
                "scope {octets}",
            ),
        },
        indexes=(
            ("tutti_entity_children", "tutti_entity", "parent_key, entity_type, sort_time_ms, sort_rank"),
            ("tutti_entity_changes", "tutti_entity", "at_cursor"),
        ),
    ),
    Step(
        name="m002_observed",
        tables={
            "tutti_observed": (
                "session_key {digest} NOT NULL PRIMARY KEY",
                "version BIGINT NOT NULL",
                "time_ms BIGINT NOT NULL",
                "at_cursor BIGINT NOT NULL",
            ),
        },
        indexes=(("tutti_observed_changes", "tutti_observed", "at_cursor"),),
    ),
)
"""All steps, oldest first."""


def migrate(engine: Engine, projection_epoch: int, steps: Sequence[Step] = STEPS) -> None:
    """Run what has not run yet, and record the epoch if none is recorded.

    Raises:
      SinkVersionError: a step ran here that ``steps`` doesn't have; nothing was changed.
      DBAPIError: of the driver, also when another opener held the migration lock for ``LOCK_WAIT_S``.
    """
    dialect = dialect_of(engine)
    with _one_opener(engine, dialect):
        with engine.begin() as connection:
            APPLIED.create(connection, checkfirst=True)
            done = set(connection.scalars(select(APPLIED.c.name)))
        if unknown := tuple(sorted(done - {step.name for step in steps})):
            raise SinkVersionError(unknown)
        for step in steps:
            if step.name not in done:
                _run(engine, step, dialect)
        with engine.begin() as connection:
            used = connection.scalar(select(LEDGER.c.at_cursor).limit(1)) is not None
            if connection.scalar(select(STATE.c.id)) is None and not used:  # else cursors would be given twice
                connection.execute(insert(STATE).values(id=1, projection_epoch=projection_epoch, last_cursor=0))


def dialect_of(engine: Engine) -> str:
    """``sqlite``, ``postgresql`` or ``mysql``; MariaDB speaks MySQL here."""
    return "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name


def _run(engine: Engine, step: Step, dialect: str) -> None:
    with engine.begin() as connection:
        if connection.scalar(select(APPLIED.c.name).where(APPLIED.c.name == step.name)) is not None:
            return  # SQLite's transactions are its lock: another opener was first
        for statement in step.statements(dialect):
            connection.exec_driver_sql(statement)
        connection.execute(insert(APPLIED).values(name=step.name))


@contextmanager
def _one_opener(engine: Engine, dialect: str) -> Iterator[None]:
    """Hold the database's migration lock on a connection of its own. SQLite's write transactions need none."""
    if dialect == "sqlite":
        yield
        return
    with engine.connect() as connection:
        _take_lock(connection, dialect)
        try:
            yield
        finally:
            release = func.release_lock(_LOCK_NAME) if dialect == "mysql" else func.pg_advisory_unlock(_LOCK_NUMBER)
            connection.scalar(select(release))


def _take_lock(connection: Connection, dialect: str) -> None:
    if dialect == "mysql":
        if connection.scalar(select(func.get_lock(_LOCK_NAME, LOCK_WAIT_S))) != 1:
            raise SinkUnavailableError("another process is migrating this database")
    else:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'")
        connection.scalar(select(func.pg_advisory_lock(_LOCK_NUMBER)))
