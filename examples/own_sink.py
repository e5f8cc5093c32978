"""A sink of one's own: dictionaries instead of a database, run through the conformance suite.

The contract does the wire (`admit_batch`: epoch, schema, permission) and the answers; a sink does the rest: a ledger,
staleness, anchors, tombstones, cursors, and a batch that applies whole or not at all.
"""

import dataclasses
import sys
from typing import Any

from msgspec.structs import replace

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
from tutti_replication.conformance.ports import StoredEntity
from tutti_replication.conformance.sink import run_sink
from tutti_replication.keys import EntityKey, SessionKey, TargetKey, identity_bytes, row_key
from tutti_replication.mutation import (
    EntityDelete,
    InteractionUpsert,
    MessageUpsert,
    Mutation,
    SessionUpsert,
    TurnUpsert,
    Upsert,
)
from tutti_replication.ports import Authorizer
from tutti_replication.rejection import PermanentRejection, Rule
from tutti_replication.structs import SessionSnapshot


@dataclasses.dataclass(frozen=True)
class Tombstone:
    """What is left of a deleted entity: when it was created, 0 if it never was."""

    created_at: int


@dataclasses.dataclass
class Database:
    """Everything a projection holds. A batch works on a copy, so that it applies whole or not at all."""

    cursor: int = 0
    ledger: dict[str, tuple[bytes, int]] = dataclasses.field(default_factory=dict[str, tuple[bytes, int]])
    rows: dict[bytes, Upsert | Tombstone] = dataclasses.field(default_factory=dict[bytes, Upsert | Tombstone])
    observed: dict[bytes, tuple[int, int]] = dataclasses.field(default_factory=dict[bytes, tuple[int, int]])

    def copy(self) -> "Database":
        """Return a database that can change without this one."""
        return Database(self.cursor, dict(self.ledger), dict(self.rows), dict(self.observed))


class DictSink:
    """A handle on a database. The suite opens several on one."""

    shared = Database()

    def reset(self) -> None:
        """Start over."""
        DictSink.shared = Database()

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        """Apply a batch: all of it, or (by an exception) none of it."""
        database = DictSink.shared.copy()
        acknowledgements = tuple(_apply_one(database, one) for one in admit_batch(batch, authorize=authorize))
        DictSink.shared = database
        return ApplyResponse(result=summarize_acknowledgements(acknowledgements), acknowledgements=acknowledgements)

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        """Return what a reader sees: children of a deleted session are hidden."""
        database, place = DictSink.shared, row_key(workspace_id, source_device_id, key)
        row = database.rows.get(place)
        if not isinstance(key, TargetKey):
            session = row_key(workspace_id, source_device_id, SessionKey(key.agent_session_id))
            if isinstance(database.rows.get(session), Tombstone):
                return None
        if row is None or isinstance(row, Tombstone):
            return None
        snapshot = row.snapshot
        if isinstance(snapshot, SessionSnapshot):
            version, time = database.observed.get(place, (0, 0))
            snapshot = replace(
                snapshot,
                message_version=max(snapshot.message_version, version),
                updated_at_unix_ms=max(snapshot.updated_at_unix_ms, time),
            )
        return StoredEntity(snapshot, row.scope)


def _apply_one(database: Database, mutation: Mutation) -> Acknowledgement:
    workspace, device, key = mutation.workspace_id, mutation.source_device_id, mutation.key
    identity = identity_bytes(workspace, device, mutation.operation, key)
    if mutation.mutation_id in database.ledger:
        known, cursor = database.ledger[mutation.mutation_id]
        if known != identity:
            raise _rejection(mutation, Rule.ID_REUSED, "mutationId")
        return _answer(mutation, DUPLICATE, cursor)
    place = row_key(workspace, device, key)
    stored = database.rows.get(place)
    row: Upsert | Tombstone
    if isinstance(mutation, EntityDelete):
        created_at = stored.created_at if isinstance(stored, Tombstone) else 0
        if stored is not None and not isinstance(stored, Tombstone):
            created_at = stored.snapshot.created_at_unix_ms
        row = Tombstone(created_at)
    elif stored is not None and _is_stale(mutation, stored):
        return _answer(mutation, STALE, 0)
    else:
        row = _anchored(mutation, stored)
    database.cursor += 1
    database.rows[place] = row
    database.ledger[mutation.mutation_id] = identity, database.cursor
    if isinstance(mutation, MessageUpsert):
        session = row_key(workspace, device, SessionKey(mutation.key.agent_session_id))
        version, time = database.observed.get(session, (0, 0))
        snapshot = mutation.snapshot
        database.observed[session] = max(version, snapshot.version), max(time, snapshot.updated_at_unix_ms)
    return _answer(mutation, APPLIED, database.cursor)


def _is_stale(incoming: Upsert, stored: Upsert | Tombstone) -> bool:
    if isinstance(stored, Tombstone):
        is_target = isinstance(incoming.key, TargetKey)
        return not is_target or incoming.snapshot.created_at_unix_ms <= stored.created_at
    mine, its = _rank(incoming), _rank(stored)
    return mine < its


def _rank(upsert: Upsert) -> tuple[Any, ...]:
    """What counts first, then what counts next; older means smaller."""
    updated = upsert.snapshot.updated_at_unix_ms
    if isinstance(upsert, SessionUpsert):
        return upsert.snapshot.message_version, updated
    if isinstance(upsert, MessageUpsert):
        return upsert.snapshot.version, updated
    if isinstance(upsert, TurnUpsert):
        return upsert.snapshot.phase == TURN_SETTLED, updated
    if isinstance(upsert, InteractionUpsert):
        return upsert.snapshot.status != INTERACTION_PENDING, updated
    return (updated,)


def _anchored(mutation: Upsert, stored: Upsert | Tombstone | None) -> Upsert:
    """Keep a stored anchor that the newer snapshot doesn't mention, and refuse another one."""
    if not isinstance(mutation, TurnUpsert) or not isinstance(stored, TurnUpsert):
        return mutation
    anchor, asserted = stored.snapshot.identity_anchor_turn_id, mutation.snapshot.identity_anchor_turn_id
    if anchor is None or anchor == asserted:
        return mutation
    if asserted is not None:
        raise _rejection(mutation, Rule.ANCHOR_CHANGED, "turn.identityAnchorTurnId")
    return replace(mutation, snapshot=replace(mutation.snapshot, identity_anchor_turn_id=anchor))


def _answer(mutation: Mutation, disposition: Disposition, cursor: int) -> Acknowledgement:
    return Acknowledgement(
        mutation_id=mutation.mutation_id,
        transaction_id=mutation.transaction_id,
        disposition=disposition,
        cursor=cursor,
    )


def _rejection(mutation: Mutation, rule: Rule, field: str) -> PermanentRejection:
    return PermanentRejection("identity", mutation.mutation_id, mutation.transaction_id, rule=rule, field=field)


def main() -> int:
    """Run the suite and say how it went."""
    reports = run_sink(DictSink)
    failed = [report for report in reports if not report.passed]
    for report in failed:
        print(report.problem)
    print(f"a sink of dictionaries: {len(reports) - len(failed)} of {len(reports)} conformance cases passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
