"""What would not close: retried without polling, a bounded number of times, and then ended by force."""

import itertools
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import open_host
from tutti_side.contract import CleanupRow
from tutti_side.runtime import Sweeper, open_sweeper, sweeper
from tutti_side.runtime.sweeper import (
    OWNERS_MAX,
    SWEEP_CLOSE_S,
    SWEEP_PAUSE_S,
    SWEEP_TRIES_MAX,
    RetryTable,
)

Metrics = Any  # tests/side/conftest.py: RecordingMetrics

LAST_TRY_S = sum(SWEEP_PAUSE_S * 2**tries for tries in range(SWEEP_TRIES_MAX))
"""When the last try is made of something that fails at once."""


class Stubborn:
    """An owner that closes at the n-th try; it notes when it was tried."""

    def __init__(self, label: str = "owner 1", *, closes_at: int = 0, hangs: bool = False) -> None:
        self.label = label
        self.tried_at: list[float] = []
        self.forced = 0
        self._closes_at = closes_at
        self._hangs = hangs

    async def close(self) -> None:
        self.tried_at.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self._hangs:
            await trio.sleep_forever()
        if len(self.tried_at) != self._closes_at:
            raise OSError("secret words")

    def force(self) -> None:
        self.forced += 1


class Steps(trio.abc.Instrument):
    """Counts how often the sweeper's task was run."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name == "sweeper"


# The table


def test_a_thing_is_due_after_each_pause_and_forced_after_the_last() -> None:
    """R12: every try doubles the pause; exactly `SWEEP_TRIES_MAX` of them."""
    table, owner, now = RetryTable(), Stubborn(), 100.0
    assert table.next_due() == float("inf")
    assert table.add(owner, now)
    for tries in range(SWEEP_TRIES_MAX):
        pause = SWEEP_PAUSE_S * 2**tries
        assert table.rows(now) == (CleanupRow(label="owner 1", tries=tries, due_s=pause),)
        assert table.next_due() == now + pause
        assert table.take_due(now + pause - 0.01) == []
        now += pause
        assert table.take_due(now) == [owner]
        assert table.rows(now)[0].due_s == 0
        assert table.failed(owner, now) == (tries == SWEEP_TRIES_MAX - 1)
    assert (len(table), table.next_due()) == (0, float("inf"))


@pytest.mark.parametrize("history", list(itertools.product([True, False], repeat=3)))
def test_every_course_of_tries_ends_with_the_thing_forgotten(history: tuple[bool, ...]) -> None:
    """R12: whichever of its tries succeeds, and with another thing beside it that stays untouched."""
    table, owner, other, now = RetryTable(), Stubborn(), Stubborn("owner 2"), 0.0
    table.add(owner, now)
    table.add(other, now)
    for closes in history:
        now = max(now, table.next_due())
        if closes:
            table.succeeded(owner)
            break
        assert not table.failed(owner, now)
    assert len(table) == 1 + (True not in history)
    table.succeeded(owner)
    table.succeeded(owner)
    assert table.drop_all() == [other]
    assert len(table) == 0


def test_a_thing_that_is_added_again_keeps_its_tries() -> None:
    """R12: adding it again does not start its bound anew."""
    table, owner = RetryTable(), Stubborn()
    table.add(owner, 0.0)
    table.failed(owner, SWEEP_PAUSE_S)
    table.add(owner, 50.0)
    assert table.rows(SWEEP_PAUSE_S)[0].tries == 1
    assert len(table) == 1


def test_a_full_table_takes_no_more() -> None:
    """R12."""
    table = RetryTable()
    assert all(table.add(Stubborn(str(number)), 0.0) for number in range(OWNERS_MAX))
    assert not table.add(Stubborn("one more"), 0.0)
    assert len(table) == OWNERS_MAX


# The task


@pytest.mark.parametrize("closes_at", range(1, SWEEP_TRIES_MAX + 1))
async def test_a_thing_that_closes_at_last_is_forgotten(
    autojump_clock: trio.testing.MockClock, metrics: Metrics, closes_at: int
) -> None:
    """SC-codex-sweeper: retried after a growing pause."""
    owner = Stubborn(closes_at=closes_at)
    async with open_sweeper(metrics) as sweeping:
        began = trio.current_time()
        sweeping.register(owner)
        assert sweeping.rows() == (CleanupRow(label="owner 1", tries=0, due_s=SWEEP_PAUSE_S),)
        await trio.sleep(1_000)
        assert sweeping.rows() == ()
    expected = itertools.accumulate(SWEEP_PAUSE_S * 2**tries for tries in range(closes_at))
    assert owner.tried_at == pytest.approx([began + due for due in expected])
    assert (owner.forced, sweeping.forced) == (0, 0)
    assert metrics.counts == {("cleanups", "closed"): 1}


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_thing_that_never_closes_is_forced_after_the_last_try(
    autojump_clock: trio.testing.MockClock, metrics: Metrics, hangs: bool
) -> None:
    """SC-codex-sweeper, R12: a close that hangs is cut off, and counts as a failed try."""
    owner = Stubborn(hangs=hangs)
    async with open_sweeper(metrics) as sweeping:
        sweeping.register(owner)
        await trio.sleep(LAST_TRY_S + SWEEP_TRIES_MAX * SWEEP_CLOSE_S * hangs - 0.1)
        assert owner.forced == 0
        await trio.sleep(0.2)
        assert (owner.forced, sweeping.forced, sweeping.rows()) == (1, 1, ())
        await trio.sleep(1_000)
    assert len(owner.tried_at) == SWEEP_TRIES_MAX
    assert owner.forced == 1
    assert metrics.counts == {("cleanups", "forced"): 1}


async def test_the_end_forces_what_is_left_and_what_comes_after_it(
    autojump_clock: trio.testing.MockClock, metrics: Metrics
) -> None:
    """R13: nothing outlives the host; a late registration is nobody's to retry."""
    waiting, trying, late = Stubborn(), Stubborn(hangs=True), Stubborn()
    async with open_sweeper(metrics) as sweeping:
        sweeping.register(trying)
        await trio.sleep(SWEEP_PAUSE_S + 0.1)
        sweeping.register(waiting)
        assert len(trying.tried_at) == 1
    assert (waiting.forced, trying.forced) == (1, 1)
    sweeping.register(late)
    assert (late.forced, late.tried_at) == (1, [])
    assert metrics.counts == {("cleanups", "forced"): 3}


async def test_a_thing_too_many_is_forced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12."""
    monkeypatch.setattr(sweeper, "OWNERS_MAX", 2)
    owners = [Stubborn(str(number)) for number in range(3)]
    async with open_sweeper() as sweeping:
        for owner in owners:
            sweeping.register(owner)
        assert [owner.forced for owner in owners] == [0, 0, 1]
        assert len(sweeping.rows()) == 2


async def test_it_sleeps_between_registration_and_retry(autojump_clock: trio.testing.MockClock) -> None:
    """Required: woken by a registration or the next due retry; no polling."""
    owner = Stubborn()
    steps = Steps()
    async with open_sweeper() as sweeping:
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(50_000)
        assert steps.count == 0
        sweeping.register(owner)
        await trio.testing.wait_all_tasks_blocked()
        assert steps.count == 1
        woken = steps.count
        await trio.sleep(LAST_TRY_S + 1)
        per_try = 2  # the due time, and the checkpoint of this owner's close
        assert steps.count - woken == per_try * SWEEP_TRIES_MAX
        woken = steps.count
        await trio.sleep(50_000)
        assert steps.count == woken
        trio.lowlevel.remove_instrument(steps)


async def test_many_registrations_at_once_are_one_wake_up(autojump_clock: trio.testing.MockClock) -> None:
    """Required."""
    steps = Steps()
    async with open_sweeper() as sweeping:
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        for number in range(50):
            sweeping.register(Stubborn(str(number), closes_at=1))
        await trio.testing.wait_all_tasks_blocked()
        assert steps.count == 1
        trio.lowlevel.remove_instrument(steps)


async def test_a_registration_while_one_is_being_tried_is_not_lost(autojump_clock: trio.testing.MockClock) -> None:
    """R12: the wake-up of a busy sweeper is remembered."""
    slow, second = Stubborn(hangs=True), Stubborn(closes_at=1)
    async with open_sweeper() as sweeping:
        sweeping.register(slow)
        await trio.sleep(SWEEP_PAUSE_S + SWEEP_CLOSE_S / 2)
        sweeping.register(second)
        await trio.sleep(SWEEP_CLOSE_S)
        assert len(second.tried_at) == 1


async def test_the_host_shows_and_forces_what_a_provider_handed_over(
    provider: Any, metrics: Metrics, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: one table, in `statistics()`; the sweeper outlives the providers."""
    given: list[Any] = []
    opens = provider.open

    def open_with(ports: Any) -> Any:
        given.append(ports)
        return opens(ports)

    monkeypatch.setattr(provider, "open", open_with)
    owner = Stubborn("process 7")
    async with open_host(provider, metrics=metrics) as host:
        given[0].cleanup.register(owner)
        assert [row.label for row in host.statistics().cleanup] == ["process 7"]
        await trio.sleep(SWEEP_PAUSE_S * 1.5)
        (row,) = host.statistics().cleanup
        assert row.tries == 1
        assert row.due_s == pytest.approx(0.75)
    assert owner.forced == 1
    assert host.statistics().forced_cleanups == 1


async def test_a_forced_cleanup_is_logged_by_its_label(caplog: pytest.LogCaptureFixture) -> None:
    """Required: the label is a kind and an id; the error's text is not there."""
    async with open_sweeper() as sweeping:
        sweeping.register(Stubborn("process 7"))
    assert isinstance(sweeping, Sweeper)
    (record,) = [record for record in caplog.records if record.name == "tutti_side.runtime"]
    assert (record.levelname, record.child_id, record.phase) == ("WARNING", "process 7", "cleanup")  # type: ignore[attr-defined]
    assert "secret" not in repr(record.__dict__)
