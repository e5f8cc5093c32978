"""The five tables of a SQL projection, as SQLAlchemy Core sees them.

The DDL is in ``_migrations.py`` (frozen text, step by step); a test compares what the migrations built with what
stands here.

Why the tables look like this:

- Rows are keyed by a SHA-256 digest of the length-prefixed entity key. Ids are up to 512 bytes, their case and
  their trailing spaces count, and four of them together exceed what MariaDB can index; no collation of any of the
  databases gets that right.
- Ids, payloads and scopes are bytes (BLOB, LONGBLOB, BYTEA). JSON column types rewrite what they store, MySQL's
  plain BLOB ends at 64 KiB and PostgreSQL's text refuses U+0000, which a JSON string may hold.
- What the decision needs of a stored snapshot (version, time, settled or not, anchor) is a column, so that deciding
  reads no payload.
- ``entity`` holds every kind of entity in one table: a batch of mixed mutations is loaded by one query and written
  by one statement, and "changes since a cursor" is one index.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, String, Table
from sqlalchemy.types import UserDefinedType


class Octets(UserDefinedType[bytes]):
    """Bytes that the three drivers take and give as they are, without SQLAlchemy's per-value wrapping."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Name the type for a CAST, the only place where SQLAlchemy would ask."""
        return "BLOB"


METADATA = MetaData()

STATE = Table(
    "tutti_state",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("projection_epoch", BigInteger, nullable=False),
    Column("last_cursor", BigInteger, nullable=False),
)
"""One row, ``id = 1``: the epoch recorded at creation and the cursor given last. Its lock orders all writers."""

LEDGER = Table(
    "tutti_ledger",
    METADATA,
    Column("mutation_key", Octets, primary_key=True),
    Column("identity_key", Octets, nullable=False),
    Column("at_cursor", BigInteger, nullable=False),
)
"""Every applied mutation: the SHA-256 of its id, a digest of its identity, the cursor of its commit."""

ENTITY = Table(
    "tutti_entity",
    METADATA,
    Column("entity_key", Octets, primary_key=True),
    Column("parent_key", Octets, nullable=False),
    Column("entity_type", String(32), nullable=False),
    Column("workspace_id", Octets, nullable=False),
    Column("source_device_id", Octets, nullable=False),
    Column("entity_ids", Octets, nullable=False),
    Column("deleted", Boolean(create_constraint=False), nullable=False),
    Column("closed", Boolean(create_constraint=False), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("anchor", Octets, nullable=True),
    Column("sort_time_ms", BigInteger, nullable=False),
    Column("sort_rank", BigInteger, nullable=False),
    Column("at_cursor", BigInteger, nullable=False),
    Column("payload", Octets, nullable=True),
    Column("scope", Octets, nullable=True),
)
"""The projection: one row per entity, or its tombstone (``deleted``, no payload).

``parent_key`` is the workspace's digest for targets and sessions and the session's ``entity_key`` for everything
inside a session; ``closed`` is a settled turn or an answered or superseded interaction; ``sort_time_ms`` and
``sort_rank`` order siblings for reading.
"""

OBSERVED = Table(
    "tutti_observed",
    METADATA,
    Column("session_key", Octets, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("time_ms", BigInteger, nullable=False),
    Column("at_cursor", BigInteger, nullable=False),
)
"""What applied messages say about their session, apart from its uploaded snapshot; also before that is here."""

APPLIED = Table(
    "tutti_migration",
    METADATA,
    Column("name", String(64), primary_key=True),
)
"""The names of the migrations that ran."""
