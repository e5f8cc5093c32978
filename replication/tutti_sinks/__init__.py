"""Sinks that ship with the contract: one SQL sink over SQLite, MySQL/MariaDB and PostgreSQL.

``sql`` is the front door, ``_apply`` (one mutation) and ``_plan`` (one batch) decide without I/O, ``_schema``,
``_migrations``, ``_engine`` and ``_read`` are the database's side, ``conformance`` runs the suite. Imported by
services and by ``tutti_side``; imports ``tutti_replication`` only. Does not own transport, authorisation or the
epoch's meaning.

Names load when they are first used, so that importing this package needs no database library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import (
    MissingDriverError,
    SinkEpochError,
    SinkError,
    SinkInternalError,
    SinkNotEmptyError,
    SinkSetupError,
    SinkUnavailableError,
    SinkUrlError,
    SinkVersionError,
)

if TYPE_CHECKING:
    from .conformance import open_conformance_sink
    from .sql import Changes, Entity, Page, Position, SqlSink, open_sql_sink, reset_projection

__all__ = [
    "Changes",
    "Entity",
    "MissingDriverError",
    "Page",
    "Position",
    "SinkEpochError",
    "SinkError",
    "SinkInternalError",
    "SinkNotEmptyError",
    "SinkSetupError",
    "SinkUnavailableError",
    "SinkUrlError",
    "SinkVersionError",
    "SqlSink",
    "open_conformance_sink",
    "open_sql_sink",
    "reset_projection",
]


_HOMES = {"open_conformance_sink": ".conformance"}
"""Names that are not of ``sql``."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES.get(name, ".sql"), __name__), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sqlalchemy":
            raise
        raise MissingDriverError("sqlalchemy", "sinks") from error
