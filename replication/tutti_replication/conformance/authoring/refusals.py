"""Drafts: what a sink refuses, whom it names, and that it has written nothing."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from tutti_replication.canonical import DELETE_ONLY_ENTITIES, OPERATION_UPSERT
from tutti_replication.codec import encode_batch
from tutti_replication.conformance.samples import (
    delete,
    message_upsert,
    session_upsert,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import KEY_TYPES, SessionKey
from tutti_replication.structs import MAX_BATCH_MUTATIONS

from .draft import Json, SinkDraft, batch_json

__all__ = ["drafts"]

_SCHEMA = "wire page, What a sink decides, 2"
_EPOCH = "wire page, What a sink decides, 1"
_DECODING = "wire page, Rules over all (decoding)"


def drafts() -> Iterator[SinkDraft]:
    """Yield the cases."""
    yield _names_its_mutation()
    yield from _delete_only_upserts()
    yield from _atomic()
    yield from _headers()
    yield from _epochs()
    yield from _permission()
    yield _payload_on_a_delete()
    yield _foreign_payload()
    yield _wrong_type()
    yield _malformed()
    yield _not_utf8()
    yield _lenient()
    yield _order_of_judgement()


def _spoil(document: Json, index: int, path: str, value: Any) -> Json:
    """Return the batch with one value of one mutation changed."""
    spoiled = copy.deepcopy(document)
    place = spoiled["mutations"][index]
    *parents, name = path.split(".")
    for parent in parents:
        place = place[parent]
    place[name] = value
    return spoiled


def _names_its_mutation() -> SinkDraft:
    case = SinkDraft(
        "schema_rejection_names_its_mutation",
        "The first offender is named with its transaction; nothing is written, neither what is before nor behind it.",
        "activity replication specification; " + _SCHEMA,
    )
    good, bad = session_upsert("m1"), turn_upsert("m2", transaction_id="t2")
    worse, behind = turn_upsert("m3", turn_id="turn-3"), message_upsert("m4")
    document = batch_json([good, bad, worse, behind])
    document = _spoil(document, 1, "turn.phase", "dreaming")
    document = _spoil(document, 2, "turn.phase", "dreaming")
    case.reject("two unknown phases", names=bad, field="turn.phase", document=document)
    for mutation in (good, bad, worse, behind):
        case.absent(mutation)
    case.apply("what was right is accepted without it", good, behind, answers=["c1", "c2"])
    case.stored(behind)
    return case


def _delete_only_upserts() -> Iterator[SinkDraft]:
    for entity_type in sorted(DELETE_ONLY_ENTITIES):
        key = KEY_TYPES[entity_type]
        removal = delete("m1", key(*("id-1" for _ in key.__struct_fields__)))
        case = SinkDraft(
            f"upsert_of_{entity_type}_is_rejected",
            "Entities that are kept as names for tombstones can't be upserted.",
            "activity replication specification; wire page, Mutation",
        )
        document = _spoil(batch_json([removal]), 0, "operation", OPERATION_UPSERT)
        case.reject("an upsert", names=removal, document=document)
        yield case


def _atomic() -> Iterator[SinkDraft]:
    stored = session_upsert("m1", title="Before")
    renamed = session_upsert("m2", title="After", updated_at_unix_ms=200)
    message, removal = message_upsert("m3"), delete("m4", SessionKey("session-9"))
    case = SinkDraft(
        "batch_with_a_bad_last_mutation_writes_nothing",
        "A batch is all or nothing; a retry without the bad one then applies each mutation once.",
        "F41; " + _SCHEMA,
    )
    last = message_upsert("m5", message_id="message-5")
    document = _spoil(batch_json([renamed, message, removal, last]), 3, "message.role", " ")
    case.apply("before", stored, answers=["c1"])
    case.reject("the last has no role", names=last, field="message.role", document=document)
    case.stored(stored)
    case.absent(message)
    case.apply("without it", renamed, message, removal, answers=["c2", "c3", "c4"])
    case.stored(renamed, message_version=1)
    yield case
    case = SinkDraft(
        "batch_with_a_reused_id_at_its_end_writes_nothing",
        "What was decided in a batch is undone when a later mutation of it is rejected: ledger, rows and tombstones.",
        "F41; wire page, What a sink decides, 3",
    )
    other = message_upsert("m1", transaction_id="t9", message_id="message-9")
    late = session_upsert("m6", session_id="session-9")
    case.apply("before", stored, answers=["c1"])
    case.reject("the last reuses an id", renamed, message, removal, other, kind="identity", names=other)
    case.stored(stored)
    case.absent(message)
    case.apply("no tombstone was left", late, answers=["c2"])
    case.apply("no ledger entry was left", renamed, message, answers=["c3", "c4"])
    case.stored(renamed, message_version=1)
    yield case


def _headers() -> Iterator[SinkDraft]:
    first = session_upsert("m1", transaction_id="t1")
    source = "wire page, Answers (A batch whose own header is wrong)"
    case = SinkDraft("header_of_another_schema_version", "The header names the first mutation.", source)
    document = batch_json([first, message_upsert("m2")]) | {"schemaVersion": 2}
    case.reject("version 2", names=first, field="schemaVersion", document=document)
    case.reject("no version", names=first, document={k: v for k, v in document.items() if k != "schemaVersion"})
    case.absent(first)
    yield case
    case = SinkDraft("mutation_of_another_schema_version", "Each mutation has a version of its own.", source)
    second = message_upsert("m2")
    case.reject("version 2", names=second, document=_spoil(batch_json([first, second]), 1, "schemaVersion", 2))
    yield case
    case = SinkDraft("batch_of_none", "An empty batch is rejected and names none.", source)
    case.reject("an empty list", names=None, document=batch_json([]))
    case.reject("no list", names=None, document={"schemaVersion": 1, "projectionEpoch": 1})
    case.reject("null", names=None, document=batch_json([]) | {"mutations": None})
    case.reject("no list at all", names=None, document=batch_json([]) | {"mutations": 5})
    yield case
    case = SinkDraft("batch_of_one_too_many", f"At most {MAX_BATCH_MUTATIONS} mutations; the first is named.", source)
    removal = delete("m1", SessionKey("s"))
    element = encode_batch([removal]).decode().partition("[")[2].removesuffix("]}")
    text = '{"schemaVersion":1,"projectionEpoch":1,"mutations":[' + ",".join([element] + ["null"] * 500) + "]}"
    case.reject("501", names=removal, field="mutations", text=text)
    yield case


def _epochs() -> Iterator[SinkDraft]:
    session = session_upsert("m1")
    for name, actual in (("older", 0), ("newer", 2)):
        case = SinkDraft(
            f"{name}_epoch_is_refused_whole",
            "A batch of another epoch is refused with both epochs; nothing is written.",
            "activity replication specification; " + _EPOCH,
        )
        case.mismatch("valid otherwise", actual=actual, document=batch_json([session], epoch=actual))
        case.absent(session)
        case.apply("the sink goes on", session, answers=["c1"])
        yield case
    case = SinkDraft(
        "epoch_comes_before_everything_else",
        "The epoch is looked at first, also when the mutations can't be decoded, are none, or the text breaks off.",
        _EPOCH,
    )
    document = batch_json([session], epoch=2)
    spoiled = _spoil(document, 0, "session.title", 5)
    case.mismatch("a wrong type", actual=2, document=spoiled)
    case.mismatch("a rule broken", actual=2, document=_spoil(document, 0, "session.kind", "child"))
    case.mismatch("no mutations", actual=2, document=document | {"mutations": []})
    case.mismatch("mutations of another type", actual=2, document=document | {"mutations": "x"})
    case.mismatch("another schema version", actual=2, document=document | {"schemaVersion": 9})
    case.mismatch("no epoch is epoch 0", actual=0, document={"schemaVersion": 1, "mutations": spoiled["mutations"]})
    case.mismatch("text that breaks off behind it", actual=2, text=json.dumps(document)[:300])
    case.absent(session)
    yield case


def _permission() -> Iterator[SinkDraft]:
    case = SinkDraft(
        "permission_is_asked_for_each_mutation",
        "Each mutation is authorised by itself; the first that isn't is named, nothing is written.",
        _SCHEMA,
    )
    mine, theirs = session_upsert("m1"), session_upsert("m2", workspace_id="workspace-2", transaction_id="t2")
    also = session_upsert("m3", workspace_id="workspace-3")
    case.reject("two are not permitted", mine, theirs, also, kind="permission", names=theirs, permitted=["workspace-1"])
    case.absent(mine)
    case.apply("both are permitted", mine, theirs, answers=["c1", "c2"], permitted=["workspace-1", "workspace-2"])
    case.reject("a repeat is asked about as well", theirs, kind="permission", names=theirs, permitted=["workspace-1"])
    yield case


def _payload_on_a_delete() -> SinkDraft:
    case = SinkDraft("payload_on_a_delete_is_rejected", "A delete has a key and nothing else.", "wire page, Mutation")
    session = session_upsert("m1")
    removal = delete("m2", SessionKey("session-1"))
    wire = batch_json([session])["mutations"][0]
    document = batch_json([removal])
    case.apply("a session", session, answers=["c1"])
    case.reject("a snapshot", names=removal, document=_spoil(document, 0, "session", wire["session"]))
    case.reject("a scope", names=removal, document=_spoil(document, 0, "sessionScope", wire["sessionScope"]))
    case.stored(session)
    return case


def _foreign_payload() -> SinkDraft:
    case = SinkDraft(
        "foreign_payload_key_or_scope_is_rejected",
        "Exactly one payload with its scope and exactly its key: nothing missing, nothing of another entity.",
        "wire page, Mutation, EntityKey",
    )
    message, target = message_upsert("m1"), target_upsert("m2")
    document = batch_json([message])
    wire, other = document["mutations"][0], batch_json([target])["mutations"][0]
    case.reject("a second payload", names=message, document=_spoil(document, 0, "target", other["target"]))
    case.reject("a second scope", names=message, document=_spoil(document, 0, "targetScope", other["targetScope"]))
    case.reject("no payload", names=message, document=_spoil(document, 0, "message", None))
    case.reject("no scope", names=message, document=_spoil(document, 0, "sessionScope", None))
    case.reject("a foreign key part", names=message, document=_spoil(document, 0, "key.turnId", "turn-1"))
    case.reject("a missing key part", names=message, document=_spoil(document, 0, "key", {"messageId": "message-1"}))
    case.reject("another's key", names=message, document=_spoil(document, 0, "key.messageId", "message-2"))
    case.reject("another workspace", names=message, document=_spoil(document, 0, "message.workspaceId", "w"))
    case.reject("another device", names=message, document=_spoil(document, 0, "sessionScope.sourceDeviceId", "d"))
    case.reject("another entity", names=message, document=_spoil(document, 0, "entityType", "session"))
    assert wire["entityType"] == message.entity_type
    case.absent(message)
    return case


def _wrong_type() -> SinkDraft:
    case = SinkDraft(
        "decode_errors_name_their_mutation",
        "Another JSON type, a fraction or an integer out of range is a decode error: a schema rejection with ids.",
        _DECODING,
    )
    first, second = session_upsert("m1"), message_upsert("m2", transaction_id="t2")
    document = batch_json([first, second])
    wrong: tuple[tuple[str, str, Any], ...] = (
        ("a number for a text", "message.role", 5),
        ("a text for a number", "message.version", "1"),
        ("a fraction", "message.version", 1.5),
        ("an integer with a fraction's spelling", "message.updatedAtUnixMs", 1.0),
        ("2^63", "message.id", 2**63),
        ("a number below zero where none can be", "message.id", -1),
        ("a list for an object", "message.payload", []),
        ("a text for an object", "message.semantics", "{}"),
        ("a list for a payload", "message", []),
        ("a text for a key", "key", "message-1"),
        ("a boolean for a text", "workspaceId", True),
        ("a time below zero", "message.updatedAtUnixMs", -1),
        ("version 0", "message.version", 0),
        ("an id of 513 bytes", "message.turnId", "\u00e9" * 256 + "x"),
        ("an id with U+0000", "message.turnId", "a\0b"),
    )
    for about, path, value in wrong:
        case.reject(about, names=second, field=path, document=_spoil(document, 1, path, value))
    case.absent(first)
    longest = message_upsert("m2", transaction_id="t2", turn_id="\u00e9" * 256)
    case.apply("an id of 512 bytes", longest, answers=["c1"])
    case.stored(longest)
    return case


def _malformed() -> SinkDraft:
    case = SinkDraft(
        "malformed_json_is_a_schema_rejection",
        "Text that is no JSON is rejected, naming the mutation that it breaks in where its ids can be read.",
        _DECODING,
    )
    first, second = session_upsert("m1"), message_upsert("m2", transaction_id="t2")
    text = encode_batch([first, second]).decode()
    case.reject("it breaks off in the second", names=second, text=text[:-40])
    case.reject("NaN", names=second, text=text.replace('{"text":"hello"}', '{"text":NaN}'))
    case.reject("Infinity", names=second, text=text.replace('"version":1', '"version":Infinity'))
    case.reject("a trailing comma", names=second, text=text.replace('{"text":"hello"}', '{"text":"hello",}'))
    case.reject("nothing", names=None, text=" ")
    case.reject("no object", names=None, text="[]")
    case.absent(first)
    return case


def _not_utf8() -> SinkDraft:
    case = SinkDraft(
        "invalid_utf8_is_a_schema_rejection",
        "Bytes that are no UTF-8 are rejected wherever they stand, also inside an object that is kept verbatim.",
        _DECODING,
    )
    first, second = session_upsert("m1"), message_upsert("m2", transaction_id="t2")
    data = encode_batch([first, second])
    case.reject("in an object", names=second, data=data.replace(b"hello", b"h\xffllo"))
    case.reject("in a text", names=first, data=data.replace(b"A session", b"A \xc3("))
    case.absent(first)
    return case


def _lenient() -> SinkDraft:
    case = SinkDraft(
        "absent_null_unknown_and_repeated_keys",
        "Absent or null reads as the zero value; unknown keys are ignored; of a repeated key the last one counts.",
        _DECODING,
    )
    message = message_upsert("m1")
    document = batch_json([message])
    document["addedByANewerPeer"] = {"x": 1}
    wire = document["mutations"][0]
    wire["addedByANewerPeer"] = [1.5]
    wire["target"] = None
    body = wire["message"]
    body["addedByANewerPeer"] = True
    body["status"] = body["id"] = None
    for absent in ("occurredAtUnixMs", "startedAtUnixMs", "semantics", "turnId"):
        del body[absent]
    case.apply("absent, null and unknown", message, answers=["c1"], document=document)
    case.stored(message, status="", id=0, occurred_at_unix_ms=0, turn_id=None)
    later = message_upsert("m2", version=2)
    text = encode_batch([later]).decode().replace('"role":', '"role":"user","role":null,"role":')
    case.apply("a repeated key", later, answers=["c2"], text=text)
    case.stored(later)
    nobody = message_upsert("m3", version=3)
    case.reject(
        "null is held against the rules", names=nobody, document=_spoil(batch_json([nobody]), 0, "message.role", None)
    )
    return case


def _order_of_judgement() -> SinkDraft:
    case = SinkDraft(
        "schema_comes_before_permission_and_permission_before_identity",
        "Schema over the whole batch, then permission over the whole batch, then each mutation in order.",
        "wire page, What a sink decides",
    )
    original = session_upsert("m1")
    reused = message_upsert("m1", transaction_id="t2")
    theirs = session_upsert("m2", workspace_id="workspace-2")
    last = message_upsert("m3", message_id="message-3")
    permitted = ["workspace-1"]
    case.apply("the owner of the id", original, answers=["c1"])
    document = _spoil(batch_json([reused, theirs, last]), 2, "message.kind", "")
    case.reject("all three are wrong", names=last, document=document, permitted=permitted)
    case.reject("two are", reused, theirs, last, kind="permission", names=theirs, permitted=permitted)
    case.reject("one is", reused, last, kind="identity", names=reused, permitted=permitted)
    case.absent(last)
    return case
