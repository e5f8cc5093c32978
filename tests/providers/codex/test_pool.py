"""The provisional pool: bounds, who has to go, and what its adopter is told."""

import pytest

from tutti_providers.codex import _pool
from tutti_providers.codex._pool import ProvisionalPool
from tutti_providers.codex.schema.notifications import Head
from tutti_side.jsonrpc import Message


def message(text: str = "") -> Message[Head]:
    made: Message[Head] = Message(method="m")
    made.line = text.encode()
    return made


def test_a_thread_gets_what_was_kept_of_it_in_order_and_only_once() -> None:
    """R3, F4, T11."""
    pool = ProvisionalPool()
    mine, other = [message("a"), message("b"), message("c")], message("x")
    for each in mine:
        assert pool.add("mine", each) == []
    assert pool.add("other", other) == []
    assert (len(pool), pool.size_bytes) == (4, 4)
    assert pool.take("mine") == mine
    assert pool.take("mine") == []
    assert (len(pool), pool.size_bytes) == (1, 1)
    assert pool.drop_all() == [other]
    assert (len(pool), pool.size_bytes) == (0, 0)


def test_requests_can_be_dropped_alone_and_the_rest_stays_in_order() -> None:
    """R11: a request waits for an answer, which is due as soon as nobody else can own it."""
    pool = ProvisionalPool()
    first, asks, last = message("a"), message("ask"), message("b")
    asks.id = 7
    for each in (first, asks, last):
        pool.add("mine", each)
    assert pool.drop_requests() == [asks]
    assert (len(pool), pool.size_bytes) == (2, 2)
    assert pool.take("mine") == [first, last]


def test_one_message_too_many_evicts_the_largest_thread_whole() -> None:
    """R12, architecture §3: not the newest, and not a part of one."""
    pool = ProvisionalPool(messages_max=4)
    large = [message("long"), message("longer")]
    for each in large:
        pool.add("large", each)
    small = message("s")
    pool.add("small", small)
    pool.add("medium", message("mmm"))
    last = message("t")
    assert pool.add("small", last) == large
    assert (len(pool), pool.evictions) == (3, 1)
    assert pool.take("small") == [small, last]


def test_one_byte_too_many_evicts_the_largest_thread_too() -> None:
    """R12, architecture §3: the bound holds in bytes as well."""
    pool = ProvisionalPool(bytes_max=10)
    pool.add("small", message("1234"))
    assert pool.add("large", message("123456")) == []
    gone = pool.add("small", message("5"))
    assert [each.line for each in gone] == [b"123456"]
    assert pool.size_bytes == 5


def test_a_message_that_alone_is_too_large_is_kept_by_nobody() -> None:
    """R12."""
    pool = ProvisionalPool(bytes_max=10)
    huge = message("x" * 11)
    assert pool.add("huge", huge) == [huge]
    assert (len(pool), pool.take("huge")) == (0, None)


def test_who_adopts_an_evicted_thread_is_told_once() -> None:
    """Architecture §3: an open that adopts it fails with overflow; what comes after the eviction is not kept either."""
    pool = ProvisionalPool(messages_max=1)
    pool.add("evicted", message("12"))
    pool.add("other", message("1"))
    late = message("late")
    assert pool.add("evicted", late) == [late]
    assert pool.take("evicted") is None
    assert pool.take("evicted") == []


def test_the_memory_of_evicted_threads_is_bounded_and_errs_on_the_safe_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: a flood of unknown threads may cost an open, never memory, and never a hole that nobody notices."""
    monkeypatch.setattr(_pool, "EVICTED_THREADS_MAX", 3)
    pool = ProvisionalPool(messages_max=1)
    pool.add("kept", message())
    for number in range(100):
        pool.add(f"stranger-{number}", message("larger"))
    assert len(pool._evicted) == 3
    assert pool.take("stranger-0") is None
    assert pool.take("stranger-99") is None
    assert pool.take("never seen") is None
    assert len(pool.take("kept") or []) == 1
    pool.drop_all()
    assert pool.take("never seen") == []
    assert pool.add("again", message()) == []
