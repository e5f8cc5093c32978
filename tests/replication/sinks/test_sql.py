"""What one SQL sink promises over SQLite, MariaDB and PostgreSQL, beyond the conformance cases."""

import contextlib
import json
import threading
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from tutti_replication.codec import BATCH_BYTES_MAX, encode_batch
from tutti_replication.conformance.samples import (
    WORKSPACE,
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    target_upsert,
    turn_upsert,
)
from tutti_replication.epoch import EpochMismatch
from tutti_replication.keys import MessageKey, SessionKey, TargetKey
from tutti_replication.mutation import Mutation, Upsert
from tutti_replication.rejection import PermanentRejection
from tutti_sinks import SinkEpochError, SinkSetupError, SqlSink, open_sql_sink, reset_projection
from tutti_sinks._engine import open_engine

ONE_OF_EACH: list[Upsert] = [
    target_upsert("m1"),
    session_upsert("m2"),
    turn_upsert("m3"),
    interaction_upsert("m4"),
    message_upsert("m5"),
]


def apply(sink: SqlSink, *mutations: Mutation) -> list[tuple[str, int]]:
    """Apply one batch and return dispositions and cursors."""
    answer = sink.apply(encode_batch(mutations))
    return [(one.disposition, one.cursor) for one in answer.acknowledgements]


def title(sink: SqlSink, session_id: str) -> str | None:
    """Return a session's title, None when it isn't there."""
    found = sink.lookup(WORKSPACE, SessionKey(session_id))
    return None if found is None else getattr(found.snapshot, "title", "deleted")


def test_what_was_applied_is_read_back_with_its_scope(sink: SqlSink) -> None:
    """RW-equal-scopes, RW-sink-applied."""
    assert apply(sink, *ONE_OF_EACH) == [("applied", cursor) for cursor in range(1, 6)]

    for upsert in ONE_OF_EACH:
        found = sink.lookup(WORKSPACE, upsert.key, source_device_id=upsert.source_device_id)
        assert found is not None
        assert (found.key, found.scope, found.source_device_id) == (upsert.key, upsert.scope, "device-1")
        if not isinstance(found.key, SessionKey):
            assert found.snapshot == upsert.snapshot


def test_a_batch_sent_again_is_answered_with_its_first_cursors(sink: SqlSink) -> None:
    """RW-sink-duplicate, R16: nothing is applied twice."""
    first = apply(sink, *ONE_OF_EACH)

    assert apply(sink, *ONE_OF_EACH) == [("duplicate", cursor) for _, cursor in first]
    assert sink.last_cursor() == 5


def test_a_rejected_last_mutation_leaves_nothing_of_its_batch(sink: SqlSink) -> None:
    """RW-equal-atomic, R17, F41: the first half must not be there when the batch comes again without the poison."""
    apply(sink, session_upsert("m1", session_id="a"))

    with pytest.raises(PermanentRejection) as refused:
        apply(sink, session_upsert("m2", session_id="b"), session_upsert("m1", session_id="b"))

    assert (refused.value.kind, refused.value.mutation_id) == ("identity", "m1")
    assert title(sink, "b") is None
    assert apply(sink, session_upsert("m2", session_id="b")) == [("applied", 2)]


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(["session", "Session", "SESSION"], id="case"),
        pytest.param(["session", "session ", " session", "session\t"], id="spaces"),
        pytest.param(["\u00e9", "e\u0301", "e", "\u00c9"], id="accents"),
        pytest.param(["\u00df", "ss", "\u1e9e"], id="sharp-s"),
        pytest.param(["\U0001f600", "\U0001f601", "?"], id="beyond-the-first-plane"),
        pytest.param(["x" * 511 + "y", "x" * 511 + "z", "x" * 511], id="long"),
        pytest.param(["\u4e2d" * 170, "\u4e2d" * 169], id="long-in-bytes"),
        pytest.param(["a%", "a_", "a\\", "a'", 'a"', "a/b"], id="signs"),
    ],
)
def test_ids_that_look_alike_stay_apart(sink: SqlSink, ids: list[str]) -> None:
    """F45: neither a collation nor a length makes two ids meet, in keys, in the ledger and in workspaces."""
    for number, name in enumerate(ids):
        mutation = session_upsert(name, workspace_id=name, session_id=name, device=name.strip() or "d", title=name)
        assert apply(sink, mutation) == [("applied", number + 1)]

    for name in ids:
        (found,) = sink.sessions(name).items
        assert (found.key, getattr(found.snapshot, "title", None)) == (SessionKey(name), name)


def test_two_devices_have_the_same_target_ids(sink: SqlSink) -> None:
    """RW-equal-targets; a device id counts without surrounding white space (RW-rule-device-space)."""
    apply(sink, target_upsert("m1", device="d1", name="one"), target_upsert("m2", device="d2", name="two"))

    first = sink.lookup(WORKSPACE, TargetKey("target-1"), source_device_id=" d1\n")
    second = sink.lookup(WORKSPACE, TargetKey("target-1"), source_device_id="d2")
    assert [getattr(found and found.snapshot, "name", None) for found in (first, second)] == ["one", "two"]
    assert len(sink.targets(WORKSPACE).items) == 2


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"z":1,"a":1.0e5,"n":12345678901234567890}', id="order-and-numbers"),
        pytest.param(b'{"a":"\\u0000","b":"\\ud83d\\ude00 \\/"}', id="escapes"),
        pytest.param('{"a":"\U0001f600 \u4e2d"}'.encode(), id="beyond-the-first-plane"),
        pytest.param(b'{ "a" : [ ] }', id="spaces"),
        pytest.param(b'{"a":"' + b"\\\\\\\"'%s%(x)s?:y" * 10_000 + b'"}', id="longer-than-64-KiB"),
    ],
)
def test_objects_keep_their_bytes(sink: SqlSink, raw: bytes) -> None:
    """RW-raw-objects: JSON column types and text columns would rewrite, cut or refuse these."""
    apply(sink, message_upsert("m1", payload=Raw(raw)))

    found = sink.lookup(WORKSPACE, MessageKey("session-1", "message-1"))
    assert found is not None
    assert bytes(getattr(found.snapshot, "payload", b"")) == raw


def test_the_greatest_integers_fit(sink: SqlSink) -> None:
    """RW-integers: 2^63-1 in every column."""
    most = 2**63 - 1
    times: dict[str, Any] = {"occurred_at_unix_ms": most, "created_at_unix_ms": most, "updated_at_unix_ms": most}
    apply(sink, session_upsert("m1"), message_upsert("m2", id=most, version=most, **times))

    (message,) = sink.messages(WORKSPACE, "session-1").items
    session = sink.lookup(WORKSPACE, SessionKey("session-1"))
    assert session is not None
    assert getattr(message.snapshot, "version", 0) == getattr(session.snapshot, "message_version", 0) == most


def test_an_omitted_anchor_is_read_back_as_it_was_asserted(sink: SqlSink) -> None:
    """RW-equal-anchor: the newest snapshot, with the anchor of an older one."""
    apply(sink, turn_upsert("m1", identity_anchor_turn_id="t0"))
    apply(sink, turn_upsert("m2", phase="waiting", updated_at_unix_ms=200))

    (turn,) = sink.turns(WORKSPACE, "session-1").items
    expected = turn_upsert("m2", phase="waiting", updated_at_unix_ms=200, identity_anchor_turn_id="t0")
    assert turn.snapshot == expected.snapshot


def test_one_batch_may_change_one_entity_many_times(sink: SqlSink) -> None:
    """Each mutation sees the earlier ones of its batch, and the last state is stored. Source: wire page, 3."""
    batch: list[Mutation] = [
        session_upsert("m1", title="one"),
        session_upsert("m2", title="two", updated_at_unix_ms=200),
        session_upsert("m3", title="stale"),
        delete("m4", SessionKey("session-1")),
        session_upsert("m5", title="too late", updated_at_unix_ms=900),
        session_upsert("m1", title="one"),
    ]

    assert apply(sink, *batch) == [
        ("applied", 1),
        ("applied", 2),
        ("stale", 0),
        ("applied", 3),
        ("stale", 0),
        ("duplicate", 1),
    ]
    assert title(sink, "session-1") == "deleted"


def test_a_batch_that_is_all_stale_writes_nothing(sink: SqlSink) -> None:
    """RW-sink-stale: no cursor, no ledger entry; the same id may come again with something newer."""
    apply(sink, session_upsert("m1"))

    assert apply(sink, session_upsert("m2", updated_at_unix_ms=1)) == [("stale", 0)]
    assert apply(sink, session_upsert("m2", updated_at_unix_ms=200)) == [("applied", 2)]


def test_cursors_rise_across_batches_writers_and_restarts(database_url: str) -> None:
    """RW-sink-counter: one counter, its row locked first; threads write at the same time."""
    writers, batches, size = 4, 5, 3
    cursors: list[list[int]] = [[] for _ in range(writers)]

    def write(writer: int) -> None:
        with open_sql_sink(database_url) as sink:
            for number in range(batches):
                names = [f"{writer}-{number}-{index}" for index in range(size)]
                answers = apply(sink, *(session_upsert(name, session_id=name) for name in names))
                cursors[writer].extend(cursor for _, cursor in answers)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert all(of_writer == sorted(of_writer) for of_writer in cursors)
    assert sorted(cursor for of_writer in cursors for cursor in of_writer) == list(
        range(1, writers * batches * size + 1)
    )
    with open_sql_sink(database_url) as sink:
        assert apply(sink, session_upsert("last")) == [("applied", writers * batches * size + 1)]


def test_a_writer_has_the_counter_before_it_reads_anything_else(database_url: str) -> None:
    """RW-sink-counter: whoever asks for it meanwhile is refused or waits, from the first statement to the commit."""
    asked: list[str] = []
    other = open_engine(database_url)
    now = "" if other.dialect.name == "sqlite" else " FOR UPDATE NOWAIT"

    def ask(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            asked.append(statement.partition(" ")[0])
            with pytest.raises(OperationalError), other.connect() as connection, connection.begin():
                connection.execute(text(f"SELECT last_cursor FROM tutti_state{now}"))

    with open_sql_sink(database_url) as sink:
        if not now:
            event.listen(other, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout = 0"))
        event.listen(sink._engine, "after_cursor_execute", ask)
        apply(sink, session_upsert("m1"), message_upsert("m2"))
        event.remove(sink._engine, "after_cursor_execute", ask)
        assert asked[0] == "SELECT"
        assert asked.count("INSERT") == 3
        assert sink.last_cursor() == 2
    other.dispose()


def test_changes_read_while_others_write_skip_nothing(database_url: str) -> None:
    """RW-sink-counter: commit order is cursor order, so who follows the cursor meets every entity."""
    total = 60
    done = threading.Event()

    def write() -> None:
        with open_sql_sink(database_url) as sink:
            for number in range(total):
                apply(sink, session_upsert(f"m{number}", session_id=f"s{number}"))
        done.set()

    seen: list[int] = []
    thread = threading.Thread(target=write)
    with open_sql_sink(database_url) as sink:
        thread.start()
        cursor, last_round = 0, False
        while not last_round:
            last_round = done.is_set()
            changes = sink.changes(cursor, limit=7)
            seen.extend(change.cursor for change in changes.items)
            last_round = last_round and not changes.more
            cursor = changes.cursor
    thread.join(60)

    assert seen == list(range(1, total + 1))


def test_another_epoch_is_refused_and_nothing_is_written(sink: SqlSink) -> None:
    """RW-sink-epoch."""
    with pytest.raises(EpochMismatch) as refused:
        sink.apply(encode_batch([session_upsert("m1")], epoch=2))

    assert (refused.value.expected, refused.value.actual) == (1, 2)
    assert sink.last_cursor() == 0


def test_a_projection_of_another_epoch_does_not_open_until_it_is_reset(database_url: str) -> None:
    """RW-equal-epoch, F43: fail closed, and a reset that clients would not notice is refused."""
    with open_sql_sink(database_url) as sink:
        apply(sink, *ONE_OF_EACH)

    with pytest.raises(SinkEpochError) as refused, open_sql_sink(database_url, projection_epoch=2):
        pass
    assert (refused.value.recorded, refused.value.wanted) == (1, 2)
    with pytest.raises(SinkEpochError):
        reset_projection(database_url, 1)
    with open_sql_sink(database_url) as sink:
        assert len(sink.changes().items) == 5

    reset_projection(database_url, 2)

    with pytest.raises(SinkEpochError), open_sql_sink(database_url):
        pass
    with pytest.raises(SinkEpochError):
        reset_projection(database_url, 1)
    with open_sql_sink(database_url, projection_epoch=2) as sink:
        assert sink.changes().items == []
        answer = sink.apply(encode_batch(ONE_OF_EACH, epoch=2))
        assert (answer.result.projection_epoch, answer.result.cursor) == (2, 10)


def test_a_reset_under_an_open_sink_ends_it(database_url: str) -> None:
    """A process that was not restarted must not write an old epoch's rows into the new one. Source: our choice."""
    with open_sql_sink(database_url) as sink:
        apply(sink, session_upsert("m1"))
        reset_projection(database_url, 2)

        with pytest.raises(EpochMismatch) as refused:
            apply(sink, session_upsert("m2"))

    assert (refused.value.expected, refused.value.actual) == (2, 1)


@pytest.mark.parametrize("kind", ["malformed", "schema", "permission"])
def test_the_epoch_of_the_database_comes_before_every_rejection(database_url: str, kind: str) -> None:
    """Wire page, What a sink decides, 1: else a client of the old epoch would set a mutation aside for good."""
    valid = encode_batch([session_upsert("m2")])
    batch = {"malformed": valid[:-9], "schema": valid.replace(b'"m2"', b'" "')}.get(kind, valid)

    def nobody(_: Mutation) -> bool:
        return False

    with open_sql_sink(database_url) as sink:
        with pytest.raises(PermanentRejection):
            sink.apply(batch, authorize=nobody)
        reset_projection(database_url, 2)
        with pytest.raises(EpochMismatch) as refused:
            sink.apply(batch, authorize=nobody)

    assert (refused.value.expected, refused.value.actual) == (2, 1)


def test_a_new_projection_may_be_reset_to_its_own_epoch(database_url: str) -> None:
    """Nothing was acknowledged yet, so there is nothing to disbelieve. Source: our choice."""
    reset_projection(database_url, 1)

    with open_sql_sink(database_url) as sink:
        assert sink.last_cursor() == 0


def test_who_may_not_send_a_mutation_changes_nothing(sink: SqlSink) -> None:
    """RW-sink-permission: asked for each mutation, before anything is written."""
    batch = encode_batch([session_upsert("m1"), session_upsert("m2", workspace_id="w2")])

    with pytest.raises(PermanentRejection) as refused:
        sink.apply(batch, authorize=lambda mutation: mutation.workspace_id == WORKSPACE)

    assert (refused.value.kind, refused.value.mutation_id) == ("permission", "m2")
    assert sink.last_cursor() == 0


def test_a_failed_batch_gives_its_connection_back(sink: SqlSink) -> None:
    """More failures than the pool has connections, then a success. Source: our choice."""
    apply(sink, session_upsert("m1"))
    for _ in range(20):
        with contextlib.suppress(PermanentRejection):
            apply(
                sink,
                replace(
                    session_upsert("m1"), source_device_id="other", scope=session_upsert("x", device="other").scope
                ),
            )

    assert apply(sink, session_upsert("m2")) == [("applied", 2)]


def test_the_greatest_batch_fits(sink: SqlSink) -> None:
    """RW-http-size: 8 MiB in one payload, of bytes that a driver has to escape."""
    fixed = encode_batch([message_upsert("m1", payload=Raw(b'{"a":""}'))])
    raw = b'{"a":"' + b'\\"' * ((BATCH_BYTES_MAX - len(fixed)) // 2) + b'"}'

    answer = sink.apply(encode_batch([message_upsert("m1", payload=Raw(raw))]))

    assert answer.result.cursor == 1
    found = sink.lookup(WORKSPACE, MessageKey("session-1", "message-1"))
    assert found is not None
    assert bytes(getattr(found.snapshot, "payload", b"")) == raw


def test_the_greatest_batch_fits_with_hardly_anything_in_it_but_one_object(sink: SqlSink) -> None:
    """RW-http-size, F39: all 8 MiB; keys that are absent are stored with their zero values, so it even grows."""
    document = json.loads(encode_batch([message_upsert("m1")]))
    message = document["mutations"][0]["message"]
    for name in [name for name, value in message.items() if value in (0, "", None)]:
        del message[name]
    message["payload"] = {"a": "@"}
    head, tail = json.dumps(document, separators=(",", ":")).encode().split(b"@")
    batch = head + b"'" * (BATCH_BYTES_MAX - len(head) - len(tail)) + tail

    assert len(batch) == BATCH_BYTES_MAX
    assert sink.apply(batch).result.cursor == 1
    assert sink.apply(batch).result.cursor == 1
    found = sink.lookup(WORKSPACE, MessageKey("session-1", "message-1"))
    assert found is not None
    assert bytes(getattr(found.snapshot, "payload", b"")) == b'{"a":"' + b"'" * (len(batch) - len(head + tail)) + b'"}'


@pytest.mark.server
def test_a_server_that_takes_no_great_batch_is_not_opened(mariadb: Any) -> None:
    """F39's neighbour: such a batch would fail, look transient, and block all behind it. Source: our choice."""
    url = mariadb.new_database()
    mariadb.execute("SET GLOBAL max_allowed_packet = 4194304")
    try:
        with pytest.raises(SinkSetupError, match="max_allowed_packet is 4194304"), open_sql_sink(url):
            pass
    finally:
        mariadb.execute("SET GLOBAL max_allowed_packet = 16777216")
    with open_sql_sink(url) as sink:
        assert sink.last_cursor() == 0
