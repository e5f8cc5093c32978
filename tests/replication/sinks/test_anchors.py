"""An anchor says whose identity a turn has, and nothing else."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tutti_replication.codec import encode_batch
from tutti_replication.conformance.oracle import OracleSink
from tutti_replication.conformance.samples import (
    WORKSPACE,
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    turn_upsert,
)
from tutti_replication.keys import InteractionKey, MessageKey, SessionKey, TurnKey
from tutti_replication.mutation import Mutation, TurnUpsert
from tutti_replication.structs import TurnSnapshot
from tutti_sinks import open_sql_sink

SEEDS = 12
ANCHOR = "turn-0"
KEYS = [
    SessionKey("session-1"),
    *(TurnKey("session-1", turn) for turn in ("a", "b", ANCHOR)),
    *(InteractionKey("session-1", turn, "request-1") for turn in ("a", "b")),
    *(MessageKey("session-1", f"of-{turn}") for turn in ("a", "b")),
]


def history(seed: int) -> Iterator[Mutation]:
    """Invent turns in all phases, what is asked and said in them, and deletes; some turns have an anchor."""
    rng = random.Random(seed)
    yield turn_upsert("anchored-to", turn_id=ANCHOR, **settled(1))
    for number in range(40):
        name, turn, updated = f"m{number}", rng.choice("ab"), rng.randint(2, 9)
        about: dict[str, Any] = {"updated_at_unix_ms": updated, "created_at_unix_ms": 0}
        anchored = rng.choice((None, ANCHOR))
        made: list[Mutation] = [
            session_upsert(name, title=name, **about),
            turn_upsert(name, turn_id=turn, identity_anchor_turn_id=anchored, root_provider_turn_id=name, **about),
            turn_upsert(name, turn_id=turn, identity_anchor_turn_id=anchored, **about | settled(updated)),
            interaction_upsert(name, turn_id=turn, status=rng.choice(("pending", "answered")), **about),
            message_upsert(name, message_id=f"of-{turn}", turn_id=turn, version=rng.randint(1, 4), **about),
        ]
        one = rng.choice(made)
        yield delete(name, one.key) if rng.random() < 0.04 else one


def without_anchor(mutation: Mutation) -> Mutation:
    """The same change by an owner that does not know of anchors."""
    if not isinstance(mutation, TurnUpsert):
        return mutation
    return replace(mutation, snapshot=replace(mutation.snapshot, identity_anchor_turn_id=None))


def shown(found: Any) -> tuple[Any, Any] | None:
    """What a reader sees of an entity, but for its anchor."""
    if found is None or found.snapshot is None:
        return None
    snapshot = found.snapshot
    if isinstance(snapshot, TurnSnapshot):
        snapshot = replace(snapshot, identity_anchor_turn_id=None)
    return snapshot, found.scope


def play(sink: Any, look_up: Any, mutations: list[Mutation]) -> list[Any]:
    """Apply one after another; return each answer, and what is shown of everything after it."""
    seen: list[Any] = []
    for mutation in mutations:
        (answer,) = sink.apply(encode_batch([mutation])).acknowledgements
        seen.append((answer, [shown(look_up(sink, key)) for key in KEYS]))
    return seen


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_becomes_of_everything_is_the_same_with_an_anchor_and_without(seed: int) -> None:
    """AR-anchor-only: neither lifecycle nor interaction, provider binding or message ownership; oracle and SQL sink."""
    anchored = list(history(seed))
    plain = [without_anchor(mutation) for mutation in anchored]
    assert anchored != plain
    with open_sql_sink("sqlite://") as one, open_sql_sink("sqlite://") as other:

        def by_sql(sink: Any, key: Any) -> Any:
            return sink.lookup(WORKSPACE, key)

        assert play(one, by_sql, anchored) == play(other, by_sql, plain)

    def by_oracle(sink: Any, key: Any) -> Any:
        return sink.lookup(WORKSPACE, "device-1", key)

    assert play(OracleSink(), by_oracle, anchored) == play(OracleSink(), by_oracle, plain)
