"""Reading one mutation as leniently, and as strictly, as the Go peers do; slow, for what the C decoder refused.

An absent key, or null where a plain value stands, is the zero value; an absent or null object is absent; another JSON
type, a fraction or an integer that no decoder takes is a decode error with a path. Bounds and words are not looked at:
that is `_ranges`' work, so that a zero value is *then* held against the rules.

Source: wire page, Rules over all ("Decoding is as lenient, and as strict, as the Go peers'").
"""

from typing import Any, Final

import msgspec
from msgspec import Raw

from ._broken import BrokenRuleError
from ._fields import FIELDS, FieldRule
from .rejection import Rule
from .structs import NULL, WireKey, WireMutation

__all__ = ["read_ids", "read_integer", "read_mutation", "read_struct"]

_OBJECT_DECODER: Final = msgspec.json.Decoder(dict[str, Raw])
_TEXT_DECODER: Final = msgspec.json.Decoder(str)
_INTEGER_DECODER: Final = msgspec.json.Decoder(int)
_BOOLEAN_DECODER: Final = msgspec.json.Decoder(bool)
_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    "text": _TEXT_DECODER,
    "id": _TEXT_DECODER,
    "word": _TEXT_DECODER,
    "integer": _INTEGER_DECODER,
    "boolean": _BOOLEAN_DECODER,
}
_ZERO: Final[dict[str, Any]] = {"text": "", "id": "", "word": "", "integer": 0, "boolean": False, "object": NULL}


def read_mutation(data: Raw) -> WireMutation:
    """Return the mutation in one well-formed JSON value, its bounds and words unchecked.

    Raises:
      BrokenRuleError: `WRONG_TYPE` with the path of the field (empty when the value itself is no object).
    """
    mutation: WireMutation = read_struct(WireMutation, data)
    return mutation


def read_ids(data: Raw) -> tuple[str, str]:
    """Return mutation and transaction id as far as they can be read; "" for what can't."""
    try:
        fields = _OBJECT_DECODER.decode(data)
    except msgspec.DecodeError:
        return "", ""
    return _read_id(fields.get("mutationId")), _read_id(fields.get("transactionId"))


def read_integer(data: Raw | None, where: str) -> int:
    """Return an integer of the batch's header; absent and null are 0.

    Raises:
      BrokenRuleError: another type, or a fraction.
    """
    if data is None or data == NULL:
        return 0
    try:
        return _INTEGER_DECODER.decode(data)
    except msgspec.DecodeError:
        raise BrokenRuleError(Rule.WRONG_TYPE, where) from None


def _read_id(data: Raw | None) -> str:
    try:
        return "" if data is None else _TEXT_DECODER.decode(data)
    except msgspec.DecodeError:
        return ""


def read_struct(struct: type[Any], data: Raw, path: str = "") -> Any:
    """Return the wire struct in one well-formed JSON value; ``path`` is put before the field in errors."""
    try:
        values = {} if data == NULL else _OBJECT_DECODER.decode(data)
    except msgspec.DecodeError:
        raise BrokenRuleError(Rule.WRONG_TYPE, path.rstrip(".")) from None
    return struct(**{field.name: _read_field(field, values.get(field.wire_name), path) for field in FIELDS[struct]})


def _read_field(field: FieldRule, data: Raw | None, path: str) -> Any:
    where = path + field.wire_name
    if data is None or data == NULL:
        if field.nullable:
            return None
        return WireKey() if field.struct is WireKey else _ZERO[field.kind]
    if field.kind == "object":
        return data
    if field.struct is not None:
        return read_struct(field.struct, data, where + ".")
    try:
        return _DECODERS[field.kind].decode(data)
    except msgspec.DecodeError:
        raise BrokenRuleError(Rule.WRONG_TYPE, where) from None
