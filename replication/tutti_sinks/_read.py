"""Reading the projection: one entity, pages of a parent's children, changes since a cursor.

Children of a deleted session stay in their table (deletes don't cascade) and are hidden here, in the one condition that
every read shares. A session is read with the greater of its own message version and time and what its messages said.

Source: wire page, "Details that keep replicas equal"; the paging is our choice.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, exists, false, or_, select, true

from tutti_replication.keys import KEY_TYPES, EntityKey
from tutti_replication.stored import read_stored_entity
from tutti_replication.structs import (
    Scope,
    SessionSnapshot,
    Snapshot,
)

from ._schema import ENTITY, OBSERVED, STATE

PAGE_MAX = 1000
"""Most entities in one page; with payloads of a few kilobytes that is a few megabytes."""

AnyRow = Row[*tuple[Any, ...]]
"""A row of `_READ`."""

T_co = TypeVar("T_co", covariant=True)


class Position(msgspec.Struct, frozen=True, order=True, gc=False):
    """Where a page ended; the next one begins behind it. Total: no two entities share a key."""

    sort_time_ms: int
    sort_rank: int
    entity_key: bytes


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """One entity of the projection.

    Attributes:
      workspace_id: whose it is.
      source_device_id: the device of the mutation that was applied last.
      key: its ids.
      cursor: the commit that changed last what is read here.
      snapshot: None for a tombstone.
      scope: None for a tombstone.
    """

    workspace_id: str
    source_device_id: str
    key: EntityKey
    cursor: int
    snapshot: Snapshot | None
    scope: Scope | None


class Page(msgspec.Struct, Generic[T_co], frozen=True):
    """Some entities in order, and where to go on (None: that was all)."""

    items: Sequence[T_co]
    next: Position | None


class Changes(msgspec.Struct, frozen=True):
    """What changed after a cursor, each entity once, in its newest state.

    Ask again with ``cursor``; while ``more`` is true there is something to get at once.
    """

    items: Sequence[Entity]
    cursor: int
    more: bool


_KEYS: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(key) for name, key in KEY_TYPES.items()}

_SESSION = ENTITY.alias("session")
_VISIBLE = ~exists().where(_SESSION.c.entity_key == ENTITY.c.parent_key, _SESSION.c.deleted == true())
"""Not inside a deleted session. A workspace's digest is no entity's key, so sessions and targets pass."""

_COLUMNS = (
    ENTITY.c.entity_key,
    ENTITY.c.entity_type,
    ENTITY.c.workspace_id,
    ENTITY.c.source_device_id,
    ENTITY.c.entity_ids,
    ENTITY.c.deleted,
    ENTITY.c.sort_time_ms,
    ENTITY.c.sort_rank,
    ENTITY.c.at_cursor,
    ENTITY.c.payload,
    ENTITY.c.scope,
    OBSERVED.c.version.label("observed_version"),
    OBSERVED.c.time_ms.label("observed_time_ms"),
    OBSERVED.c.at_cursor.label("observed_cursor"),
)
_READ = select(*_COLUMNS).select_from(ENTITY.outerjoin(OBSERVED, OBSERVED.c.session_key == ENTITY.c.entity_key))


def read_entity(connection: Connection, entity_key: bytes) -> Entity | None:
    """Read one entity or its tombstone; None when it was never written or is inside a deleted session."""
    row = connection.execute(_READ.where(ENTITY.c.entity_key == entity_key, _VISIBLE)).one_or_none()
    return None if row is None else _entity(row)


def read_children(
    connection: Connection,
    parent_key: bytes,
    entity_type: str,
    *,
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> Page[Entity]:
    """Read a page of one parent's entities of one type, without tombstones.

    Raises:
      ValueError: ``limit`` is not between 1 and `PAGE_MAX`.
    """
    limit = _checked(limit)
    columns = (ENTITY.c.sort_time_ms, ENTITY.c.sort_rank, ENTITY.c.entity_key)
    query = _READ.where(
        ENTITY.c.parent_key == parent_key, ENTITY.c.entity_type == entity_type, ENTITY.c.deleted == false(), _VISIBLE
    )
    if after is not None:
        query = query.where(_behind(columns, msgspec.structs.astuple(after), newest_first))
    query = query.order_by(*(column.desc() if newest_first else column.asc() for column in columns))
    rows = connection.execute(query.limit(limit + 1)).all()
    position = None
    if len(rows) > limit:
        last = rows[limit - 1]
        position = Position(last.sort_time_ms, last.sort_rank, bytes(last.entity_key))
    return Page([_entity(row) for row in rows[:limit]], position)


def read_changes(connection: Connection, after_cursor: int, limit: int) -> Changes:
    """Read what changed after a cursor, tombstones included.

    Everything up to the counter is committed, because commit order is cursor order; what commits while this reads is
    beyond the counter read first, and is left for the next call. A page ends where a commit ends.

    Raises:
      ValueError: ``limit`` is not between 1 and `PAGE_MAX`.
    """
    limit = _checked(limit)
    newest = connection.scalar(select(STATE.c.last_cursor)) or 0
    found: list[tuple[int, AnyRow]] = []
    for cursor in (ENTITY.c.at_cursor, OBSERVED.c.at_cursor):
        query = _READ.where(cursor > after_cursor, cursor <= newest, _VISIBLE).order_by(cursor).limit(limit + 1)
        column = "at_cursor" if cursor is ENTITY.c.at_cursor else "observed_cursor"
        found.extend((getattr(row, column), row) for row in connection.execute(query))
    found.sort(key=lambda change: change[0])
    cut = limit
    while cut < len(found) and found[cut][0] == found[cut - 1][0]:
        cut += 1  # a message and the session that it raises: a page that ends between the two would lose the second
    more = len(found) > cut
    page = found[:cut]
    items = {row.entity_key: _entity(row) for _, row in page}
    return Changes(list(items.values()), page[-1][0] if more else max(newest, after_cursor), more)


def _behind(columns: Sequence[ColumnElement[Any]], values: Sequence[Any], descending: bool) -> ColumnElement[bool]:
    """Say "after these values in this order" so that every database can use the index for its first column."""
    first, value = columns[0], values[0]
    strictly: ColumnElement[bool] = first < value if descending else first > value
    if len(columns) == 1:
        return strictly
    at_least: ColumnElement[bool] = first <= value if descending else first >= value
    return and_(at_least, or_(strictly, _behind(columns[1:], values[1:], descending)))


def _entity(row: AnyRow) -> Entity:
    snapshot: Snapshot | None = None
    scope: Scope | None = None
    cursor = row.at_cursor
    if not row.deleted:
        snapshot, scope = read_stored_entity(row.entity_type, row.payload, row.scope)
        if isinstance(snapshot, SessionSnapshot) and row.observed_version is not None:
            cursor = max(cursor, row.observed_cursor)
            snapshot = msgspec.structs.replace(
                snapshot,
                message_version=max(snapshot.message_version, row.observed_version),
                updated_at_unix_ms=max(snapshot.updated_at_unix_ms, row.observed_time_ms),
            )
    return Entity(
        workspace_id=row.workspace_id.decode(),
        source_device_id=row.source_device_id.decode(),
        key=_KEYS[row.entity_type].decode(row.entity_ids),
        cursor=cursor,
        snapshot=snapshot,
        scope=scope,
    )


def _checked(limit: int) -> int:
    if not 1 <= limit <= PAGE_MAX:
        raise ValueError(f"a page holds 1 to {PAGE_MAX} entities")
    return limit
