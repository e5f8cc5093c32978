"""What the server's answers prove about a turn: the pure half."""

import pytest

from tutti_providers.codex._reconcile import judge_status, judge_turns
from tutti_providers.codex.schema.items import ThreadStatus, Turn
from tutti_side.contract import TurnId

TURN = TurnId("turn-1")


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("active", "running"),
        ("idle", "resting"),
        ("systemError", "resting"),
        ("notLoaded", "resting"),
        ("a newer word", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_status_says_whether_a_turn_runs_and_a_word_that_we_do_not_know_proves_nothing(
    word: str, verdict: str
) -> None:
    """R15. Source: the schema's four words."""
    assert judge_status(ThreadStatus(type=word)) == verdict


def test_no_status_proves_nothing() -> None:
    """R15."""
    assert judge_status(None) == "unknown"


@pytest.mark.parametrize("status", ["completed", "interrupted", "failed", "a newer word"])
def test_a_listed_turn_that_is_not_in_progress_is_taken_as_it_ended(status: str) -> None:
    """F34: the status is the word that counts."""
    ended = Turn(id=TURN, status=status)
    assert judge_turns((Turn(id="other", status="completed"), ended), TURN) is ended


def test_a_listed_turn_that_is_in_progress_runs_and_one_that_is_not_listed_is_unknown() -> None:
    """The list lags behind the thread at times. Source: our choice."""
    turns = (Turn(id=TURN, status="inProgress"),)
    assert judge_turns(turns, TURN) == "running"
    assert judge_turns(turns, TurnId("other")) == "unknown"
    assert judge_turns((), TURN) == "unknown"
