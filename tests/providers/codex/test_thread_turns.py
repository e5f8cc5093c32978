"""The turns of one thread by themselves; what a thread makes of them is in test_thread.py."""

from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex import _thread_turns
from tutti_providers.codex._thread_turns import ThreadTurns
from tutti_providers.codex.schema.items import Turn
from tutti_side.contract import TurnId

ONE, TWO = TurnId("one"), TurnId("two")


class Lab:
    """The turns, and what they asked for."""

    def __init__(self) -> None:
        self.busy = 0
        self.rests = 0
        self.doubted: list[str] = []
        self.turns = ThreadTurns(self._note_busy, self.doubted.append)

    def _note_busy(self, is_busy: bool) -> None:
        if is_busy:
            self.busy += 1
        else:
            self.rests += 1
            assert not self.turns.is_busy


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_only_so_many_given_up_turns_are_remembered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: what is still said of one is dropped as long as it is remembered."""
    monkeypatch.setattr(_thread_turns, "ENDED_TURNS_MAX", 2)
    names = [TurnId(f"turn-{number}") for number in range(5)]
    for name in names:
        lab.turns.begin(name)
        assert lab.turns.give_up(name)
    assert list(lab.turns.given_up) == list(lab.turns.over) == names[-2:]


def test_the_end_of_the_last_turn_is_told_whichever_way_it_comes(lab: Lab) -> None:
    """R12: what is kept while a turn runs is kept no longer. Not before the answer to its start, too."""
    lab.turns.begin_start()
    lab.turns.end_start(None)
    assert lab.rests == 1
    lab.turns.begin_start()
    lab.turns.begin(ONE)
    assert lab.turns.end(ONE)
    assert lab.rests == 1
    lab.turns.end_start(Turn(id=ONE, status="inProgress"))
    assert lab.rests == 2
    lab.turns.begin(TWO)
    lab.turns.begin(TurnId("three"))
    assert lab.turns.end(TWO)
    assert lab.rests == 2
    assert lab.turns.give_up(TurnId("three"))
    assert lab.rests == 3


def test_a_turn_that_has_ended_is_not_given_up(lab: Lab) -> None:
    """R3: how it ended was told."""
    lab.turns.begin(ONE)
    assert lab.turns.end(ONE)
    assert not lab.turns.give_up(ONE)
    assert not lab.turns.end(ONE)
    assert lab.turns.given_up == {}


def test_a_doubt_is_raised_once_until_the_turn_is_trusted_again(lab: Lab) -> None:
    """R12: each doubt asks the server, so one sign more is no doubt more. Our choice."""
    lab.turns.doubt()
    assert lab.doubted == []
    lab.turns.begin(ONE)
    lab.turns.doubt()
    lab.turns.doubt()
    assert lab.doubted == [ONE]
    lab.turns.trust(ONE)
    lab.turns.doubt()
    assert lab.doubted == [ONE, ONE]


def test_a_turn_that_begins_puts_the_one_before_it_in_doubt_as_one_that_cannot_run(lab: Lab) -> None:
    """One turn runs at a time, so the first has ended untold. Whoever asks about it already asks on. Our choice."""
    lab.turns.begin(ONE)
    lab.turns.doubt()
    assert not lab.turns.is_replaced(ONE)
    lab.turns.begin(TWO)
    lab.turns.begin(TWO)
    assert lab.turns.is_replaced(ONE)
    assert not lab.turns.is_replaced(TWO)
    assert (lab.doubted, lab.busy, lab.turns.active) == ([ONE], 2, TWO)
    assert lab.turns.end(ONE)
    assert not lab.turns.is_replaced(ONE)
    assert not lab.turns.ended.is_set(), "it is the second that runs"


async def test_a_lost_connection_wakes_whoever_waits_for_any_turn(lab: Lab, autojump_clock: Any) -> None:
    """R9: also for one that another has replaced."""
    lab.turns.begin_start()
    lab.turns.begin(ONE)
    lab.turns.begin(TWO)
    woken: list[str] = []

    async def wait(turn_id: TurnId) -> None:
        await lab.turns.wait_ended(turn_id)
        woken.append(turn_id)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for turn_id in (ONE, TWO):
                nursery.start_soon(wait, turn_id)
            await trio.testing.wait_all_tasks_blocked()
            assert woken == []
            lab.turns.lose()
        await lab.turns.wait_ended(TurnId("unknown"))
    assert sorted(woken) == [ONE, TWO]
    assert not lab.turns.is_busy
    for event in (lab.turns.start_settled, lab.turns.began, lab.turns.ended):
        assert event.is_set()
