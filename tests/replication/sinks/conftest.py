"""Real MariaDB and PostgreSQL servers for the sink tests.

Private instances on loopback, an ephemeral port and a temporary directory (in memory where there is one); nothing of
the machine's own servers is touched. They can be killed with SIGKILL and started again. A missing server is a
failure, never a skip: install ``mariadb-server`` and ``postgresql``.
"""

import os
import pwd
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

import tutti_sinks
from tutti_replication.acknowledgement import ApplyResponse
from tutti_replication.conformance.histories import Cut, Entity, Outcome, entity_of
from tutti_replication.conformance.ports import StoredEntity
from tutti_replication.epoch import PROJECTION_EPOCH, EpochMismatch
from tutti_replication.rejection import PermanentRejection
from tutti_sinks import SqlSink, open_sql_sink

READY_S = 60.0
"""A cold start takes 1 to 7 seconds; a busy machine with two cores may need far longer."""


class DatabaseServer:
    """One server process of ours, that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def command(self) -> list[str]:
        raise NotImplementedError

    def url(self, database: str) -> str:
        raise NotImplementedError

    admin_database = ""
    user: str | None = None

    def start(self) -> None:
        """Start the server and wait until it answers a query."""
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self.user, start_new_session=True
        )
        log.close()
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self.execute("SELECT 1")
            except DBAPIError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    words = (self.folder / "server.log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{self.command()[0]} did not start:\n{words}") from None
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """SIGKILL the server and its children, as a power cut would, and wait until all are gone."""
        process = self.process
        assert process is not None
        family = [process.pid, *_children(process.pid)]
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()
        deadline = time.monotonic() + READY_S
        while any(Path(f"/proc/{pid}").exists() for pid in family):
            assert time.monotonic() < deadline, "a killed server is still there"
            time.sleep(0.01)
        self.process = None

    def stop(self) -> None:
        """End the server; its data are thrown away, so there is nothing to end gently."""
        if self.process is not None:
            self.kill()

    def execute(self, statement: str) -> None:
        """Run one statement as administrator, outside any transaction."""
        engine = create_engine(self.url(self.admin_database), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()

    def through(self, url: str, port: int) -> str:
        """Return the URL of a database of this server by way of a relay."""
        return url.replace(f":{self.port}/", f":{port}/")

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        self._databases += 1
        name = f"sink_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)


class MariaServer(DatabaseServer):
    """A private MariaDB."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._run_as = pwd.getpwuid(os.getuid()).pw_name
        subprocess.run(
            [
                _program("mariadb-install-db"),
                "--no-defaults",
                f"--user={self._run_as}",
                f"--datadir={folder / 'data'}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def command(self) -> list[str]:
        return [
            _program("mariadbd"),
            "--no-defaults",
            f"--user={self._run_as}",
            f"--datadir={self.folder / 'data'}",
            f"--socket={self.folder / 'm.sock'}",
            f"--pid-file={self.folder / 'm.pid'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            "--skip-name-resolve",
            "--innodb-flush-method=fsync",
            "--innodb-buffer-pool-size=64M",
        ]

    def url(self, database: str) -> str:
        return (
            f"mysql+pymysql://root@127.0.0.1:{self.port}/{database}?ssl_disabled=true"  # loading CA files takes 50 ms
        )


class PostgresServer(DatabaseServer):
    """A private PostgreSQL. It refuses to run as root, so root lends it the packaged user."""

    admin_database = "postgres"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if os.getuid() == 0:
            self.user = "postgres"
            shutil.chown(folder, self.user)
        subprocess.run(
            [
                _program("initdb"),
                "-D",
                str(folder / "data"),
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self.user,
            cwd=folder,
        )

    def command(self) -> list[str]:
        where = [f"--data_directory={self.folder / 'data'}", f"--unix_socket_directories={self.folder}"]
        return [_program("postgres"), "-D", str(self.folder / "data"), "-h", "127.0.0.1", "-p", str(self.port), *where]

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    """A running MariaDB of this test session."""
    yield from _running(MariaServer)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[DatabaseServer]:
    """A running PostgreSQL of this test session."""
    yield from _running(PostgresServer)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("mariadb", marks=pytest.mark.server),
        pytest.param("postgresql", marks=pytest.mark.server),
    ]
)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, once for each of the three kinds."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'sink.sqlite'}"
        return
    server: DatabaseServer = request.getfixturevalue(request.param)
    url = server.new_database()
    yield url
    server.execute(f"DROP DATABASE {make_url(url).database}")


def _running(kind: Callable[[Path], DatabaseServer]) -> Iterator[DatabaseServer]:
    with _temporary_folder() as folder:
        server = kind(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder in memory where there is one: durability against SIGKILL needs no disk."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="tutti-", dir=memory if os.access(memory, os.W_OK) else None))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    places = [*os.environ["PATH"].split(os.pathsep), "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise RuntimeError(f"{name} is not installed: the sink tests need mariadb-server and postgresql")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _children(pid: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(grandchild for child in found for grandchild in _children(child))]


class StatementCutter:
    """Drops SQLite's connection at a chosen statement, the same way as `CuttingProxy`.

    A commit counts as a statement.
    """

    def __init__(self) -> None:
        self._statements = 0
        self._cut: tuple[int, str] | None = None

    def watch(self, engine: Engine) -> None:
        """Count the statements of this engine."""
        commit = engine.dialect.do_commit

        def before(connection: Any, *_: object) -> None:
            self._statements += 1
            self._drop(connection.connection, "before")

        def after(connection: Any, cursor: Any, *_: object) -> None:
            if self._cut == (self._statements, "after"):
                cursor.close()  # an open one would keep the lock of the connection that is closed now
            self._drop(connection.connection, "after")

        def do_commit(connection: Any) -> None:
            self._statements += 1
            self._drop(connection, "before")
            commit(connection)
            self._drop(connection, "after")

        event.listen(engine, "before_cursor_execute", before)
        event.listen(engine, "after_cursor_execute", after)
        engine.dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]

    def cut(self, statement: int, when: str) -> None:
        """Arm the cut and count from here."""
        self._statements, self._cut = 0, (statement, when)

    def disarm(self) -> bool:
        """Forget the cut; true when it had not happened yet."""
        waiting, self._cut = self._cut is not None, None
        return waiting

    def _drop(self, connection: Any, when: str) -> None:
        if self._cut == (self._statements, when):
            self._cut = None
            connection.dbapi_connection.rollback()
            connection.dbapi_connection.close()
            if when == "after":
                raise sqlite3.ProgrammingError("Cannot operate on a closed database.")


class CuttingProxy:
    """A loopback TCP relay that drops the connection at a chosen statement.

    A *turn* is a request: bytes of the client after bytes of the server. ``cut(k, "before")`` drops the k-th turn
    from now without forwarding it; ``cut(k, "after")`` lets the server answer it and keeps the answer. Either happens
    once.
    """

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._turns = 0
        self._cut: tuple[int, str] | None = None
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self, turn: int, when: str) -> None:
        """Arm the cut and count from here."""
        with self._lock:
            self._turns, self._cut = 0, (turn, when)

    def disarm(self) -> bool:
        """Forget the cut; true when it had not happened yet."""
        with self._lock:
            waiting, self._cut = self._cut is not None, None
            return waiting

    def close(self) -> None:
        """Stop relaying."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(READY_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._relay, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _relay(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._server.port))
        except OSError:
            client.close()
            return
        client_spoke = False
        with client, server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for source in ready:
                    from_client = source is client
                    try:
                        data = source.recv(1 << 16)
                        turned = from_client is not client_spoke
                        client_spoke = from_client
                        if not data or (turned and self._cuts(from_client)):
                            return
                        (server if from_client else client).sendall(data)
                    except OSError:
                        return

    def _cuts(self, from_client: bool) -> bool:
        with self._lock:
            self._turns += from_client
            if self._cut != (self._turns, "before" if from_client else "after"):
                return False
            self._cut = None
            return True


@pytest.fixture
def sink(database_url: str) -> Iterator[SqlSink]:
    """A fresh projection, once for each of the three kinds of database."""
    with open_sql_sink(database_url) as sink:
        yield sink


class SqlBed:
    """A `HistoryBed` over a SQL sink. ``package`` may be another one than ours: a copy with a fault."""

    def __init__(self, url: str, cutter: StatementCutter | CuttingProxy, package: Any = tutti_sinks) -> None:
        self._url = url
        self._cutter = cutter
        self._package = package
        self._epoch = PROJECTION_EPOCH
        self._writers = ThreadPoolExecutor(3)
        self._order: list[int] = []
        self._writer = threading.local()
        self._open()

    def close(self) -> None:
        """Close the sink and its writers."""
        self._stack.close()
        self._writers.shutdown()

    def empty(self) -> None:
        """Make the projection as new."""
        self._epoch = PROJECTION_EPOCH
        self._clear(self._epoch)

    def apply(self, batch: bytes, cut: Cut | None) -> ApplyResponse | None:
        if cut is not None:
            self._cutter.cut(cut.statement, cut.when)
        try:
            answer: ApplyResponse = self._sink.apply(batch)
        except self._package.SinkUnavailableError:
            return None
        finally:
            self._cutter.disarm()
        return answer

    def apply_concurrently(self, batches: Sequence[bytes]) -> Sequence[tuple[int, Outcome]]:
        self._order.clear()
        outcomes = dict(enumerate(self._writers.map(self._apply_one, range(len(batches)), batches)))
        last = {index: place for place, index in enumerate(self._order)}
        return sorted(outcomes.items(), key=lambda item: last.get(item[0], -1))

    def new_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._clear(epoch)

    def restart(self) -> None:
        self._stack.close()
        self._open()

    def read_all(self) -> Mapping[Entity, StoredEntity]:
        changes = self._sink.changes(0, limit=1000)
        assert not changes.more
        return {
            entity_of(one.workspace_id, one.source_device_id, one.key): StoredEntity(one.snapshot, one.scope)
            for one in changes.items
            if one.snapshot is not None
        }

    def _open(self) -> None:
        self._stack = ExitStack()
        self._sink = self._stack.enter_context(self._package.open_sql_sink(self._url, projection_epoch=self._epoch))
        if isinstance(self._cutter, StatementCutter):
            self._cutter.watch(self._sink._engine)
        event.listen(self._sink._engine, "after_cursor_execute", self._note_lock)

    def _clear(self, epoch: int) -> None:
        """Empty and renumber at once; `reset_projection` is tested by itself, and refuses to go back to an epoch."""
        with self._sink._engine.begin() as connection:
            for table in ("tutti_ledger", "tutti_entity", "tutti_observed"):
                connection.exec_driver_sql(f"DELETE FROM {table}")
            connection.exec_driver_sql(f"UPDATE tutti_state SET projection_epoch = {epoch}")
        self._sink.projection_epoch = epoch

    def _apply_one(self, index: int, batch: bytes) -> Outcome:
        self._writer.index = index
        try:
            answer: ApplyResponse = self._sink.apply(batch)
        except (PermanentRejection, EpochMismatch) as refused:
            return refused
        return answer

    def _note_lock(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        """The counter row is locked from here to the commit, so this is the order of commits."""
        if statement.startswith("SELECT tutti_state.") and hasattr(self._writer, "index"):
            self._order.append(self._writer.index)


@pytest.fixture
def sqlite_bed() -> Iterator[SqlBed]:
    """An empty SQLite projection whose connections can be dropped."""
    with _temporary_folder() as folder:
        bed = SqlBed(f"sqlite:///{folder / 'sink.sqlite'}", StatementCutter())
        yield bed
        bed.close()


@pytest.fixture
def bed_of() -> Iterator[Callable[[Any], SqlBed]]:
    """Make a SQLite bed over a copy of the sinks' package."""
    with ExitStack() as stack:

        def make(package: Any) -> SqlBed:
            folder = stack.enter_context(_temporary_folder())
            bed = SqlBed(f"sqlite:///{folder / 'sink.sqlite'}", StatementCutter(), package)
            stack.callback(bed.close)
            return bed

        yield make


@pytest.fixture
def server_bed(request: pytest.FixtureRequest) -> Iterator[Callable[[str], SqlBed]]:
    """Make an empty projection on a server (``mariadb`` or ``postgresql``) whose connections can be dropped."""
    with ExitStack() as stack:

        def make(name: str) -> SqlBed:
            server: DatabaseServer = request.getfixturevalue(name)
            proxy = CuttingProxy(server)
            stack.callback(proxy.close)
            bed = SqlBed(server.through(server.new_database(), proxy.port), proxy)
            stack.callback(bed.close)
            return bed

        yield make


@pytest.fixture(params=["mariadb", "postgresql"])
def mortal_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server of the test's own, to be killed and started again."""
    yield from _running(MariaServer if request.param == "mariadb" else PostgresServer)
