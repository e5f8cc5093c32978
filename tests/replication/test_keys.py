"""Keys: their order, text, row bytes and identity; white space as Go has it."""

import itertools

import pytest

from tutti_replication.canonical import ENTITY_TYPES
from tutti_replication.keys import (
    KEY_TYPES,
    EntityKey,
    InteractionKey,
    MessageKey,
    RuntimeOperationEventKey,
    RuntimeOperationKey,
    SessionKey,
    SubmitClaimKey,
    TargetKey,
    TurnKey,
    bare_device,
    identity_bytes,
    is_blank,
    key_parts,
    key_text,
    row_key,
)

ALIKE: list[EntityKey] = [
    SessionKey("s"),
    SessionKey("S"),
    SessionKey("s "),
    SessionKey(" s"),
    SessionKey("\u00e9"),
    SessionKey("e\u0301"),
    TargetKey("s"),
    TurnKey("s", "t"),
    TurnKey("st", ""),
    TurnKey("s/t", "u"),
    TurnKey("s", "t/u"),
    TurnKey("1:s", "t"),
    TurnKey("", "s1:t"),
    MessageKey("s", "t"),
    InteractionKey("s", "t", "r"),
    RuntimeOperationKey("s", "t"),
    RuntimeOperationEventKey("s", "t", "e"),
    SubmitClaimKey("s", "t"),
]


def test_no_two_keys_share_their_row_bytes_or_their_text() -> None:
    """F45: ids that differ in case, spaces, accents or where one ends never collide."""
    rows = {row_key("w", "d", key) for key in ALIKE}
    assert len(rows) == len(ALIKE)
    assert len({key_text(key) for key in ALIKE}) == len(ALIKE)
    assert len({identity_bytes("w", "d", "upsert", key) for key in ALIKE}) == len(ALIKE)


def test_only_targets_are_kept_by_device_and_everything_by_workspace() -> None:
    """Wire page, Details: targets are keyed by workspace, source device and id."""
    for key in ALIKE:
        assert row_key("w", "d", key) != row_key("W", "d", key)
        by_device = row_key("w", "d", key) != row_key("w", "D", key)
        assert by_device is isinstance(key, TargetKey)
        assert row_key("w", " d\t", key) == row_key("w", "d", key)


def test_an_identity_holds_workspace_device_entity_operation_and_key() -> None:
    """Wire page, What a sink decides, 3; device ids are equal without surrounding white space."""
    known = identity_bytes("w", "d", "upsert", SessionKey("s"))
    assert known == identity_bytes("w", "d ", "upsert", SessionKey("s"))
    others = {
        identity_bytes("w ", "d", "upsert", SessionKey("s")),
        identity_bytes("w", "D", "upsert", SessionKey("s")),
        identity_bytes("w", "d", "delete", SessionKey("s")),
        identity_bytes("w", "d", "upsert", TargetKey("s")),
        identity_bytes("w", "d", "upsert", SessionKey("S")),
        identity_bytes("wd", "", "upsert", SessionKey("s")),
    }
    assert len(others) == 6
    assert known not in others


def test_key_types_are_all_entities_in_dependency_order() -> None:
    """Wire page, What the source side owes: targets, sessions, turns, interactions, messages."""
    assert set(KEY_TYPES) == ENTITY_TYPES
    assert list(KEY_TYPES)[:5] == ["agentTarget", "session", "turn", "interaction", "message"]
    assert all(key_type.entity_type == entity_type for entity_type, key_type in KEY_TYPES.items())


def test_keys_of_a_type_are_ordered_by_their_ids_in_wire_order() -> None:
    """Our choice: a stable order for people and for locks."""
    keys = [TurnKey("b", "1"), TurnKey("a", "2"), TurnKey("a", "10")]
    assert sorted(keys) == [TurnKey("a", "10"), TurnKey("a", "2"), TurnKey("b", "1")]
    assert key_parts(InteractionKey("s", "t", "r")) == ("s", "t", "r")
    assert key_text(TurnKey("s/1", "t%")) == "turn/s%2F1/t%25"


def test_keys_of_two_types_are_never_equal() -> None:
    """Wire page, Mutation: a closed tagged union."""
    for one, other in itertools.combinations(ALIKE, 2):
        assert one != other


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        (" \t\n\v\f\r", True),
        ("\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000", True),
        ("\x1c", False),
        (" \x1f ", False),
        ("\u200b", False),
        ("\ufeff", False),
        (" a ", False),
    ],
)
def test_blank_is_what_go_calls_white_space(text: str, blank: bool) -> None:
    """Wire page: blank = only white space; a Go peer trims Unicode's White_Space, Python also U+001C to U+001F."""
    assert is_blank(text) is blank


def test_a_device_is_compared_without_surrounding_white_space_only() -> None:
    """Wire page, Rules over all."""
    assert bare_device("\u3000 d 1\t") == "d 1"
    assert bare_device("\x1cd") == "\x1cd"
