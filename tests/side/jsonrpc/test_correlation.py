"""Ids, slots and graces, against the simplest model that can be right."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutti_side.jsonrpc._correlation import (
    EXPIRED_ENTRIES_MAX,
    OPEN_REQUEST_IDS_CHARACTERS_MAX,
    SLOT_GRACE_S,
    UNANSWERED_MAX,
    Correlation,
    Entry,
    OpenRequests,
    Phase,
)


def add(correlation: Correlation[Entry], *, due: float = 30.0, cleanup: bool = False) -> Entry:
    """Add a new request."""
    entry = Entry(correlation.next_number(), "m", due, cleanup=cleanup)
    correlation.add(entry)
    return entry


def send(correlation: Correlation[Entry], *, due: float = 30.0) -> Entry:
    """Add a request and bring it onto the wire."""
    entry = add(correlation, due=due)
    assert correlation.admit() is entry
    correlation.write(entry)
    return entry


def admit_all(correlation: Correlation[Entry]) -> list[Entry]:
    """Admit whatever may be admitted."""
    admitted: list[Entry] = []
    while (entry := correlation.admit()) is not None:
        admitted.append(entry)
    return admitted


def test_ids_are_integers_from_one() -> None:
    """Our choice: our ids; never 0, which reads as nothing."""
    correlation: Correlation[Entry] = Correlation()

    assert [add(correlation).number for _ in range(3)] == [1, 2, 3]


def test_sixty_four_are_in_flight_and_eight_more_for_cleanup_only() -> None:
    """T14; our choice: at most 64 in flight and 8 slots kept for cleanup."""
    correlation: Correlation[Entry] = Correlation()
    plain = [add(correlation) for _ in range(70)]
    assert admit_all(correlation) == plain[:64]

    cleanup = [add(correlation, cleanup=True) for _ in range(10)]
    assert admit_all(correlation) == cleanup[:8]
    assert (correlation.in_flight, correlation.waiting) == (72, 8)

    correlation.write(cleanup[0])
    assert correlation.answer(cleanup[0].number) is cleanup[0]
    assert admit_all(correlation) == [cleanup[8]]


def test_admission_is_first_come_first_served_with_cleanup_ahead() -> None:
    """Our choice: cleanup frees things, so it doesn't queue behind what waits for them."""
    correlation: Correlation[Entry] = Correlation(in_flight_max=2, cleanup_slots=0)
    first, second, third = (add(correlation) for _ in range(3))
    cleanup = add(correlation, cleanup=True)

    assert admit_all(correlation) == [cleanup, first]
    assert correlation.leave(cleanup) is True
    assert admit_all(correlation) == [second]
    assert correlation.leave(first) is True
    assert admit_all(correlation) == [third]


def test_without_room_in_the_write_queue_only_cleanup_is_admitted() -> None:
    """ARCHITECTURE §3: the write queue's reserve is for declines and cleanup."""
    correlation: Correlation[Entry] = Correlation()
    plain, cleanup = add(correlation), add(correlation, cleanup=True)

    assert correlation.admit(cleanup_only=True) is cleanup
    assert correlation.admit(cleanup_only=True) is None
    assert correlation.admit() is plain


@pytest.mark.parametrize("is_queued", [False, True], ids=["waiting", "queued"])
def test_what_is_not_written_is_taken_back(is_queued: bool) -> None:
    """Our choice: one still queued when cancelled was never sent."""
    correlation: Correlation[Entry] = Correlation()
    entry = add(correlation)
    if is_queued:
        correlation.admit()

    assert correlation.leave(entry) is True
    assert (correlation.in_flight, correlation.waiting, correlation.admit()) == (0, 0, None)
    assert correlation.answer(entry.number) is None
    assert correlation.duplicate_answers == 1


def test_an_abandoned_request_keeps_its_slot_until_a_grace_after_its_deadline() -> None:
    """Our choice: the server may still be at it; freed after a grace time."""
    correlation: Correlation[Entry] = Correlation(in_flight_max=1)
    entry = send(correlation, due=10.0)
    waiting = add(correlation)

    assert correlation.leave(entry) is False
    assert correlation.next_expiry() == 10.0 + SLOT_GRACE_S
    assert correlation.expire(10.0 + SLOT_GRACE_S - 0.001) == []
    assert correlation.admit() is None
    assert correlation.expire(10.0 + SLOT_GRACE_S) == []
    assert correlation.admit() is waiting
    assert correlation.next_expiry() == math.inf
    assert correlation.expired == 1


def test_a_request_that_somebody_waits_for_has_no_expiry() -> None:
    """Our choice: its waiter has the deadline; the reaper has nothing to do."""
    correlation: Correlation[Entry] = Correlation()
    send(correlation, due=1.0)

    assert correlation.next_expiry() == math.inf
    assert correlation.expire(1e9) == []
    assert correlation.in_flight == 1


@pytest.mark.parametrize("is_expired", [False, True], ids=["abandoned", "expired"])
def test_a_late_answer_still_finds_its_request(is_expired: bool) -> None:
    """Our choice: the result hook runs also when its waiter is gone; F18: a fork may complete much later."""
    correlation: Correlation[Entry] = Correlation()
    entry = send(correlation, due=0.0)
    correlation.leave(entry)
    if is_expired:
        correlation.expire(SLOT_GRACE_S)

    assert correlation.answer(entry.number) is entry
    assert entry.phase is Phase.DONE
    assert (correlation.in_flight, correlation.expired) == (0, 0)


def test_duplicate_and_unknown_answers_are_counted_and_change_nothing() -> None:
    """F16; our choice: neither raises."""
    correlation: Correlation[Entry] = Correlation(in_flight_max=2)
    entry = send(correlation)
    queued = add(correlation)
    correlation.admit()
    waiting = add(correlation)
    assert correlation.answer(entry.number) is entry

    duplicates: list[int | str] = [entry.number, entry.number]
    unknown: list[int | str] = [0, -1, 99, "1", "", queued.number, waiting.number]
    for request_id in duplicates + unknown:
        assert correlation.answer(request_id) is None

    assert (correlation.duplicate_answers, correlation.unknown_answers) == (2, 7)
    assert correlation.leave(queued) is True


def test_the_oldest_of_too_many_expired_requests_is_forgotten() -> None:
    """R12: at most 1,024 late answers are looked for."""
    correlation: Correlation[Entry] = Correlation()
    first: list[Entry] = []
    for _ in range(EXPIRED_ENTRIES_MAX + 2):
        entry = send(correlation, due=0.0)
        first.append(entry)
        correlation.leave(entry)
        forgotten = correlation.expire(SLOT_GRACE_S)
        assert forgotten == (
            first[len(first) - EXPIRED_ENTRIES_MAX - 1 :][:1] if len(first) > EXPIRED_ENTRIES_MAX else []
        )

    assert correlation.expired == EXPIRED_ENTRIES_MAX
    assert correlation.forgotten == 2
    assert correlation.answer(first[0].number) is None
    assert correlation.answer(first[2].number) is first[2]


def test_too_many_in_a_row_without_any_answer_are_unhealthy() -> None:
    """Our choice: too many slots whose grace ran out make the connection unhealthy; one answer shows life."""
    correlation: Correlation[Entry] = Correlation()

    def let_expire(count: int) -> None:
        for _ in range(count):
            correlation.leave(send(correlation, due=0.0))
            correlation.expire(SLOT_GRACE_S)

    let_expire(UNANSWERED_MAX - 1)
    correlation.answer(send(correlation).number)
    let_expire(UNANSWERED_MAX - 1)
    assert not correlation.is_unhealthy
    let_expire(1)
    assert correlation.is_unhealthy


def test_closing_ends_every_request_once_oldest_first() -> None:
    """R9: every pending call ends."""
    correlation: Correlation[Entry] = Correlation(in_flight_max=3)
    expired = send(correlation, due=0.0)
    correlation.leave(expired)
    correlation.expire(SLOT_GRACE_S)
    sent, abandoned = send(correlation), send(correlation)
    correlation.leave(abandoned)
    queued = add(correlation)
    correlation.admit()
    waiting, cleanup = add(correlation), add(correlation, cleanup=True)

    assert correlation.close() == [expired, sent, abandoned, queued, waiting, cleanup]
    assert correlation.close() == []
    assert (correlation.in_flight, correlation.waiting, correlation.expired) == (0, 0, 0)


def test_a_step_that_is_not_in_the_table_raises_and_changes_nothing() -> None:
    """Our choice: a bad step raises and leaves the state as it was."""
    correlation: Correlation[Entry] = Correlation()
    entry = add(correlation)

    with pytest.raises(AssertionError, match="can't take the step 'write'"):
        correlation.write(entry)
    assert entry.phase is Phase.WAITING
    assert correlation.admit() is entry


@dataclasses.dataclass
class Model:
    """One request as a test sees it: where it is, and when its slot is due."""

    entry: Entry
    place: str = "waiting"


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "cleanup", "admit", "admit", "write", "write", "leave", "answer", "stray", "expire", "wait"]
        ),
        st.integers(0, 9),
    ),
    max_size=80,
)


@given(OPERATIONS)
@settings(max_examples=300)
def test_any_history_agrees_with_the_simplest_model(operations: list[tuple[str, int]]) -> None:
    """R12, R14: slots are never lost or given twice, an answer finds its request or nothing, whatever the order."""
    in_flight_max, cleanup_slots = 3, 1
    correlation: Correlation[Entry] = Correlation(in_flight_max, cleanup_slots)
    models: list[Model] = []
    now = 0.0

    def at(*places: str) -> list[Model]:
        return [model for model in models if model.place in places]

    for operation, choice in operations:
        holding = at("queued", "sent", "abandoned")
        if operation in ("add", "cleanup"):
            entry = add(correlation, due=now + choice, cleanup=operation == "cleanup")
            models.append(Model(entry))
        elif operation == "admit":
            ready = [m for m in at("waiting") if m.entry.cleanup and len(holding) < in_flight_max + cleanup_slots]
            ready += [m for m in at("waiting") if not m.entry.cleanup and len(holding) < in_flight_max]
            assert correlation.admit() is (ready[0].entry if ready else None)
            if ready:
                ready[0].place = "queued"
        elif operation == "write" and (queued := at("queued")):
            model = queued[choice % len(queued)]
            correlation.write(model.entry)
            model.place = "sent"
        elif operation == "leave" and (leaving := at("waiting", "queued", "sent")):
            model = leaving[choice % len(leaving)]
            taken_back = model.place != "sent"
            assert correlation.leave(model.entry) is taken_back
            model.place = "over" if taken_back else "abandoned"
        elif operation == "answer" and (answerable := at("sent", "abandoned", "expired")):
            model = answerable[choice % len(answerable)]
            assert correlation.answer(model.entry.number) is model.entry
            model.place = "over"
        elif operation == "stray" and (stray := at("over", "waiting", "queued")):
            assert correlation.answer(stray[choice % len(stray)].entry.number) is None
        elif operation == "wait":
            now += choice * 5.0
        elif operation == "expire":
            assert correlation.expire(now) == []
            for model in at("abandoned"):
                if model.entry.due + SLOT_GRACE_S <= now:
                    model.place = "expired"
        dues = [model.entry.due + SLOT_GRACE_S for model in at("abandoned")]
        assert correlation.next_expiry() == min(dues, default=math.inf)
        assert correlation.in_flight == len(at("queued", "sent", "abandoned"))
        assert correlation.waiting == len(at("waiting"))
        assert correlation.expired == len(at("expired"))

    assert correlation.close() == [model.entry for model in models if model.place != "over"]


# ---- the peer's requests ----


def test_a_request_of_the_peer_is_open_until_it_is_answered_and_zero_is_not_its_text() -> None:
    """T4: 0 and "0" are two ids; R11: one answer per request."""
    requests = OpenRequests()

    assert requests.open(0) is True
    assert "0" not in requests
    assert requests.open("0") is True
    assert requests.open(0) is None
    assert requests.repeated == 1
    requests.close(0)
    assert 0 not in requests
    assert "0" in requests
    assert requests.open(0) is True
    requests.clear()
    assert len(requests) == 0


def test_requests_of_the_peer_beyond_the_bound_are_refused_and_counted() -> None:
    """R12: at most 4,096 by default."""
    requests = OpenRequests(open_max=2)

    assert [requests.open(request_id) for request_id in (1, 2, 3)] == [True, True, False]
    assert requests.refused == 1
    assert 3 not in requests
    requests.close(1)
    assert requests.open(3) is True


def test_long_ids_of_the_peers_requests_are_bounded_in_length_together() -> None:
    """R12: in items *and* size; 4,096 ids of a megabyte each took gigabytes."""
    requests = OpenRequests()
    half = OPEN_REQUEST_IDS_CHARACTERS_MAX // 2

    assert [requests.open("a" * half), requests.open("b" * half), requests.open("c")] == [True, True, False]
    assert requests.refused == 1
    assert requests.open(1) is True
    requests.close("a" * half)
    requests.close("a" * half)
    assert [requests.open("c" * half), requests.open("d")] == [True, False]
    requests.clear()
    assert requests.open("e" * OPEN_REQUEST_IDS_CHARACTERS_MAX) is True
