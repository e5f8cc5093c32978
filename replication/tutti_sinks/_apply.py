"""What happens to one mutation: write, duplicate, stale or reject. Pure: no I/O, no clock, no order of its own.

Theory of operation: the caller holds the counter row's lock, so ``known`` (the ledger's entry of this mutation id) and
``stored`` (what the projection keeps of this entity) are the newest there are, earlier mutations of the same batch
included. The four questions are asked in the wire page's order: a known id, a tombstone, staleness, the anchor.

Source: wire page, "What a sink decides" 3 to 5, and "Details that keep replicas equal".
"""

import msgspec

from tutti_replication.canonical import INTERACTION_PENDING, TURN_SETTLED
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
from tutti_replication.rejection import Rule


class Known(msgspec.Struct, frozen=True, gc=False):
    """The ledger's entry of an applied mutation: a digest of its identity and the cursor of its commit."""

    identity_key: bytes
    cursor: int


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What deciding needs of an entity's row; ``closed`` is a settled turn or an interaction that waits no more."""

    deleted: bool = False
    closed: bool = False
    version: int = 0
    updated_at_ms: int = 0
    created_at_ms: int = 0
    anchor: str | None = None


class Write(msgspec.Struct, frozen=True, gc=False):
    """Apply it: a tombstone when ``stored.deleted``, else the mutation's snapshot with ``stored.anchor``."""

    stored: Stored


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """Applied before, with this cursor."""

    cursor: int


class Stale(msgspec.Struct, frozen=True, gc=False):
    """Older than what is stored: acknowledged, nothing written."""


class Reject(msgspec.Struct, frozen=True, gc=False):
    """A permanent identity rejection; the whole batch fails."""

    rule: Rule
    field: str


Decision = Write | Duplicate | Stale | Reject

_STALE = Stale()
_ID_REUSED = Reject(Rule.ID_REUSED, "mutationId")
_ANCHOR_CHANGED = Reject(Rule.ANCHOR_CHANGED, "turn.identityAnchorTurnId")


def decide(mutation: Mutation, identity_key: bytes, known: Known | None, stored: Stored | None) -> Decision:
    """Decide what happens to a mutation whose schema and permission are right.

    Args:
      mutation: as validated.
      identity_key: digest of its workspace, source device, entity type, operation and key.
      known: the ledger's entry of its mutation id, if there is one.
      stored: what is kept of its entity, if anything.
    """
    if known is not None:
        return Duplicate(known.cursor) if known.identity_key == identity_key else _ID_REUSED
    if isinstance(mutation, EntityDelete):
        return Write(Stored(deleted=True, created_at_ms=stored.created_at_ms if stored else 0))
    incoming = _incoming(mutation)
    if stored is None:
        return Write(incoming)
    if stored.deleted:
        comes_back = isinstance(mutation, TargetUpsert) and incoming.created_at_ms > stored.created_at_ms
        return Write(incoming) if comes_back else _STALE
    if _is_stale(incoming, stored):
        return _STALE
    if stored.anchor is None or incoming.anchor == stored.anchor:
        return Write(incoming)
    if incoming.anchor is None:
        return Write(msgspec.structs.replace(incoming, anchor=stored.anchor))
    return _ANCHOR_CHANGED


def _incoming(mutation: Upsert) -> Stored:
    closed, version, anchor = False, 0, None
    if isinstance(mutation, MessageUpsert):
        version = mutation.snapshot.version
    elif isinstance(mutation, TurnUpsert):
        closed = mutation.snapshot.phase == TURN_SETTLED
        anchor = mutation.snapshot.identity_anchor_turn_id
    elif isinstance(mutation, InteractionUpsert):
        closed = mutation.snapshot.status != INTERACTION_PENDING
    elif isinstance(mutation, SessionUpsert):
        version = mutation.snapshot.message_version
    snapshot = mutation.snapshot
    return Stored(False, closed, version, snapshot.updated_at_unix_ms, snapshot.created_at_unix_ms, anchor)


def _is_stale(incoming: Stored, stored: Stored) -> bool:
    """Older in what counts most for its kind of entity; what a kind doesn't have is equal on both sides."""
    if incoming.closed != stored.closed:
        return stored.closed
    if incoming.version != stored.version:
        return incoming.version < stored.version
    return incoming.updated_at_ms < stored.updated_at_ms
