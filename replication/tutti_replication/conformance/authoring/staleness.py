"""Drafts: which snapshot wins, per entity; what a stale one leaves alone."""

from collections.abc import Iterator
from typing import Any

from tutti_replication.canonical import (
    INTERACTION_ANSWERED,
    INTERACTION_SUPERSEDED,
    OUTCOME_FAILED,
    TURN_SUBMITTED,
    TURN_WAITING,
)
from tutti_replication.conformance.samples import (
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.mutation import Upsert

from .draft import SinkDraft

__all__ = ["drafts"]

_RULE = "wire page, What a sink decides, 4"


def drafts() -> Iterator[SinkDraft]:
    """Yield the cases."""
    for name, about, stored, incoming, wins in _pairs():
        case = SinkDraft(name, about, _RULE)
        case.apply("stored", stored, answers=["c1"])
        case.apply("incoming", incoming, answers=["c2" if wins else "stale"])
        case.stored(incoming if wins else stored)
        yield case
    yield _all_stale()
    yield _past_a_stale_session()


def _pairs() -> Iterator[tuple[str, str, Upsert, Upsert, bool]]:
    def target(mutation_id: str, at: int) -> Upsert:
        return target_upsert(mutation_id, name=mutation_id, updated_at_unix_ms=at)

    yield "target_older_is_stale", "By time of update.", target("m1", 200), target("m2", 199), False
    yield "target_equal_is_applied", "Equal is applied.", target("m1", 200), target("m2", 200), True
    yield "target_newer_is_applied", "By time of update.", target("m1", 200), target("m2", 201), True

    def session(mutation_id: str, version: int, at: int) -> Upsert:
        return session_upsert(mutation_id, title=mutation_id, message_version=version, updated_at_unix_ms=at)

    about = "A session's message version decides first, then its time of update."
    yield "session_lower_version_is_stale", about, session("m1", 2, 200), session("m2", 1, 300), False
    yield "session_equal_version_and_older_is_stale", about, session("m1", 2, 200), session("m2", 2, 199), False
    yield "session_equal_is_applied", about, session("m1", 2, 200), session("m2", 2, 200), True
    yield "session_higher_version_and_older_is_applied", about, session("m1", 2, 200), session("m2", 3, 100), True

    def turn(mutation_id: str, at: int, **snapshot: Any) -> Upsert:
        return turn_upsert(mutation_id, updated_at_unix_ms=at, **snapshot)

    about = "A settled turn stays settled, however new the other snapshot is; otherwise the time of update decides."
    reopened = turn("m2", 900, phase=TURN_WAITING)
    yield "turn_settled_is_not_reopened", about, turn_upsert("m1", **settled(200)), reopened, False
    late = turn_upsert("m2", **settled(100))
    yield "turn_settling_wins_although_older", about, turn("m1", 200), late, True
    yield "turn_older_is_stale", about, turn("m1", 200), turn("m2", 199, phase=TURN_SUBMITTED), False
    yield "turn_equal_is_applied", about, turn("m1", 200), turn("m2", 200, phase=TURN_WAITING), True
    corrected = turn_upsert("m2", **settled(199, OUTCOME_FAILED))
    yield "turn_settled_twice_older_is_stale", about, turn_upsert("m1", **settled(200)), corrected, False
    corrected = turn_upsert("m2", **settled(200, OUTCOME_FAILED))
    yield "turn_settled_twice_equal_is_applied", about, turn_upsert("m1", **settled(200)), corrected, True

    def asked(mutation_id: str, at: int, **snapshot: Any) -> Upsert:
        return interaction_upsert(mutation_id, updated_at_unix_ms=at, tool_name=mutation_id, **snapshot)

    about = "An interaction that is answered or superseded never waits again; otherwise the time of update decides."
    answered: dict[str, Any] = {"status": INTERACTION_ANSWERED}
    superseded: dict[str, Any] = {"status": INTERACTION_SUPERSEDED}
    yield "interaction_answered_is_not_reopened", about, asked("m1", 200, **answered), asked("m2", 900), False
    yield "interaction_superseded_is_not_reopened", about, asked("m1", 200, **superseded), asked("m2", 900), False
    yield "interaction_answer_wins_although_older", about, asked("m1", 200), asked("m2", 100, **answered), True
    yield "interaction_supersession_wins_although_older", about, asked("m1", 200), asked("m2", 99, **superseded), True
    yield "interaction_older_is_stale", about, asked("m1", 200), asked("m2", 199), False
    older = asked("m2", 199, **superseded)
    yield "interaction_answered_older_is_stale", about, asked("m1", 200, **answered), older, False
    yield "interaction_equal_is_applied", about, asked("m1", 200), asked("m2", 200), True

    def message(mutation_id: str, version: int, at: int) -> Upsert:
        return message_upsert(mutation_id, status=mutation_id, version=version, updated_at_unix_ms=at)

    about = "A message's version decides first, then its time of update."
    yield "message_lower_version_is_stale", about, message("m1", 2, 200), message("m2", 1, 300), False
    yield "message_equal_version_and_older_is_stale", about, message("m1", 2, 200), message("m2", 2, 199), False
    yield "message_equal_is_applied", about, message("m1", 2, 200), message("m2", 2, 200), True
    yield "message_higher_version_and_older_is_applied", about, message("m1", 2, 200), message("m2", 3, 100), True


def _all_stale() -> SinkDraft:
    case = SinkDraft(
        "every_stale_kind_in_one_batch_and_later_mutations_go_on",
        "A stale mutation is acknowledged with cursor 0 and writes nothing; a batch of nothing else answers 0.",
        "activity replication specification; " + _RULE,
    )
    current: list[Upsert] = [
        target_upsert("m1", updated_at_unix_ms=200),
        session_upsert("m2", message_version=5, updated_at_unix_ms=200),
        turn_upsert("m3", **settled(200)),
        interaction_upsert("m4", status=INTERACTION_ANSWERED, updated_at_unix_ms=200),
        message_upsert("m5", version=2, updated_at_unix_ms=200),
    ]
    stale: list[Upsert] = [
        target_upsert("s1", updated_at_unix_ms=100),
        session_upsert("s2", message_version=4, updated_at_unix_ms=300, title="Older"),
        turn_upsert("s3", updated_at_unix_ms=300),
        interaction_upsert("s4", updated_at_unix_ms=300),
        message_upsert("s5", version=1, updated_at_unix_ms=300),
    ]
    later = target_upsert("m6", target_id="target-2")
    case.apply("current", *current, answers=["c1", "c2", "c3", "c4", "c5"])
    case.apply("nothing but stale", *stale, answers=["stale"] * 5)
    case.apply("stale, and then something new", *stale, later, answers=["stale"] * 5 + ["c6"])
    for mutation in current:
        case.stored(mutation)
    case.stored(later)
    return case


def _past_a_stale_session() -> SinkDraft:
    case = SinkDraft(
        "ordered_batch_goes_on_past_a_stale_session",
        "A stale session does not hold up the turn, the title and the message behind it.",
        "activity replication specification; " + _RULE,
    )
    case.apply(
        "an active conversation",
        session_upsert("m1", message_version=2, updated_at_unix_ms=200, title="Active"),
        turn_upsert("m2", updated_at_unix_ms=200),
        answers=["c1", "c2"],
    )
    stale = session_upsert("m3", message_version=1, updated_at_unix_ms=300, title="Regressed")
    done = turn_upsert("m4", **settled(310))
    renamed = session_upsert("m5", message_version=2, updated_at_unix_ms=320, title="Done")
    message = message_upsert("m6", version=3, updated_at_unix_ms=330)
    case.apply("the ordered rest", stale, done, renamed, message, answers=["stale", "c3", "c4", "c5"])
    case.stored(renamed, message_version=3, updated_at_unix_ms=330)
    case.stored(done)
    case.stored(message)
    return case
