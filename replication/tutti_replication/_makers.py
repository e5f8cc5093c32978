"""One maker per entity: from a wide wire mutation to a member of the closed union, or a broken rule.

On the path of every mutation, hence straight lines: a rule asks one cheap question here, and `_rules` is only called
when the answer looks bad. Envelope and operation have been held before (`validation`).

Source: wire page, Mutation, EntityKey, Snapshots, Rules over all.
"""

from collections.abc import Callable
from typing import Final

from ._broken import BrokenRuleError
from ._rules import (
    allow_object,
    check_anchor,
    check_lineage,
    check_scope,
    refuse_blank,
    refuse_device,
    refuse_foreign,
    refuse_missing,
    require_object,
    sub_session,
    typed_key,
)
from .canonical import (
    ENTITY_INTERACTION,
    ENTITY_MESSAGE,
    ENTITY_SESSION,
    ENTITY_TARGET,
    ENTITY_TURN,
    TURN_SETTLED,
)
from .keys import InteractionKey, MessageKey, SessionKey, TargetKey, TurnKey
from .mutation import (
    EntityDelete,
    InteractionUpsert,
    MessageUpsert,
    SessionUpsert,
    TargetUpsert,
    TurnUpsert,
    Upsert,
)
from .rejection import Rule
from .structs import NULL, WireMutation

__all__ = ["MAKERS", "make_delete"]


def _target(wire: WireMutation) -> TargetUpsert:
    target = wire.target
    scope = wire.target_scope
    if target is None or scope is None:
        refuse_missing("target", "targetScope", target)
    if wire.session or wire.turn or wire.interaction or wire.message or wire.session_scope:
        refuse_foreign(wire, "target", "targetScope")
    key = wire.key
    target_id = key.agent_target_id
    if target_id.isspace() or not target_id or key.agent_session_id or sub_session(key):
        typed_key(wire)
    if target.id != target_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "target.id")
    if scope.owner_user_id.isspace():
        refuse_blank(scope.owner_user_id, Rule.ID_BLANK, "targetScope.ownerUserId")
    if scope.owner_device_id != wire.source_device_id:
        refuse_device(scope.owner_device_id, wire, "targetScope.ownerDeviceId")
    require_object(target.launch_ref, "target.launchRef")
    return TargetUpsert(
        wire.mutation_id,
        wire.transaction_id,
        wire.source_device_id,
        wire.workspace_id,
        TargetKey(target_id),
        target,
        scope,
    )


def _session(wire: WireMutation) -> SessionUpsert:
    session = wire.session
    scope = wire.session_scope
    if session is None or scope is None:
        refuse_missing("session", "sessionScope", session)
    if wire.target or wire.turn or wire.interaction or wire.message or wire.target_scope:
        refuse_foreign(wire, "session", "sessionScope")
    key = wire.key
    session_id = key.agent_session_id
    if session_id.isspace() or not session_id or key.agent_target_id or sub_session(key):
        typed_key(wire)
    if session.workspace_id != wire.workspace_id:
        raise BrokenRuleError(Rule.WORKSPACE_MISMATCH, "session.workspaceId")
    if session.agent_session_id != session_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "session.agentSessionId")
    if session.rail_section_key.isspace():
        refuse_blank(session.rail_section_key, Rule.TEXT_BLANK, "session.railSectionKey")
    check_lineage(session)
    check_scope(scope, wire)
    require_object(session.settings, "session.settings")
    require_object(session.session_metadata, "session.sessionMetadata")
    require_object(session.internal_runtime_context, "session.internalRuntimeContext")
    return SessionUpsert(
        wire.mutation_id,
        wire.transaction_id,
        wire.source_device_id,
        wire.workspace_id,
        SessionKey(session_id),
        session,
        scope,
    )


def _turn(wire: WireMutation) -> TurnUpsert:
    turn = wire.turn
    scope = wire.session_scope
    if turn is None or scope is None:
        refuse_missing("turn", "sessionScope", turn)
    if wire.target or wire.session or wire.interaction or wire.message or wire.target_scope:
        refuse_foreign(wire, "turn", "sessionScope")
    key = wire.key
    session_id = key.agent_session_id
    turn_id = key.turn_id
    if (
        session_id.isspace()
        or not session_id
        or turn_id.isspace()
        or not turn_id
        or key.agent_target_id
        or key.request_id
        or key.message_id
        or key.operation_id
        or key.event_kind
        or key.client_submit_id
    ):
        typed_key(wire)
    if turn.workspace_id != wire.workspace_id:
        raise BrokenRuleError(Rule.WORKSPACE_MISMATCH, "turn.workspaceId")
    if turn.agent_session_id != session_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "turn.agentSessionId")
    if turn.turn_id != turn_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "turn.turnId")
    anchor = turn.identity_anchor_turn_id
    if anchor is not None:
        check_anchor(anchor, turn_id)
    if (turn.outcome is None) is (turn.phase == TURN_SETTLED):
        raise BrokenRuleError(Rule.SETTLED, "turn.outcome")
    if (turn.settled_at_unix_ms is None) is (turn.phase == TURN_SETTLED):
        raise BrokenRuleError(Rule.SETTLED, "turn.settledAtUnixMs")
    if turn.source_goal_operation_id is None:
        if turn.source_goal_revision is not None:
            raise BrokenRuleError(Rule.GOAL_OPERATION, "turn.sourceGoalRevision")
        if turn.source_goal_repair_epoch is not None:
            raise BrokenRuleError(Rule.GOAL_OPERATION, "turn.sourceGoalRepairEpoch")
    require_object(turn.provider_turn_binding_json, "turn.providerTurnBindingJson")
    if not (
        turn.error == turn.file_changes == turn.completed_command == NULL
        and turn.root_provider_turn_error == turn.root_provider_turn_completed_command == NULL
    ):
        allow_object(turn.error, "turn.error")
        allow_object(turn.file_changes, "turn.fileChanges")
        allow_object(turn.completed_command, "turn.completedCommand")
        allow_object(turn.root_provider_turn_error, "turn.rootProviderTurnError")
        allow_object(turn.root_provider_turn_completed_command, "turn.rootProviderTurnCompletedCommand")
    check_scope(scope, wire)
    return TurnUpsert(
        wire.mutation_id,
        wire.transaction_id,
        wire.source_device_id,
        wire.workspace_id,
        TurnKey(session_id, turn_id),
        turn,
        scope,
    )


def _interaction(wire: WireMutation) -> InteractionUpsert:
    interaction = wire.interaction
    scope = wire.session_scope
    if interaction is None or scope is None:
        refuse_missing("interaction", "sessionScope", interaction)
    if wire.target or wire.session or wire.turn or wire.message or wire.target_scope:
        refuse_foreign(wire, "interaction", "sessionScope")
    key = wire.key
    session_id = key.agent_session_id
    turn_id = key.turn_id
    request_id = key.request_id
    if (
        session_id.isspace()
        or not session_id
        or turn_id.isspace()
        or not turn_id
        or request_id.isspace()
        or not request_id
        or key.agent_target_id
        or key.message_id
        or key.operation_id
        or key.event_kind
        or key.client_submit_id
    ):
        typed_key(wire)
    if interaction.workspace_id != wire.workspace_id:
        raise BrokenRuleError(Rule.WORKSPACE_MISMATCH, "interaction.workspaceId")
    if interaction.agent_session_id != session_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "interaction.agentSessionId")
    if interaction.turn_id != turn_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "interaction.turnId")
    if interaction.request_id != request_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "interaction.requestId")
    if interaction.updated_at_unix_ms < interaction.created_at_unix_ms:
        raise BrokenRuleError(Rule.TIME_ORDER, "interaction.updatedAtUnixMs")
    require_object(interaction.input, "interaction.input")
    require_object(interaction.output, "interaction.output")
    require_object(interaction.metadata, "interaction.metadata")
    check_scope(scope, wire)
    return InteractionUpsert(
        wire.mutation_id,
        wire.transaction_id,
        wire.source_device_id,
        wire.workspace_id,
        InteractionKey(session_id, turn_id, request_id),
        interaction,
        scope,
    )


def _message(wire: WireMutation) -> MessageUpsert:
    message = wire.message
    scope = wire.session_scope
    if message is None or scope is None:
        refuse_missing("message", "sessionScope", message)
    if wire.target or wire.session or wire.turn or wire.interaction or wire.target_scope:
        refuse_foreign(wire, "message", "sessionScope")
    key = wire.key
    session_id = key.agent_session_id
    message_id = key.message_id
    if (
        session_id.isspace()
        or not session_id
        or message_id.isspace()
        or not message_id
        or key.agent_target_id
        or key.turn_id
        or key.request_id
        or key.operation_id
        or key.event_kind
        or key.client_submit_id
    ):
        typed_key(wire)
    if message.workspace_id != wire.workspace_id:
        raise BrokenRuleError(Rule.WORKSPACE_MISMATCH, "message.workspaceId")
    if message.agent_session_id != session_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "message.agentSessionId")
    if message.message_id != message_id:
        raise BrokenRuleError(Rule.KEY_MISMATCH, "message.messageId")
    turn_id = message.turn_id
    if turn_id is not None and (turn_id.isspace() or not turn_id):
        refuse_blank(turn_id, Rule.ID_BLANK, "message.turnId")
    if message.role.isspace():
        refuse_blank(message.role, Rule.TEXT_BLANK, "message.role")
    if message.kind.isspace():
        refuse_blank(message.kind, Rule.TEXT_BLANK, "message.kind")
    if message.semantics != NULL:
        allow_object(message.semantics, "message.semantics")
    require_object(message.payload, "message.payload")
    check_scope(scope, wire)
    return MessageUpsert(
        wire.mutation_id,
        wire.transaction_id,
        wire.source_device_id,
        wire.workspace_id,
        MessageKey(session_id, message_id),
        message,
        scope,
    )


MAKERS: Final[dict[str, Callable[[WireMutation], Upsert]]] = {
    ENTITY_TARGET: _target,
    ENTITY_SESSION: _session,
    ENTITY_TURN: _turn,
    ENTITY_INTERACTION: _interaction,
    ENTITY_MESSAGE: _message,
}
"""Entity type → its maker; the entities that can only be deleted have none."""


def make_delete(wire: WireMutation) -> EntityDelete:
    """Return the delete of any entity: a key, and nothing else."""
    if (
        wire.target
        or wire.session
        or wire.turn
        or wire.interaction
        or wire.message
        or wire.target_scope
        or wire.session_scope
    ):
        refuse_foreign(wire, "", "")
    return EntityDelete(
        wire.mutation_id, wire.transaction_id, wire.source_device_id, wire.workspace_id, typed_key(wire)
    )
