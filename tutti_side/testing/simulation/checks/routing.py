"""R1: what is an owner's reaches that owner's subscriptions, and nobody else's."""

from collections import defaultdict
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.records import Asked, SeenEvent, TurnAnswered, TurnBegan

__all__ = ["events_reach_their_owner"]

TEXT_EVENTS = ("message.delta", "message.updated")
"""Events whose text is a model's, so that every word of it says whose it is."""


def events_reach_their_owner(facts: Facts) -> Iterator[Violation]:
    """R1: an event's text, turn and interaction are its subscription's owner's; no Side's reaches another's."""
    turn_children: dict[str, set[str]] = defaultdict(set)
    ask_children: dict[str, set[str]] = defaultdict(set)
    subscription_child: dict[int, str] = {}
    for index, record in facts.all_of(TurnBegan, TurnAnswered, Asked, SeenEvent):
        if isinstance(record, TurnBegan | TurnAnswered):
            turn_children[record.turn].add(record.child)
        elif isinstance(record, Asked):
            ask_children[record.request].add(record.child)
        elif isinstance(record, SeenEvent):
            who = f"{record.type} {record.sequence} of {record.owner}"
            if record.type in TEXT_EVENTS and not _speaks(record.owner, record.text):
                yield facts.violation("R1", index, f"{who} has the words of somebody else: {record.text[:80]!r}")
            if record.turn:
                children = turn_children.get(record.turn, set())
                mine = sorted(child for child in children if facts.owner_of.get(child) == record.owner)
                if not mine:
                    theirs = ", ".join(sorted(facts.owner_of.get(child, child) for child in children)) or "nobody"
                    yield facts.violation("R1", index, f"{who} is about turn {record.turn}, which is that of {theirs}")
                elif subscription_child.setdefault(record.subscription, mine[0]) not in mine:
                    before = subscription_child[record.subscription]
                    yield facts.violation("R1", index, f"{who} is about a turn of {mine[0]}, others were of {before}")
            if record.type == "interaction.requested":
                children = ask_children.get(record.interaction, set())
                if not any(facts.owner_of.get(child) == record.owner for child in children):
                    yield facts.violation("R1", index, f"{who}: its thread never asked {record.interaction}")


def _speaks(owner: str, text: str) -> bool:
    return all(word.startswith(f"{owner}/") for word in text.split())
