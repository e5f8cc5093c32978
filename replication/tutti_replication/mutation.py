"""The closed union of mutations: what validation returns, and everything behind it works with.

A member is made by `validation` from a wide wire mutation, or by a builder by hand; `codec` writes it. All members have
`mutation_id`, `transaction_id`, `source_device_id`, `workspace_id`, `entity_type`, `operation` and a typed `key`.

Source: wire page, Mutation ("a closed tagged union").
"""

from typing import ClassVar

import msgspec

from .canonical import (
    ENTITY_INTERACTION,
    ENTITY_MESSAGE,
    ENTITY_SESSION,
    ENTITY_TARGET,
    ENTITY_TURN,
    OPERATION_DELETE,
    OPERATION_UPSERT,
    EntityType,
    Operation,
)
from .keys import EntityKey, InteractionKey, MessageKey, SessionKey, TargetKey, TurnKey
from .structs import (
    InteractionSnapshot,
    MessageSnapshot,
    SessionScope,
    SessionSnapshot,
    TargetScope,
    TargetSnapshot,
    TurnSnapshot,
)

__all__ = [
    "EntityDelete",
    "InteractionUpsert",
    "MessageUpsert",
    "Mutation",
    "SessionUpsert",
    "TargetUpsert",
    "TurnUpsert",
    "Upsert",
]


class TargetUpsert(msgspec.Struct, frozen=True, gc=False):
    """A target's newest snapshot."""

    entity_type: ClassVar[EntityType] = ENTITY_TARGET
    operation: ClassVar[Operation] = OPERATION_UPSERT
    mutation_id: str
    transaction_id: str
    source_device_id: str
    workspace_id: str
    key: TargetKey
    snapshot: TargetSnapshot
    scope: TargetScope


class SessionUpsert(msgspec.Struct, frozen=True, gc=False):
    """A session's newest snapshot."""

    entity_type: ClassVar[EntityType] = ENTITY_SESSION
    operation: ClassVar[Operation] = OPERATION_UPSERT
    mutation_id: str
    transaction_id: str
    source_device_id: str
    workspace_id: str
    key: SessionKey
    snapshot: SessionSnapshot
    scope: SessionScope


class TurnUpsert(msgspec.Struct, frozen=True, gc=False):
    """A turn's newest snapshot."""

    entity_type: ClassVar[EntityType] = ENTITY_TURN
    operation: ClassVar[Operation] = OPERATION_UPSERT
    mutation_id: str
    transaction_id: str
    source_device_id: str
    workspace_id: str
    key: TurnKey
    snapshot: TurnSnapshot
    scope: SessionScope


class InteractionUpsert(msgspec.Struct, frozen=True, gc=False):
    """An interaction's newest snapshot."""

    entity_type: ClassVar[EntityType] = ENTITY_INTERACTION
    operation: ClassVar[Operation] = OPERATION_UPSERT
    mutation_id: str
    transaction_id: str
    source_device_id: str
    workspace_id: str
    key: InteractionKey
    snapshot: InteractionSnapshot
    scope: SessionScope


class MessageUpsert(msgspec.Struct, frozen=True, gc=False):
    """A message's newest snapshot."""

    entity_type: ClassVar[EntityType] = ENTITY_MESSAGE
    operation: ClassVar[Operation] = OPERATION_UPSERT
    mutation_id: str
    transaction_id: str
    source_device_id: str
    workspace_id: str
    key: MessageKey
    snapshot: MessageSnapshot
    scope: SessionScope


class EntityDelete(msgspec.Struct, frozen=True, gc=False):
    """The end of any entity; its key says of which."""

    operation: ClassVar[Operation] = OPERATION_DELETE
    mutation_id: str
    transaction_id: str
    source_device_id: str
    workspace_id: str
    key: EntityKey

    @property
    def entity_type(self) -> EntityType:
        """What is deleted."""
        return self.key.entity_type


Upsert = TargetUpsert | SessionUpsert | TurnUpsert | InteractionUpsert | MessageUpsert
Mutation = Upsert | EntityDelete
"""The closed union."""
