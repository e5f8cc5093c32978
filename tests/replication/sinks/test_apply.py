"""One mutation, decided from what is stored: duplicate, stale, reject, write, in the wire page's order."""

from typing import Any

import msgspec
import pytest

from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import SessionKey, SubmitClaimKey, TargetKey, TurnKey
from tutti_replication.mutation import Mutation
from tutti_replication.rejection import Rule
from tutti_sinks._apply import Duplicate, Known, Reject, Stale, Stored, Write, decide

MINE = b"the identity of this mutation"

SETTLED: dict[str, Any] = settled(10)
"""A turn that settled long before anything else here happened."""


def stored_after(*mutations: Mutation) -> Stored | None:
    """Apply mutations of one entity, one after another, and return what is stored then."""
    stored: Stored | None = None
    for mutation in mutations:
        decision = decide(mutation, MINE, None, stored)
        stored = decision.stored if isinstance(decision, Write) else stored
    return stored


def decided(incoming: Mutation, *before: Mutation) -> str:
    """Return the name of the decision on a mutation after others."""
    return type(decide(incoming, MINE, None, stored_after(*before))).__name__.lower()


def test_a_known_mutation_of_the_same_identity_is_a_duplicate_with_its_first_cursor() -> None:
    """RW-sink-duplicate: also when the entity has moved on, so that a lost answer is found again. R16."""
    newer = stored_after(session_upsert("m2", updated_at_unix_ms=900))

    assert decide(session_upsert("m1"), MINE, Known(MINE, 7), newer) == Duplicate(7)


def test_a_known_mutation_of_another_identity_is_rejected() -> None:
    """RW-sink-identity."""
    decision = decide(session_upsert("m1"), MINE, Known(b"another", 7), None)

    assert decision == Reject(Rule.ID_REUSED, "mutationId")


@pytest.mark.parametrize(
    ("incoming", "before", "expected"),
    [
        pytest.param(target_upsert("b"), target_upsert("a"), "write", id="target-equal"),
        pytest.param(target_upsert("b", updated_at_unix_ms=99), target_upsert("a"), "stale", id="target-older"),
        pytest.param(session_upsert("b"), session_upsert("a"), "write", id="session-equal"),
        pytest.param(session_upsert("b", updated_at_unix_ms=99), session_upsert("a"), "stale", id="session-older"),
        pytest.param(
            session_upsert("b", message_version=1, updated_at_unix_ms=900),
            session_upsert("a", message_version=2),
            "stale",
            id="session-lower-version-though-newer",
        ),
        pytest.param(
            session_upsert("b", message_version=2, updated_at_unix_ms=1),
            session_upsert("a", message_version=1),
            "write",
            id="session-higher-version-though-older",
        ),
        pytest.param(turn_upsert("b"), turn_upsert("a"), "write", id="turn-equal"),
        pytest.param(turn_upsert("b", updated_at_unix_ms=99), turn_upsert("a"), "stale", id="turn-older"),
        pytest.param(turn_upsert("b"), turn_upsert("a", **SETTLED), "stale", id="turn-settled-stays-though-older"),
        pytest.param(turn_upsert("b", **SETTLED), turn_upsert("a"), "write", id="turn-settling-wins-though-older"),
        pytest.param(
            turn_upsert("b", **settled(9)), turn_upsert("a", **SETTLED), "stale", id="turn-both-settled-and-older"
        ),
        pytest.param(interaction_upsert("b"), interaction_upsert("a"), "write", id="interaction-equal"),
        pytest.param(
            interaction_upsert("b", updated_at_unix_ms=99), interaction_upsert("a"), "stale", id="interaction-older"
        ),
        pytest.param(
            interaction_upsert("b"),
            interaction_upsert("a", status="answered", updated_at_unix_ms=60),
            "stale",
            id="interaction-answered-stays",
        ),
        pytest.param(
            interaction_upsert("b"),
            interaction_upsert("a", status="superseded", updated_at_unix_ms=60),
            "stale",
            id="interaction-superseded-stays",
        ),
        pytest.param(
            interaction_upsert("b", status="superseded", updated_at_unix_ms=60),
            interaction_upsert("a"),
            "write",
            id="interaction-ending-wins-though-older",
        ),
        pytest.param(
            interaction_upsert("b", status="superseded", updated_at_unix_ms=60),
            interaction_upsert("a", status="answered", updated_at_unix_ms=60),
            "write",
            id="interaction-both-ended-and-equal",
        ),
        pytest.param(message_upsert("b"), message_upsert("a"), "write", id="message-equal"),
        pytest.param(message_upsert("b", updated_at_unix_ms=99), message_upsert("a"), "stale", id="message-older"),
        pytest.param(
            message_upsert("b", version=1, updated_at_unix_ms=900),
            message_upsert("a", version=2),
            "stale",
            id="message-lower-version-though-newer",
        ),
        pytest.param(
            message_upsert("b", version=3, updated_at_unix_ms=1),
            message_upsert("a", version=2),
            "write",
            id="message-higher-version-though-older",
        ),
    ],
)
def test_a_snapshot_is_stale_against_what_is_stored(incoming: Mutation, before: Mutation, expected: str) -> None:
    """RW-stale-target, RW-stale-session, RW-stale-turn, RW-stale-interaction, RW-stale-message, RW-stale-equal.

    F42, R17.
    """
    assert decided(incoming, before) == expected


@pytest.mark.parametrize(
    "upsert",
    [
        session_upsert("b", updated_at_unix_ms=900, created_at_unix_ms=900),
        turn_upsert("b", updated_at_unix_ms=900, created_at_unix_ms=900),
        interaction_upsert("b", updated_at_unix_ms=900, created_at_unix_ms=900),
        message_upsert("b", version=9, updated_at_unix_ms=900, created_at_unix_ms=900),
    ],
    ids=lambda upsert: upsert.entity_type,
)
def test_a_tombstone_is_final_for_all_but_targets(upsert: Mutation) -> None:
    """RW-equal-final: however new the upsert is."""
    assert decided(upsert, delete("a", upsert.key)) == "stale"


@pytest.mark.parametrize(
    ("before", "created_at", "expected"),
    [
        pytest.param([target_upsert("a", created_at_unix_ms=50)], 51, "write", id="created-later"),
        pytest.param([target_upsert("a", created_at_unix_ms=50)], 50, "stale", id="created-at-the-same-time"),
        pytest.param([], 1, "write", id="nothing-was-there"),
        pytest.param([], 0, "stale", id="nothing-was-there-and-no-time"),
        pytest.param([target_upsert("a"), delete("b", TargetKey("target-1"))], 50, "stale", id="deleted-twice"),
    ],
)
def test_a_target_comes_back_when_it_was_created_after_its_tombstone(
    before: list[Mutation], created_at: int, expected: str
) -> None:
    """RW-equal-return: a tombstone keeps the time of what it ended, 0 if nothing was there."""
    upsert = target_upsert("d", created_at_unix_ms=created_at, updated_at_unix_ms=1)

    assert decided(upsert, *before, delete("c", TargetKey("target-1"))) == expected


def test_a_target_that_came_back_is_as_new() -> None:
    """The old snapshot's time does not make it stale. RW-equal-return."""
    ended: list[Mutation] = [target_upsert("a", updated_at_unix_ms=900), delete("b", TargetKey("target-1"))]

    assert decided(target_upsert("d", created_at_unix_ms=61, updated_at_unix_ms=61), *ended) == "write"
    back = stored_after(*ended, target_upsert("c", created_at_unix_ms=60, updated_at_unix_ms=60))
    assert back == Stored(updated_at_ms=60, created_at_ms=60)


def test_a_delete_is_applied_also_when_nothing_is_there() -> None:
    """RW-equal-tombstone: also of entities that only deletes still name, and of what is deleted already."""
    for key in (SessionKey("s"), SubmitClaimKey("s", "c")):
        once = decide(delete("a", key), MINE, None, None)
        assert once == Write(Stored(deleted=True))
        assert decided(delete("b", key), delete("a", key)) == "write"


def test_an_anchor_is_set_once_kept_when_omitted_and_never_changed() -> None:
    """RW-equal-anchor: omission asserts nothing; a contradiction rejects."""
    plain, first, other = turn_upsert("a"), *(turn_upsert("b", identity_anchor_turn_id=name) for name in ("t8", "t9"))
    anchored = stored_after(plain, first)

    assert anchored == stored_after(plain, first, plain)
    assert anchored is not None
    assert anchored.anchor == "t8"
    assert decided(first, plain, first, plain) == "write"
    assert decide(other, MINE, None, anchored) == Reject(Rule.ANCHOR_CHANGED, "turn.identityAnchorTurnId")


def test_a_stale_turn_with_another_anchor_is_stale() -> None:
    """RW-equal-anchor: anchors are judged after staleness."""
    first = turn_upsert("a", identity_anchor_turn_id="t8")
    late = turn_upsert("b", identity_anchor_turn_id="t9", updated_at_unix_ms=1)

    assert decide(late, MINE, None, stored_after(first)) == Stale()


def test_a_deleted_turn_keeps_no_anchor_and_stays_deleted() -> None:
    """RW-equal-final comes before the anchor."""
    gone: list[Mutation] = [turn_upsert("a", identity_anchor_turn_id="t8"), delete("b", TurnKey("session-1", "turn-1"))]

    assert stored_after(*gone) == Stored(deleted=True, created_at_ms=50)
    assert decided(turn_upsert("c", identity_anchor_turn_id="t9", updated_at_unix_ms=900), *gone) == "stale"


def test_deciding_changes_nothing_that_it_was_given() -> None:
    """Pure, so that a batch can be decided again after a deadlock."""
    stored = stored_after(turn_upsert("a", identity_anchor_turn_id="t8"))
    assert stored is not None
    before = msgspec.structs.replace(stored)

    decide(turn_upsert("b"), MINE, None, stored)

    assert stored == before
