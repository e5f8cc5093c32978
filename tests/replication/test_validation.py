"""Every rule that a mutation can break, each by itself, through bytes and through structs."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tutti_replication import (
    ChangeBatch,
    EpochMismatch,
    PermanentRejection,
    Rule,
    WireMutation,
    admit_batch,
    decode_batch,
    encode_batch,
    validate_batch,
    validate_mutation,
)
from tutti_replication.canonical import (
    DELETE_ONLY_ENTITIES,
    INTERACTION_KINDS,
    INTERACTION_STATUSES,
    ROOT_PROVIDER_TURN_PHASES,
    SESSION_CHILD,
    TURN_ORIGINS,
    TURN_OUTCOMES,
    TURN_PHASES,
    TURN_RUNNING,
    TURN_SETTLED,
    VISIBILITIES,
)
from tutti_replication.codec import to_wire
from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import KEY_TYPES, SessionKey
from tutti_replication.mutation import EntityDelete, Mutation
from tutti_replication.structs import INT_MAX, INT_MIN, SessionSnapshot, WireKey

LINEAGE: dict[str, Any] = {
    "kind": SESSION_CHILD,
    "root_agent_session_id": "session-0",
    "root_turn_id": "turn-0",
    "parent_agent_session_id": "session-0",
    "parent_turn_id": "turn-0",
    "parent_tool_call_id": "call-0",
}
UPSERTS: dict[str, Mutation] = {
    "target": target_upsert("m"),
    "session": session_upsert("m"),
    "child": session_upsert("m", **LINEAGE),
    "turn": turn_upsert("m"),
    "settled": turn_upsert("m", **settled(200)),
    "interaction": interaction_upsert("m"),
    "message": message_upsert("m"),
    "delete": delete("m", SessionKey("session-1")),
}
OTHER_SCOPE = {"target": "sessionScope"}

Spoiled = tuple[str, str, Any, Rule, str]
ABSENT = object()

SPOILED: list[Spoiled] = []


def spoiled(subject: str, path: str, value: Any, rule: Rule, field: str | None = None) -> None:
    SPOILED.append((subject, path, value, rule, path if field is None else field))


for name in UPSERTS:
    for envelope_id in ("mutationId", "transactionId", "sourceDeviceId", "workspaceId"):
        for blank in ("", " \t\u3000", None, ABSENT):
            spoiled(name, envelope_id, blank, Rule.ID_BLANK)
    spoiled(name, "mutationId", "m" * 513, Rule.ID_TOO_LONG)
    spoiled(name, "transactionId", "\u00e9" * 257, Rule.ID_TOO_LONG)
    spoiled(name, "transactionId", "t\0", Rule.ID_NUL)
    spoiled(name, "schemaVersion", 2, Rule.SCHEMA_VERSION)
    spoiled(name, "schemaVersion", ABSENT, Rule.SCHEMA_VERSION)
    spoiled(name, "schemaVersion", INT_MAX + 1, Rule.INTEGER_RANGE)
    spoiled(name, "entityType", "sessions", Rule.ENTITY_TYPE)
    spoiled(name, "entityType", None, Rule.ENTITY_TYPE)
    spoiled(name, "operation", "merge", Rule.OPERATION)
    spoiled(name, "operation", ABSENT, Rule.OPERATION)
    spoiled(name, "key", ABSENT, Rule.KEY_PARTS, "key.agentTargetId" if name == "target" else "key.agentSessionId")
    spoiled(name, "key.eventKind", "e", Rule.KEY_PARTS)
    if name != "target":
        spoiled(name, "key.agentTargetId", "target-1", Rule.KEY_PARTS)
        spoiled(name, "key.agentSessionId", " ", Rule.ID_BLANK)

for name, payload in (
    ("target", "target"),
    ("session", "session"),
    ("turn", "turn"),
    ("interaction", "interaction"),
    ("message", "message"),
):
    scope = "targetScope" if name == "target" else "sessionScope"
    spoiled(name, payload, ABSENT, Rule.PAYLOAD_MISSING)
    spoiled(name, payload, None, Rule.PAYLOAD_MISSING)
    spoiled(name, scope, ABSENT, Rule.SCOPE_MISSING)
    spoiled(name, f"{payload}.createdAtUnixMs", -1, Rule.TIME_NEGATIVE)
    spoiled(name, f"{payload}.updatedAtUnixMs", INT_MAX + 1, Rule.INTEGER_RANGE)
    if name != "target":
        spoiled(name, f"{payload}.workspaceId", "workspace-2", Rule.WORKSPACE_MISMATCH)
        spoiled(name, f"{payload}.workspaceId", ABSENT, Rule.ID_BLANK)
        spoiled(name, f"{payload}.agentSessionId", "session-2", Rule.KEY_MISMATCH)
        spoiled(name, "sessionScope.executorOwnerUserId", " ", Rule.ID_BLANK)
        spoiled(name, "sessionScope.executorOwnerUserId", None, Rule.ID_BLANK)
        spoiled(name, "sessionScope.sourceDeviceId", "device-2", Rule.SCOPE_DEVICE)
        spoiled(name, "sessionScope.visibility", "private", Rule.VOCABULARY)
        spoiled(name, "sessionScope.visibility", None, Rule.VOCABULARY)

spoiled("target", "target.id", "target-2", Rule.KEY_MISMATCH)
spoiled("target", "target.launchRef", [], Rule.OBJECT_REQUIRED)
spoiled("target", "target.launchRef", None, Rule.OBJECT_REQUIRED)
spoiled("target", "target.sortOrder", INT_MIN - 1, Rule.INTEGER_RANGE)
spoiled("target", "targetScope.ownerUserId", " ", Rule.ID_BLANK)
spoiled("target", "targetScope.ownerDeviceId", "device-2", Rule.SCOPE_DEVICE)
spoiled("target", "key.agentTargetId", "\u2003", Rule.ID_BLANK)
spoiled("target", "key.agentSessionId", "session-1", Rule.KEY_PARTS)
spoiled("target", "key.turnId", "turn-1", Rule.KEY_PARTS)
spoiled("session", "session.kind", "leaf", Rule.VOCABULARY)
spoiled("session", "session.railSectionKey", "  ", Rule.TEXT_BLANK)
spoiled("session", "session.railSectionKey", ABSENT, Rule.TEXT_BLANK)
spoiled("session", "session.messageVersion", -1, Rule.INTEGER_RANGE)
for wire_name in ("settings", "sessionMetadata", "internalRuntimeContext"):
    spoiled("session", f"session.{wire_name}", ABSENT, Rule.OBJECT_REQUIRED)
    spoiled("session", f"session.{wire_name}", "{}", Rule.OBJECT_REQUIRED)
for wire_name in ("rootAgentSessionId", "rootTurnId", "parentAgentSessionId", "parentTurnId", "parentToolCallId"):
    spoiled("session", f"session.{wire_name}", "x", Rule.LINEAGE_OF_ROOT)
    spoiled("session", f"session.{wire_name}", "", Rule.LINEAGE_OF_ROOT)
    spoiled("child", f"session.{wire_name}", None, Rule.LINEAGE_OF_CHILD)
    spoiled("child", f"session.{wire_name}", " ", Rule.LINEAGE_OF_CHILD)
    spoiled("child", f"session.{wire_name}", "", Rule.LINEAGE_OF_CHILD)
spoiled("child", "session.rootAgentSessionId", "session-1", Rule.LINEAGE_SELF)
spoiled("child", "session.parentAgentSessionId", "session-1", Rule.LINEAGE_SELF)
for wire_name in (
    "lastEventAtUnixMs",
    "startedAtUnixMs",
    "endedAtUnixMs",
    "pinnedAtUnixMs",
    "deletedAtUnixMs",
):
    spoiled("session", f"session.{wire_name}", -1, Rule.TIME_NEGATIVE)
spoiled("turn", "turn.turnId", "turn-2", Rule.KEY_MISMATCH)
spoiled("turn", "key.turnId", ABSENT, Rule.KEY_PARTS)
spoiled("turn", "key.turnId", " ", Rule.ID_BLANK)
spoiled("turn", "turn.phase", "asleep", Rule.VOCABULARY)
spoiled("turn", "turn.origin", "nobody", Rule.VOCABULARY)
spoiled("turn", "turn.outcome", "gone", Rule.VOCABULARY)
spoiled("turn", "turn.outcome", "completed", Rule.SETTLED)
spoiled("turn", "turn.settledAtUnixMs", 5, Rule.SETTLED)
spoiled("turn", "turn.settledAtUnixMs", -5, Rule.TIME_NEGATIVE)
spoiled("settled", "turn.outcome", None, Rule.SETTLED)
spoiled("settled", "turn.settledAtUnixMs", ABSENT, Rule.SETTLED)
spoiled("settled", "turn.phase", "running", Rule.SETTLED, "turn.outcome")
spoiled("turn", "turn.sourceGoalRevision", 1, Rule.GOAL_OPERATION)
spoiled("turn", "turn.sourceGoalRepairEpoch", 0, Rule.GOAL_OPERATION)
spoiled("turn", "turn.identityAnchorTurnId", " ", Rule.ID_BLANK)
spoiled("turn", "turn.identityAnchorTurnId", "", Rule.ID_BLANK)
spoiled("turn", "turn.identityAnchorTurnId", "turn-1", Rule.ANCHOR_SELF)
spoiled("turn", "turn.identityAnchorTurnId", " turn-1", Rule.ANCHOR_SELF)
spoiled("turn", "turn.rootProviderTurnPhase", "waiting", Rule.VOCABULARY)
spoiled("turn", "turn.rootProviderTurnOutcome", "", Rule.VOCABULARY)
spoiled("turn", "turn.rootProviderTurnUpdatedAtUnixMs", -1, Rule.TIME_NEGATIVE)
spoiled("turn", "turn.providerTurnBindingJson", ABSENT, Rule.OBJECT_REQUIRED)
for wire_name in (
    "error",
    "fileChanges",
    "completedCommand",
    "rootProviderTurnError",
    "rootProviderTurnCompletedCommand",
):
    spoiled("turn", f"turn.{wire_name}", [], Rule.OBJECT_OR_NULL)
    spoiled("turn", f"turn.{wire_name}", "null", Rule.OBJECT_OR_NULL)
spoiled("interaction", "interaction.turnId", "turn-2", Rule.KEY_MISMATCH)
spoiled("interaction", "interaction.requestId", "request-2", Rule.KEY_MISMATCH)
spoiled("interaction", "key.requestId", ABSENT, Rule.KEY_PARTS)
spoiled("interaction", "key.turnId", "\n", Rule.ID_BLANK)
spoiled("interaction", "interaction.kind", "riddle", Rule.VOCABULARY)
spoiled("interaction", "interaction.status", "open", Rule.VOCABULARY)
spoiled("interaction", "interaction.updatedAtUnixMs", 49, Rule.TIME_ORDER)
for wire_name in ("input", "output", "metadata"):
    spoiled("interaction", f"interaction.{wire_name}", None, Rule.OBJECT_REQUIRED)
    spoiled("interaction", f"interaction.{wire_name}", 1, Rule.OBJECT_REQUIRED)
spoiled("message", "message.messageId", "message-2", Rule.KEY_MISMATCH)
spoiled("message", "key.messageId", ABSENT, Rule.KEY_PARTS)
spoiled("message", "key.turnId", "turn-1", Rule.KEY_PARTS)
spoiled("message", "message.version", 0, Rule.VERSION_ZERO)
spoiled("message", "message.version", None, Rule.VERSION_ZERO)
spoiled("message", "message.version", -1, Rule.INTEGER_RANGE)
spoiled("message", "message.id", -1, Rule.INTEGER_RANGE)
spoiled("message", "message.turnId", " ", Rule.ID_BLANK)
spoiled("message", "message.turnId", "", Rule.ID_BLANK)
spoiled("message", "message.role", " ", Rule.TEXT_BLANK)
spoiled("message", "message.kind", ABSENT, Rule.TEXT_BLANK)
spoiled("message", "message.semantics", 5, Rule.OBJECT_OR_NULL)
spoiled("message", "message.payload", ABSENT, Rule.OBJECT_REQUIRED)
spoiled("message", "message.payload", [{}], Rule.OBJECT_REQUIRED)
for wire_name in ("occurredAtUnixMs", "startedAtUnixMs", "completedAtUnixMs", "deletedAtUnixMs"):
    spoiled("message", f"message.{wire_name}", -1, Rule.TIME_NEGATIVE)


def id_of(case: Spoiled) -> str:
    subject, path, value, rule, _ = case
    shown = "absent" if value is ABSENT else repr(value)[:16]
    return f"{rule}-{subject}-{path}-{shown}"


@pytest.mark.parametrize("case", SPOILED, ids=id_of)
def test_a_broken_rule_is_named_with_its_field_and_mutation(
    case: Spoiled, batch_of: Callable[..., Any], spoil: Callable[..., bytes]
) -> None:
    """Wire page, Mutation, EntityKey, Snapshots, Rules over all: each rule by itself, through the bytes."""
    subject, path, value, rule, field = case
    good = message_upsert("before")
    document = batch_of(good, UPSERTS[subject], turn_upsert("behind", turn_id="turn-9"))
    data = spoil(document, f"mutations.1.{path}", *(() if value is ABSENT else (value,)))
    with pytest.raises(PermanentRejection) as caught:
        admit_batch(data)
    assert (caught.value.kind, caught.value.rule, caught.value.field) == ("schema", rule, field)
    wire = json.loads(data)["mutations"][1]
    assert caught.value.mutation_id == (wire.get("mutationId") or "")
    assert caught.value.transaction_id == (wire.get("transactionId") or "")


STRUCT_CASES = [case for case in SPOILED if case[2] is not ABSENT]


@pytest.mark.parametrize("case", STRUCT_CASES, ids=id_of)
def test_a_broken_rule_is_named_alike_in_structs_that_a_program_made(case: Spoiled) -> None:
    """Wire page: the rules hold for what a builder makes, not only for what a decoder has read."""
    subject, path, value, rule, field = case
    wire = to_wire(UPSERTS[subject])
    spoiled_wire = _replaced(wire, path.split("."), value)
    with pytest.raises(PermanentRejection) as caught:
        validate_mutation(spoiled_wire)
    if value is None and rule is not Rule.OBJECT_REQUIRED and caught.value.rule is Rule.WRONG_TYPE:
        assert caught.value.field == path
        return
    assert (caught.value.rule, caught.value.field) == (rule, field)


def _replaced(struct: Any, path: list[str], value: Any) -> Any:
    names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    name = names[path[0]]
    held = getattr(struct, name)
    if len(path) > 1:
        return msgspec.structs.replace(struct, **{name: _replaced(held, path[1:], value)})
    if type(held) is Raw:
        value = Raw(json.dumps(value).encode())
    return msgspec.structs.replace(struct, **{name: value})


def test_every_schema_rule_is_broken_by_some_case_here_or_by_one_of_its_own() -> None:
    """Our choice: a rule without a test is found by its name."""
    elsewhere = {
        Rule.MALFORMED_JSON,  # tests/replication/test_codec.py
        Rule.INVALID_UTF8,
        Rule.NESTING_TOO_DEEP,
        Rule.WRONG_TYPE,
        Rule.MUTATION_COUNT,
        Rule.DELETE_ONLY,  # below
        Rule.PAYLOAD_FOREIGN,
        Rule.SCOPE_FOREIGN,
        Rule.ID_REUSED,  # sinks
        Rule.ANCHOR_CHANGED,
        Rule.NOT_PERMITTED,  # tests/replication/test_admission.py
    }
    assert {rule for _, _, _, rule, _ in SPOILED} | elsewhere == set(Rule)


@pytest.mark.parametrize("subject", list(UPSERTS))
def test_a_valid_mutation_becomes_its_member_of_the_closed_union(subject: str) -> None:
    """Wire page, Mutation: a closed tagged union."""
    mutation = UPSERTS[subject]
    (admitted,) = admit_batch(encode_batch([mutation]))
    assert admitted == mutation
    assert type(admitted) is type(mutation)
    assert validate_mutation(to_wire(mutation)) == mutation
    assert (admitted.entity_type, admitted.operation) == (mutation.entity_type, mutation.operation)


@pytest.mark.parametrize("entity_type", sorted(KEY_TYPES))
def test_any_entity_can_be_deleted_by_its_key_alone(entity_type: str) -> None:
    """Wire page, Mutation and EntityKey: delete with exactly the entity's parts."""
    key_type = KEY_TYPES[entity_type]
    key = key_type(*(f"id-{n}" for n, _ in enumerate(key_type.__struct_fields__)))
    (admitted,) = admit_batch(encode_batch([delete("m", key)]))
    assert isinstance(admitted, EntityDelete)
    assert admitted.key == key
    assert type(admitted.key) is key_type


@pytest.mark.parametrize("entity_type", sorted(KEY_TYPES))
def test_a_delete_with_a_part_too_few_or_too_many_is_refused(entity_type: str) -> None:
    """Wire page, EntityKey: exactly these are set, and not blank."""
    key_type = KEY_TYPES[entity_type]
    removal = to_wire(delete("m", key_type(*("id" for _ in key_type.__struct_fields__))))
    for name in WireKey.__struct_fields__:
        own = name in key_type.__struct_fields__
        for value in ("", " ") if own else ("id",):
            changed = msgspec.structs.replace(removal, key=msgspec.structs.replace(removal.key, **{name: value}))
            with pytest.raises(PermanentRejection) as caught:
                validate_mutation(changed)
            assert caught.value.rule is (Rule.ID_BLANK if value == " " else Rule.KEY_PARTS)
            assert (
                caught.value.field == "key." + WireKey.__struct_encode_fields__[WireKey.__struct_fields__.index(name)]
            )


@pytest.mark.parametrize("entity_type", sorted(DELETE_ONLY_ENTITIES))
def test_an_upsert_of_a_delete_only_entity_is_refused(entity_type: str) -> None:
    """Activity replication specification: retained only for tombstone deletes; new upserts are invalid."""
    key_type = KEY_TYPES[entity_type]
    wire = to_wire(delete("m", key_type(*("id" for _ in key_type.__struct_fields__))))
    with pytest.raises(PermanentRejection) as caught:
        validate_mutation(msgspec.structs.replace(wire, operation="upsert"))
    assert caught.value.rule is Rule.DELETE_ONLY


@pytest.mark.parametrize("subject", list(UPSERTS))
@pytest.mark.parametrize("foreign", ["target", "session", "turn", "interaction", "message"])
def test_a_foreign_payload_or_scope_is_refused(subject: str, foreign: str) -> None:
    """Wire page, Mutation: exactly one payload with its scope on upsert, none of them on delete."""
    wire, other = to_wire(UPSERTS[subject]), to_wire(UPSERTS[foreign])
    scope = "target_scope" if foreign == "target" else "session_scope"
    for name, rule in ((foreign, Rule.PAYLOAD_FOREIGN), (scope, Rule.SCOPE_FOREIGN)):
        if getattr(wire, name) is not None:
            continue
        changed = msgspec.structs.replace(wire, **{name: getattr(other, name)})
        for refuse in (validate_mutation, _through_bytes):
            with pytest.raises(PermanentRejection) as caught:
                refuse(changed)
            assert caught.value.rule is rule


def _through_bytes(wire: WireMutation) -> object:
    return admit_batch(encode_batch(ChangeBatch(schema_version=1, projection_epoch=1, mutations=(wire,))))


@pytest.mark.parametrize(
    ("subject", "path", "values"),
    [
        ("turn", "phase", TURN_PHASES - {TURN_SETTLED}),
        ("settled", "outcome", TURN_OUTCOMES),
        ("turn", "origin", TURN_ORIGINS),
        ("turn", "root_provider_turn_phase", ROOT_PROVIDER_TURN_PHASES),
        ("turn", "root_provider_turn_outcome", TURN_OUTCOMES),
        ("interaction", "kind", INTERACTION_KINDS),
        ("interaction", "status", INTERACTION_STATUSES),
    ],
)
def test_every_word_of_the_vocabulary_is_accepted(subject: str, path: str, values: frozenset[str]) -> None:
    """Wire page, Snapshots: the words, as they stand in `canonical`."""
    assert values
    for value in values:
        mutation: Any = UPSERTS[subject]
        changed = msgspec.structs.replace(
            mutation, snapshot=msgspec.structs.replace(mutation.snapshot, **{path: value})
        )
        assert admit_batch(encode_batch([changed])) == (changed,)


@pytest.mark.parametrize("visibility", sorted(VISIBILITIES))
def test_both_visibilities_are_accepted(visibility: str) -> None:
    """Wire page, SessionScope."""
    session = session_upsert("m", scope={"visibility": visibility})
    assert admit_batch(encode_batch([session])) == (session,)


def test_what_looks_odd_but_breaks_no_rule_is_accepted() -> None:
    """Wire page: bounds are inclusive, device ids compare without white space, an id may hold what isn't blank."""
    odd: list[Mutation] = [
        target_upsert("\x1c", sort_order=INT_MIN, scope={"owner_device_id": " device-1\t"}),
        session_upsert("m2", message_version=INT_MAX, user_id="", provider_session_id="", updated_at_unix_ms=0),
        session_upsert("m3", agent_target_id="", active_turn_id="", scope={"source_device_id": "\u00a0device-1"}),
        turn_upsert("m4", source_goal_operation_id="", source_goal_revision=INT_MIN),
        turn_upsert("m5", error=Raw(b"{}"), root_provider_turn_error=Raw(b"{}"), identity_anchor_turn_id="Turn-1"),
        interaction_upsert("m6", created_at_unix_ms=7, updated_at_unix_ms=7),
        message_upsert("m" * 512, id=INT_MAX, role="\x1f", kind="\x1c", turn_id="\x1d"),
        message_upsert("\u00e9" * 256, turn_id=None, semantics=Raw(b"{}"), status=""),
    ]
    admitted = admit_batch(encode_batch(odd))
    assert admitted == tuple(odd)
    assert tuple(validate_mutation(to_wire(mutation)) for mutation in odd) == tuple(odd)


def test_a_batch_of_500_is_accepted_and_one_of_501_or_none_is_not() -> None:
    """Wire page, Constants; Answers: the first is named, an empty batch names none."""
    wires = tuple(to_wire(delete(f"m{n}", SessionKey("s"))) for n in range(501))

    def batch(mutations: tuple[WireMutation, ...]) -> ChangeBatch:
        return ChangeBatch(schema_version=1, projection_epoch=1, mutations=mutations)

    assert len(validate_batch(batch(wires[:500]))) == 500
    assert len(admit_batch(encode_batch(batch(wires[:500])))) == 500
    for refuse in (validate_batch, lambda b: admit_batch(encode_batch(b))):
        with pytest.raises(PermanentRejection) as caught:
            refuse(batch(wires))
        assert (caught.value.rule, caught.value.mutation_id) == (Rule.MUTATION_COUNT, "m0")
        with pytest.raises(PermanentRejection) as caught:
            refuse(batch(()))
        assert (caught.value.rule, caught.value.mutation_id) == (Rule.MUTATION_COUNT, "")


def test_a_batch_of_another_epoch_or_schema_version_is_refused_in_that_order() -> None:
    """Wire page, What a sink decides, 1; Answers: a wrong header names the first mutation."""
    wires = (to_wire(message_upsert("m1")),)
    with pytest.raises(EpochMismatch) as mismatch:
        validate_batch(ChangeBatch(schema_version=9, projection_epoch=2, mutations=()))
    assert (mismatch.value.expected, mismatch.value.actual) == (1, 2)
    with pytest.raises(PermanentRejection) as caught:
        validate_batch(ChangeBatch(schema_version=9, projection_epoch=1, mutations=wires))
    assert (caught.value.rule, caught.value.mutation_id) == (Rule.SCHEMA_VERSION, "m1")
    assert validate_batch(ChangeBatch(schema_version=1, projection_epoch=7, mutations=wires), epoch=7)


def test_the_first_offender_in_order_is_named() -> None:
    """Wire page, What a sink decides, 2: over the whole batch, the first offender."""
    wires = [to_wire(message_upsert(f"m{n}", message_id=f"message-{n}")) for n in range(4)]
    for n in (1, 3):
        wires[n] = msgspec.structs.replace(wires[n], transaction_id=" ")
    with pytest.raises(PermanentRejection) as caught:
        validate_batch(ChangeBatch(schema_version=1, projection_epoch=1, mutations=tuple(wires)))
    assert (caught.value.mutation_id, caught.value.field) == ("m1", "transactionId")


def test_a_struct_with_a_value_of_another_python_type_is_refused() -> None:
    """Our choice: a builder's mistake is a typed rejection as well, and not the encoder's surprise."""
    session: Any = session_upsert("m").snapshot
    assert isinstance(session, SessionSnapshot)
    wrong: dict[str, Any] = {
        "title": 5,
        "user_id": b"u",
        "message_version": True,
        "created_at_unix_ms": 1.0,
        "settings": b"{}",
        "kind": 1,
    }
    for name, value in wrong.items():
        wire = to_wire(session_upsert("m", **{name: value}))
        with pytest.raises(PermanentRejection) as caught:
            validate_mutation(wire)
        assert caught.value.rule is Rule.WRONG_TYPE
    with pytest.raises(PermanentRejection) as caught:
        validate_mutation(msgspec.structs.replace(to_wire(session_upsert("m")), turn=session))
    assert caught.value.rule is Rule.WRONG_TYPE
    with pytest.raises(PermanentRejection) as caught:
        validate_mutation(to_wire(target_upsert("m", enabled=1)))
    assert caught.value.rule is Rule.WRONG_TYPE


@pytest.mark.parametrize("raw", [b"", b"{", b"{} {}", b'{"a":NaN}', b"{'a':1}", b'{"a":"\xff"}', b"[]", b"  null"])
def test_a_raw_object_that_is_none_is_refused_before_it_is_written(raw: bytes) -> None:
    """Wire page: an object field holds exactly one JSON object."""
    with pytest.raises(PermanentRejection) as caught:
        validate_mutation(to_wire(message_upsert("m", payload=Raw(raw))))
    assert (caught.value.rule, caught.value.field) == (Rule.OBJECT_REQUIRED, "message.payload")


def test_a_lone_surrogate_in_a_struct_is_refused() -> None:
    """Wire page: UTF-8; a Python string can hold what no UTF-8 can."""
    for changed in (session_upsert("m", title="\ud800"), session_upsert("m", user_id="\ud800")):
        with pytest.raises(PermanentRejection) as caught:
            validate_mutation(to_wire(changed))
        assert caught.value.rule is Rule.INVALID_UTF8


def test_a_decoded_batch_and_the_same_structs_made_by_a_program_get_the_same_verdict() -> None:
    """Our choice: the C decoder's bounds are checked once more only where it has not been."""
    mutations = [UPSERTS[name] for name in UPSERTS]
    wires = tuple(
        msgspec.structs.replace(to_wire(mutation), mutation_id=f"m{n}") for n, mutation in enumerate(mutations)
    )
    made = ChangeBatch(schema_version=1, projection_epoch=1, mutations=wires)
    decoded = decode_batch(encode_batch(made))
    assert type(decoded) is not ChangeBatch
    assert validate_batch(decoded) == validate_batch(made)
    late = turn_upsert("m", phase=TURN_RUNNING, updated_at_unix_ms=-1)
    with pytest.raises(PermanentRejection):
        validate_batch(ChangeBatch(schema_version=1, projection_epoch=1, mutations=(to_wire(late),)))
