"""Reading back a snapshot or scope that a sink stored as JSON after validation.

The structs' own decoders are stricter than the contract (an id of 129 characters is legal and they refuse it), so a
sink that stores encoded snapshots reads them here. Nothing is validated again.

Source: our choice; the leniency is the wire page's ("Decoding is as lenient, and as strict, as the Go peers'").
"""

from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from ._lenient import read_struct
from .canonical import ENTITY_INTERACTION, ENTITY_MESSAGE, ENTITY_SESSION, ENTITY_TARGET, ENTITY_TURN
from .structs import (
    InteractionSnapshot,
    MessageSnapshot,
    Scope,
    SessionScope,
    SessionSnapshot,
    Snapshot,
    TargetScope,
    TargetSnapshot,
    TurnSnapshot,
)

__all__ = ["read_stored", "read_stored_entity"]

_SNAPSHOTS: Final[dict[str, type[Snapshot]]] = {
    ENTITY_TARGET: TargetSnapshot,
    ENTITY_SESSION: SessionSnapshot,
    ENTITY_TURN: TurnSnapshot,
    ENTITY_INTERACTION: InteractionSnapshot,
    ENTITY_MESSAGE: MessageSnapshot,
}

StructT = TypeVar("StructT", bound=msgspec.Struct)


def read_stored(struct: type[StructT], data: bytes) -> StructT:
    """Decode what `msgspec.json.encode` made of a valid snapshot or scope.

    Args:
      struct: one of the five snapshots or two scopes of `structs`.
      data: one JSON object.

    Raises:
      BrokenRuleError, msgspec.DecodeError: this is not what was stored.
    """
    decoder: msgspec.json.Decoder[StructT] = _decoder(struct)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        loosely: StructT = read_struct(struct, Raw(data))
        return loosely


def read_stored_entity(entity_type: str, snapshot: bytes, scope: bytes) -> tuple[Snapshot, Scope]:
    """Decode the snapshot and the scope of an entity that can be upserted; errors as of `read_stored`."""
    scope_type: type[Scope] = TargetScope if entity_type == ENTITY_TARGET else SessionScope
    return read_stored(_SNAPSHOTS[entity_type], snapshot), read_stored(scope_type, scope)


@cache
def _decoder(struct: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct)
