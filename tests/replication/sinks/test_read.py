"""Reading a SQL projection: pages of a parent's children, and what changed since a cursor."""

from collections.abc import Callable
from typing import Any

import pytest

from tutti_replication.codec import encode_batch
from tutti_replication.conformance.samples import (
    WORKSPACE,
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import MessageKey, SessionKey, SubmitClaimKey, TurnKey, key_parts
from tutti_replication.mutation import Mutation
from tutti_sinks import Changes, Page, Position, SqlSink


def fill(sink: SqlSink, *mutations: Mutation) -> None:
    """Apply mutations."""
    sink.apply(encode_batch(mutations))


def ids(items: Any) -> list[str]:
    """Return the last id of each entity's key."""
    return [key_parts(item.key)[-1] for item in items]


def all_pages(read: Callable[[Position | None], Page[Any]]) -> list[list[str]]:
    """Follow the pages to the end."""
    pages, after = [], None
    while True:
        page = read(after)
        pages.append(ids(page.items))
        after = page.next
        if after is None:
            return pages


def test_messages_are_read_in_the_order_in_which_they_occurred(sink: SqlSink) -> None:
    """Then by their number; an edit of one doesn't move it. Source: our choice."""
    fill(
        sink,
        session_upsert("s"),
        message_upsert("1", message_id="c", occurred_at_unix_ms=30, id=1),
        message_upsert("2", message_id="b", occurred_at_unix_ms=20, id=9),
        message_upsert("3", message_id="a", occurred_at_unix_ms=20, id=3),
        message_upsert("4", message_id="d", occurred_at_unix_ms=20, id=3),
        message_upsert("5", message_id="a", occurred_at_unix_ms=20, id=3, version=2),
    )

    oldest = ids(sink.messages(WORKSPACE, "session-1").items)
    assert sorted(oldest[:2]) == ["a", "d"]
    assert oldest[2:] == ["b", "c"]
    assert ids(sink.messages(WORKSPACE, "session-1", newest_first=True).items) == oldest[::-1]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_give_everything_once(sink: SqlSink, limit: int, newest_first: bool) -> None:
    """Also across equal times, where only the key decides. Source: our choice."""
    fill(
        sink,
        session_upsert("s"),
        *(message_upsert(f"m{n}", message_id=f"{n}", occurred_at_unix_ms=n // 4, id=n // 2) for n in range(7)),
    )
    whole = ids(sink.messages(WORKSPACE, "session-1", newest_first=newest_first).items)

    pages = all_pages(
        lambda after: sink.messages(WORKSPACE, "session-1", after=after, limit=limit, newest_first=newest_first)
    )

    assert [one for page in pages for one in page] == whole
    assert {len(page) for page in pages[:-1]} <= {limit}
    assert len(whole) == 7


def test_a_page_is_not_shifted_by_what_is_written_meanwhile(sink: SqlSink) -> None:
    """A page goes on behind the last entity seen, not behind a number of them. Source: our choice."""
    fill(sink, session_upsert("s"), *(message_upsert(f"m{n}", message_id=f"{n}", id=n) for n in range(4)))
    first = sink.messages(WORKSPACE, "session-1", limit=2)
    fill(sink, delete("d", MessageKey("session-1", "0")), message_upsert("late", message_id="early", id=0))

    second = sink.messages(WORKSPACE, "session-1", after=first.next, limit=2)

    assert ids(first.items) == ["0", "1"]
    assert ids(second.items) == ["2", "3"]


def test_a_workspace_lists_its_own_sessions_newest_first(sink: SqlSink) -> None:
    """Deleted ones are left out, and so are those of other workspaces. Source: our choice."""
    fill(
        sink,
        session_upsert("1", session_id="old", created_at_unix_ms=1),
        session_upsert("2", session_id="new", created_at_unix_ms=3),
        session_upsert("3", session_id="gone", created_at_unix_ms=2),
        session_upsert("4", session_id="elsewhere", workspace_id="workspace-2"),
        delete("5", SessionKey("gone")),
    )

    assert ids(sink.sessions(WORKSPACE).items) == ["new", "old"]
    assert ids(sink.sessions("workspace-2").items) == ["elsewhere"]
    assert sink.sessions("workspace-3") == Page([], None)


def test_children_of_a_deleted_session_are_hidden_from_every_read(sink: SqlSink) -> None:
    """RW-equal-cascade: whatever order they came in, and also when they come later."""
    fill(sink, session_upsert("s"), turn_upsert("t"), interaction_upsert("i"), message_upsert("m"))
    fill(sink, delete("d", SessionKey("session-1")), message_upsert("late", message_id="late"))

    for read in (sink.turns, sink.interactions, sink.messages):
        assert read(WORKSPACE, "session-1") == Page([], None)
    for key in (TurnKey("session-1", "turn-1"), MessageKey("session-1", "late")):
        assert sink.lookup(WORKSPACE, key) is None
    (session,) = sink.changes().items
    assert (session.key, session.snapshot, session.scope) == (SessionKey("session-1"), None, None)


def test_a_session_of_another_workspace_hides_nothing(sink: SqlSink) -> None:
    """RW-equal-cascade: the same ids in another workspace are another session."""
    fill(
        sink,
        session_upsert("s"),
        turn_upsert("t"),
        delete("d", SessionKey("session-1"), workspace_id="workspace-2"),
    )

    assert ids(sink.turns(WORKSPACE, "session-1").items) == ["turn-1"]


def test_children_are_read_before_their_session_is_there(sink: SqlSink) -> None:
    """An absent session is not a deleted one. Source: our choice."""
    fill(sink, turn_upsert("t"), target_upsert("a"))

    assert ids(sink.turns(WORKSPACE, "session-1").items) == ["turn-1"]
    assert ids(sink.targets(WORKSPACE).items) == ["target-1"]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_changes_give_each_entity_in_its_newest_state(sink: SqlSink, limit: int) -> None:
    """RW-sink-counter; tombstones too. A session that was changed by its message comes after that message."""
    fill(
        sink,
        session_upsert("1", session_id="a"),
        session_upsert("2", session_id="b"),
        turn_upsert("3", session_id="b"),
        delete("4", SubmitClaimKey("b", "claim")),
        message_upsert("5", session_id="b", version=7),
        session_upsert("6", session_id="a", title="changed"),
        delete("7", TurnKey("b", "turn-1")),
    )

    seen: list[tuple[str, int]] = []
    cursor, more = 0, True
    while more:
        changes = sink.changes(cursor, limit=limit)
        seen += zip(ids(changes.items), (one.cursor for one in changes.items), strict=True)
        assert len(changes.items) <= limit + 1
        cursor, more = changes.cursor, changes.more

    assert cursor == 7
    newest = {"claim": 4, "message-1": 5, "b": 5, "a": 6, "turn-1": 7}
    assert dict(seen) == newest
    assert sink.changes(7) == Changes([], 7, False)
    assert [one.cursor for one in sink.changes(6).items] == [7]


def test_changes_after_a_cursor_include_a_session_that_only_a_message_changed(sink: SqlSink) -> None:
    """RW-equal-observed: the session's row is not written, but what is read of it changes."""
    fill(sink, session_upsert("s"))
    fill(sink, message_upsert("m", version=9))

    changed = sink.changes(1).items

    assert sorted(ids(changed)) == ["message-1", "session-1"]
    (session,) = (one for one in changed if one.key == SessionKey("session-1"))
    assert getattr(session.snapshot, "message_version", 0) == 9
    assert session.cursor == 2


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_page_of_changes_does_not_end_between_a_message_and_the_session_that_it_raised(
    sink: SqlSink, limit: int
) -> None:
    """RW-sink-counter: both have one cursor; who goes on behind the message would never see the session."""
    fill(sink, session_upsert("s", session_id="a"), session_upsert("t", session_id="b"))
    fill(
        sink,
        message_upsert("m", session_id="a", version=9),
        turn_upsert("u", session_id="a"),
        message_upsert("n", session_id="b", version=8),
    )

    seen: dict[str, int] = {}
    cursor, more = 2, True
    while more:
        changes = sink.changes(cursor, limit=limit)
        for one in changes.items:
            seen[key_parts(one.key)[0] + key_parts(one.key)[-1]] = one.cursor
        cursor, more = changes.cursor, changes.more

    assert seen == {"amessage-1": 3, "aa": 3, "aturn-1": 4, "bmessage-1": 5, "bb": 5}


def test_a_cursor_from_the_future_is_given_back(sink: SqlSink) -> None:
    """So that a reader of a restored, older database doesn't go back silently. Source: our choice."""
    fill(sink, session_upsert("s"))

    assert sink.changes(99) == Changes([], 99, False)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_has_a_size(sink: SqlSink, limit: int) -> None:
    """R12: nothing reads without a bound."""
    with pytest.raises(ValueError, match="1000"):
        sink.sessions(WORKSPACE, limit=limit)
    with pytest.raises(ValueError, match="1000"):
        sink.changes(limit=limit)
