"""A simulator that finds nothing proves nothing: faults planted into the product, each of which it must find soon."""

from collections.abc import Callable
from typing import Any

import pytest

from tutti_providers.codex import _closing
from tutti_providers.codex._connection import Connection
from tutti_providers.codex._creation import ThreadCreation
from tutti_providers.codex._releases import Release, Releases
from tutti_providers.codex._router import Router
from tutti_providers.codex.schema.requests import UnsubscribeParams
from tutti_side.contract import TurnCompleted
from tutti_side.runtime._registry import Registry
from tutti_side.runtime._scope import EventScope
from tutti_side.testing.simulate import find_bed
from tutti_side.testing.simulation import simulate

SEEDS_MAX = 40
"""Each is found within so many seeds; the real ones were found within ten."""

Plant = Callable[[pytest.MonkeyPatch], None]


def forget_late_fork(patch: pytest.MonkeyPatch) -> None:
    """F18: an open is given up, its fork is answered later, and the child stays subscribed."""

    def abandon(self: ThreadCreation) -> None:
        self._thread.detach()
        self._settled.set()

    patch.setattr(ThreadCreation, "abandon", abandon)


def route_unknown_to_source(patch: pytest.MonkeyPatch) -> None:
    """F2: what comes of an unknown thread is given to the thread that was there first."""
    real = Router._find_slowly

    def find(self: Router, message: Any, unplaced: list[Any]) -> Any:
        del unplaced
        return real(self, message, []) or next(iter(self._routes.values()), None)

    patch.setattr(Router, "_find_slowly", find)


def skip_unsubscribe(patch: pytest.MonkeyPatch) -> None:
    """F21: a close takes the child for released without unsubscribing it."""
    real = _closing._quietly

    async def quietly(connection: Connection, params: Any, result_type: Any) -> bool:
        if isinstance(params, UnsubscribeParams):
            return True
        return await real(connection, params, result_type)

    patch.setattr(_closing, "_quietly", quietly)


def release_without_retry(patch: pytest.MonkeyPatch) -> None:
    """F18: a child that nobody wants is unsubscribed in no background."""

    def release(self: Releases, thread_id: str) -> Release:
        self._retire(thread_id)
        done = Release(thread_id)
        done.done.set()
        return done

    patch.setattr(Releases, "begin", release)


def lose_a_number(patch: pytest.MonkeyPatch) -> None:
    """R3: after a turn's end a number is left out."""
    real = EventScope._publish

    def publish(self: EventScope, events: Any, size_bytes: int) -> None:
        real(self, events, size_bytes)
        self._next_sequence += any(isinstance(event, TurnCompleted) for event in events)

    patch.setattr(EventScope, "_publish", publish)


def forget_the_closed(patch: pytest.MonkeyPatch) -> None:
    """F23, R8: a closed Side's id is free again."""
    patch.setattr(Registry, "remember", lambda self, ref, reason: None)


def first_violations() -> tuple[str, ...]:
    """Run seeds until one fails, and return what it found."""
    bed = find_bed("codex")
    for seed in range(SEEDS_MAX):
        violations = simulate(seed, bed).violations
        if violations:
            return violations
    return ()


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        pytest.param(forget_late_fork, "R6", id="late_fork_not_released"),
        pytest.param(route_unknown_to_source, "R1", id="unknown_thread_to_the_source"),
        pytest.param(skip_unsubscribe, "R6", id="close_without_unsubscribe"),
        pytest.param(release_without_retry, "R6", id="no_release_in_the_background"),
        pytest.param(lose_a_number, "R3", id="sequence_with_a_gap"),
        pytest.param(forget_the_closed, "R8", id="closed_id_forgotten"),
    ],
)
def test_a_planted_fault_is_found_within_a_bounded_number_of_seeds(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, expected: str
) -> None:
    """R1, R3, R6, R8 and F2, F18, F21, F23 by the simulator. Source: our choice."""
    plant(monkeypatch)

    found = first_violations()

    assert any(violation.startswith(f"{expected} ") for violation in found), found


def test_the_same_seeds_pass_without_a_planted_fault() -> None:
    """What the planted faults are found by is not there without them. Source: our choice."""
    assert first_violations() == ()
