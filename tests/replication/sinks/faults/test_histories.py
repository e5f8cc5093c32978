"""Random histories over SQLite, MariaDB and PostgreSQL, each judged by the oracle.

A failure prints its seed and the line that runs it alone. The order of concurrent writers is the operating system's,
all else is the seed's.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tutti_replication.conformance.histories import (
    Concurrent,
    HistoryMismatchError,
    NewEpoch,
    Restart,
    Send,
    generate_history,
    run_history,
)
from tutti_replication.conformance.oracle import OracleSink
from tutti_replication.epoch import EpochMismatch
from tutti_replication.rejection import PermanentRejection, Rule

SQLITE_HISTORIES = int(os.environ.get("TUTTI_HISTORIES", "10000"))
SERVER_HISTORIES = min(300, SQLITE_HISTORIES)
CHUNK = 500
"""Histories in one test over SQLite; about eight seconds."""

ONLY = os.environ.get("TUTTI_HISTORY_SEED")


def play(bed: Any, seeds: Iterable[int], name: str) -> None:
    """Play histories one after another in one database, and say how to see a failure again."""
    for seed in seeds if ONLY is None else [int(ONLY)]:
        bed.empty()
        try:
            run_history(seed, bed)
        except BaseException as error:
            line = f"TUTTI_HISTORY_SEED={seed} pytest tests/replication/sinks/faults/test_histories.py -k {name}"
            error.add_note(f"reproduce: {line}")
            raise


CHUNKS = [
    range(first, min(first + CHUNK, SQLITE_HISTORIES)) for first in range(0, 1 if ONLY else SQLITE_HISTORIES, CHUNK)
]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"from-{seeds.start}")
def test_random_histories_over_sqlite_equal_the_oracle(sqlite_bed: Any, seeds: range) -> None:
    """R16, R17, F41, F42: repeats, lost answers, poison, epochs, concurrent writers, restarts."""
    play(sqlite_bed, seeds, "sqlite")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("name", ["mariadb", "postgresql"])
def test_random_histories_over_a_server_equal_the_oracle(server_bed: Callable[[str], Any], name: str) -> None:
    """R16, R17, F41, F42: the same, with connections dropped on the wire before and after each request."""
    play(server_bed(name), range(SERVER_HISTORIES), name)


def test_a_sink_that_forgets_is_found_by_a_history(sqlite_bed: Any) -> None:
    """A judge that can't fail judges nothing. Source: our choice."""
    sqlite_bed.read_all = dict

    with pytest.raises(HistoryMismatchError, match="history 1, step") as found:
        run_history(1, sqlite_bed)

    assert found.value.seed == 1


def test_a_seed_is_one_history() -> None:
    """A seed in a report means the same everywhere. Source: our choice."""
    assert [generate_history(seed) for seed in range(20)] == [generate_history(seed) for seed in range(20)]
    assert generate_history(1) != generate_history(2)


def test_histories_hold_everything_that_they_are_meant_to_hold() -> None:
    """Repeats, lost answers before and after, poison, other epochs, resets, writers at once, restarts, devices."""
    steps = [step for seed in range(300) for step in generate_history(seed)]
    sends = [step for step in steps if isinstance(step, Send)]
    cuts = {step.cut for step in sends} - {None}

    assert {type(step) for step in steps} == {Send, Concurrent, NewEpoch, Restart}
    assert {(cut.statement, cut.when) for cut in cuts if cut} == {
        (statement, when) for statement in range(1, 12) for when in ("before", "after")
    }
    assert len({step.batch for step in sends}) < len(sends)
    outcomes: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for seed in range(300):
        oracle = OracleSink()
        for step in generate_history(seed):
            if isinstance(step, Send):
                try:
                    answer = oracle.apply(step.batch)
                except (PermanentRejection, EpochMismatch) as refused:
                    outcomes.add(getattr(refused, "rule", "epoch"))
                else:
                    outcomes |= {one.disposition for one in answer.acknowledgements}
        seen |= {(one.workspace_id, one.source_device_id) for one in oracle.log.accepted}
    assert outcomes >= {"applied", "duplicate", "stale", "epoch", Rule.ID_REUSED, Rule.ANCHOR_CHANGED}
    assert len(outcomes) > 6
    assert len(seen) == 6
