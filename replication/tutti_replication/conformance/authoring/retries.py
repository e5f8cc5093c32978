"""Drafts: ledger and cursors: what was committed before, whose id it was, and in what order."""

from collections.abc import Iterator

import msgspec

from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import SessionKey, SubmitClaimKey
from tutti_replication.mutation import Mutation

from .draft import SinkDraft

__all__ = ["drafts"]

_LEDGER = "wire page, What a sink decides, 3"
_CURSORS = "wire page, What a sink decides, 5"


def drafts() -> Iterator[SinkDraft]:
    """Yield the cases."""
    yield _lost_response()
    yield _duplicate_of_each_entity()
    yield _duplicate_beside_new()
    yield _duplicate_twice_in_one_batch()
    yield _duplicate_after_more_changes()
    yield from _reused_ids()
    yield _reused_in_one_batch()
    yield _same_device_with_white_space()
    yield _stale_enters_no_ledger()
    yield _cursors()


def _lost_response() -> SinkDraft:
    case = SinkDraft(
        "retry_after_lost_response",
        "A retry of what was committed is a duplicate with the original cursor and the retry's transaction id.",
        "activity replication specification; " + _LEDGER,
    )
    original = session_upsert("m1", title="Once")
    case.apply("the answer of this one is lost", original, answers=["c1"])
    retry = session_upsert("m1", transaction_id="transaction-retry", title="Once")
    case.apply("the same mutation again", retry, answers=["=c1"])
    case.stored(original)
    return case


def _duplicate_of_each_entity() -> SinkDraft:
    case = SinkDraft(
        "retry_of_each_entity_and_of_deletes",
        "Every entity's upsert, and a delete, can be repeated without effect.",
        _LEDGER,
    )
    mutations: list[Mutation] = [
        target_upsert("m1"),
        session_upsert("m2"),
        turn_upsert("m3"),
        interaction_upsert("m4"),
        message_upsert("m5"),
        delete("m6", SubmitClaimKey("session-1", "claim-1")),
    ]
    labels = ["c1", "c2", "c3", "c4", "c5", "c6"]
    case.apply("all at once", *mutations, answers=labels)
    case.apply("all again", *mutations, answers=["=" + label for label in labels])
    return case


def _duplicate_beside_new() -> SinkDraft:
    case = SinkDraft(
        "retry_with_new_mutations_behind_it",
        "Duplicates count as accepted; what is new behind them is applied, and the result's cursor is the greatest.",
        _LEDGER,
    )
    first, second = session_upsert("m1"), message_upsert("m2")
    case.apply("the answer is lost", first, answers=["c1"])
    case.apply("the client sends it again with more", first, second, answers=["=c1", "c2"])
    case.stored(second)
    return case


def _duplicate_twice_in_one_batch() -> SinkDraft:
    case = SinkDraft(
        "same_mutation_twice_in_one_batch",
        "The second of two equal mutations in one batch is a duplicate of the first.",
        _LEDGER + ' ("twice in one batch counts as well")',
    )
    mutation = message_upsert("m1")
    case.apply("twice", mutation, mutation, answers=["c1", "=c1"])
    case.stored(mutation)
    return case


def _duplicate_after_more_changes() -> SinkDraft:
    case = SinkDraft(
        "late_retry_does_not_bring_the_past_back",
        "A duplicate writes nothing, also when the entity has moved on since.",
        _LEDGER + "; F42",
    )
    old, new = session_upsert("m1", title="Old"), session_upsert("m2", title="New", updated_at_unix_ms=200)
    case.apply("old", old, answers=["c1"])
    case.apply("new", new, answers=["c2"])
    case.apply("old again", old, answers=["=c1"])
    case.stored(new)
    return case


def _reused_ids() -> Iterator[SinkDraft]:
    others: dict[str, Mutation] = {
        "workspace": session_upsert("m1", transaction_id="t2", workspace_id="workspace-2"),
        "source_device": session_upsert("m1", transaction_id="t2", device="device-2"),
        "entity_type": message_upsert("m1", transaction_id="t2"),
        "operation": delete("m1", SessionKey("session-1"), transaction_id="t2"),
        "key": session_upsert("m1", transaction_id="t2", session_id="session-2"),
    }
    for part, conflict in others.items():
        case = SinkDraft(
            f"mutation_id_reused_with_another_{part}",
            f"The id of a committed mutation with another {part.replace('_', ' ')} is a permanent identity rejection.",
            "activity replication specification; " + _LEDGER,
        )
        original = session_upsert("m1")
        beside = message_upsert("m2", message_id="message-2")
        case.apply("the owner of the id", original, answers=["c1"])
        case.reject("the id again, for something else", beside, conflict, kind="identity", names=conflict)
        case.stored(original)
        case.absent(beside)
        yield case


def _reused_in_one_batch() -> SinkDraft:
    case = SinkDraft(
        "mutation_id_reused_in_one_batch",
        "One id for two entities in the same batch is a permanent identity rejection; nothing is written.",
        _LEDGER,
    )
    first, second = message_upsert("m1"), message_upsert("m1", transaction_id="t2", message_id="message-2")
    case.reject("two messages, one id", first, second, kind="identity", names=second)
    case.absent(first)
    case.absent(second)
    return case


def _same_device_with_white_space() -> SinkDraft:
    case = SinkDraft(
        "device_ids_are_equal_without_surrounding_white_space",
        "A scope's device, a target's device and an identity's device are compared without surrounding white space.",
        'wire page, Rules over all ("equal" of device ids)',
    )
    target = target_upsert("m1", device="device-1")
    padded = target_upsert("m2", device=" device-1 ", updated_at_unix_ms=200, scope={"owner_device_id": "device-1"})
    again = target_upsert("m1", device="\tdevice-1", scope={"owner_device_id": "device-1 "})
    case.apply("a target of a device", target, answers=["c1"])
    case.apply("newer, from the same device", padded, answers=["c2"])
    case.apply("the first again", again, answers=["=c1"])
    case.stored(padded)
    return case


def _stale_enters_no_ledger() -> SinkDraft:
    case = SinkDraft(
        "stale_mutations_enter_no_ledger",
        "A stale mutation's id is not remembered: repeated it is stale again, with another identity it is no reuse.",
        "wire page, What a sink decides, 4",
    )
    current = session_upsert("m1", updated_at_unix_ms=200)
    stale = session_upsert("m2", updated_at_unix_ms=100)
    other = message_upsert("m2")
    case.apply("current", current, answers=["c1"])
    case.apply("older", stale, answers=["stale"])
    case.apply("older again", stale, answers=["stale"])
    case.apply("its id for a message", other, answers=["c2"])
    case.stored(other)
    return case


def _cursors() -> SinkDraft:
    case = SinkDraft(
        "cursors_increase_across_batches_writers_workspaces_and_restarts",
        "Cursors come from one counter per database: commit order is cursor order.",
        _CURSORS,
    )
    messages = [message_upsert(f"m{n}", message_id=f"message-{n}") for n in range(1, 9)]
    elsewhere = message_upsert("m9", workspace_id="workspace-2", device="device-2")
    case.apply("one writer", *messages[:2], answers=["c1", "c2"])
    case.apply("another writer", messages[2], answers=["c3"], writer="b")
    case.apply("the first again", messages[3], answers=["c4"])
    case.apply("another workspace and device", elsewhere, answers=["c5"], writer="b")
    broken = msgspec.structs.replace(messages[7], workspace_id=" ")
    case.reject("a batch that fails takes no cursor that anyone sees", messages[4], broken, names=broken)
    case.restart()
    case.stored(messages[0])
    case.stored(elsewhere)
    case.apply("after a restart", messages[4], messages[0], answers=["c6", "=c1"])
    case.apply("another writer after a restart", messages[5], answers=["c7"], writer="b")
    return case
