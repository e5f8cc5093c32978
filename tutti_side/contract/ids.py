"""Names of things, and what may stand in a name.

Pure. `CanonicalRef` and `SideRef` are two types on purpose: whatever is durable takes a `CanonicalRef`, which a Side
cannot produce.
"""

import uuid
from typing import NewType

import msgspec

from tutti_side.errors import TuttiSideError

__all__ = [
    "ID_BYTES_MAX",
    "CanonicalRef",
    "InteractionId",
    "InvalidIdError",
    "RequestId",
    "ScopeRef",
    "SessionId",
    "SideId",
    "SideRef",
    "TurnId",
    "WorkspaceId",
    "check_id",
    "new_id",
]

WorkspaceId = NewType("WorkspaceId", str)
SessionId = NewType("SessionId", str)
SideId = NewType("SideId", str)
TurnId = NewType("TurnId", str)
"""A turn as the provider names it; unique within its session or Side."""
InteractionId = NewType("InteractionId", str)
"""Something the provider asks its user; unique within its session or Side."""
RequestId = NewType("RequestId", str)
"""Names one intention to open a Side; the same id again is the same intention."""

ID_BYTES_MAX = 512
"""The replication contract's bound on an id, in UTF-8 bytes; the same everywhere, so that no id is refused late."""


class InvalidIdError(TuttiSideError):
    """An id that no part of the system accepts.

    Attributes:
      field: which argument it was.
      problem: what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}; use 1 to {ID_BYTES_MAX} bytes of printable text")
        self.field = field
        self.problem = problem


class CanonicalRef(msgspec.Struct, frozen=True, order=True):
    """A canonical session: the only identity that durable code accepts."""

    workspace: WorkspaceId
    session: SessionId


class SideRef(msgspec.Struct, frozen=True, order=True):
    """A Side: runtime only, never stored, never replicated."""

    workspace: WorkspaceId
    side: SideId


ScopeRef = CanonicalRef | SideRef
"""What the runtime routes events to."""


def check_id(field: str, value: str) -> str:
    """Return `value` when it may be an id.

    Raises:
      InvalidIdError: not a string, blank, over `ID_BYTES_MAX` bytes, or holding NUL or other control characters or
        lone surrogates.
    """
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise InvalidIdError(field, f"is a {type(value).__name__}, not a string")
    if not value.strip():
        raise InvalidIdError(field, "is blank")
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidIdError(field, "holds a lone surrogate") from None
    if size_bytes > ID_BYTES_MAX:
        raise InvalidIdError(field, f"is {size_bytes} bytes long")
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in value):
        raise InvalidIdError(field, "holds a control character")
    return value


def new_id() -> str:
    """Return a fresh random id."""
    return str(uuid.uuid4())
