"""What the C decoder holds by itself, once more in Python and with names: types, words, bounds, blanks.

Needed where that decoder has not been: for structs that a program made, and for what was read leniently. Its verdict
must be the same wherever both apply; a test compares them.

Source: wire page, "Integers are 64 bit …; ids are at most 512 bytes and hold no U+0000", and Rules over all.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ._broken import BrokenRuleError
from ._fields import FIELDS, FieldRule
from .keys import is_blank
from .rejection import Rule
from .structs import ID_BYTES_MAX, INT_MAX, INT_MIN, WireMutation

__all__ = ["check_ranges"]

_RAW_DECODER: Final = msgspec.json.Decoder(msgspec.Raw)
_RULE_OF_WORD: Final = {"entity_type": Rule.ENTITY_TYPE, "operation": Rule.OPERATION}


def check_ranges(mutation: WireMutation) -> None:
    """Raise `BrokenRuleError` for the first field, in wire order, that holds what its type doesn't allow."""
    _check_struct(mutation, "")


def _check_struct(value: Any, path: str) -> None:
    for field in FIELDS[type(value)]:
        item = getattr(value, field.name)
        where = path + field.wire_name
        if item is None:
            if not field.nullable:
                raise BrokenRuleError(Rule.WRONG_TYPE, where)
        elif field.struct is None:
            _CHECKS[field.kind](item, field, where)
        elif type(item) is not field.struct:
            raise BrokenRuleError(Rule.WRONG_TYPE, where)
        else:
            _check_struct(item, where + ".")


def _check_text(item: Any, field: FieldRule, where: str) -> None:
    if not isinstance(item, str):
        raise BrokenRuleError(Rule.WRONG_TYPE, where)
    try:
        item.encode()
    except UnicodeEncodeError:
        raise BrokenRuleError(Rule.INVALID_UTF8, where) from None
    if field.required and is_blank(item):
        raise BrokenRuleError(Rule.TEXT_BLANK, where)


def _check_id(item: Any, field: FieldRule, where: str) -> None:
    if not isinstance(item, str):
        raise BrokenRuleError(Rule.WRONG_TYPE, where)
    try:
        size = len(item.encode())
    except UnicodeEncodeError:
        raise BrokenRuleError(Rule.INVALID_UTF8, where) from None
    if field.required and is_blank(item):
        raise BrokenRuleError(Rule.ID_BLANK, where)
    if size > ID_BYTES_MAX:
        raise BrokenRuleError(Rule.ID_TOO_LONG, where)
    if "\0" in item:
        raise BrokenRuleError(Rule.ID_NUL, where)


def _check_word(item: Any, field: FieldRule, where: str) -> None:
    if not isinstance(item, str):
        raise BrokenRuleError(Rule.WRONG_TYPE, where)
    if item not in field.words:
        raise BrokenRuleError(_RULE_OF_WORD.get(field.name, Rule.VOCABULARY), where)


def _check_integer(item: Any, field: FieldRule, where: str) -> None:
    if type(item) is not int:  # a bool is an int to isinstance, but not to JSON
        raise BrokenRuleError(Rule.WRONG_TYPE, where)
    if not INT_MIN <= item <= INT_MAX:
        raise BrokenRuleError(Rule.INTEGER_RANGE, where)
    if item < field.least:
        if field.name.endswith("_unix_ms"):
            raise BrokenRuleError(Rule.TIME_NEGATIVE, where)
        if field.least == 1 and item == 0:
            raise BrokenRuleError(Rule.VERSION_ZERO, where)
        raise BrokenRuleError(Rule.INTEGER_RANGE, where)


def _check_boolean(item: Any, field: FieldRule, where: str) -> None:
    if type(item) is not bool:
        raise BrokenRuleError(Rule.WRONG_TYPE, where)


def _check_object(item: Any, field: FieldRule, where: str) -> None:
    if type(item) is not msgspec.Raw:
        raise BrokenRuleError(Rule.WRONG_TYPE, where)
    data = bytes(item)
    try:
        _RAW_DECODER.decode(data)
        data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BrokenRuleError(Rule.OBJECT_REQUIRED if field.required else Rule.OBJECT_OR_NULL, where) from None


_CHECKS: Final[dict[str, Callable[[Any, FieldRule, str], None]]] = {
    "text": _check_text,
    "id": _check_id,
    "word": _check_word,
    "integer": _check_integer,
    "boolean": _check_boolean,
    "object": _check_object,
}
