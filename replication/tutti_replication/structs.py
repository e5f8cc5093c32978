"""Frozen structs as they are written: the wide mutation, the five snapshots, the two scopes.

On the wire there is one wide mutation with every payload key, so that a foreign payload is seen and refused; what
validation returns is the closed union in `mutation`. Snapshots and scopes are the same objects in both.

The annotations are what msgspec's C decoder holds by itself: types, words, bounds, presence. It is stricter than the
wire page on purpose (null where a zero value would do, an id of 129 characters): what it refuses is looked at again,
slowly and leniently, by `codec`. Fields whose zero value breaks a rule have no default. A field with a
`default_factory` is always written; one with a plain default is omitted when it holds just that.

A raw object keeps its bytes untouched, and with them the whole input buffer: keep `bytes(raw)` where it lives long.

Source: wire page, ChangeBatch, Mutation, EntityKey, Snapshots.
"""

from types import NoneType
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, field

from .canonical import (
    EntityType,
    InteractionKind,
    InteractionStatus,
    Operation,
    RootProviderTurnPhase,
    SessionKind,
    TurnOrigin,
    TurnOutcome,
    TurnPhase,
    Visibility,
)

__all__ = [
    "ID_BYTES_MAX",
    "INT_MAX",
    "INT_MIN",
    "MAX_BATCH_MUTATIONS",
    "SCHEMA_VERSION",
    "ChangeBatch",
    "DecodedBatch",
    "InteractionSnapshot",
    "MessageSnapshot",
    "Scope",
    "SessionScope",
    "SessionSnapshot",
    "Snapshot",
    "TargetScope",
    "TargetSnapshot",
    "TurnSnapshot",
    "WireKey",
    "WireMutation",
]

SCHEMA_VERSION: Final = 1
"""Of the batch and of each mutation."""

MAX_BATCH_MUTATIONS: Final = 500
"""Most mutations in a batch; the least is one."""

ID_BYTES_MAX: Final = 512
"""Most UTF-8 bytes of an id."""

ID_CHARACTERS_FAST: Final = ID_BYTES_MAX // 4
"""So many characters are never more than `ID_BYTES_MAX` bytes; the C decoder counts characters, `validation` bytes."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_FAST)]
LooseId = Annotated[str, Meta(max_length=ID_CHARACTERS_FAST)]
"""An id that may be empty."""
Text = Annotated[str, Meta(min_length=1)]
Integer = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
Unsigned = Annotated[int, Meta(ge=0, le=INT_MAX)]
UnixMs = Annotated[int, Meta(ge=0, le=INT_MAX)]
"""Milliseconds since 1970-01-01T00:00:00Z; 0 is "never"."""
Version = Annotated[int, Meta(ge=1, le=INT_MAX)]

NULL: Final = Raw(b"null")


def _null() -> Raw:
    return NULL


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, rename="camel"):
    """What all objects on the wire have in common."""


class WireKey(WireStruct, frozen=True, kw_only=True):
    """The key of any entity as it is written; "" means absent, and absent is not written."""

    agent_target_id: Id = ""
    agent_session_id: Id = ""
    turn_id: Id = ""
    request_id: Id = ""
    message_id: Id = ""
    operation_id: Id = ""
    event_kind: Id = ""
    client_submit_id: Id = ""


class TargetSnapshot(WireStruct, frozen=True, kw_only=True):
    """An agent target of one device."""

    id: Id
    provider: str = field(default_factory=str)
    launch_ref: Raw
    name: str = field(default_factory=str)
    icon_key: str | None = field(default_factory=NoneType)
    icon_url: str = field(default_factory=str)
    mask_icon_url: str = ""
    hero_image_url: str = field(default_factory=str)
    enabled: bool = field(default_factory=bool)
    source: str = field(default_factory=str)
    sort_order: Integer = field(default_factory=int)
    created_at_unix_ms: UnixMs = field(default_factory=int)
    updated_at_unix_ms: UnixMs = field(default_factory=int)


class SessionSnapshot(WireStruct, frozen=True, kw_only=True):
    """A canonical session; of a session fork as well (a root here), of a sub-agent as a child."""

    workspace_id: Id
    agent_session_id: Id
    kind: SessionKind
    root_agent_session_id: LooseId | None = field(default_factory=NoneType)
    root_turn_id: LooseId | None = field(default_factory=NoneType)
    parent_agent_session_id: LooseId | None = field(default_factory=NoneType)
    parent_turn_id: LooseId | None = field(default_factory=NoneType)
    parent_tool_call_id: LooseId | None = field(default_factory=NoneType)
    origin: str = field(default_factory=str)
    user_id: LooseId = field(default_factory=str)
    agent_target_id: LooseId | None = field(default_factory=NoneType)
    provider: str = field(default_factory=str)
    provider_session_id: LooseId = field(default_factory=str)
    model: str = field(default_factory=str)
    settings: Raw
    session_metadata: Raw
    internal_runtime_context: Raw
    cwd: str = field(default_factory=str)
    rail_section_kind: str = field(default_factory=str)
    rail_project_path: str = field(default_factory=str)
    rail_section_key: Text
    title: str = field(default_factory=str)
    message_version: Unsigned = field(default_factory=int)
    last_event_at_unix_ms: UnixMs = field(default_factory=int)
    started_at_unix_ms: UnixMs = field(default_factory=int)
    ended_at_unix_ms: UnixMs = field(default_factory=int)
    pinned_at_unix_ms: UnixMs = field(default_factory=int)
    deleted_at_unix_ms: UnixMs = field(default_factory=int)
    created_at_unix_ms: UnixMs = field(default_factory=int)
    updated_at_unix_ms: UnixMs = field(default_factory=int)
    active_turn_id: LooseId | None = field(default_factory=NoneType)


class TurnSnapshot(WireStruct, frozen=True, kw_only=True):
    """A turn of a session. `identity_anchor_turn_id` None means "not asserted", never "cleared"."""

    workspace_id: Id
    agent_session_id: Id
    turn_id: Id
    identity_anchor_turn_id: LooseId | None = None
    phase: TurnPhase
    outcome: TurnOutcome | None = field(default_factory=NoneType)
    error: Raw = field(default_factory=_null)
    file_changes: Raw = field(default_factory=_null)
    completed_command: Raw = field(default_factory=_null)
    backfilled: bool = field(default_factory=bool)
    origin: TurnOrigin
    source_goal_operation_id: LooseId | None = field(default_factory=NoneType)
    source_goal_revision: Integer | None = field(default_factory=NoneType)
    source_goal_repair_epoch: Integer | None = field(default_factory=NoneType)
    started_at_unix_ms: UnixMs = field(default_factory=int)
    settled_at_unix_ms: UnixMs | None = field(default_factory=NoneType)
    created_at_unix_ms: UnixMs = field(default_factory=int)
    updated_at_unix_ms: UnixMs = field(default_factory=int)
    root_provider_turn_id: LooseId | None = field(default_factory=NoneType)
    provider_turn_binding_json: Raw
    root_provider_turn_phase: RootProviderTurnPhase | None = field(default_factory=NoneType)
    root_provider_turn_outcome: TurnOutcome | None = field(default_factory=NoneType)
    root_provider_turn_error: Raw = field(default_factory=_null)
    root_provider_turn_completed_command: Raw = field(default_factory=_null)
    root_provider_turn_updated_at_unix_ms: UnixMs = field(default_factory=int)


class InteractionSnapshot(WireStruct, frozen=True, kw_only=True):
    """An approval, question or plan of a turn."""

    workspace_id: Id
    agent_session_id: Id
    request_id: Id
    turn_id: Id
    kind: InteractionKind
    status: InteractionStatus
    tool_name: str = field(default_factory=str)
    input: Raw
    output: Raw
    metadata: Raw
    created_at_unix_ms: UnixMs = field(default_factory=int)
    updated_at_unix_ms: UnixMs = field(default_factory=int)


class MessageSnapshot(WireStruct, frozen=True, kw_only=True):
    """A message of a session, in its newest version."""

    id: Unsigned = field(default_factory=int)
    workspace_id: Id
    agent_session_id: Id
    message_id: Id
    version: Version
    turn_id: LooseId | None = field(default_factory=NoneType)
    role: Text
    kind: Text
    status: str = field(default_factory=str)
    semantics: Raw = field(default_factory=_null)
    payload: Raw
    occurred_at_unix_ms: UnixMs = field(default_factory=int)
    started_at_unix_ms: UnixMs = field(default_factory=int)
    completed_at_unix_ms: UnixMs = field(default_factory=int)
    deleted_at_unix_ms: UnixMs = field(default_factory=int)
    created_at_unix_ms: UnixMs = field(default_factory=int)
    updated_at_unix_ms: UnixMs = field(default_factory=int)


class TargetScope(WireStruct, frozen=True, kw_only=True):
    """Whose target it is."""

    owner_user_id: Id
    owner_device_id: Id
    description: str | None = field(default_factory=NoneType)


class SessionScope(WireStruct, frozen=True, kw_only=True):
    """Who started a session, who runs it, and who may see it."""

    initiator_user_id: LooseId = field(default_factory=str)
    executor_owner_user_id: Id
    source_device_id: Id
    shared_agent_binding_id: LooseId = ""
    launch_kind: str = field(default_factory=str)
    visibility: Visibility


class WireMutation(WireStruct, frozen=True, kw_only=True):
    """A mutation as it is written: wide, with room for every payload."""

    schema_version: Integer
    mutation_id: Id
    transaction_id: Id
    source_device_id: Id
    workspace_id: Id
    entity_type: EntityType
    operation: Operation
    key: WireKey
    target: TargetSnapshot | None = None
    target_scope: TargetScope | None = None
    session: SessionSnapshot | None = None
    session_scope: SessionScope | None = None
    turn: TurnSnapshot | None = None
    interaction: InteractionSnapshot | None = None
    message: MessageSnapshot | None = None


class ChangeBatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A batch as it is written; its mutations are in the order in which they are to be applied."""

    schema_version: Integer
    projection_epoch: Integer
    mutations: Annotated[tuple[WireMutation, ...], Meta(min_length=1, max_length=MAX_BATCH_MUTATIONS)]


class DecodedBatch(ChangeBatch, frozen=True, kw_only=True, rename="camel"):
    """A batch whose types, words and bounds the C decoder has held. Only `codec` makes one; frozen, it stays so."""


Snapshot = TargetSnapshot | SessionSnapshot | TurnSnapshot | InteractionSnapshot | MessageSnapshot
Scope = TargetScope | SessionScope
