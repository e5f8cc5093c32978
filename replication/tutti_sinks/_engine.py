"""Engines for the three databases: how each connects, begins, and says that something went wrong.

Everything that differs between drivers, apart from the spelling of DDL, is here.

SQLite keeps its rollback journal: releases before 3.51.3 can lose a WAL file's pages when two connections write and
checkpoint at once, and concurrent writers are what a sink is for. Servers run READ COMMITTED: the counter row's lock
orders the writers, and an older snapshot than that lock would only bring serialization errors.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tutti_replication.codec import BATCH_BYTES_MAX

from .errors import MissingDriverError, SinkInternalError, SinkSetupError, SinkUnavailableError, SinkUrlError

SQLITE_BUSY_S = 30.0
"""How long a SQLite connection waits for another one's transaction; a batch of 500 takes tens of milliseconds."""

CONNECT_S = 10
"""How long a server may take to accept a connection before it counts as unavailable."""

ATTEMPTS_MAX = 5
"""How often a transaction that the database undid for another one's sake is run in all.

The counter row orders our own writers, so only a foreign transaction can cause that; five in a row is an outage.
"""

READ_ONLY = {"tutti_read_only": True}
"""Execution options of a transaction that only reads: on SQLite it then doesn't wait for writers to finish."""

T = TypeVar("T")

_DRIVERS = {"sqlite": "pysqlite", "mysql": "pymysql", "mariadb": "pymysql", "postgresql": "psycopg"}
"""Backend → its driver here, by SQLAlchemy's name."""

_EXTRAS = {"pymysql": "mysql", "psycopg": "postgresql"}
"""Driver that has to be installed (its module has the same name) → the extra that brings it."""

MYSQL_PACKET_BYTES_MIN = 2 * BATCH_BYTES_MAX
"""MariaDB's default. A batch's greatest payload travels in base64, a third longer, the rest doubled by the driver."""

WIDE_BYTES = BATCH_BYTES_MAX // 8
"""Values over this size go to MySQL in base64: as hexadecimal, the greatest legal one would exceed a packet."""

_RETRIED_MYSQL = frozenset({1213, 1020})
"""Deadlock, and "record has changed since last read". A lock wait time-out (1205) has waited enough and is not here."""

_RETRIED_POSTGRESQL = frozenset({"40001", "40P01"})
"""Serialization failure and deadlock."""

_REFUSED_USER = frozenset({1044, 1045, 1142, "42501"})
"""MySQL: no right to the database, wrong password, no right to the table; PostgreSQL: insufficient privilege."""


def open_engine(database_url: str) -> Engine:
    """Make an engine; nothing is connected yet.

    Args:
      database_url: ``sqlite:///path``, ``sqlite://`` (in memory), ``mysql://…`` or ``mariadb://…``, ``postgresql://…``.

    Raises:
      SinkUrlError: not a URL, or another database.
      MissingDriverError: naming the extra to install.
    """
    url = _checked(database_url)
    backend = url.get_backend_name()
    if backend == "sqlite":
        return _sqlite(url)
    encoding = {"client_encoding": "utf8"} if backend == "postgresql" else {"charset": "utf8mb4"}
    return _created(
        url,
        connect_args={"connect_timeout": CONNECT_S, **encoding},
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        hide_parameters=True,
    )


def is_retryable(error: DBAPIError) -> bool:
    """Whether the database undid the transaction for another one's sake, so that the whole of it may run again."""
    code = error_code(error)
    return code in _RETRIED_MYSQL or code in _RETRIED_POSTGRESQL


def error_code(error: DBAPIError) -> int | str | None:
    """Return MySQL's number, PostgreSQL's SQLSTATE or SQLite's name of an error; None when the driver gives none."""
    original = error.orig
    if original is not None and original.args and isinstance(original.args[0], int):
        return original.args[0]
    for name in ("sqlstate", "sqlite_errorname"):
        if isinstance(code := getattr(original, name, None), str):
            return code
    return None


def check_server(connection: Connection) -> None:
    """Refuse a server on which a legal batch could never be written, instead of failing at that batch for ever.

    Raises:
      SinkSetupError: naming the setting.
    """
    if connection.dialect.name in ("mysql", "mariadb"):
        packet = connection.scalar(text("SELECT @@max_allowed_packet"))
        if packet < MYSQL_PACKET_BYTES_MIN:
            raise SinkSetupError(f"max_allowed_packet is {packet} and must be at least {MYSQL_PACKET_BYTES_MIN}")


def spelled(connection: Connection, row: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]] | None:
    """Return the placeholders and values of a row that needs its own: one with a wide value, on MySQL."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return None
    wide = [isinstance(value, bytes) and len(value) > WIDE_BYTES for value in row]
    if not any(wide):
        return None
    values = (b64encode(value).decode() if is_wide else value for value, is_wide in zip(row, wide, strict=True))
    return ", ".join("FROM_BASE64(%s)" if is_wide else "%s" for is_wide in wide), tuple(values)


def run_transaction(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run work in a transaction, again as a whole when the database undid it for another one's sake.

    Raises:
      SinkUnavailableError: `ATTEMPTS_MAX` times in a row, or the connection was lost.
    """
    with our_errors():
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                with engine.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not is_retryable(error):
                    raise
        with engine.begin() as connection:
            return work(connection)


@contextmanager
def our_errors() -> Iterator[None]:
    """Turn the drivers' errors into this package's. Codes only: a driver's text may quote a statement."""
    try:
        yield
    except PoolTimeoutError as error:
        raise SinkUnavailableError("every connection to the database is in use") from error
    except DBAPIError as error:
        code = error_code(error)
        what = type(error).__name__ if code is None else f"{type(error).__name__}, code {code}"
        if code == "SQLITE_NOTADB":
            raise SinkUrlError("the database URL names a file that is no SQLite database") from error
        if code in _REFUSED_USER:
            raise SinkSetupError(f"the database grants its user too little ({what})") from error
        operational = isinstance(error, OperationalError | InterfaceError) and code != "SQLITE_ERROR"
        if error.connection_invalidated or operational or is_retryable(error):
            raise SinkUnavailableError(f"the database can't be used now ({what}); trying again is safe") from error
        raise SinkInternalError(f"the database refused a statement of ours ({what}); please report it") from error


def _checked(database_url: str) -> URL:
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):
        raise SinkUrlError("not a database URL (expected something like sqlite:///sink.sqlite)") from None
    backend = url.get_backend_name()
    if backend not in _DRIVERS:
        raise SinkUrlError(f"{backend!r} is not one of {', '.join(sorted(_DRIVERS))}")
    driver = _DRIVERS[backend]
    if "+" in url.drivername and url.drivername != f"{backend}+{driver}":
        raise SinkUrlError(f"{url.drivername!r}: the driver of {backend} here is {driver}")
    if driver in _EXTRAS:
        try:
            import_module(driver)
        except ImportError as error:
            raise MissingDriverError(driver, _EXTRAS[driver]) from error
    return url.set(drivername=f"{backend}+{driver}")


def is_in_memory(url: URL) -> bool:
    """Whether a URL names a database that lives and dies with its only connection."""
    in_memory = url.database in (None, "", ":memory:", "file::memory:") or url.query.get("mode") == "memory"
    return url.get_backend_name() == "sqlite" and in_memory


def _created(url: URL, **arguments: Any) -> Engine:
    """Create an engine whose driver may find the URL's options wrong, at once or when it first connects."""
    try:
        engine = create_engine(url, **arguments)
    except (ArgumentError, TypeError, ValueError):
        raise SinkUrlError(_WRONG_OPTION) from None

    def on_connect(dialect: Any, _: object, positional: Any, named: dict[str, Any]) -> Any:
        try:
            return dialect.connect(*positional, **named)
        except (TypeError, ValueError, dialect.loaded_dbapi.ProgrammingError):
            raise SinkUrlError(_WRONG_OPTION) from None

    event.listen(engine, "do_connect", on_connect)
    return engine


_WRONG_OPTION = "the database URL has an option (behind the question mark) that the driver doesn't take"


def _sqlite(url: URL) -> Engine:
    in_memory = is_in_memory(url)
    engine = _created(
        url,
        poolclass=QueuePool,
        pool_size=1 if in_memory else 5,
        max_overflow=0 if in_memory else 10,
        connect_args={"timeout": SQLITE_BUSY_S, "check_same_thread": False},
        hide_parameters=True,
    )

    def on_connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself; `on_begin` does

    def on_begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("tutti_read_only", False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine
