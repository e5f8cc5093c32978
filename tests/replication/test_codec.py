"""Bytes in, batches out: what is read leniently, what is a decode error, who is named, and what is never read."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tutti_replication import (
    BATCH_BYTES_MAX,
    BatchTooLarge,
    EpochMismatch,
    Mutation,
    PermanentRejection,
    Rule,
    _salvage,
    admit_batch,
    decode_batch,
    encode_batch,
    encode_mutation,
    join_batch,
)
from tutti_replication.codec import to_wire
from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import SubmitClaimKey
from tutti_replication.structs import NULL, DecodedBatch

ALL = (
    target_upsert("m1"),
    session_upsert("m2"),
    turn_upsert("m3"),
    interaction_upsert("m4"),
    message_upsert("m5"),
    delete("m6", SubmitClaimKey("s", "c")),
)
PAYLOADS = {"target": 0, "session": 1, "turn": 2, "interaction": 3, "message": 4}
WRONG = {"string": 5, "integer": "5", "boolean": "true", "object": [1]}


def rejection_of(data: bytes) -> PermanentRejection:
    with pytest.raises(PermanentRejection) as caught:
        admit_batch(data)
    assert caught.value.kind == "schema"
    return caught.value


def test_what_is_encoded_is_decoded_to_the_same() -> None:
    """Wire page, ChangeBatch: every kind of mutation, there and back."""
    data = encode_batch(ALL)
    batch = decode_batch(data)
    assert type(batch) is DecodedBatch
    assert batch.mutations == tuple(to_wire(mutation) for mutation in ALL)
    assert encode_batch(batch) == data
    assert admit_batch(data) == ALL


def test_a_joined_batch_holds_the_very_bytes_of_its_mutations() -> None:
    """Wire page, What the source side owes: a retry sends the same bytes under the same id."""
    encoded = [encode_mutation(mutation) for mutation in ALL]
    odd = encoded[4].replace(b'"role":"assistant"', b'"later": 1e2 , "role" :\t"assistant"')
    data = join_batch([*encoded[:4], odd, encoded[5]])
    assert odd in data
    assert admit_batch(data) == ALL
    assert join_batch(encoded) == encode_batch(ALL)
    assert json.loads(join_batch([], epoch=4)) == {"schemaVersion": 1, "projectionEpoch": 4, "mutations": []}


def test_keys_are_written_or_omitted_as_the_wire_page_says(batch_of: Callable[..., Any]) -> None:
    """Wire page: a key is always written unless its row says omitted when empty."""
    target, session, turn, interaction, message, removal = batch_of(*ALL)["mutations"]
    assert "maskIconUrl" not in target["target"]
    assert {"iconUrl", "heroImageUrl", "iconKey"} <= target["target"].keys()
    assert target["targetScope"]["description"] is None
    assert len(session["session"]) == 31
    assert session["session"]["rootTurnId"] is None
    assert "sharedAgentBindingId" not in session["sessionScope"]
    assert session["sessionScope"]["launchKind"] == "local"
    assert "identityAnchorTurnId" not in turn["turn"]
    assert len(turn["turn"]) == 24
    assert turn["turn"]["outcome"] is None
    assert turn["turn"]["error"] is None
    assert len(interaction["interaction"]) == 12
    assert message["message"]["semantics"] is None
    assert len(message["message"]) == 17
    assert message["key"] == {"agentSessionId": "session-1", "messageId": "message-1"}
    assert removal.keys() == {
        "schemaVersion",
        "mutationId",
        "transactionId",
        "sourceDeviceId",
        "workspaceId",
        "entityType",
        "operation",
        "key",
    }
    (full,) = batch_of(target_upsert("m", mask_icon_url="x", hero_image_url=""))["mutations"]
    assert full["target"]["maskIconUrl"] == "x"
    assert full["target"]["heroImageUrl"] == ""
    (anchored,) = batch_of(turn_upsert("m", identity_anchor_turn_id="t0"))["mutations"]
    assert anchored["turn"]["identityAnchorTurnId"] == "t0"


def test_an_object_keeps_its_bytes() -> None:
    """Wire page, "object": unknown keys, number spelling and key order survive a round trip."""
    characters = b'{ "z" : 1.0,"a":1e400, "z":2, "\\u00e9":"\\ud83d\\ude00","nul":"\\u0000", "d":[[{}]] }'
    (message,) = admit_batch(encode_batch([message_upsert("m", payload=Raw(characters), semantics=Raw(b"{ }"))]))
    snapshot: Any = message.snapshot  # type: ignore[union-attr]
    assert bytes(snapshot.payload) == characters
    assert bytes(snapshot.semantics) == b"{ }"


def zero_of(data: bytes, payload: str, name: str) -> str:
    """Return how the field was read, or "refused" when its zero value breaks a rule."""
    try:
        (admitted,) = admit_batch(data)
    except PermanentRejection as rejection:
        if rejection.rule is Rule.WRONG_TYPE or not rejection.field.startswith(f"{payload}.{name}"):
            raise
        return "refused"
    return repr(json.loads(encode_mutation(admitted))[payload].get(name))


@pytest.mark.parametrize("payload", list(PAYLOADS))
def test_absent_and_null_read_as_zero_wherever_zero_is_legal(
    payload: str, batch_of: Callable[..., Any], spoil: Callable[..., bytes]
) -> None:
    """Wire page, Rules over all: absent, or null for a plain value, is the zero value, then held to the rules."""
    document = batch_of(ALL[PAYLOADS[payload]])
    refused = []
    for name, value in document["mutations"][0][payload].items():
        path = f"mutations.0.{payload}.{name}"
        verdicts = [zero_of(data, payload, name) for data in (spoil(document, path), spoil(document, path, None))]
        assert verdicts[0] == verdicts[1]
        if verdicts[0] == "refused":
            refused.append(name)
        elif isinstance(value, bool):
            assert verdicts[0] == "False"
        elif isinstance(value, int):
            assert verdicts[0] in ("0", "None")
        elif isinstance(value, str):
            assert verdicts[0] in ("''", "None")
    assert (
        refused
        == {
            "target": ["id", "launchRef"],
            "session": [
                "workspaceId",
                "agentSessionId",
                "kind",
                "settings",
                "sessionMetadata",
                "internalRuntimeContext",
                "railSectionKey",
            ],
            "turn": ["workspaceId", "agentSessionId", "turnId", "phase", "origin", "providerTurnBindingJson"],
            "interaction": [
                "workspaceId",
                "agentSessionId",
                "requestId",
                "turnId",
                "kind",
                "status",
                "input",
                "output",
                "metadata",
                "updatedAtUnixMs",
            ],
            "message": ["workspaceId", "agentSessionId", "messageId", "version", "role", "kind", "payload"],
        }[payload]
    )


def test_a_wrong_type_in_every_field_is_named_by_its_path(
    batch_of: Callable[..., Any], spoil: Callable[..., bytes]
) -> None:
    """Bad input: a wrong type in every field; wire page: another JSON type or a fraction is a decode error."""
    document = batch_of(message_upsert("before", message_id="b"), *ALL)
    tried = 0

    def leaves(value: Any, path: str) -> list[tuple[str, Any]]:
        if isinstance(value, dict) and value and not path.endswith(OBJECTS):
            return [(path, value), *(leaf for name in value for leaf in leaves(value[name], f"{path}.{name}"))]
        return [(path, value)]

    for index, wire in enumerate(document["mutations"][1:], 1):
        for name, value in wire.items():
            for path, held in leaves(value, name):
                wrongs: list[Any] = [{"x": 1}, [1]] if isinstance(held, str) else ["5", [1]]
                wrongs += [1.5, 1.0] if isinstance(held, int) else [True]
                if isinstance(held, dict) or held is None:
                    wrongs = [[1], False, 1.5] if path.endswith(OBJECTS) or isinstance(held, dict) else [[1], True]
                for wrong in wrongs:
                    rejection = rejection_of(spoil(document, f"mutations.{index}.{path}", wrong))
                    assert rejection.field == path
                    assert rejection.rule in (Rule.WRONG_TYPE, Rule.OBJECT_REQUIRED, Rule.OBJECT_OR_NULL)
                    if path not in ("mutationId", "transactionId"):
                        assert (rejection.mutation_id, rejection.transaction_id) == (f"m{index}", "transaction-1")
                    tried += 1
    assert tried > 400


OBJECTS = (
    "launchRef",
    "settings",
    "sessionMetadata",
    "internalRuntimeContext",
    "error",
    "fileChanges",
    "completedCommand",
    "providerTurnBindingJson",
    "rootProviderTurnError",
    "rootProviderTurnCompletedCommand",
    "input",
    "output",
    "metadata",
    "semantics",
    "payload",
)


@pytest.mark.parametrize("number", ["1.5", "1.0", "1e2", "-0.0", "9223372036854775808", "1" + "0" * 400, "1e999"])
def test_a_fraction_or_an_integer_out_of_range_is_refused(number: str) -> None:
    """Bad input: fractions and 2^63; wire page, Rules over all."""
    text = encode_batch([message_upsert("m", version=7)]).decode().replace('"version":7', f'"version":{number}')
    rejection = rejection_of(text.encode())
    assert (rejection.mutation_id, rejection.field) == ("m", "message.version")
    assert rejection.rule in (Rule.WRONG_TYPE, Rule.INTEGER_RANGE)


def test_the_greatest_integer_is_read() -> None:
    """Wire page: integers are at most 2^63-1."""
    admitted: Any = admit_batch(encode_batch([message_upsert("m", version=2**63 - 1)]))
    assert admitted[0].snapshot.version == 2**63 - 1


def test_unknown_keys_are_ignored_everywhere(batch_of: Callable[..., Any]) -> None:
    """Wire page: an older peer must accept a newer one's additive field."""
    document = batch_of(*ALL)
    document["new"] = {"deep": [1]}
    for wire in document["mutations"]:
        wire["new"] = None
        for value in wire.values():
            if isinstance(value, dict):
                value["new"] = 1.5
    assert admit_batch(json.dumps(document, separators=(",", ":")).encode()) == ALL


def test_of_a_repeated_key_the_last_one_counts() -> None:
    """Wire page, Rules over all."""
    text = encode_batch([message_upsert("m")]).decode()
    repeated = text.replace('"role":"assistant"', '"role":"user","role":"assistant"')
    assert admit_batch(repeated.encode()) == (message_upsert("m"),)
    null_last = text.replace('"status":"done"', '"status":"done","status":null')
    assert admit_batch(null_last.encode()) == (message_upsert("m", status=""),)
    twice = text.replace('{"schemaVersion":1,"proj', '{"projectionEpoch":7,"schemaVersion":1,"proj')
    assert admit_batch(twice.encode()) == (message_upsert("m"),)
    payload_last = text.replace('"message":{', '"message":null,"message":{')
    assert admit_batch(payload_last.encode()) == (message_upsert("m"),)


@pytest.mark.parametrize("element", ["null", "5", '"m"', "[]", "true"])
def test_an_element_that_is_no_mutation_is_refused_without_a_name(element: str) -> None:
    """Wire page: ids are named where they can be read; null is a mutation of zero values."""
    data = join_batch([encode_mutation(ALL[0]), element.encode()])
    rejection = rejection_of(data)
    assert (rejection.mutation_id, rejection.transaction_id) == ("", "")
    assert rejection.field == ("mutationId" if element == "null" else "mutations[1]")


@pytest.mark.parametrize(
    ("header", "field", "named"),
    [
        ('"schemaVersion":"1","projectionEpoch":1,"mutations":[M]', "schemaVersion", "m2"),
        ('"schemaVersion":null,"projectionEpoch":1,"mutations":[M]', "schemaVersion", "m2"),
        ('"projectionEpoch":1,"mutations":[M]', "schemaVersion", "m2"),
        ('"schemaVersion":1,"projectionEpoch":"1","mutations":[M]', "projectionEpoch", "m2"),
        ('"schemaVersion":1,"projectionEpoch":1.0,"mutations":[M]', "projectionEpoch", "m2"),
        ('"schemaVersion":1,"projectionEpoch":1,"mutations":{"0":M}', "mutations", ""),
        ('"schemaVersion":1,"projectionEpoch":1,"mutations":null', "mutations", ""),
        ('"schemaVersion":1,"projectionEpoch":1', "mutations", ""),
    ],
)
def test_a_wrong_header_names_the_first_mutation(header: str, field: str, named: str) -> None:
    """Wire page, Answers: a batch whose own header is wrong is rejected as schema, naming its first mutation."""
    text = "{" + header.replace("M", encode_mutation(ALL[1]).decode()) + "}"
    rejection = rejection_of(text.encode())
    assert (rejection.field, rejection.mutation_id) == (field, named)


@pytest.mark.parametrize("text", ["[]", "5", '"batch"', "true"])
def test_a_batch_that_is_no_object_is_refused(text: str) -> None:
    """Wire page, ChangeBatch."""
    assert rejection_of(text.encode()).rule is Rule.WRONG_TYPE


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "{}",
        '{"schemaVersion":1,"mutations":[]}',
        '{"projectionEpoch":null}',
        '{"projectionEpoch":2,"mutations":5}',
        '{"mutations":[5],"projectionEpoch":2}',
        '{"projectionEpoch":2,"mutations":[{"mutationId":',
        '{"projectionEpoch":2,"mutations":[{"mutationId":NaN}]}',
        '{"projectionEpoch": 2 , "mutations":' + "[" * 100_000,
        '{"projectionEpoch":null,"mutations":[tru',
        '{"projectionEpoch":-9223372036854775809}',
    ],
)
def test_another_epoch_comes_first_whatever_else_is_wrong(text: str) -> None:
    """Wire page, What a sink decides, 1: before anything else, also when its mutations can't be decoded."""
    with pytest.raises(EpochMismatch):
        admit_batch(text.encode())


def test_another_epoch_is_known_in_bytes_that_are_no_utf8() -> None:
    """Wire page, What a sink decides, 1."""
    data = encode_batch([message_upsert("m")], epoch=3).replace(b"hello", b"\xff")
    with pytest.raises(EpochMismatch) as caught:
        decode_batch(data)
    assert caught.value.actual == 3


BATCH = encode_batch([session_upsert("m1"), message_upsert("m2", transaction_id="t2"), turn_upsert("m3")])
SECOND = BATCH.index(b'"mutationId":"m2"')
THIRD = BATCH.index(b',{"schemaVersion":1,"mutationId":"m3"')


@pytest.mark.parametrize("cut", range(SECOND + 60, THIRD, 37))
def test_a_batch_that_breaks_off_names_the_mutation_it_breaks_in(cut: int) -> None:
    """Bad input: truncated; the mutation is named where its ids can be read, and the byte offset."""
    rejection = rejection_of(BATCH[:cut])
    assert (rejection.rule, rejection.mutation_id, rejection.transaction_id) == (Rule.MALFORMED_JSON, "m2", "t2")
    assert rejection.byte_offset is not None
    assert SECOND < rejection.byte_offset <= cut


@pytest.mark.parametrize("cut", range(0, len(BATCH), 11))
def test_a_batch_that_breaks_off_anywhere_is_refused(cut: int) -> None:
    """Bad input: truncated."""
    assert rejection_of(BATCH[:cut]).rule is Rule.MALFORMED_JSON


@pytest.mark.parametrize(
    "broken",
    [
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":-Infinity}',
        '{"a":01}',
        '{"a":1.}',
        '{"a":+1}',
        '{"a":1,}',
        "{'a':1}",
        '{"a":"\\x"}',
        '{"a":"\x01"}',
        '{"a":tru}',
        '{"a" 1}',
        '{"a":1 "b":2}',
        '{"a":"\\ud800"}',
        '{"a":"\\ud800\\u0041"}',
        '{"a":"\\udc00"}',
        "{} {}",
        "{]",
    ],
)
def test_malformed_json_inside_an_object_names_its_mutation(broken: str) -> None:
    """Bad input: NaN, Infinity and the rest; a lone surrogate is no character."""
    data = BATCH.replace(b'{"text":"hello"}', broken.encode())
    rejection = rejection_of(data)
    assert (rejection.rule, rejection.mutation_id, rejection.transaction_id) == (Rule.MALFORMED_JSON, "m2", "t2")


@pytest.mark.parametrize("name", ["mutationId", "transactionId"])
@pytest.mark.parametrize("wrong", [b"\\ud800", b"a\\udfff", b"\xff", b"m\xc3"])
@pytest.mark.parametrize("rest", [b"", b"]"])
def test_an_id_that_is_no_text_is_not_named(name: str, wrong: bytes, rest: bytes) -> None:
    """Wire page, Rules over all (ids that can be read); every refusal must fit into an answer, which is UTF-8."""
    data = encode_batch([message_upsert("m2", transaction_id="t2")])
    names = {"mutationId": "m2", "transactionId": "t2"}
    data = data.replace(b'"%s":"%s"' % (name.encode(), names[name].encode()), b'"%s":"%s"' % (name.encode(), wrong))
    body = rejection_of(data + rest).body()
    names[name] = ""
    assert (body.mutation_id, body.transaction_id) == (names["mutationId"], names["transactionId"])
    assert msgspec.json.encode(body)


@pytest.mark.parametrize(("opening", "repeated"), [(b'{"mutations":[', b"{},"), (b"{", b'"a":1,')])
def test_a_malformed_batch_of_millions_is_not_searched_to_its_end(
    monkeypatch: pytest.MonkeyPatch, opening: bytes, repeated: bytes
) -> None:
    """R12: naming an offender is bounded; 8 MiB of empty objects took eight seconds."""
    looks = 0
    real = _salvage._value

    def counted(text: str, at: int) -> tuple[Any, int]:
        nonlocal looks
        looks += 1
        return real(text, at)

    monkeypatch.setattr(_salvage, "_value", counted)
    data = opening + repeated * ((BATCH_BYTES_MAX - 100) // len(repeated))

    assert rejection_of(data).rule is Rule.MALFORMED_JSON
    assert looks < 10_000


def test_text_behind_the_batch_or_a_mark_before_it_is_malformed() -> None:
    """Wire page: malformed JSON; RFC 8259: no byte order mark."""
    assert rejection_of(BATCH + b" {}").rule is Rule.MALFORMED_JSON
    assert rejection_of(b"\xef\xbb\xbf" + BATCH).rule is Rule.MALFORMED_JSON
    assert len(admit_batch(b" \r\n\t" + BATCH + b" ")) == 3


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_deep_nesting_is_refused_and_named(opening: str) -> None:
    """Bad input: deeply nested; no crash, and a mutation that can be set aside."""
    closing = "}" if opening.startswith("{") else "]"
    deep = '{"d":' + opening * 50_000 + "1" + closing * 50_000 + "}"
    rejection = rejection_of(BATCH.replace(b'{"text":"hello"}', deep.encode()))
    assert (rejection.rule, rejection.mutation_id) == (Rule.NESTING_TOO_DEEP, "m2")


@pytest.mark.parametrize("wrong", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"])
@pytest.mark.parametrize(
    ("place", "named"), [(b"hello", "m2"), (b"assistant", "m2"), (b"A session", "m1"), (b"user_prompt", "m3")]
)
def test_invalid_utf8_is_refused_and_named_with_its_byte(wrong: bytes, place: bytes, named: str) -> None:
    """Bad input: non-UTF-8, in a text as well as inside an object that is kept verbatim."""
    data = BATCH.replace(place, place[:2] + wrong + place[2:], 1)
    rejection = rejection_of(data)
    assert (rejection.rule, rejection.mutation_id) == (Rule.INVALID_UTF8, named)
    assert rejection.byte_offset == data.index(place[:2] + wrong) + 2


def test_invalid_utf8_in_an_unknown_key_of_the_header_names_the_first() -> None:
    """Wire page, Answers: a batch whose own header is wrong."""
    data = BATCH.replace(b'{"schemaVersion":1,', b'{"later":"\xff","schemaVersion":1,', 1)
    rejection = rejection_of(data)
    assert (rejection.rule, rejection.mutation_id) == (Rule.INVALID_UTF8, "m1")


def test_an_escaped_nul_is_refused_in_an_id_and_kept_elsewhere() -> None:
    """Wire page: ids hold no U+0000; a title may."""
    title = session_upsert("m", title="a\0b")
    assert admit_batch(encode_batch([title])) == (title,)
    assert rejection_of(encode_batch([session_upsert("m", user_id="a\0b")])).field == "session.userId"
    rejection = rejection_of(encode_batch([session_upsert("m", active_turn_id="\0")]))
    assert (rejection.rule, rejection.field) == (Rule.ID_NUL, "session.activeTurnId")


def session_with(name: str, value: str) -> Mutation:
    fields: dict[str, Any] = {name: value}
    return session_upsert("m", **fields)


@pytest.mark.parametrize("name", ["user_id", "agent_target_id", "provider_session_id", "active_turn_id"])
def test_every_id_is_at_most_512_bytes(name: str) -> None:
    """Wire page: ids are at most 512 bytes, whatever their characters need."""
    for longest in ("x" * 512, "\u00e9" * 256, "\U0001f600" * 128):
        mutation = session_with(name, longest)
        assert admit_batch(encode_batch([mutation])) == (mutation,)
        assert rejection_of(encode_batch([session_with(name, longest + "x")])).rule is Rule.ID_TOO_LONG


def test_the_first_offender_is_named_also_when_a_later_one_cannot_be_decoded() -> None:
    """Wire page, What a sink decides, 2: over the whole batch, the first offender."""
    rule_broken = encode_mutation(message_upsert("m1", role=" "))
    undecodable = encode_mutation(message_upsert("m2")).replace(b'"version":1', b'"version":"1"')
    assert rejection_of(join_batch([rule_broken, undecodable])).mutation_id == "m1"
    assert rejection_of(join_batch([undecodable, rule_broken])).mutation_id == "m2"


def test_ids_are_named_where_they_can_be_read(batch_of: Callable[..., Any], spoil: Callable[..., bytes]) -> None:
    """Wire page: where the mutation's ids can still be read, a decode error names them."""
    document = batch_of(message_upsert("m", transaction_id="t"))
    rejection = rejection_of(spoil(document, "mutations.0.mutationId", 5))
    assert (rejection.mutation_id, rejection.transaction_id, rejection.field) == ("", "t", "mutationId")
    rejection = rejection_of(spoil(document, "mutations.0.transactionId", []))
    assert (rejection.mutation_id, rejection.transaction_id) == ("m", "")


def test_an_oversized_batch_is_not_read() -> None:
    """Wire page, Answers: at most 8 MiB encoded; over HTTP the client halves the batch, so it is no rejection."""
    data = encode_batch([message_upsert("m")])
    assert admit_batch(data + b" " * (BATCH_BYTES_MAX - len(data)))
    with pytest.raises(BatchTooLarge) as caught:
        decode_batch(data + b" " * (BATCH_BYTES_MAX - len(data) + 1))
    assert (caught.value.size, caught.value.limit) == (BATCH_BYTES_MAX + 1, BATCH_BYTES_MAX)


def test_an_error_never_shows_content() -> None:
    """Common rule: prompts and model text reach no message."""
    secret = "the-secret-prompt"
    batches = [
        encode_batch([message_upsert("m", role=" ", payload=Raw(b'{"text":"the-secret-prompt"}'))]),
        encode_batch([session_upsert("m", title=secret, kind=secret)]),
        encode_batch([session_upsert("m", title=secret)])[:-30],
        encode_batch([session_upsert("m", title=secret)]).replace(b'"model":""', b'"model":{"the-secret-prompt":1}'),
        encode_batch([session_upsert("m", title=secret)]).replace(b"prompt", b"prompt\xff"),
    ]
    for data in batches:
        rejection = rejection_of(data)
        assert secret not in str(rejection)
        assert secret not in repr(rejection)
        assert secret not in repr(rejection.body())
        assert rejection.__cause__ is None
        assert rejection.__suppress_context__ or rejection.__context__ is None


def test_an_absent_object_is_null_in_a_struct() -> None:
    """Wire page: an absent or null payload object is absent."""
    data = encode_batch([turn_upsert("m")]).replace(b'"error":null,', b"")
    (turn,) = decode_batch(data).mutations
    assert turn.turn is not None
    assert turn.turn.error == NULL
