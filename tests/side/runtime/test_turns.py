"""The turn table: one at a time, whose text is whose, one end each."""

import itertools

import pytest

from tutti_side.contract import (
    Event,
    MessageDelta,
    MessageUpdated,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
    TurnStarted,
)
from tutti_side.runtime import _turns
from tutti_side.runtime._turns import TurnTable

T1, T2 = TurnId("t1"), TurnId("t2")


def test_one_turn_at_a_time() -> None:
    """Our choice, for T10: the server would merge a second one into the first."""
    table = TurnTable()
    assert table.begin()
    assert not table.begin()
    table.bind(T1)
    assert not table.begin()
    table.apply([TurnCompleted(T1)])
    assert table.begin()
    table.end_start()
    assert table.begin()


WHOLE: list[Event] = [TurnStarted(T1), MessageDelta(T1, "i", "a"), MessageDelta(T1, "i", "b"), TurnCompleted(T1)]


@pytest.mark.parametrize("bound_after", range(len(WHOLE) + 1))
def test_the_answer_may_come_anywhere_between_the_turns_events(bound_after: int) -> None:
    """F5: an early `turn/completed` ends the wait of a starter that is told its turn's id only then."""
    table = TurnTable()
    table.begin()
    table.apply(WHOLE[:bound_after])
    record = table.bind(T1)
    table.apply(WHOLE[bound_after:])
    assert record.status == "completed"
    assert record.settled.is_set()
    assert record.messages() == ("ab",)
    assert not table.is_busy


@pytest.mark.parametrize(
    ("end", "status"),
    [(TurnCompleted(T1), "completed"), (TurnFailed(T1, "why"), "failed"), (TurnCanceled(T1), "canceled")],
)
def test_each_end_is_its_own_status(end: Event, status: str) -> None:
    """Contract: completed, failed, canceled."""
    table = TurnTable()
    table.begin()
    record = table.bind(T1)
    table.apply([end])
    assert record.status == status
    assert record.failure == ("why" if status == "failed" else "")


def test_a_turn_ends_once_and_late_events_change_nothing() -> None:
    """T7: item events may follow their turn's end; a second end must not end the next turn."""
    table = TurnTable()
    table.begin()
    first = table.bind(T1)
    table.apply([TurnCompleted(T1)])
    table.begin()
    second = table.bind(T2)
    table.apply([TurnFailed(T1, "again"), MessageDelta(T1, "i", "late"), MessageUpdated(T1, "i", "late")])
    assert (first.status, first.messages()) == ("completed", ())
    assert second.status == "active"
    assert table.active is second
    assert table.late_events == 3


def test_texts_of_two_turns_and_items_never_mix() -> None:
    """R1 within a scope: every interleaving of two items of one turn and one of another."""
    events: list[Event] = [
        MessageDelta(T1, "i", "1"),
        MessageDelta(T1, "j", "2"),
        MessageDelta(T2, "i", "3"),
        MessageDelta(T1, "i", "4"),
    ]
    for order in itertools.permutations(events):
        table = TurnTable()
        table.begin()
        table.apply(order)
        record = table.bind(T1)
        by_item = {item: "".join(parts) for item, parts in record.parts.items()}
        assert sorted(by_item["i"]) == ["1", "4"]
        assert by_item["j"] == "2"


def test_a_completed_message_replaces_its_deltas() -> None:
    """Architecture §3: past the bound the text comes from the completed item."""
    table = TurnTable()
    table.begin()
    record = table.bind(T1)
    table.apply([MessageDelta(T1, "i", "par"), MessageUpdated(T1, "i", "whole"), MessageUpdated(T1, "j", "next")])
    assert record.messages() == ("whole", "next")


def test_deltas_past_the_bound_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12."""
    monkeypatch.setattr(_turns, "TURN_TEXT_MAX", 10)
    table = TurnTable()
    table.begin()
    record = table.bind(T1)
    table.apply([MessageDelta(T1, "i", "12345")] * 5)
    assert record.messages() == ("1234512345",)
    table.apply([MessageUpdated(T1, "i", "12345" * 5)])
    assert record.messages() == ("12345" * 5,)


def test_nothing_is_added_for_deliveries_past_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: neither text nor an empty piece for each, also for items that begin there."""
    monkeypatch.setattr(_turns, "TURN_TEXT_MAX", 7)
    table = TurnTable()
    table.begin()
    record = table.bind(T1)
    for item in ("i", "i", "i", "j", "i"):
        table.apply([MessageDelta(T1, item, "12345")])
    assert record.parts == {"i": ["12345", "12"]}


def test_of_too_many_or_too_long_messages_the_oldest_go_and_the_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: whole messages are bounded as well; the last is what the turn concludes with."""
    monkeypatch.setattr(_turns, "TURN_MESSAGES_MAX", 10)
    monkeypatch.setattr(_turns, "MESSAGES_MAX", 3)
    table = TurnTable()
    table.begin()
    record = table.bind(T1)
    table.apply([MessageUpdated(T1, "a", "12345"), MessageUpdated(T1, "a", "1234"), MessageUpdated(T1, "b", "123456")])
    assert record.messages() == ("1234", "123456")
    table.apply([MessageUpdated(T1, "c", "1")])
    assert record.messages() == ("123456", "1")
    table.apply([MessageUpdated(T1, "b", "x" * 11)])
    assert record.messages() == ("x" * 11,)
    table.apply([MessageUpdated(T1, "d", "")])
    assert record.messages() == ("",)
    table.apply([MessageDelta(T1, item, "1") for item in ("e", "f", "g", "h")])
    assert record.messages() == ("1", "1", "1")
    table.apply([MessageUpdated(T1, "i", "last")])
    assert record.messages() == ("1", "1", "last")


def test_deltas_of_several_items_and_turns_in_one_delivery_stay_apart() -> None:
    """R3: deltas in a row are taken together, and only those."""
    other = TurnId("other")
    table = TurnTable()
    table.begin()
    record = table.bind(T1)
    table.apply(
        [
            MessageDelta(T1, "i", "a"),
            MessageDelta(T1, "j", "x"),
            MessageDelta(other, "j", "not ours"),
            MessageDelta(T1, "i", "b"),
            TurnStarted(T1),
            MessageDelta(T1, "i", "c"),
            MessageDelta(T1, "i", "d"),
            TurnCompleted(T1),
            MessageDelta(T1, "i", "late"),
            MessageDelta(T1, "i", "late"),
        ]
    )
    assert record.messages() == ("abcd", "x")
    assert table.late_events == 2


def test_losing_the_scope_settles_every_waiter() -> None:
    """R9: nobody waits for ever."""
    table = TurnTable()
    table.begin()
    record = table.bind(T1)
    table.lose()
    assert record.status == "lost"
    assert record.settled.is_set()
    assert not table.is_busy


def test_memory_is_bounded_whatever_turn_ids_come() -> None:
    """R12: unknown turns and ended ones are remembered up to a bound."""
    table = TurnTable()
    for number in range(1_000):
        table.apply([MessageDelta(TurnId(f"x{number}"), "i", "text")])
    assert len(table._records) <= _turns.UNBOUND_MAX
    table = TurnTable()
    for number in range(1_000):
        turn_id = TurnId(f"y{number}")
        table.begin()
        table.bind(turn_id)
        table.apply([TurnCompleted(turn_id)])
    assert not table._records
    assert len(table._recent) <= _turns.RECENT_MAX
