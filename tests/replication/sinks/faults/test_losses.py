"""Connections that drop and servers that die in the middle of a batch:

nothing acknowledged lost, nothing applied twice.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from sqlalchemy import event

from tutti_replication.acknowledgement import ApplyResponse
from tutti_replication.codec import encode_batch
from tutti_replication.conformance.histories import Cut
from tutti_replication.conformance.oracle import OracleSink
from tutti_replication.conformance.samples import delete, message_upsert, session_upsert, turn_upsert
from tutti_replication.keys import MessageKey, TurnKey
from tutti_replication.mutation import Mutation
from tutti_sinks import SinkUnavailableError, SqlSink, open_sql_sink

PAYLOAD = Raw(b'{"text":"' + b"x" * 3000 + b'"}')

KILLS = 10
"""Per kind of server."""

KILLED_SIZE = 90
"""Mutations, less one, of a batch whose server dies."""


def batch(number: int, size: int = 40) -> bytes:
    """Return a batch that inserts, replaces what earlier batches wrote, and deletes; the same for the same number."""
    mutations: list[Mutation] = [session_upsert(f"{number}-s", title=str(number), updated_at_unix_ms=100 + number)]
    for index in range(size):
        name = f"{number}-{index}"
        if index % 5 == 0:
            mutations.append(turn_upsert(name, turn_id=f"t{index}", updated_at_unix_ms=100 + number))
        elif index % 7 == 0:
            mutations.append(delete(name, TurnKey("session-1", f"gone-{name}")))
        else:
            shared = f"m{index}" if index % 2 else f"m{name}"
            mutations.append(message_upsert(name, message_id=shared, version=number + 1, payload=PAYLOAD))
    return encode_batch(mutations)


@pytest.fixture
def bed(request: pytest.FixtureRequest, server_bed: Callable[[str], Any]) -> Any:
    """A bed over the parametrized kind of database."""
    name = request.param
    return request.getfixturevalue("sqlite_bed") if name == "sqlite" else server_bed(name)


def cuts(when: str) -> Iterator[Cut]:
    """Cut at the first statement, at the second, and so on."""
    for statement in count(1):
        yield Cut(statement, "before" if when == "before" else "after")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "bed",
    [
        "sqlite",
        pytest.param("mariadb", marks=pytest.mark.server),
        pytest.param("postgresql", marks=pytest.mark.server),
    ],
    indirect=True,
)
def test_a_connection_dropped_at_any_statement_leaves_all_or_nothing(bed: Any, when: str) -> None:
    """R16, R17, F41: for every statement of a batch's transaction, its commit included; the repeat tells which."""
    lost = applied_all_the_same = 0
    for cut in cuts(when):
        bed.empty()
        first = bed.apply(batch(0), None)
        answer = bed.apply(batch(1), cut)
        found = bed.read_all()
        again = bed.apply(batch(1), None)
        if answer is None:
            lost += 1
            dispositions = {one.disposition for one in again.acknowledgements}
            assert dispositions in ({"applied"}, {"duplicate"})
            applied_all_the_same += dispositions == {"duplicate"}
            assert (found == bed.read_all()) is (dispositions == {"duplicate"})
        cursors = [one.cursor for one in (*first.acknowledgements, *again.acknowledgements)]
        assert cursors == list(range(cursors[0], cursors[0] + len(cursors)))
        if answer is not None and cut.statement > 30:
            break

    assert lost >= 9
    assert applied_all_the_same == (when == "after")


@pytest.mark.slow
@pytest.mark.server
def test_a_server_killed_in_mid_batch_loses_nothing_that_was_acknowledged(mortal_server: Any) -> None:
    """R16: SIGKILL at another statement each time, ten times; the unanswered batch is sent again after the restart.

    Every other time the statement waits until the server is dead; else the two race, so that some die while it runs.
    """
    url = mortal_server.new_database()
    answers: list[ApplyResponse] = []
    lost = 0
    for kill in range(KILLS):
        reached, dead = threading.Event(), threading.Event()
        killer = threading.Thread(target=kill_when, args=(mortal_server, reached, dead))
        with open_sql_sink(url) as sink:
            watch_statement(sink, 1 + kill, reached, dead if kill % 2 else reached)
            killer.start()
            answer = apply_until_lost(sink, kill)
            killer.join(60)
        mortal_server.start()
        lost += answer is None
        with open_sql_sink(url) as sink:
            answers.append(answer or sink.apply(batch(kill, KILLED_SIZE)))

    oracle = OracleSink()
    with open_sql_sink(url) as sink:
        for number, first in enumerate(answers):
            oracle.apply(batch(number, KILLED_SIZE))
            again = sink.apply(batch(number, KILLED_SIZE)).acknowledgements
            assert {one.disposition for one in again} == {"duplicate"}
            assert [one.cursor for one in again] == [one.cursor for one in first.acknowledgements]
        assert sink.last_cursor() == len(oracle.log.accepted)
        changes = sink.changes(0, limit=1000)
        assert not changes.more
        for one in changes.items:
            expected = oracle.lookup(one.workspace_id, one.source_device_id, one.key)
            assert one.snapshot == (expected and expected.snapshot)
    assert {one.key for one in changes.items} == {mutation.key for mutation in oracle.log.accepted}
    assert lost >= KILLS // 2


CHILD = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from tutti_sinks import open_sql_sink

url, statement, path = sys.argv[1:]
seen = []

def before(*_):
    seen.append(1)
    if len(seen) == int(statement):
        os.kill(os.getpid(), signal.SIGKILL)

with open_sql_sink(url) as sink:
    event.listen(sink._engine, "before_cursor_execute", before)
    sink.apply(Path(path).read_bytes())
"""
"""A process that applies one batch and dies at a statement of it."""


@pytest.mark.process
def test_a_process_killed_in_mid_batch_leaves_all_or_nothing_in_sqlite(tmp_path: Path) -> None:
    """R16, R17: the embedded database dies with its process; at each of the statements once."""
    url, file = f"sqlite:///{tmp_path / 'sink.sqlite'}", tmp_path / "batch"
    with open_sql_sink(url) as sink:
        first = sink.apply(batch(0))
    for statement in range(1, KILLS + 1):
        file.write_bytes(batch(1))

        end = subprocess.run([sys.executable, "-c", CHILD, url, str(statement), str(file)], check=False)

        assert end.returncode == -signal.SIGKILL
        with open_sql_sink(url) as sink:
            assert sink.last_cursor() == first.result.cursor
            assert [one.cursor for one in sink.apply(batch(0)).acknowledgements] == [
                one.cursor for one in first.acknowledgements
            ]
    with open_sql_sink(url) as sink:
        assert {one.disposition for one in sink.apply(batch(1)).acknowledgements} == {"applied"}


def kill_when(server: Any, reached: threading.Event, dead: threading.Event) -> None:
    """Kill the server when the statement is reached."""
    reached.wait(60)
    server.kill()
    dead.set()


def watch_statement(sink: SqlSink, statement: int, reached: threading.Event, go_on: threading.Event) -> None:
    """At the n-th statement from now set one event, and wait for the other one."""
    left = count(1)

    def before(*_: object) -> None:
        if next(left) == statement:
            reached.set()
            assert go_on.wait(60)

    event.listen(sink._engine, "before_cursor_execute", before)


def apply_until_lost(sink: SqlSink, number: int) -> ApplyResponse | None:
    """Apply a batch whose server is about to die."""
    try:
        return sink.apply(batch(number, KILLED_SIZE))
    except SinkUnavailableError:
        return None


def test_the_batches_of_these_tests_insert_replace_and_delete() -> None:
    """Otherwise a drop between DELETE and INSERT is not met. Source: our choice."""
    oracle = OracleSink()
    for number in range(2):
        answer = oracle.apply(batch(number))
        assert {one.disposition for one in answer.acknowledgements} == {"applied"}
    replaced = oracle.lookup("workspace-1", "", MessageKey("session-1", "m1"))
    assert replaced is not None
    assert getattr(replaced.snapshot, "version", 0) == 2
