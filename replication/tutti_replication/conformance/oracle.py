"""The model sink: it keeps the accepted mutations, and works out everything else from them each time it is asked.

It is the wire page read aloud, sentence by sentence, without tables, indexes or cleverness, so that it can judge the
sinks that have them. It imports the contract's shapes and admission, and nothing of any sink; it compares keys in its
own way, not with the contract's row keys. Every question costs O(accepted mutations).

Source: wire page, "What a sink decides for an ordered batch" and "Details that keep replicas equal".
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from tutti_replication.acknowledgement import (
    APPLIED,
    DUPLICATE,
    STALE,
    Acknowledgement,
    ApplyResponse,
    Disposition,
    summarize_acknowledgements,
)
from tutti_replication.admission import admit_batch
from tutti_replication.canonical import INTERACTION_PENDING, TURN_SETTLED
from tutti_replication.epoch import PROJECTION_EPOCH
from tutti_replication.keys import WHITE_SPACE, EntityKey, InteractionKey, MessageKey, SessionKey, TargetKey, TurnKey
from tutti_replication.mutation import (
    EntityDelete,
    InteractionUpsert,
    MessageUpsert,
    Mutation,
    SessionUpsert,
    TargetUpsert,
    TurnUpsert,
    Upsert,
)
from tutti_replication.ports import Authorizer
from tutti_replication.rejection import PermanentRejection, Rule
from tutti_replication.structs import SessionSnapshot

from .ports import StoredEntity

__all__ = ["OracleLog", "OracleSink"]

Entity = tuple[str, ...]
"""Entity type, workspace, of a target its device, and the key's ids."""

_NEVER_THERE: Final = 0
"""Creation time on the tombstone of a target that was never there."""


class OracleLog:
    """One database: the mutations that were accepted as applied, in commit order. The n-th has cursor n."""

    def __init__(self) -> None:
        self.accepted: list[Mutation] = []


class OracleSink:
    """A handle on an `OracleLog`; several may share one. Implements `ConformanceSink`.

    Args:
      log: the database; a new one when None.
      epoch: of this sink.
    """

    def __init__(self, log: OracleLog | None = None, *, epoch: int = PROJECTION_EPOCH) -> None:
        self.log = OracleLog() if log is None else log
        self.epoch = epoch

    def reset(self) -> None:
        """Forget every accepted mutation."""
        self.log.accepted = []

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        """Apply a batch whole or not at all; see `ports.Sink`."""
        accepted = list(self.log.accepted)
        acknowledgements: list[Acknowledgement] = []
        for mutation in admit_batch(batch, authorize=authorize, epoch=self.epoch):
            known = _position(accepted, mutation.mutation_id)
            if known is not None:
                if _identity(accepted[known]) != _identity(mutation):
                    raise _identity_rejection(mutation, Rule.ID_REUSED, "mutationId")
                acknowledgements.append(_acknowledge(mutation, DUPLICATE, known + 1))
            elif not isinstance(mutation, EntityDelete) and _is_stale(accepted, mutation):
                acknowledgements.append(_acknowledge(mutation, STALE, 0))
            else:
                if isinstance(mutation, TurnUpsert) and _contradicts_anchor(accepted, mutation):
                    raise _identity_rejection(mutation, Rule.ANCHOR_CHANGED, "turn.identityAnchorTurnId")
                accepted.append(mutation)
                acknowledgements.append(_acknowledge(mutation, APPLIED, len(accepted)))
        self.log.accepted = accepted
        return ApplyResponse(
            result=summarize_acknowledgements(acknowledgements, epoch=self.epoch),
            acknowledgements=tuple(acknowledgements),
        )

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        """Return what a reader sees of an entity; see `ConformanceSink`."""
        accepted = self.log.accepted
        if isinstance(key, TurnKey | InteractionKey | MessageKey):
            session = _entity(workspace_id, source_device_id, SessionKey(key.agent_session_id))
            if _is_deleted(accepted, session):
                return None
        last = _last_upsert(accepted, _entity(workspace_id, source_device_id, key))
        if last is None:
            return None
        if isinstance(last, SessionUpsert):
            return StoredEntity(_with_observed(accepted, last), last.scope)
        if isinstance(last, TurnUpsert):
            anchor = _stored_anchor(accepted, last)
            return StoredEntity(msgspec.structs.replace(last.snapshot, identity_anchor_turn_id=anchor), last.scope)
        return StoredEntity(last.snapshot, last.scope)


def _entity(workspace_id: str, source_device_id: str, key: EntityKey) -> Entity:
    device = (source_device_id.strip(WHITE_SPACE),) if isinstance(key, TargetKey) else ()
    return (key.entity_type, workspace_id, *device, *msgspec.structs.astuple(key))


def _entity_of(mutation: Mutation) -> Entity:
    return _entity(mutation.workspace_id, mutation.source_device_id, mutation.key)


def _identity(mutation: Mutation) -> tuple[str, ...]:
    return (
        mutation.workspace_id,
        mutation.source_device_id.strip(WHITE_SPACE),
        mutation.entity_type,
        mutation.operation,
        *msgspec.structs.astuple(mutation.key),
    )


def _position(accepted: list[Mutation], mutation_id: str) -> int | None:
    return next((at for at, mutation in enumerate(accepted) if mutation.mutation_id == mutation_id), None)


def _history(accepted: list[Mutation], entity: Entity) -> Iterator[Mutation]:
    return (mutation for mutation in accepted if _entity_of(mutation) == entity)


def _last_upsert(accepted: list[Mutation], entity: Entity) -> Upsert | None:
    """Return what is stored: the last accepted upsert, unless a delete came after it."""
    stored: Upsert | None = None
    for mutation in _history(accepted, entity):
        stored = None if isinstance(mutation, EntityDelete) else mutation
    return stored


def _is_deleted(accepted: list[Mutation], entity: Entity) -> bool:
    return any(isinstance(mutation, EntityDelete) for mutation in _history(accepted, entity))


def _tombstone_created_at(accepted: list[Mutation], entity: Entity) -> int:
    """Return the creation time that a target's tombstone keeps: that of the last target that was there."""
    created = _NEVER_THERE
    for mutation in _history(accepted, entity):
        if isinstance(mutation, TargetUpsert):
            created = mutation.snapshot.created_at_unix_ms
    return created


def _is_stale(accepted: list[Mutation], incoming: Upsert) -> bool:
    entity = _entity_of(incoming)
    stored = _last_upsert(accepted, entity)
    if stored is None:
        if not _is_deleted(accepted, entity):
            return False
        if isinstance(incoming, TargetUpsert):
            return incoming.snapshot.created_at_unix_ms <= _tombstone_created_at(accepted, entity)
        return True
    older = incoming.snapshot.updated_at_unix_ms < stored.snapshot.updated_at_unix_ms
    if isinstance(incoming, SessionUpsert) and isinstance(stored, SessionUpsert):
        mine, its = incoming.snapshot.message_version, stored.snapshot.message_version
        return mine < its or (mine == its and older)
    if isinstance(incoming, TurnUpsert) and isinstance(stored, TurnUpsert):
        mine_settled = incoming.snapshot.phase == TURN_SETTLED
        its_settled = stored.snapshot.phase == TURN_SETTLED
        return its_settled if mine_settled != its_settled else older
    if isinstance(incoming, InteractionUpsert) and isinstance(stored, InteractionUpsert):
        mine_pending = incoming.snapshot.status == INTERACTION_PENDING
        its_pending = stored.snapshot.status == INTERACTION_PENDING
        return mine_pending if mine_pending != its_pending else older
    if isinstance(incoming, MessageUpsert) and isinstance(stored, MessageUpsert):
        mine, its = incoming.snapshot.version, stored.snapshot.version
        return mine < its or (mine == its and older)
    return older


def _stored_anchor(accepted: list[Mutation], turn: TurnUpsert) -> str | None:
    """Return the one anchor that was ever asserted for this turn; an omitted one leaves it alone."""
    for mutation in _history(accepted, _entity_of(turn)):
        if isinstance(mutation, TurnUpsert) and mutation.snapshot.identity_anchor_turn_id is not None:
            return mutation.snapshot.identity_anchor_turn_id
    return None


def _contradicts_anchor(accepted: list[Mutation], turn: TurnUpsert) -> bool:
    asserted = turn.snapshot.identity_anchor_turn_id
    return asserted is not None and _stored_anchor(accepted, turn) not in (None, asserted)


def _with_observed(accepted: list[Mutation], session: SessionUpsert) -> SessionSnapshot:
    """Return the uploaded snapshot, raised to what applied messages of the session have shown."""
    version = session.snapshot.message_version
    updated = session.snapshot.updated_at_unix_ms
    for mutation in accepted:
        if (
            isinstance(mutation, MessageUpsert)
            and mutation.workspace_id == session.workspace_id
            and mutation.key.agent_session_id == session.key.agent_session_id
        ):
            version = max(version, mutation.snapshot.version)
            updated = max(updated, mutation.snapshot.updated_at_unix_ms)
    return msgspec.structs.replace(session.snapshot, message_version=version, updated_at_unix_ms=updated)


def _acknowledge(mutation: Mutation, disposition: Disposition, cursor: int) -> Acknowledgement:
    return Acknowledgement(
        mutation_id=mutation.mutation_id,
        transaction_id=mutation.transaction_id,
        disposition=disposition,
        cursor=cursor,
    )


def _identity_rejection(mutation: Mutation, rule: Rule, field: str) -> PermanentRejection:
    return PermanentRejection("identity", mutation.mutation_id, mutation.transaction_id, rule=rule, field=field)
