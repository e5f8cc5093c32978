"""A SQL sink to which things happen: connections that drop at a chosen statement, writers at once, resets, restarts."""

import select
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

import tutti_sinks
from tutti_replication.acknowledgement import ApplyResponse
from tutti_replication.conformance.histories import Cut, Entity, Outcome, entity_of
from tutti_replication.conformance.ports import StoredEntity
from tutti_replication.epoch import PROJECTION_EPOCH, EpochMismatch
from tutti_replication.rejection import PermanentRejection

JOIN_S = 60.0
"""How long a relay's thread may take to end; it ends at once unless something is wrong."""


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

    def __init__(self, server: Any) -> None:
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
            thread.join(JOIN_S)
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
def sqlite_bed(memory_folder: Path) -> Iterator[SqlBed]:
    """An empty SQLite projection whose connections can be dropped."""
    bed = SqlBed(f"sqlite:///{memory_folder / 'sink.sqlite'}", StatementCutter())
    yield bed
    bed.close()


@pytest.fixture
def bed_of(memory_folder: Path) -> Iterator[Callable[[Any], SqlBed]]:
    """Make a SQLite bed over a copy of the sinks' package."""
    with ExitStack() as stack:

        def make(package: Any) -> SqlBed:
            bed = SqlBed(f"sqlite:///{memory_folder / 'sink.sqlite'}", StatementCutter(), package)
            stack.callback(bed.close)
            return bed

        yield make


@pytest.fixture
def server_bed(request: pytest.FixtureRequest) -> Iterator[Callable[[str], SqlBed]]:
    """Make an empty projection on a server (``mariadb`` or ``postgresql``) whose connections can be dropped."""
    with ExitStack() as stack:

        def make(name: str) -> SqlBed:
            server = request.getfixturevalue(name)
            proxy = CuttingProxy(server)
            stack.callback(proxy.close)
            bed = SqlBed(server.through(server.new_database(), proxy.port), proxy)
            stack.callback(bed.close)
            return bed

        yield make
