"""Drafts: what a projection shows: observed versions, anchors, scopes, tombstones, and keys that never meet."""

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from tutti_replication.canonical import VISIBILITY_PUBLIC
from tutti_replication.codec import encode_batch
from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import (
    EntityKey,
    InteractionKey,
    MessageKey,
    RuntimeOperationEventKey,
    RuntimeOperationKey,
    SessionKey,
    SubmitClaimKey,
    TargetKey,
    TurnKey,
)
from tutti_replication.mutation import Upsert

from .draft import SinkDraft

__all__ = ["drafts"]

_DETAILS = "wire page, Details that keep replicas equal"


def drafts() -> Iterator[SinkDraft]:
    """Yield the cases."""
    yield from _observed()
    yield from _anchors()
    yield _scopes()
    yield from _deletes()
    yield _delete_only()
    yield from _target_comes_back()
    yield _children_of_a_deleted_session()
    yield _targets_of_two_devices()
    yield _workspaces()
    yield _ids_that_differ_a_little()
    yield _verbatim()


def _observed() -> Iterator[SinkDraft]:
    about = "An applied message raises its session's observed version and time, apart from the uploaded snapshot."
    message = message_upsert("m1", version=6, updated_at_unix_ms=600)
    session = session_upsert("m2", message_version=5, updated_at_unix_ms=500, title="New title")
    case = SinkDraft("message_before_its_session_raises_its_version", about, _DETAILS)
    case.apply("message, then session", message, session, answers=["c1", "c2"])
    case.stored(session, message_version=6, updated_at_unix_ms=600)
    yield case
    case = SinkDraft("message_after_its_session_raises_its_version", about, _DETAILS)
    case.apply("session, then message", session, message, answers=["c1", "c2"])
    case.stored(session, message_version=6, updated_at_unix_ms=600)
    yield case
    case = SinkDraft(
        "observed_version_does_not_make_a_session_stale",
        "Staleness compares uploaded snapshots: [message v6, session v5 with a new title] keeps the title and shows 6.",
        _DETAILS,
    )
    first = session_upsert("m0", message_version=4, updated_at_unix_ms=400, title="Old title")
    case.apply("session v4, message v6, session v5", first, message, session, answers=["c1", "c2", "c3"])
    case.stored(session, message_version=6, updated_at_unix_ms=600)
    yield case
    case = SinkDraft(
        "observed_version_and_time_are_each_the_greater",
        "Both are raised, each by itself, and never lowered.",
        _DETAILS,
    )
    newer = session_upsert("m3", message_version=7, updated_at_unix_ms=550)
    case.apply("message v6 at 600, session v7 at 550", message, newer, answers=["c1", "c2"])
    case.stored(newer, message_version=7, updated_at_unix_ms=600)
    old_message = message_upsert("m4", version=2, updated_at_unix_ms=200, message_id="message-2")
    case.apply("an old message lowers nothing", old_message, answers=["c3"])
    case.stored(newer, message_version=7, updated_at_unix_ms=600)
    yield case
    case = SinkDraft(
        "stale_message_raises_nothing", "Only an applied message raises its session's observed version.", _DETAILS
    )
    low = message_upsert("m5", version=6, updated_at_unix_ms=700)
    quiet = message_upsert("m6", version=6, updated_at_unix_ms=600)
    case.apply("session and message", session, low, answers=["c1", "c2"])
    case.apply("a stale one", quiet, answers=["stale"])
    case.stored(session, message_version=6, updated_at_unix_ms=700)
    yield case
    case = SinkDraft(
        "observed_version_survives_the_message_and_stays_in_its_session",
        "Deleting the message lowers nothing; another session or workspace sees nothing of it.",
        _DETAILS,
    )
    other = session_upsert("m7", session_id="session-2", message_version=5, updated_at_unix_ms=500)
    elsewhere = session_upsert("m8", workspace_id="workspace-2", message_version=5, updated_at_unix_ms=500)
    gone = delete("m9", MessageKey("session-1", "message-1"))
    case.apply("three sessions", session, other, elsewhere, message, gone, answers=["c1", "c2", "c3", "c4", "c5"])
    case.stored(session, message_version=6, updated_at_unix_ms=600)
    case.stored(other)
    case.stored(elsewhere)
    yield case


def _anchors() -> Iterator[SinkDraft]:
    source = "activity replication specification; " + _DETAILS
    anchored = turn_upsert("m1", identity_anchor_turn_id="turn-0")
    omitted = turn_upsert("m2", updated_at_unix_ms=200)
    case = SinkDraft("anchor_omitted_is_not_cleared", "An omitted anchor leaves a stored one alone.", source)
    case.apply("asserted", anchored, answers=["c1"])
    case.stored(anchored)
    case.apply("omitted", omitted, answers=["c2"])
    case.stored(omitted, identity_anchor_turn_id="turn-0")
    yield case
    case = SinkDraft("anchor_asserted_later_is_stored", "An anchor may be asserted by a later snapshot.", source)
    plain = turn_upsert("m1")
    late = turn_upsert("m2", updated_at_unix_ms=200, identity_anchor_turn_id="turn-0")
    case.apply("none, then one", plain, late, answers=["c1", "c2"])
    case.stored(late)
    again = turn_upsert("m3", identity_anchor_turn_id="turn-0", **settled(300))
    case.apply("the same again", again, answers=["c3"])
    case.stored(again)
    yield case
    case = SinkDraft(
        "anchor_contradicted_is_an_identity_rejection",
        "Another anchor than the stored one is permanently rejected; nothing of the batch is written.",
        source,
    )
    beside = message_upsert("m3")
    other = turn_upsert("m4", updated_at_unix_ms=300, identity_anchor_turn_id="turn-9")
    case.apply("asserted, then omitted", anchored, omitted, answers=["c1", "c2"])
    case.reject("another", beside, other, kind="identity", names=other, field="turn.identityAnchorTurnId")
    case.absent(beside)
    case.stored(omitted, identity_anchor_turn_id="turn-0")
    yield case
    case = SinkDraft(
        "anchor_contradicted_in_one_batch_is_an_identity_rejection",
        "The stored anchor counts as soon as its mutation came before, in the same batch as well.",
        source,
    )
    case.reject("two anchors", anchored, other, kind="identity", names=other)
    case.absent(anchored)
    yield case
    case = SinkDraft("anchor_of_a_stale_turn_is_not_judged", "Anchors are judged after staleness.", source)
    stale = turn_upsert("m5", updated_at_unix_ms=50, identity_anchor_turn_id="turn-9")
    case.apply("asserted", anchored, answers=["c1"])
    case.apply("an older snapshot with another", stale, answers=["stale"])
    case.stored(anchored)
    yield case


def _scopes() -> SinkDraft:
    case = SinkDraft(
        "scopes_are_stored_and_read_back",
        "A scope is stored beside its entity, replaced with it, and left alone by a stale one.",
        _DETAILS,
    )
    full = {"shared_agent_binding_id": "binding-1", "launch_kind": "shared-agent", "visibility": VISIBILITY_PUBLIC}
    first: list[Upsert] = [
        target_upsert("m1", scope={"description": "Build server"}),
        session_upsert("m2", scope=full, message_version=1),
        turn_upsert("m3", scope=full),
        interaction_upsert("m4", scope=full),
        message_upsert("m5", scope=full, updated_at_unix_ms=100),
    ]
    case.apply("each with a scope of its own", *first, answers=["c1", "c2", "c3", "c4", "c5"])
    for mutation in first:
        case.stored(mutation)
    stale = session_upsert("m6", updated_at_unix_ms=1)
    case.apply("a stale one has no say", stale, answers=["stale"])
    case.stored(first[1])
    changed: list[Upsert] = [
        target_upsert("n1", updated_at_unix_ms=200, scope={"owner_user_id": "owner-2"}),
        session_upsert("n2", updated_at_unix_ms=200, message_version=1, scope={"executor_owner_user_id": "owner-2"}),
        turn_upsert("n3", updated_at_unix_ms=200, scope={"initiator_user_id": ""}),
        interaction_upsert("n4", updated_at_unix_ms=200),
        message_upsert("n5", version=2),
    ]
    case.apply("newer, with other scopes", *changed, answers=["c6", "c7", "c8", "c9", "c10"])
    case.stored(changed[0])
    case.stored(changed[1], message_version=2)
    for mutation in changed[2:]:
        case.stored(mutation)
    return case


def _deletes() -> Iterator[SinkDraft]:
    makers: dict[str, tuple[Upsert, Upsert]] = {
        "session": (
            session_upsert("m1"),
            session_upsert("m3", message_version=9, updated_at_unix_ms=900, created_at_unix_ms=800),
        ),
        "turn": (turn_upsert("m1"), turn_upsert("m3", created_at_unix_ms=800, **settled(900))),
        "interaction": (
            interaction_upsert("m1"),
            interaction_upsert("m3", updated_at_unix_ms=900, created_at_unix_ms=800),
        ),
        "message": (
            message_upsert("m1"),
            message_upsert("m3", version=9, updated_at_unix_ms=900, created_at_unix_ms=800),
        ),
    }
    for name, (stored, later) in makers.items():
        case = SinkDraft(
            f"{name}_deleted_stays_deleted",
            "A delete takes a cursor; its tombstone is final: later upserts are stale, another delete is applied.",
            _DETAILS,
        )
        case.apply("stored", stored, answers=["c1"])
        case.apply("deleted", delete("m2", stored.key), answers=["c2"])
        case.absent(stored)
        case.apply("a later upsert", later, answers=["stale"])
        case.absent(stored)
        case.apply("deleted again", delete("m4", stored.key), answers=["c3"])
        case.absent(stored)
        yield case
        case = SinkDraft(
            f"{name}_deleted_before_it_was_there",
            "A delete of nothing takes a cursor and leaves a final tombstone.",
            _DETAILS,
        )
        case.apply("deleted", delete("m2", stored.key), answers=["c1"])
        case.apply("what comes late", stored, later, answers=["stale", "stale"])
        case.absent(stored)
        yield case


def _delete_only() -> SinkDraft:
    case = SinkDraft(
        "delete_only_entities_can_be_deleted",
        "A delete of a runtime operation, its event or a submit claim takes a cursor and shows nothing.",
        "activity replication specification; wire page, Mutation",
    )
    keys: list[EntityKey] = [
        RuntimeOperationKey("session-1", "operation-1"),
        RuntimeOperationEventKey("session-1", "operation-1", "started"),
        SubmitClaimKey("session-1", "claim-1"),
    ]
    deletes = [delete(f"m{number}", key) for number, key in enumerate(keys, 1)]
    case.apply("each", *deletes, answers=["c1", "c2", "c3"])
    again = [delete(f"n{number}", key) for number, key in enumerate(keys, 1)]
    case.apply("each again under another id", *again, answers=["c4", "c5", "c6"])
    return case


def _target_comes_back() -> Iterator[SinkDraft]:
    key = TargetKey("target-1")
    old = target_upsert("m1", created_at_unix_ms=100, updated_at_unix_ms=100)
    same = target_upsert("m3", created_at_unix_ms=100, updated_at_unix_ms=900)
    new = target_upsert("m4", created_at_unix_ms=101, updated_at_unix_ms=101)
    case = SinkDraft(
        "target_comes_back_when_created_later",
        "A target may come back by an upsert with a later creation time than its tombstone keeps.",
        _DETAILS,
    )
    case.apply("stored and deleted", old, delete("m2", key), answers=["c1", "c2"])
    case.absent(old)
    case.apply("the same target, however new", same, answers=["stale"])
    case.apply("a new target under the same id", new, answers=["c3"])
    case.stored(new)
    case.apply("deleted again", delete("m5", key), answers=["c4"])
    case.apply("deleted twice", delete("m6", key), answers=["c5"])
    case.apply("the tombstone keeps the latest", target_upsert("m7", created_at_unix_ms=101), answers=["stale"])
    case.absent(new)
    yield case
    case = SinkDraft(
        "target_deleted_before_it_was_there",
        "The tombstone of a target that was never there keeps 0.",
        _DETAILS,
    )
    never = target_upsert("m2", created_at_unix_ms=0)
    case.apply("deleted", delete("m1", key), answers=["c1"])
    case.apply("created at 0", never, answers=["stale"])
    case.absent(never)
    case.apply("created later", msgspec.structs.replace(old, mutation_id="m3"), answers=["c2"])
    case.stored(old)
    yield case


def _children_of_a_deleted_session() -> SinkDraft:
    case = SinkDraft(
        "children_of_a_deleted_session_are_hidden",
        "Deletes don't cascade, but reads hide the children of a deleted session; those of another stay.",
        _DETAILS,
    )
    children: list[Upsert] = [turn_upsert("m2"), interaction_upsert("m3"), message_upsert("m4")]
    other = message_upsert("m5", session_id="session-2")
    elsewhere = message_upsert("m6", workspace_id="workspace-2")
    case.apply("a session", session_upsert("m1"), *children, answers=["c1", "c2", "c3", "c4"])
    case.apply("another, and one elsewhere", other, elsewhere, answers=["c5", "c6"])
    case.apply("deleted", delete("m7", SessionKey("session-1")), answers=["c7"])
    for child in children:
        case.absent(child)
    case.stored(other)
    case.stored(elsewhere)
    late = message_upsert("m8", message_id="message-2")
    case.apply("a message that comes late is applied and hidden", late, answers=["c8"])
    case.absent(late)
    return case


def _targets_of_two_devices() -> SinkDraft:
    case = SinkDraft(
        "targets_of_two_devices_are_two",
        "Targets are keyed by workspace, source device and id; sessions are not keyed by device.",
        _DETAILS,
    )
    first = target_upsert("m1", name="First", updated_at_unix_ms=200)
    second = target_upsert("m2", device="device-2", name="Second")
    case.apply("the same id twice", first, second, answers=["c1", "c2"])
    case.stored(first)
    case.stored(second)
    case.apply("one deleted", delete("m3", TargetKey("target-1")), answers=["c3"])
    case.absent(first)
    case.stored(second)
    session = session_upsert("m4", updated_at_unix_ms=200)
    moved = session_upsert("m5", device="device-2", updated_at_unix_ms=100)
    case.apply("one session from two devices", session, moved, answers=["c4", "stale"])
    case.stored(session)
    return case


def _workspaces() -> SinkDraft:
    case = SinkDraft(
        "several_workspaces_and_devices_in_one_batch",
        "Mutations of several workspaces and devices in one batch are legal, and never meet.",
        "wire page, What a sink decides, 2",
    )
    first = session_upsert("m1", title="One")
    second = session_upsert("m2", workspace_id="workspace-2", device="device-2", title="Two")
    case.apply("two workspaces", first, second, answers=["c1", "c2"])
    case.stored(first)
    case.stored(second)
    case.apply("deleted in one", delete("m3", SessionKey("session-1"), workspace_id="workspace-2"), answers=["c3"])
    case.stored(first)
    case.absent(second)
    return case


def _ids_that_differ_a_little() -> SinkDraft:
    case = SinkDraft(
        "ids_that_differ_in_case_or_space_do_not_collide",
        "Ids are compared byte by byte: case, trailing space, accents, length and where one ends all count.",
        "F45; wire page, Rules over all",
    )
    ids = ["Message", "message", "message ", "m\u00e9ssage", "me\u0301ssage", "m" * 512, "m" * 511]
    messages = [
        message_upsert(f"m{number}", message_id=message_id, status=f"s{number}")
        for number, message_id in enumerate(ids, 1)
    ]
    case.apply("all at once", *messages, answers=[f"c{number}" for number in range(1, len(ids) + 1)])
    for message in messages:
        case.stored(message)
    ends = [
        turn_upsert("n1", session_id="ab", turn_id="c"),
        turn_upsert("n2", session_id="a", turn_id="bc", updated_at_unix_ms=1),
        turn_upsert("n3", session_id="a/b", turn_id="c", updated_at_unix_ms=1),
        turn_upsert("n4", session_id="a", turn_id="b/c", updated_at_unix_ms=1),
    ]
    case.apply("ids that look alike when joined", *ends, answers=["c8", "c9", "c10", "c11"])
    for turn in ends:
        case.stored(turn)
    cases = [message_upsert("N1", message_id="x"), message_upsert("n1\u00a0", message_id="y")]
    case.apply("mutation ids as well", *cases, answers=["c12", "c13"])
    interaction = interaction_upsert("p1", request_id="r", turn_id="t")
    case.apply("an interaction", interaction, answers=["c14"])
    case.absent(interaction, InteractionKey("session-1", "t", "R"))
    case.absent(interaction, TurnKey("session-1", "t"))
    return case


def _verbatim() -> SinkDraft:
    case = SinkDraft(
        "objects_are_kept_verbatim",
        "Unknown keys, number spelling, key order, escapes and white space inside an object survive a round trip.",
        'wire page, "object"',
    )
    escapes = r'"\u00e9":"\ud83d\ude00", "z":2, "nul":"\u0000" }'
    characters = '{ "z":1.0, "a":1e3,\n"big":12345678901234567890123, ' + escapes
    message = message_upsert("m1", payload=Raw(characters.encode()), semantics=Raw(b'{"x":[]}'))
    case.apply("an odd object", message, answers=["c1"], text=encode_batch([message]).decode())
    case.stored(message, verbatim={"payload": characters})
    return case
