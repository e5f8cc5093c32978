"""What a refusal says, in words and over HTTP."""

import msgspec

from tutti_replication import EpochMismatch, PermanentRejection, ReplicationError, Rule


def test_a_rejection_carries_kind_ids_rule_and_field() -> None:
    """Wire page, Answers: PermanentRejection; 422 with the failing field where known."""
    rejection = PermanentRejection("schema", "m1", "t1", rule=Rule.VOCABULARY, field="turn.phase")
    assert str(rejection) == "permanent schema rejection of mutation 'm1': vocabulary at turn.phase"
    assert msgspec.json.encode(rejection.body()) == (
        b'{"kind":"schema","mutationId":"m1","transactionId":"t1","field":"turn.phase"}'
    )
    assert isinstance(rejection, ReplicationError)


def test_a_rejection_without_field_or_name_says_so() -> None:
    """Wire page, Answers: an empty batch names none."""
    rejection = PermanentRejection("schema", "", "", rule=Rule.MALFORMED_JSON, byte_offset=17)
    assert str(rejection) == "permanent schema rejection of the batch: malformed_json at byte 17"
    assert msgspec.json.encode(rejection.body()) == b'{"kind":"schema","mutationId":"","transactionId":""}'


def test_a_message_shows_only_the_beginning_of_an_id() -> None:
    """Our choice: an id that is too long can be megabytes."""
    rejection = PermanentRejection("schema", "m" * 1000, "t", rule=Rule.ID_TOO_LONG)
    assert len(str(rejection)) < 150
    assert rejection.mutation_id == "m" * 1000


def test_an_epoch_mismatch_names_both_and_what_to_do() -> None:
    """Wire page, Answers: 409; F44: "start over" is another answer than "invalid"."""
    mismatch = EpochMismatch(2, 1)
    assert msgspec.json.encode(mismatch.body()) == b'{"error":"projection_epoch","expected":2,"actual":1}'
    assert "upgrade the client" in str(mismatch)
    assert "the sink is behind" in str(EpochMismatch(1, 2))
    assert not issubclass(EpochMismatch, PermanentRejection)
