"""Epoch, then schema, then permission: the order in which a batch is let in."""

import pytest

from tutti_replication import EpochMismatch, Mutation, PermanentRejection, Rule, admit_batch, encode_batch
from tutti_replication.conformance.samples import message_upsert, session_upsert


def test_each_mutation_is_authorised_by_itself_in_order_until_one_is_not() -> None:
    """Wire page, What a sink decides, 2: mutations of several workspaces and devices, each authorised by itself."""
    asked: list[str] = []

    def authorize(mutation: Mutation) -> bool:
        asked.append(mutation.mutation_id)
        return mutation.workspace_id != "workspace-2"

    mine, theirs = session_upsert("m1"), session_upsert("m2", workspace_id="workspace-2", transaction_id="t2")
    with pytest.raises(PermanentRejection) as caught:
        admit_batch(encode_batch([mine, theirs, message_upsert("m3")]), authorize=authorize)
    assert (caught.value.kind, caught.value.rule) == ("permission", Rule.NOT_PERMITTED)
    assert (caught.value.mutation_id, caught.value.transaction_id) == ("m2", "t2")
    assert asked == ["m1", "m2"]
    assert admit_batch(encode_batch([mine]), authorize=authorize) == (mine,)


def test_nobody_is_asked_about_a_batch_that_breaks_a_rule() -> None:
    """Wire page, What a sink decides, 2: schema over the whole batch, then permission."""

    def authorize(mutation: Mutation) -> bool:
        raise AssertionError(mutation.mutation_id)

    with pytest.raises(PermanentRejection) as caught:
        admit_batch(encode_batch([session_upsert("m1"), message_upsert("m2", role="")]), authorize=authorize)
    assert caught.value.kind == "schema"
    with pytest.raises(EpochMismatch):
        admit_batch(encode_batch([session_upsert("m1")], epoch=2), authorize=authorize)


def test_a_sink_of_another_epoch_admits_its_own() -> None:
    """Activity replication specification: an explicit rebaseline fence, raised by a release."""
    data = encode_batch([session_upsert("m1")], epoch=2)
    assert admit_batch(data, epoch=2)
    with pytest.raises(EpochMismatch) as caught:
        admit_batch(data, epoch=3)
    assert (caught.value.expected, caught.value.actual) == (3, 2)
