"""R11, R19: what is asked is answered once, allowed only by its user, and never beyond the Side that is asked."""

from collections import defaultdict
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.records import Answered, Asked, Healed, SeenEvent, Settled, TurnEnded

__all__ = ["one_answer_for_each", "sides_answer_for_themselves"]

ALLOWING = ("accept", "accept_for_session", "answers")
"""What a user says in `respond` to allow something or to answer a question; all else declines."""

OFFERED_IN_SIDES = frozenset({"accept", "accept_for_session", "decline", "cancel"})
"""Options that reach no further than the Side."""


def one_answer_for_each(facts: Facts) -> Iterator[Violation]:
    """R11: one answer at most for each request; it allows only what a user allowed; none is left without an end.

    A request has its end by its answer, the provider's own word, its turn's end or its connection's.
    """
    asked: dict[tuple[int, str], Asked] = {}
    answered: dict[tuple[int, str], int] = defaultdict(int)
    allowed: set[tuple[int, str]] = set()
    times: dict[tuple[int, str], int] = defaultdict(int)
    settled: set[tuple[int, str]] = set()
    ended_turns: set[tuple[int, str]] = set()
    resolved: set[tuple[int, str]] = set()
    for index, record in facts.all_of(Asked, Answered, Settled, TurnEnded, SeenEvent):
        if isinstance(record, Asked):
            # Asked again under its old id it is another request: both may be declined, one of them allowed.
            key = record.connection, record.request
            if answered[key] >= times[key]:
                answered[key] = times[key] = 0
                allowed.discard(key)
            asked[key] = record
            times[key] += 1
        elif isinstance(record, Settled):
            settled.add((record.connection, record.request))
        elif isinstance(record, TurnEnded):
            ended_turns.add((record.connection, record.turn))
        elif isinstance(record, Answered):
            key = record.connection, record.request
            ask = asked.get(key)
            answered[key] += 1
            who = f"request {record.request} of connection {record.connection}"
            if ask is None:
                yield facts.violation("R11", index, f"{who} was never made, and is answered")
            elif answered[key] > times[key] or (record.accepts and key in allowed):
                yield facts.violation("R11", index, f"{who} is answered a second time")
            elif record.accepts and not _was_allowed(facts, ask, index):
                owner = facts.owner_of.get(ask.child, ask.child)
                yield facts.violation("R11", index, f"{who} ({ask.kind}, {owner}) is allowed, and no user said so")
            if record.accepts:
                allowed.add(key)
        elif isinstance(record, SeenEvent) and record.type == "interaction.resolved":
            seen = record.subscription, record.interaction
            if seen in resolved:
                yield facts.violation("R11", index, f"{record.owner}: {record.interaction} is resolved again")
            resolved.add(seen)
        elif isinstance(record, SeenEvent) and record.type == "interaction.requested":
            resolved.discard((record.subscription, record.interaction))
    if any(True for _ in facts.each(Healed)):
        for key, ask in asked.items():
            is_over = key in settled or (key[0], ask.turn) in ended_turns or key[0] in facts.connection_ends
            if not answered[key] and not is_over:
                owner = facts.owner_of.get(ask.child, ask.child)
                problem = f"request {key[1]} of connection {key[0]} ({ask.kind}, {owner}) was never answered"
                yield facts.violation("R11", facts.last, problem)


def _was_allowed(facts: Facts, ask: Asked, index: int) -> bool:
    """True when a user allowed exactly this before a record, in the session or Side that was asked."""
    owner = facts.owner_of.get(ask.child)
    return owner is not None and any(
        call.began < index
        and call.job.what == "respond"
        and call.job.owner == owner
        and call.job.interaction == ask.request
        and call.job.detail in ALLOWING
        and call.outcome in ("ok", "hangs")
        for call in facts.calls
    )


def sides_answer_for_themselves(facts: Facts) -> Iterator[Violation]:
    """R19: a Side is offered nothing, and allows nothing, that reaches beyond it."""
    children: dict[tuple[int, str], str] = {}
    for index, record in facts.all_of(Asked, Answered, SeenEvent):
        if isinstance(record, Asked):
            children[record.connection, record.request] = record.child
        elif isinstance(record, Answered):
            child = children.get((record.connection, record.request), "")
            if record.outside and child in facts.side_children:
                owner = facts.side_children[child]
                yield facts.violation("R19", index, f"{owner} allows what reaches beyond it ({record.request})")
        elif isinstance(record, SeenEvent) and record.options and facts.is_side(record.owner):
            beyond = sorted(set(record.options) - OFFERED_IN_SIDES)
            if beyond:
                yield facts.violation("R19", index, f"{record.owner} is offered {', '.join(beyond)}")
