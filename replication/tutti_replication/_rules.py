"""The careful questions: they find the field that breaks a rule, and let through what only looked bad.

The makers call these; most of them only when a cheap look said that something may be wrong.

Source: wire page, EntityKey, Snapshots, Rules over all.
"""

from typing import Final, NoReturn

from msgspec import Raw

from ._broken import BrokenRuleError
from .canonical import SESSION_ROOT
from .keys import KEY_TYPES, WHITE_SPACE, EntityKey, bare_device, is_blank
from .rejection import Rule
from .structs import NULL, SessionScope, SessionSnapshot, WireKey, WireMutation

__all__ = [
    "allow_object",
    "check_anchor",
    "check_lineage",
    "check_scope",
    "refuse_blank",
    "refuse_blank_envelope",
    "refuse_device",
    "refuse_foreign",
    "refuse_missing",
    "require_object",
    "sub_session",
    "typed_key",
]

_OPENING_BRACE: Final = 0x7B


def sub_session(key: WireKey) -> str:
    """Return something unless all parts below a session are absent."""
    return key.turn_id or key.request_id or key.message_id or key.operation_id or key.event_kind or key.client_submit_id


def typed_key(wire: WireMutation) -> EntityKey:
    """Return the typed key: exactly its entity's parts are set, and not blank."""
    key_type = KEY_TYPES.get(wire.entity_type)
    if key_type is None:
        raise BrokenRuleError(Rule.ENTITY_TYPE, "entityType")
    parts: list[str] = []
    for name, wire_name in _KEY_FIELDS:
        part: str = getattr(wire.key, name)
        if name in key_type.__struct_fields__:
            if not part:
                raise BrokenRuleError(Rule.KEY_PARTS, f"key.{wire_name}")
            if is_blank(part):
                raise BrokenRuleError(Rule.ID_BLANK, f"key.{wire_name}")
            parts.append(part)
        elif part:
            raise BrokenRuleError(Rule.KEY_PARTS, f"key.{wire_name}")
    return key_type(*parts)


_KEY_FIELDS: Final = tuple(zip(WireKey.__struct_fields__, WireKey.__struct_encode_fields__, strict=True))
_PAYLOADS: Final = ("target", "session", "turn", "interaction", "message")
_SCOPES: Final = (("target_scope", "targetScope"), ("session_scope", "sessionScope"))


def check_scope(scope: SessionScope, wire: WireMutation) -> None:
    """Hold what all session scopes owe: an executor, and the mutation's own device."""
    if scope.executor_owner_user_id.isspace():
        refuse_blank(scope.executor_owner_user_id, Rule.ID_BLANK, "sessionScope.executorOwnerUserId")
    if scope.source_device_id != wire.source_device_id:
        refuse_device(scope.source_device_id, wire, "sessionScope.sourceDeviceId")


def check_lineage(session: SessionSnapshot) -> None:
    """Hold that a root has no lineage, and that a child has all of it and is neither its own root nor its parent."""
    lineage = (
        ("session.rootAgentSessionId", session.root_agent_session_id),
        ("session.rootTurnId", session.root_turn_id),
        ("session.parentAgentSessionId", session.parent_agent_session_id),
        ("session.parentTurnId", session.parent_turn_id),
        ("session.parentToolCallId", session.parent_tool_call_id),
    )
    if session.kind == SESSION_ROOT:
        for field, value in lineage:
            if value is not None:
                raise BrokenRuleError(Rule.LINEAGE_OF_ROOT, field)
        return
    for field, value in lineage:
        if value is None or is_blank(value):
            raise BrokenRuleError(Rule.LINEAGE_OF_CHILD, field)
    if session.root_agent_session_id == session.agent_session_id:
        raise BrokenRuleError(Rule.LINEAGE_SELF, "session.rootAgentSessionId")
    if session.parent_agent_session_id == session.agent_session_id:
        raise BrokenRuleError(Rule.LINEAGE_SELF, "session.parentAgentSessionId")


def check_anchor(anchor: str, turn_id: str) -> None:
    """Hold that an asserted anchor is not blank and not the turn itself."""
    bare = anchor.strip(WHITE_SPACE)
    if not bare:
        raise BrokenRuleError(Rule.ID_BLANK, "turn.identityAnchorTurnId")
    if bare == turn_id.strip(WHITE_SPACE):
        raise BrokenRuleError(Rule.ANCHOR_SELF, "turn.identityAnchorTurnId")


def require_object(raw: Raw, field: str) -> None:
    """Hold that there is a JSON object. That it is well-formed is known by now."""
    if bytes(raw)[0] != _OPENING_BRACE and not bytes(raw).lstrip().startswith(b"{"):
        raise BrokenRuleError(Rule.OBJECT_REQUIRED, field)


def allow_object(raw: Raw, field: str) -> None:
    """Hold that there is a JSON object or null."""
    if raw != NULL and not bytes(raw).lstrip().startswith(b"{"):
        raise BrokenRuleError(Rule.OBJECT_OR_NULL, field)


def refuse_blank_envelope(wire: WireMutation) -> None:
    """Refuse the first of the four envelope ids that is blank, if one really is."""
    for field, value in (
        ("mutationId", wire.mutation_id),
        ("transactionId", wire.transaction_id),
        ("sourceDeviceId", wire.source_device_id),
        ("workspaceId", wire.workspace_id),
    ):
        refuse_blank(value, Rule.ID_BLANK, field)


def refuse_blank(value: str, rule: Rule, field: str) -> None:
    """Refuse a value if it really is blank."""
    if is_blank(value):
        raise BrokenRuleError(rule, field)


def refuse_device(device_id: str, wire: WireMutation, field: str) -> None:
    """Refuse a device that is another one than the mutation's even without surrounding white space."""
    if bare_device(device_id) != bare_device(wire.source_device_id):
        raise BrokenRuleError(Rule.SCOPE_DEVICE, field)


def refuse_missing(payload: str, scope: str, found: object) -> NoReturn:
    """Name the payload, or else the scope, as missing."""
    if found is None:
        raise BrokenRuleError(Rule.PAYLOAD_MISSING, payload)
    raise BrokenRuleError(Rule.SCOPE_MISSING, scope)


def refuse_foreign(wire: WireMutation, payload: str, scope: str) -> NoReturn:
    """Name the first payload, or else scope, that isn't this entity's."""
    for name in _PAYLOADS:
        if name != payload and getattr(wire, name) is not None:
            raise BrokenRuleError(Rule.PAYLOAD_FOREIGN, name)
    for name, wire_name in _SCOPES:
        if wire_name != scope and getattr(wire, name) is not None:
            raise BrokenRuleError(Rule.SCOPE_FOREIGN, wire_name)
    raise AssertionError("called with nothing foreign")
