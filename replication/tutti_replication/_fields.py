"""The wire structs as tables: what each field may hold, taken from their annotations once.

`_ranges` and `_lenient` walk these tables; the C decoder reads the same annotations: one source for all three.
"""

from typing import Any, Final, Literal

import msgspec
from msgspec import inspect

from .structs import (
    InteractionSnapshot,
    MessageSnapshot,
    SessionScope,
    SessionSnapshot,
    TargetScope,
    TargetSnapshot,
    TurnSnapshot,
    WireKey,
    WireMutation,
)

__all__ = ["FIELDS", "FieldRule"]

Kind = Literal["text", "id", "word", "integer", "boolean", "object", "struct"]


class FieldRule(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a wire struct.

    Attributes:
      name: as Python spells it.
      wire_name: as JSON spells it.
      kind: of its value.
      nullable: null is a value of its own (an absent payload, an unset id), not the zero value.
      required: absent and zero break a rule.
      words: the vocabulary of a word.
      least: the smallest integer.
      struct: the type of an object that has fields of its own.
    """

    name: str
    wire_name: str
    kind: Kind
    nullable: bool
    required: bool
    words: frozenset[str] = frozenset()
    least: int = 0
    struct: type[Any] | None = None


def _field_rule(field: inspect.Field) -> FieldRule:
    kind: Kind
    value = field.type
    nullable = False
    words: frozenset[str] = frozenset()
    least = 0
    struct: type[Any] | None = None
    if isinstance(value, inspect.UnionType):
        nullable = True
        (value,) = (member for member in value.types if not isinstance(member, inspect.NoneType))
    if isinstance(value, inspect.StrType):
        kind = "text" if value.max_length is None else "id"
    elif isinstance(value, inspect.LiteralType):
        kind = "word"
        words = frozenset(str(word) for word in value.values)
    elif isinstance(value, inspect.IntType):
        kind = "integer"
        least = -(2**63) if value.ge is None else value.ge
    elif isinstance(value, inspect.BoolType):
        kind = "boolean"
    elif isinstance(value, inspect.RawType):
        kind = "object"
    elif isinstance(value, inspect.StructType):
        kind = "struct"
        struct = value.cls
    else:  # pragma: no cover - a new kind of field must be given a rule first
        raise TypeError(f"no rule for {field.name}: {value}")
    return FieldRule(
        name=field.name,
        wire_name=field.encode_name,
        kind=kind,
        nullable=nullable,
        required=field.required,
        words=words,
        least=least,
        struct=struct,
    )


def _fields_of(struct: type[Any]) -> tuple[FieldRule, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return tuple(_field_rule(field) for field in info.fields)


FIELDS: Final[dict[type[Any], tuple[FieldRule, ...]]] = {
    struct: _fields_of(struct)
    for struct in (
        WireMutation,
        WireKey,
        TargetSnapshot,
        SessionSnapshot,
        TurnSnapshot,
        InteractionSnapshot,
        MessageSnapshot,
        TargetScope,
        SessionScope,
    )
}
"""Wire struct → its fields in wire order."""
