"""R3, R9, R11: what a subscriber is owed: every question that waited, the end of each, and an end of its own.

Of a sub-agent's turn it is owed the start too.
"""

from collections import defaultdict
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.checks.sequence import TERMINAL, TURN_ENDS
from tutti_side.testing.simulation.records import (
    Answered,
    Asked,
    HostEnded,
    SeenEvent,
    SideOpened,
    SubscriptionBegan,
    SubscriptionEnded,
    TurnBegan,
)

__all__ = [
    "agents_are_heard_from_their_start",
    "subscriptions_end",
    "turns_leave_nothing_asked",
    "what_waited_was_seen",
    "who_asked_for_all_sees_the_first",
]


def subscriptions_end(facts: Facts) -> Iterator[Violation]:
    """R9: a subscription that saw anything has its end when the host has ended."""
    ended = {end.subscription for _, end in facts.each(SubscriptionEnded)}
    hosts = [index for index, _ in facts.each(HostEnded)]
    last: dict[int, tuple[int, SeenEvent]] = {}
    for index, event in facts.each(SeenEvent):
        last[event.subscription] = index, event
    for subscription, (index, event) in last.items():
        if subscription not in ended and hosts and hosts[-1] > index:
            problem = f"subscription {subscription} of {event.owner} waits for ever behind {event.type}"
            yield facts.violation("R9", index, problem)


def who_asked_for_all_sees_the_first(facts: Facts) -> Iterator[Violation]:
    """R3: a subscription that was asked for with the open, before the branch was, begins with the first event."""
    first: dict[int, SeenEvent] = {}
    for _, event in facts.each(SeenEvent):
        first.setdefault(event.subscription, event)
    opened = {side.child: side.owner for _, side in facts.each(SideOpened)}
    asked = {branch.ask.owner: branch.asked for branch in facts.branches if branch.child in opened}
    calls = {call.job.call: call for call in facts.calls}
    for index, began in facts.each(SubscriptionBegan):
        call, seen = calls.get(began.opened_by), first.get(began.subscription)
        if call is None or seen is None or call.began > asked.get(began.owner, -1):
            continue
        if seen.type != "session.started":
            problem = f"subscription {began.subscription} of {began.owner} begins with {seen.type} {seen.sequence}"
            yield facts.violation("R3", index, problem)


def agents_are_heard_from_their_start(facts: Facts) -> Iterator[Violation]:
    """R3: whoever listened before a sub-agent's turn began, and sees its end, saw it begin."""
    began = {turn.child: index for index, turn in facts.each(TurnBegan)}
    listens = {subscription.subscription: index for index, subscription in facts.each(SubscriptionBegan)}
    seen: set[tuple[int, str]] = set()
    for index, event in facts.each(SeenEvent):
        if event.type != "sub_agent.event":
            continue
        key = event.subscription, event.child
        if event.status == "turn.started":
            seen.add(key)
        elif event.status in TURN_ENDS and key not in seen and listens[key[0]] < began.get(event.child, -1):
            problem = f"subscription {event.subscription} of {event.owner} never saw {event.child} begin its turn"
            yield facts.violation("R3", index, problem)


def turns_leave_nothing_asked(facts: Facts) -> Iterator[Violation]:
    """R11: what a turn asked is resolved, for whoever saw it, before the turn's end is seen."""
    open_: dict[tuple[int, str], set[str]] = defaultdict(set)
    turns: dict[tuple[int, str], str] = {}
    for index, event in facts.each(SeenEvent):
        key = event.subscription, event.interaction
        if event.type == "interaction.requested" and event.turn:
            turns[key] = event.turn
            open_[event.subscription, event.turn].add(event.interaction)
        elif event.type == "interaction.resolved" and key in turns:
            open_[event.subscription, turns.pop(key)].discard(event.interaction)
        elif event.type in TURN_ENDS and open_[event.subscription, event.turn]:
            left = ", ".join(sorted(open_[event.subscription, event.turn]))
            yield facts.violation("R11", index, f"{event.owner}: {event.turn} has ended, and {left} is still open")


def what_waited_was_seen(facts: Facts) -> Iterator[Violation]:
    """R3: whoever saw all of a Side, from its first event to its end, saw each question that waited in it.

    A question that is refused in the instant in which it comes, or while the Side is still opening, is none. An answer
    that waited for its writer may be as old as that.
    """
    opened: dict[str, int] = {}
    asked: dict[tuple[int, str], Asked] = {}
    waited: dict[str, list[str]] = defaultdict(list)
    seen: dict[int, set[str]] = defaultdict(set)
    whole: dict[int, str] = {}
    over: list[tuple[int, int, str]] = []
    for index, record in facts.all_of(Asked, Answered, SeenEvent):
        if isinstance(record, Asked):
            asked[record.connection, record.request] = record
        elif isinstance(record, Answered):
            ask = asked.get((record.connection, record.request))
            if ask is not None and ask.at_s < record.made_s and _was_open(facts, opened.get(ask.child), record):
                waited[ask.child].append(ask.request)
        elif isinstance(record, SeenEvent):
            if record.type == "session.started":
                whole[record.subscription] = record.child
                opened.setdefault(record.child, index)
            elif record.type == "interaction.requested":
                seen[record.subscription].add(record.interaction)
            elif record.type == "gap":
                whole.pop(record.subscription, None)
            elif record.type in TERMINAL and record.subscription in whole:
                over.append((index, record.subscription, record.owner))
    for index, subscription, owner in over:
        missed = [request for request in waited[whole[subscription]] if request not in seen[subscription]]
        if missed and facts.is_side(owner):
            problem = f"subscription {subscription} of {owner} never saw {', '.join(missed)}, which waited in it"
            yield facts.violation("R3", index, problem)


def _was_open(facts: Facts, opened: int | None, answer: Answered) -> bool:
    """True when the answer was surely given after the Side was seen to be open."""
    return opened is not None and (answer.made_s == answer.at_s or facts.records[opened].at_s < answer.made_s)
