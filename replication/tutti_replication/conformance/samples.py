"""Valid mutations to start from, for fixtures, tests, histories and benchmarks: say only what matters.

Every function takes the mutation id and then names: what an envelope, a key or a scope holds by its own name, and any
field of the snapshot in ``snapshot``. What isn't named is a fixed, valid value; ids default to one workspace, one
device, one session.
"""

from typing import Any, Final

from msgspec import Raw

from tutti_replication.canonical import (
    INTERACTION_APPROVAL,
    INTERACTION_PENDING,
    ORIGIN_USER_PROMPT,
    OUTCOME_COMPLETED,
    SESSION_ROOT,
    TURN_RUNNING,
    TURN_SETTLED,
    VISIBILITY_MEMBERS,
)
from tutti_replication.keys import EntityKey, InteractionKey, MessageKey, SessionKey, TargetKey, TurnKey
from tutti_replication.mutation import (
    EntityDelete,
    InteractionUpsert,
    MessageUpsert,
    SessionUpsert,
    TargetUpsert,
    TurnUpsert,
)
from tutti_replication.structs import (
    InteractionSnapshot,
    MessageSnapshot,
    SessionScope,
    SessionSnapshot,
    TargetScope,
    TargetSnapshot,
    TurnSnapshot,
)

__all__ = [
    "DEVICE",
    "SESSION",
    "WORKSPACE",
    "delete",
    "interaction_upsert",
    "message_upsert",
    "session_scope",
    "session_upsert",
    "settled",
    "target_upsert",
    "turn_upsert",
]

WORKSPACE: Final = "workspace-1"
DEVICE: Final = "device-1"
SESSION: Final = "session-1"

EMPTY_OBJECT: Final = Raw(b"{}")


def session_scope(device: str = DEVICE, **changes: Any) -> SessionScope:
    """Return the scope of a session, turn, interaction or message."""
    fields: dict[str, Any] = {
        "initiator_user_id": "user-1",
        "executor_owner_user_id": "owner-1",
        "source_device_id": device,
        "launch_kind": "local",
        "visibility": VISIBILITY_MEMBERS,
    }
    return SessionScope(**(fields | changes))


def settled(at: int, outcome: str = OUTCOME_COMPLETED) -> dict[str, Any]:
    """Return the snapshot fields of a turn that settled at this time."""
    return {"phase": TURN_SETTLED, "outcome": outcome, "settled_at_unix_ms": at, "updated_at_unix_ms": at}


def target_upsert(
    mutation_id: str,
    *,
    transaction_id: str = "transaction-1",
    workspace_id: str = WORKSPACE,
    device: str = DEVICE,
    target_id: str = "target-1",
    scope: dict[str, Any] | None = None,
    **snapshot: Any,
) -> TargetUpsert:
    """Return a target."""
    fields: dict[str, Any] = {
        "id": target_id,
        "provider": "codex",
        "launch_ref": Raw(b'{"type":"local_cli"}'),
        "name": "Codex",
        "icon_key": "codex",
        "enabled": True,
        "source": "local",
        "sort_order": 1,
        "created_at_unix_ms": 50,
        "updated_at_unix_ms": 100,
    }
    owner: dict[str, Any] = {"owner_user_id": "owner-1", "owner_device_id": device}
    return TargetUpsert(
        mutation_id,
        transaction_id,
        device,
        workspace_id,
        TargetKey(target_id),
        TargetSnapshot(**(fields | snapshot)),
        TargetScope(**(owner | (scope or {}))),
    )


def session_upsert(
    mutation_id: str,
    *,
    transaction_id: str = "transaction-1",
    workspace_id: str = WORKSPACE,
    device: str = DEVICE,
    session_id: str = SESSION,
    scope: dict[str, Any] | None = None,
    **snapshot: Any,
) -> SessionUpsert:
    """Return a root session."""
    fields: dict[str, Any] = {
        "workspace_id": workspace_id,
        "agent_session_id": session_id,
        "kind": SESSION_ROOT,
        "origin": "runtime",
        "user_id": "owner-1",
        "provider": "codex",
        "provider_session_id": "provider-session-1",
        "settings": EMPTY_OBJECT,
        "session_metadata": Raw(b'{"visible":true}'),
        "internal_runtime_context": EMPTY_OBJECT,
        "rail_section_kind": "conversations",
        "rail_section_key": "conversations",
        "title": "A session",
        "created_at_unix_ms": 50,
        "updated_at_unix_ms": 100,
    }
    return SessionUpsert(
        mutation_id,
        transaction_id,
        device,
        workspace_id,
        SessionKey(session_id),
        SessionSnapshot(**(fields | snapshot)),
        session_scope(device, **(scope or {})),
    )


def turn_upsert(
    mutation_id: str,
    *,
    transaction_id: str = "transaction-1",
    workspace_id: str = WORKSPACE,
    device: str = DEVICE,
    session_id: str = SESSION,
    turn_id: str = "turn-1",
    scope: dict[str, Any] | None = None,
    **snapshot: Any,
) -> TurnUpsert:
    """Return a running turn."""
    fields: dict[str, Any] = {
        "workspace_id": workspace_id,
        "agent_session_id": session_id,
        "turn_id": turn_id,
        "phase": TURN_RUNNING,
        "origin": ORIGIN_USER_PROMPT,
        "started_at_unix_ms": 60,
        "created_at_unix_ms": 50,
        "updated_at_unix_ms": 100,
        "provider_turn_binding_json": EMPTY_OBJECT,
    }
    return TurnUpsert(
        mutation_id,
        transaction_id,
        device,
        workspace_id,
        TurnKey(session_id, turn_id),
        TurnSnapshot(**(fields | snapshot)),
        session_scope(device, **(scope or {})),
    )


def interaction_upsert(
    mutation_id: str,
    *,
    transaction_id: str = "transaction-1",
    workspace_id: str = WORKSPACE,
    device: str = DEVICE,
    session_id: str = SESSION,
    turn_id: str = "turn-1",
    request_id: str = "request-1",
    scope: dict[str, Any] | None = None,
    **snapshot: Any,
) -> InteractionUpsert:
    """Return a pending approval."""
    fields: dict[str, Any] = {
        "workspace_id": workspace_id,
        "agent_session_id": session_id,
        "request_id": request_id,
        "turn_id": turn_id,
        "kind": INTERACTION_APPROVAL,
        "status": INTERACTION_PENDING,
        "tool_name": "shell",
        "input": Raw(b'{"command":"ls"}'),
        "output": EMPTY_OBJECT,
        "metadata": EMPTY_OBJECT,
        "created_at_unix_ms": 50,
        "updated_at_unix_ms": 100,
    }
    return InteractionUpsert(
        mutation_id,
        transaction_id,
        device,
        workspace_id,
        InteractionKey(session_id, turn_id, request_id),
        InteractionSnapshot(**(fields | snapshot)),
        session_scope(device, **(scope or {})),
    )


def message_upsert(
    mutation_id: str,
    *,
    transaction_id: str = "transaction-1",
    workspace_id: str = WORKSPACE,
    device: str = DEVICE,
    session_id: str = SESSION,
    message_id: str = "message-1",
    scope: dict[str, Any] | None = None,
    **snapshot: Any,
) -> MessageUpsert:
    """Return a message in version 1."""
    fields: dict[str, Any] = {
        "id": 1,
        "workspace_id": workspace_id,
        "agent_session_id": session_id,
        "message_id": message_id,
        "version": 1,
        "turn_id": "turn-1",
        "role": "assistant",
        "kind": "text",
        "status": "done",
        "payload": Raw(b'{"text":"hello"}'),
        "occurred_at_unix_ms": 90,
        "created_at_unix_ms": 50,
        "updated_at_unix_ms": 100,
    }
    return MessageUpsert(
        mutation_id,
        transaction_id,
        device,
        workspace_id,
        MessageKey(session_id, message_id),
        MessageSnapshot(**(fields | snapshot)),
        session_scope(device, **(scope or {})),
    )


def delete(
    mutation_id: str,
    key: EntityKey,
    *,
    transaction_id: str = "transaction-1",
    workspace_id: str = WORKSPACE,
    device: str = DEVICE,
) -> EntityDelete:
    """Return the delete of any entity."""
    return EntityDelete(mutation_id, transaction_id, device, workspace_id, key)
