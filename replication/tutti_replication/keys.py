"""Typed entity keys: one per entity, their order, text form, row key and identity.

On the wire there is one wide key (`WireKey` in `structs`); validation turns it into one of these.

Source: wire page, EntityKey; "What a sink decides" 3 (identity); the details, "Targets are keyed by".
"""

from typing import ClassVar, Final
from urllib.parse import quote

import msgspec

from .canonical import (
    ENTITY_INTERACTION,
    ENTITY_MESSAGE,
    ENTITY_RUNTIME_OPERATION,
    ENTITY_RUNTIME_OPERATION_EVENT,
    ENTITY_SESSION,
    ENTITY_SUBMIT_CLAIM,
    ENTITY_TARGET,
    ENTITY_TURN,
    EntityType,
    Operation,
)

__all__ = [
    "KEY_TYPES",
    "WHITE_SPACE",
    "EntityKey",
    "InteractionKey",
    "MessageKey",
    "RuntimeOperationEventKey",
    "RuntimeOperationKey",
    "SessionKey",
    "SubmitClaimKey",
    "TargetKey",
    "TurnKey",
    "bare_device",
    "identity_bytes",
    "is_blank",
    "key_parts",
    "key_text",
    "row_key",
]

WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode's White_Space, which Go's `unicode.IsSpace` means; Python's `isspace` takes U+001C to U+001F as well."""


def is_blank(text: str) -> bool:
    """Say whether there is nothing but white space."""
    return not text or (text.isspace() and not text.strip(WHITE_SPACE))


def bare_device(device_id: str) -> str:
    """Return a device id as it is compared: without surrounding white space."""
    return device_id.strip(WHITE_SPACE)


class TargetKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """An agent target; with workspace and source device it is unique."""

    entity_type: ClassVar[EntityType] = ENTITY_TARGET
    agent_target_id: str


class SessionKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """A canonical session."""

    entity_type: ClassVar[EntityType] = ENTITY_SESSION
    agent_session_id: str


class TurnKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """A turn of a session."""

    entity_type: ClassVar[EntityType] = ENTITY_TURN
    agent_session_id: str
    turn_id: str


class InteractionKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """An interaction of a turn."""

    entity_type: ClassVar[EntityType] = ENTITY_INTERACTION
    agent_session_id: str
    turn_id: str
    request_id: str


class MessageKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """A message of a session."""

    entity_type: ClassVar[EntityType] = ENTITY_MESSAGE
    agent_session_id: str
    message_id: str


class RuntimeOperationKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """A runtime operation; deletes only."""

    entity_type: ClassVar[EntityType] = ENTITY_RUNTIME_OPERATION
    agent_session_id: str
    operation_id: str


class RuntimeOperationEventKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """An event of a runtime operation; deletes only."""

    entity_type: ClassVar[EntityType] = ENTITY_RUNTIME_OPERATION_EVENT
    agent_session_id: str
    operation_id: str
    event_kind: str


class SubmitClaimKey(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """A submit claim; deletes only."""

    entity_type: ClassVar[EntityType] = ENTITY_SUBMIT_CLAIM
    agent_session_id: str
    client_submit_id: str


EntityKey = (
    TargetKey
    | SessionKey
    | TurnKey
    | InteractionKey
    | MessageKey
    | RuntimeOperationKey
    | RuntimeOperationEventKey
    | SubmitClaimKey
)
"""The key of any entity. Two keys are of the same entity only when they are of the same type and equal."""

KEY_TYPES: Final[dict[str, type[EntityKey]]] = {
    ENTITY_TARGET: TargetKey,
    ENTITY_SESSION: SessionKey,
    ENTITY_TURN: TurnKey,
    ENTITY_INTERACTION: InteractionKey,
    ENTITY_MESSAGE: MessageKey,
    ENTITY_RUNTIME_OPERATION: RuntimeOperationKey,
    ENTITY_RUNTIME_OPERATION_EVENT: RuntimeOperationEventKey,
    ENTITY_SUBMIT_CLAIM: SubmitClaimKey,
}
"""Entity type → its key, in dependency order: an entity never refers to one of a later type."""


def key_parts(key: EntityKey) -> tuple[str, ...]:
    """Return the ids of a key in wire order."""
    return msgspec.structs.astuple(key)


def key_text(key: EntityKey) -> str:
    """Return a key for people: ``turn/session-1/turn-1``, its parts percent-encoded so that no two keys look alike."""
    return "/".join((key.entity_type, *(quote(part, safe="") for part in key_parts(key))))


def row_key(workspace_id: str, source_device_id: str, key: EntityKey) -> bytes:
    """Return the bytes under which a projection keeps an entity; no two entities share them.

    Each part is preceded by its length, so that neither case, trailing spaces nor separators inside ids can make two
    entities meet (F45). Targets carry their source device, the others don't. Digest it where an index is narrow.
    """
    if isinstance(key, TargetKey):
        return _length_prefixed(key.entity_type, workspace_id, bare_device(source_device_id), key.agent_target_id)
    return _length_prefixed(key.entity_type, workspace_id, *key_parts(key))


def identity_bytes(workspace_id: str, source_device_id: str, operation: Operation, key: EntityKey) -> bytes:
    """Return what a ledger keeps beside a mutation id: the same id with other bytes is an identity rejection."""
    return _length_prefixed(workspace_id, bare_device(source_device_id), key.entity_type, operation, *key_parts(key))


def _length_prefixed(*parts: str) -> bytes:
    """Encode as a MessagePack array of strings: each with its length before it, in one call into C."""
    return _pack(parts)


_pack: Final = msgspec.msgpack.Encoder().encode
