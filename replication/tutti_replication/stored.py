"""Reading back a snapshot or scope that a sink stored as JSON after validation.

The structs' own decoders are stricter than the contract (an id of 129 characters is legal and they refuse it), so a
sink that stores encoded snapshots reads them here. Nothing is validated again.

Source: our choice; the leniency is the wire page's ("Decoding is as lenient, and as strict, as the Go peers'").
"""

from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from ._lenient import read_struct

__all__ = ["read_stored"]

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


@cache
def _decoder(struct: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct)
