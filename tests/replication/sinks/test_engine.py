"""How the drivers' errors become ours, what is tried again, and how connections are configured."""

import builtins
import contextlib
import importlib
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.exc import DBAPIError

from tutti_replication.codec import encode_batch
from tutti_replication.conformance.samples import WORKSPACE, session_upsert
from tutti_replication.keys import SessionKey
from tutti_sinks import (
    MissingDriverError,
    SinkInternalError,
    SinkSetupError,
    SinkUnavailableError,
    SinkUrlError,
    SqlSink,
    _engine,
    open_sql_sink,
)
from tutti_sinks._engine import ATTEMPTS_MAX, is_retryable, open_engine, run_transaction

BATCH = encode_batch([session_upsert("m1")])


class ServerError(Exception):
    """What a driver raises, with the code where this driver has it."""

    def __init__(self, *args: object, sqlstate: str | None = None) -> None:
        super().__init__(*args)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(ServerError(1213, "Deadlock found"), True, id="mysql-deadlock"),
        pytest.param(ServerError(1020, "Record has changed"), True, id="mysql-record-changed"),
        pytest.param(ServerError(1205, "Lock wait timeout"), False, id="mysql-lock-wait"),
        pytest.param(ServerError(2013, "Lost connection"), False, id="mysql-lost"),
        pytest.param(ServerError("text", sqlstate="40001"), True, id="postgresql-serialization"),
        pytest.param(ServerError("text", sqlstate="40P01"), True, id="postgresql-deadlock"),
        pytest.param(ServerError("text", sqlstate="57P01"), False, id="postgresql-shutdown"),
        pytest.param(sqlite3.OperationalError("database is locked"), False, id="sqlite-busy"),
        pytest.param(None, False, id="nothing"),
    ],
)
def test_only_what_the_database_undid_for_another_one_is_tried_again(error: Any, expected: bool) -> None:
    """A lost connection is the client's to repeat: only it knows what it sent. Source: our choice."""
    assert is_retryable(DBAPIError("statement", {}, error)) is expected


@pytest.mark.parametrize(("failures", "succeeds"), [(1, True), (ATTEMPTS_MAX - 1, True), (ATTEMPTS_MAX, False)])
def test_a_transaction_is_run_again_as_a_whole_and_not_for_ever(tmp_path: Path, failures: int, succeeds: bool) -> None:
    """R12: bounded; each attempt begins anew and nothing of a failed one is left."""
    engine = open_engine(f"sqlite:///{tmp_path / 'x.sqlite'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INTEGER)"))
    attempts: list[int] = []

    def work(connection: Connection) -> int:
        attempts.append(len(attempts))
        connection.execute(text(f"INSERT INTO t VALUES ({len(attempts)})"))
        if len(attempts) <= failures:
            raise DBAPIError("statement", {}, ServerError(1213, "Deadlock found"))
        return len(attempts)

    if succeeds:
        assert run_transaction(engine, work) == failures + 1
    else:
        with pytest.raises(SinkUnavailableError, match="1213"):
            run_transaction(engine, work)

    assert len(attempts) == min(failures + 1, ATTEMPTS_MAX)
    with engine.begin() as connection:
        written = connection.scalars(text("SELECT n FROM t")).all()
    assert written == ([failures + 1] if succeeds else [])
    engine.dispose()


@pytest.mark.server
@pytest.mark.parametrize("name", ["mariadb", "postgresql"])
def test_a_real_deadlock_with_a_foreign_transaction_ends_with_the_batch_applied(
    request: pytest.FixtureRequest, name: str
) -> None:
    """A foreign transaction holds an entity's row and then wants the counter's, which the batch holds. R16, R17."""
    server: Any = request.getfixturevalue(name)
    url = server.new_database()
    foreign = open_engine(url)
    answers: list[str] = []
    with open_sql_sink(url) as sink, foreign.connect() as connection:
        sink.apply(encode_batch([session_upsert(f"m{number}", session_id=f"s{number}") for number in range(50)]))
        connection.execute(text("UPDATE tutti_entity SET version = version + 0, closed = closed"))
        newer = encode_batch([session_upsert("newer", session_id="s1", updated_at_unix_ms=900)])
        locked = threading.Event()
        watch(sink, "SELECT tutti_state", locked)
        writer = threading.Thread(
            target=lambda: answers.extend(one.disposition for one in sink.apply(newer).acknowledgements)
        )
        writer.start()
        assert locked.wait(30)
        with contextlib.suppress(DBAPIError):
            connection.execute(text("SELECT last_cursor FROM tutti_state FOR UPDATE"))
        connection.rollback()
        writer.join(60)

        assert answers == ["applied"]
        assert sink.last_cursor() == 51
    foreign.dispose()


def watch(sink: SqlSink, statement: str, seen: threading.Event) -> None:
    """Set the event when a statement that begins like this was run."""

    def after(_connection: object, _cursor: object, text: str, *_: object) -> None:
        if text.startswith(statement):
            seen.set()

    event.listen(sink._engine, "after_cursor_execute", after)


def test_a_locked_sqlite_file_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process holds the write lock for longer than we wait. Source: our choice."""
    monkeypatch.setattr(_engine, "SQLITE_BUSY_S", 0.01)
    path = tmp_path / "x.sqlite"
    with open_sql_sink(f"sqlite:///{path}") as sink:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")

        with pytest.raises(SinkUnavailableError, match="SQLITE_BUSY"):
            sink.apply(BATCH)

        holder.execute("ROLLBACK")
        holder.close()
        assert sink.apply(BATCH).result.cursor == 1


def test_reading_does_not_wait_for_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read begins without SQLite's write lock. Source: our choice."""
    monkeypatch.setattr(_engine, "SQLITE_BUSY_S", 0.01)
    path = tmp_path / "x.sqlite"
    with open_sql_sink(f"sqlite:///{path}") as sink:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")

        assert sink.changes().items == []

        holder.close()


@pytest.mark.parametrize("table", ["tutti_ledger", "tutti_state"])
def test_tables_changed_by_hand_are_an_error_of_their_own(database_url: str, table: str) -> None:
    """Not transient: sending again would not help. Source: our choice."""
    with open_sql_sink(database_url) as sink:
        with sink._engine.begin() as connection:
            connection.execute(text(f"DROP TABLE {table}" if table == "tutti_ledger" else f"DELETE FROM {table}"))

        with pytest.raises(SinkInternalError):
            sink.apply(BATCH)


def test_a_lost_counter_is_not_begun_anew_when_the_projection_is_opened_again(database_url: str) -> None:
    """RW-sink-counter: it would give cursors a second time, and readers would skip what has them."""
    with open_sql_sink(database_url) as sink:
        sink.apply(BATCH)
        with sink._engine.begin() as connection:
            connection.execute(text("DELETE FROM tutti_state"))

    with pytest.raises(SinkInternalError, match="counter row"), open_sql_sink(database_url):
        pass


def test_errors_quote_neither_statements_nor_what_a_client_sent(database_url: str) -> None:
    """Codes only, in ours and in the driver's wrapper. Source: our choice."""
    with open_sql_sink(database_url) as sink:
        secret = encode_batch([session_upsert("m2", session_id="other", title="SECRET")])
        with sink._engine.begin() as connection:
            connection.execute(text("DROP TABLE tutti_entity"))

        with pytest.raises(SinkInternalError) as failed:
            sink.apply(secret)

    assert "SECRET" not in str(failed.value)
    assert "SELECT" not in str(failed.value)
    assert "SECRET" not in str(failed.value.__cause__)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://host:port/x", "not a database URL"),
        ("sqlite+aiosqlite:///x", "pysqlite"),
        ("oracle://scott:tiger@db/x", "oracle"),
        ("mysql+mysqldb://user:secret@db/x", "pymysql"),
        ("postgresql+psycopg2://user:secret@db/x", "psycopg"),
    ],
)
def test_another_database_or_driver_is_refused_by_name(url: str, words: str) -> None:
    """Source: our choice."""
    with pytest.raises(SinkUrlError, match=words) as refused:
        open_engine(url)

    assert "secret" not in str(refused.value)
    assert "tiger" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///{folder}/x.sqlite?timeout=secret",
        "mysql://user:secret@127.0.0.1:1/x?secret=secret",
        "mysql://user:secret@127.0.0.1:1/x?read_timeout=secret",
        "postgresql://user:secret@127.0.0.1:1/x?secret=secret",
    ],
)
def test_an_option_that_the_driver_does_not_know_is_the_urls_fault(tmp_path: Path, url: str) -> None:
    """Each was a traceback, or "please report it". Source: our choice."""
    with pytest.raises(SinkUrlError, match="option") as refused, open_sql_sink(url.format(folder=tmp_path)):
        pass

    assert "secret" not in "".join(traceback.format_exception(refused.value)).replace(url, "")


def test_a_file_that_is_no_database_is_the_urls_fault(tmp_path: Path) -> None:
    """Source: our choice."""
    (tmp_path / "page.txt").write_text("a page of text, long enough to be looked at " * 9)

    with pytest.raises(SinkUrlError, match="no SQLite database"), open_sql_sink(f"sqlite:///{tmp_path / 'page.txt'}"):
        pass


@pytest.mark.server
@pytest.mark.parametrize(
    ("name", "create"),
    [
        ("mariadb", "CREATE USER 'reader'@'%' IDENTIFIED BY 'secret'"),
        ("postgresql", "CREATE ROLE reader LOGIN PASSWORD 'secret'"),
    ],
)
def test_a_user_without_rights_is_a_matter_of_set_up(request: pytest.FixtureRequest, name: str, create: str) -> None:
    """Neither transient nor a bug of ours; whoever set the database up has to grant more. Source: our choice."""
    server: Any = request.getfixturevalue(name)
    url = make_url(server.new_database()).set(username="reader", password="secret")
    server.execute(create)

    with (
        pytest.raises(SinkSetupError, match="too little") as refused,
        open_sql_sink(url.render_as_string(hide_password=False)),
    ):
        pass

    assert "secret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.server
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_keeps_our_bytes(postgresql: Any, encoding: str) -> None:
    """PostgreSQL's driver gave bytes for text where the database has no encoding, and failed on them."""
    name = f"sink_{encoding.lower()}"
    postgresql.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")

    with open_sql_sink(postgresql.url(name)) as sink:
        sink.apply(encode_batch([session_upsert("m", title="\u00e9 \U0001f600")]))
        found = sink.lookup(WORKSPACE, SessionKey("session-1"))

    assert found is not None
    assert getattr(found.snapshot, "title", "") == "\u00e9 \U0001f600"


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("mysql://db/x", "pymysql", "tutti-side[mysql]"),
        ("mariadb://db/x", "pymysql", "tutti-side[mysql]"),
        ("postgresql://db/x", "psycopg", "tutti-side[postgresql]"),
    ],
)
def test_a_missing_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    """Source: our choice."""
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingDriverError, match=r"pip install") as missing:
        open_engine(url)

    assert f"'{extra}'" in str(missing.value)
    assert isinstance(missing.value, ImportError)


def test_a_missing_sqlalchemy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package itself imports without it. Source: our choice."""
    for name in [name for name in sys.modules if name.startswith("tutti_sinks")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "sqlalchemy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    package = importlib.import_module("tutti_sinks")

    with pytest.raises(package.MissingDriverError, match=r"tutti-side\[sinks\]"):
        package.open_sql_sink  # noqa: B018 - looking the name up is what fails


def test_importing_the_package_loads_no_database_library() -> None:
    """R18's neighbour: names load when they are used. Source: our choice."""
    program = (
        "import sys, tutti_sinks; "
        "sys.exit(bool({'sqlalchemy', 'pymysql', 'psycopg', 'sqlite3', 'trio'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_unknown_name_is_no_attribute() -> None:
    """So that `hasattr` and `from … import` behave. Source: our choice."""
    package: Any = importlib.import_module("tutti_sinks")

    assert not hasattr(package, "no_such_name")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_an_engine_in_memory_keeps_its_only_connection(url: str) -> None:
    """Otherwise threads would see different databases. Source: our choice."""
    with open_sql_sink(url) as sink:
        with sink._engine.connect():
            pass
        assert sink._engine.pool.status().startswith("Pool size: 1 ")
        run_in_thread(lambda: sink.apply(BATCH))

        assert sink.last_cursor() == 1


def run_in_thread(work: Callable[[], object]) -> None:
    """Run work in a thread of its own and wait for it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
