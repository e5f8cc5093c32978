"""The lifecycle table, exhaustively."""

import itertools
from typing import get_args

import pytest

from tutti_side.runtime._side_state import TRANSITIONS, SideLifecycle, SideState, Step

STATES: tuple[SideState, ...] = get_args(SideState)
STEPS: tuple[Step, ...] = get_args(Step)


@pytest.mark.parametrize(("state", "step"), list(itertools.product(STATES, STEPS)))
def test_each_state_takes_its_steps_and_no_other(state: SideState, step: Step) -> None:
    """Our choice: a bad step raises and leaves the state as it was."""
    lifecycle = SideLifecycle()
    lifecycle.state = state
    wanted = TRANSITIONS[state].get(step)
    if wanted is None:
        with pytest.raises(RuntimeError, match=f"is {state} cannot {step}"):
            lifecycle.step(step)
        assert lifecycle.state == state
    else:
        assert lifecycle.step(step) == wanted


def test_every_state_is_reachable_and_the_ends_are_final() -> None:
    """R8: closed and expired never come back to life."""
    reached: set[SideState] = {"reserved"}
    for _ in STATES:
        reached |= {after for state in reached for after in TRANSITIONS[state].values()}
    assert reached == set(STATES)
    assert {state for state, steps in TRANSITIONS.items() if not steps} == {"closed", "failed", "expired"}
