"""A small in-memory `ConformanceBuilder`: an outbox of encoded mutations, made when their entities are stored.

It is what the runner is tried with, and an example of what a builder owes: mutation id and bytes are made once, with
the change, so that every later build sends the same.
"""

from collections.abc import Sequence
from itertools import count
from typing import Final

from tutti_replication.codec import encode_mutation, join_batch
from tutti_replication.keys import KEY_TYPES, InteractionKey, MessageKey, SessionKey, TargetKey, TurnKey
from tutti_replication.mutation import (
    InteractionUpsert,
    MessageUpsert,
    SessionUpsert,
    TargetUpsert,
    TurnUpsert,
    Upsert,
)
from tutti_replication.structs import (
    MAX_BATCH_MUTATIONS,
    InteractionSnapshot,
    MessageSnapshot,
    SessionScope,
    SessionSnapshot,
    TargetScope,
    TargetSnapshot,
    TurnSnapshot,
)

from .ports import CanonicalEntity

__all__ = ["MemoryBuilder"]

_RANKS: Final = {entity_type: rank for rank, entity_type in enumerate(KEY_TYPES)}


class MemoryBuilder:
    """Keeps the encoded mutations that wait to be sent. Implements `ConformanceBuilder`."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._ids = count(1)

    def reset(self) -> None:
        """Forget everything that waits."""
        self._waiting = []

    def seed(self, entities: Sequence[CanonicalEntity]) -> None:
        """Store entities: each becomes a mutation with an id of its own, in dependency order."""
        transaction_id = f"transaction-{next(self._ids)}"
        upserts = [_upsert(f"mutation-{next(self._ids)}", transaction_id, entity) for entity in entities]
        upserts.sort(key=_dependency)
        self._waiting += [encode_mutation(upsert) for upsert in upserts]

    def build(self) -> bytes:
        """Return the batch at the head of what waits."""
        return join_batch(self._waiting[:MAX_BATCH_MUTATIONS])


def _upsert(mutation_id: str, transaction_id: str, entity: CanonicalEntity) -> Upsert:
    ids = (mutation_id, transaction_id, entity.source_device_id, entity.workspace_id)
    match entity.snapshot, entity.scope:
        case TargetSnapshot() as target, TargetScope() as scope:
            return TargetUpsert(*ids, TargetKey(target.id), target, scope)
        case SessionSnapshot() as session, SessionScope() as scope:
            return SessionUpsert(*ids, SessionKey(session.agent_session_id), session, scope)
        case TurnSnapshot() as turn, SessionScope() as scope:
            return TurnUpsert(*ids, TurnKey(turn.agent_session_id, turn.turn_id), turn, scope)
        case InteractionSnapshot() as asked, SessionScope() as scope:
            key = InteractionKey(asked.agent_session_id, asked.turn_id, asked.request_id)
            return InteractionUpsert(*ids, key, asked, scope)
        case MessageSnapshot() as message, SessionScope() as scope:
            return MessageUpsert(*ids, MessageKey(message.agent_session_id, message.message_id), message, scope)
        case _:
            raise TypeError("a snapshot with another entity's scope")


def _dependency(upsert: Upsert) -> tuple[int, bool]:
    """Targets, sessions (roots before children), turns (anchors before anchored), interactions, messages.

    Anchors are flattened to one hop, so an anchor is never anchored itself. Children of children keep the order in
    which they were stored.
    """
    later = (isinstance(upsert, SessionUpsert) and upsert.snapshot.parent_agent_session_id is not None) or (
        isinstance(upsert, TurnUpsert) and upsert.snapshot.identity_anchor_turn_id is not None
    )
    return _RANKS[upsert.entity_type], later
