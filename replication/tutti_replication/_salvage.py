"""What can still be read of a batch that is no well-formed JSON: its epoch, and whose mutation it breaks in.

The standard library's scanner reads value after value and says where each ends, so all that comes before is known.
This is only ever used to name an offender or an epoch; nothing read here is applied.

Source: wire page, "Where the mutation's ids can still be read", and "Epoch … also when its mutations can't be decoded".
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .structs import MAX_BATCH_MUTATIONS

__all__ = ["Salvaged", "salvage"]

_space: Final = re.compile(r"[ \t\n\r]*").match
MEMBERS_MAX: Final = 1000
"""So many keys of one object are looked at; a mutation has 17, and a batch is hostile long before a thousand."""
_has_surrogate: Final = re.compile("[\ud800-\udfff]").search
_RAW_DECODER: Final = msgspec.json.Decoder(msgspec.Raw)


class Salvaged(msgspec.Struct, frozen=True, kw_only=True):
    """What was read before the break.

    Attributes:
      epoch: the batch's, None when it stands behind the break or is no integer.
      mutation_id: of the mutation that breaks; of the first one when the break is elsewhere; "" when unreadable, also
        when it is no text: an answer has to be encoded.
      transaction_id: likewise.
    """

    epoch: int | None
    mutation_id: str
    transaction_id: str


class _BreakError(Exception):
    """The text makes no sense from here on."""


def salvage(data: bytes) -> Salvaged:
    """Read as far as it goes. Never fails."""
    text = data.decode(errors="surrogateescape")
    epoch: int | None = None
    broken: dict[str, Any] | None = None
    first: dict[str, Any] = {}
    try:
        for name, value_at in _members(text, _skip(text, 0)):
            if name == "mutations" and text[value_at : value_at + 1] == "[":
                for element_at in _elements(text, value_at):
                    broken = {}
                    for field, at in _members(text, element_at):
                        broken[field] = _value(text, at)[0]
                    _check_surrogates(text, element_at)
                    first = first or broken
                    broken = None
            elif name == "projectionEpoch":
                value = _value(text, value_at)[0]
                epoch = 0 if value is None else value if type(value) is int else None
    except _BreakError:
        pass
    named = first if broken is None else broken
    return Salvaged(epoch=epoch, mutation_id=_text(named, "mutationId"), transaction_id=_text(named, "transactionId"))


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) and not _has_surrogate(value) else ""


def _check_surrogates(text: str, at: int) -> None:
    """The standard library lets a lone surrogate through, which is no character and never was in any UTF-8.

    Bytes that are no UTF-8 stand here as lone surrogates, too.
    """
    try:
        _RAW_DECODER.decode(text[at : _value(text, at)[1]])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise _BreakError from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


_SCANNER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _SCANNER.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise _BreakError from None


def _skip(text: str, at: int) -> int:
    space = _space(text, at)
    return at if space is None else space.end()


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield the name of each member of the object that starts here, and where its value starts; bounded."""
    opening, closing, comma = "{", "}", ","
    if text[at : at + 1] != opening:
        raise _BreakError
    at = _skip(text, at + 1)
    count = 0
    while text[at : at + 1] != closing:
        count += 1
        if count > MEMBERS_MAX:
            raise _BreakError
        name, at = _value(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise _BreakError
        at = _skip(text, at + 1)
        yield name, at
        at = _skip(text, _value(text, at)[1])
        if text[at : at + 1] == comma:
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _BreakError


def _elements(text: str, at: int) -> Iterator[int]:
    """Yield where each element of the array that starts here starts; no more than a batch may have."""
    at = _skip(text, at + 1)
    count = 0
    while text[at : at + 1] != "]":
        count += 1
        if count > MAX_BATCH_MUTATIONS:
            raise _BreakError
        yield at
        at = _skip(text, _value(text, at)[1])
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _BreakError
