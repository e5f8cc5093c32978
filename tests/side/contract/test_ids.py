"""What may be an id."""

import pytest

from tutti_side.contract import ID_BYTES_MAX, InvalidIdError, check_id, new_id


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "blank"),
        (" \t", "blank"),
        ("\u2003", "blank"),
        ("a" * (ID_BYTES_MAX + 1), "513 bytes"),
        ("é" * 257, "514 bytes"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("a\x85b", "control character"),
        ("\ud800", "lone surrogate"),
        (7, "int, not a string"),
        (None, "NoneType, not a string"),
    ],
)
def test_a_bad_id_is_refused_with_its_field_and_what_is_wrong(value: object, problem: str) -> None:
    """Our choice of bounds: those of the replication contract, so that no id is refused late."""
    with pytest.raises(InvalidIdError, match=problem) as caught:
        check_id("side id", value)  # type: ignore[arg-type]
    assert caught.value.field == "side id"


@pytest.mark.parametrize("value", ["a", "ä ö", "a" * ID_BYTES_MAX, "\U0001f600", "x/y:z", new_id()])
def test_a_good_id_is_returned_unchanged(value: str) -> None:
    """Our choice."""
    assert check_id("side id", value) == value
