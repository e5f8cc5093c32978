"""A batch in memory: which rows to read, and from them which rows to write and what to answer. Pure.

`prepare` digests keys before the transaction, so that the counter row is locked for less. `plan_batch` runs under that
lock: it decides mutation by mutation (``_apply.decide``), each seeing what the earlier ones of the batch did, and
gathers the last row of each entity. Nothing is written before all of the batch is decided, so a rejection needs no
undo.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from tutti_replication.acknowledgement import APPLIED, DUPLICATE, STALE, Acknowledgement, Disposition
from tutti_replication.keys import SessionKey, TargetKey, identity_bytes, row_key
from tutti_replication.mutation import EntityDelete, MessageUpsert, Mutation, TurnUpsert
from tutti_replication.rejection import PermanentRejection
from tutti_replication.structs import Snapshot

from ._apply import Duplicate, Known, Reject, Stored, Write, decide

Values = tuple[Any, ...]
"""The values of one row, in the order of its table's columns in ``_schema``."""

_encode = msgspec.json.Encoder().encode


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A mutation with the digests of its id, its identity, its entity, and of what its entity belongs to."""

    mutation: Mutation
    mutation_key: bytes
    identity_key: bytes
    entity_key: bytes
    parent_key: bytes


class Observed(msgspec.Struct, frozen=True, gc=False):
    """The greatest message version and time seen in a session."""

    version: int
    time_ms: int


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What a batch answers, and the rows that make it true.

    ``entities`` and ``observed`` hold each key once; rows that are there already under these keys are replaced.
    """

    acknowledgements: tuple[Acknowledgement, ...]
    last_cursor: int
    ledger: list[Values]
    entities: dict[bytes, Values]
    observed: dict[bytes, Values]


def digest(octets: bytes) -> bytes:
    """Return the 32 bytes under which a row with this long key is kept."""
    return sha256(octets).digest()


def workspace_key(workspace_id: str) -> bytes:
    """Return the ``parent_key`` of a workspace's targets and sessions."""
    return digest(b"workspace:" + workspace_id.encode())


def session_key(workspace_id: str, session_id: str) -> bytes:
    """Return a session's ``entity_key``, which is the ``parent_key`` of everything inside it."""
    return digest(row_key(workspace_id, "", SessionKey(session_id)))


def prepare(mutations: Sequence[Mutation]) -> list[Prepared]:
    """Digest what a batch's rows are kept under."""
    parents: dict[tuple[str, str], bytes] = {}
    prepared: list[Prepared] = []
    for mutation in mutations:
        workspace, key = mutation.workspace_id, mutation.key
        inside = "" if isinstance(key, TargetKey | SessionKey) else key.agent_session_id
        parent = parents.get((workspace, inside))
        if parent is None:
            parent = session_key(workspace, inside) if inside else workspace_key(workspace)
            parents[workspace, inside] = parent
        prepared.append(
            Prepared(
                mutation,
                digest(mutation.mutation_id.encode()),
                digest(identity_bytes(workspace, mutation.source_device_id, mutation.operation, key)),
                digest(row_key(workspace, mutation.source_device_id, key)),
                parent,
            )
        )
    return prepared


def plan_batch(
    batch: Sequence[Prepared],
    known: Mapping[bytes, Known],
    stored: Mapping[bytes, Stored],
    observed: Mapping[bytes, Observed],
    last_cursor: int,
) -> Plan:
    """Decide a whole batch.

    Args:
      batch: from `prepare`, in batch order.
      known: ledger entries by mutation key, at least those of this batch.
      stored: entity states by entity key, at least those of this batch.
      observed: by session key, at least those of this batch's messages' sessions.
      last_cursor: of the locked counter row.

    Raises:
      PermanentRejection: identity, naming the first offender.
    """
    known, stored, observed = dict(known), dict(stored), dict(observed)
    plan = Plan((), 0, [], {}, {})
    acknowledgements: list[Acknowledgement] = []
    for one in batch:
        mutation = one.mutation
        decision = decide(mutation, one.identity_key, known.get(one.mutation_key), stored.get(one.entity_key))
        disposition: Disposition = STALE
        cursor = 0
        if isinstance(decision, Write):
            last_cursor += 1
            disposition, cursor = APPLIED, last_cursor
            known[one.mutation_key] = Known(one.identity_key, cursor)
            stored[one.entity_key] = decision.stored
            plan.ledger.append((one.mutation_key, one.identity_key, cursor))
            plan.entities[one.entity_key] = _entity_row(one, decision.stored, cursor)
            if isinstance(mutation, MessageUpsert):
                _observe(plan.observed, observed, one.parent_key, mutation, cursor)
        elif isinstance(decision, Duplicate):
            disposition, cursor = DUPLICATE, decision.cursor
        elif isinstance(decision, Reject):
            raise PermanentRejection(
                "identity", mutation.mutation_id, mutation.transaction_id, rule=decision.rule, field=decision.field
            )
        acknowledgements.append(
            Acknowledgement(
                mutation_id=mutation.mutation_id,
                transaction_id=mutation.transaction_id,
                disposition=disposition,
                cursor=cursor,
            )
        )
    return msgspec.structs.replace(plan, acknowledgements=tuple(acknowledgements), last_cursor=last_cursor)


def _observe(
    rows: dict[bytes, Values], observed: dict[bytes, Observed], session: bytes, message: MessageUpsert, cursor: int
) -> None:
    before = observed.get(session, Observed(0, 0))
    now = Observed(
        max(before.version, message.snapshot.version), max(before.time_ms, message.snapshot.updated_at_unix_ms)
    )
    if now != before:
        observed[session] = now
        rows[session] = (session, now.version, now.time_ms, cursor)


def _entity_row(one: Prepared, stored: Stored, cursor: int) -> Values:
    mutation = one.mutation
    sort_time_ms = sort_rank = 0
    payload = scope = None
    if not isinstance(mutation, EntityDelete):
        snapshot: Snapshot = mutation.snapshot
        sort_time_ms = stored.created_at_ms
        if isinstance(mutation, MessageUpsert):
            sort_time_ms, sort_rank = mutation.snapshot.occurred_at_unix_ms, mutation.snapshot.id
        elif isinstance(mutation, TurnUpsert) and mutation.snapshot.identity_anchor_turn_id != stored.anchor:
            snapshot = msgspec.structs.replace(snapshot, identity_anchor_turn_id=stored.anchor)
        payload, scope = _encode(snapshot), _encode(mutation.scope)
    return (
        one.entity_key,
        one.parent_key,
        mutation.entity_type,
        mutation.workspace_id.encode(),
        mutation.source_device_id.encode(),
        _encode(mutation.key),
        stored.deleted,
        stored.closed,
        stored.version,
        stored.updated_at_ms,
        stored.created_at_ms,
        None if stored.anchor is None else stored.anchor.encode(),
        sort_time_ms,
        sort_rank,
        cursor,
        payload,
        scope,
    )
