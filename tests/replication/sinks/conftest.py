"""Real MariaDB and PostgreSQL servers for the sink tests.

Private instances on loopback, an ephemeral port and a temporary directory (in memory where there is one); nothing of
the machine's own servers is touched. They can be killed with SIGKILL and started again. A missing server is a
failure, never a skip: install ``mariadb-server`` and ``postgresql``.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

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

    stop_signal = signal.SIGKILL
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
        """End the server; its data are thrown away, so only what it shares with the system is given back."""
        if self.process is not None:
            self.process.send_signal(self.stop_signal)
            self.process.wait(READY_S)
            self.process = None

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

    stop_signal = signal.SIGQUIT  # "immediate": gives its shared memory back, a SIGKILL does not
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
        where = [f"--unix_socket_directories={self.folder}", "--dynamic_shared_memory_type=mmap"]
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


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one, for databases that need no disk."""
    with _temporary_folder() as folder:
        yield folder


@pytest.fixture
def sink(database_url: str) -> Iterator[SqlSink]:
    """A fresh projection, once for each of the three kinds of database."""
    with open_sql_sink(database_url) as sink:
        yield sink


@pytest.fixture(params=["mariadb", "postgresql"])
def mortal_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server of the test's own, to be killed and started again."""
    yield from _running(MariaServer if request.param == "mariadb" else PostgresServer)


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
