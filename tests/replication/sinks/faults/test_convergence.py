"""Whatever is sent again, and however often: the projection ends as if everything had been sent once."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tutti_replication.codec import encode_batch
from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    turn_upsert,
)
from tutti_replication.mutation import Mutation
from tutti_replication.rejection import PermanentRejection
from tutti_sinks import SqlSink, open_sql_sink

SEEDS = 40


def mutations(rng: random.Random) -> Iterator[Mutation]:
    """Invent mutations of two sessions that often contradict each other."""
    for number in range(30):
        name, updated = f"m{number}", rng.randint(0, 6)
        about: dict[str, Any] = {"session_id": rng.choice("ab"), "updated_at_unix_ms": updated, "created_at_unix_ms": 0}
        made: list[Mutation] = [
            session_upsert(name, title=name, message_version=rng.randint(0, 3), **about),
            turn_upsert(name, identity_anchor_turn_id=rng.choice((None, "x")), root_provider_turn_id=name, **about),
            turn_upsert(name, **about | settled(updated)),
            interaction_upsert(name, status=rng.choice(("pending", "answered")), tool_name=name, **about),
            message_upsert(name, version=rng.randint(1, 4), status=name, **about),
        ]
        one = rng.choice(made)
        yield delete(name, one.key) if rng.random() < 0.05 else one


def apply(sink: SqlSink, *batch: Mutation) -> None:
    """Apply a batch; a contradicted anchor is refused each time."""
    with contextlib.suppress(PermanentRejection):
        sink.apply(encode_batch(batch))


def projection(sink: SqlSink) -> dict[Any, Any]:
    """Return what a reader sees, without cursors."""
    return {one.key: (one.snapshot, one.scope) for one in sink.changes(limit=1000).items}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_repeats_that_keep_the_first_delivery_order_converge(seed: int) -> None:
    """R17, F42: stale ones are in no ledger, and still never win when they come again."""
    rng = random.Random(seed)
    sent: list[Mutation] = []
    with open_sql_sink("sqlite://") as once, open_sql_sink("sqlite://") as repeated:
        for mutation in mutations(rng):
            apply(once, mutation)
            apply(repeated, mutation)
            sent.append(mutation)
            if rng.random() < 0.5:
                apply(repeated, *sorted(rng.sample(sent, min(len(sent), 3)), key=sent.index))

        assert projection(repeated) == projection(once)
        assert repeated.last_cursor() == once.last_cursor()
