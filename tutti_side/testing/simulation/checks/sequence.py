"""R3: numbers without gap or repeat; every turn's text as it was said; its end once, as the provider said."""

from collections import defaultdict
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import GIVEN_UP, Facts, Violation
from tutti_side.testing.simulation.records import SeenEvent, SubscriptionEnded, TurnBegan, TurnEnded

__all__ = ["numbers_have_no_gap", "texts_are_what_was_said", "turns_end_once_and_as_the_provider_said"]

TERMINAL = ("session.closed", "session.expired")
"""Nothing follows one of these."""

TURN_ENDS = {"turn.completed": "completed", "turn.failed": "failed", "turn.canceled": "canceled"}
"""Events that end a turn → what the provider calls it."""


DOUBT_S = 5.0
"""A turn is not called failed for want of an end before it has run for so long."""


class _Following:
    """Where one subscription stands."""

    def __init__(self) -> None:
        self.next: int | None = None
        self.end = ""


def numbers_have_no_gap(facts: Facts) -> Iterator[Violation]:
    """R3: a subscription's numbers follow one another; 1 is ``session.started``; a gap cuts off, an end is the last.

    Behind a `Gap`, which says what was missed, only the terminal event may come, with whatever number it has.
    """
    following: dict[int, _Following] = defaultdict(_Following)
    for index, record in facts.all_of(SeenEvent, SubscriptionEnded):
        if isinstance(record, SubscriptionEnded):
            following[record.subscription].end = "its end"
            continue
        if not isinstance(record, SeenEvent):
            continue
        state = following[record.subscription]
        who = f"subscription {record.subscription} of {record.owner}: {record.type} {record.sequence}"
        if state.end in TERMINAL or state.end == "its end":
            yield facts.violation("R3", index, f"{who} after {state.end}")
        elif state.end == "gap":
            if record.type not in TERMINAL:
                yield facts.violation("R3", index, f"{who} after a gap")
        elif state.next is not None and record.sequence != state.next:
            yield facts.violation("R3", index, f"{who} instead of {state.next}")
        if (record.type == "session.started") != (record.sequence == 1):
            yield facts.violation("R3", index, f"{who}: the first event, and no other, is session.started")
        state.next = record.sequence + 1
        if record.type == "gap" or record.type in TERMINAL:
            state.end = record.type


def texts_are_what_was_said(facts: Facts) -> Iterator[Violation]:
    """R3: deltas come in the order in which they were said, all of them; a completed turn's text is the whole.

    A subscription that came in mid-turn has the rest of it; a turn that did not complete has a part; so has a
    subscription that was cut off or left. A turn that was given more while it ran is left out: nobody can say what it
    answers.
    """
    steered = {call.job.turn for call in facts.calls if call.job.what == "steer"}
    said = {
        (turn.child, turn.turn): "".join(facts.context.world.answers.get(turn.question, ()))
        for _, turn in facts.each(TurnBegan)
        if turn.question in facts.context.world.answers and turn.turn not in steered
    }
    children: dict[str, list[str]] = defaultdict(list)
    for child, turn in said:
        children[turn].append(child)
    yield from _check_waits(facts, said, children)
    heard: dict[tuple[int, str], str] = defaultdict(str)
    started: set[tuple[int, str]] = set()
    for index, event in facts.each(SeenEvent):
        if not event.turn:
            continue
        key = event.subscription, event.turn
        if event.type == "turn.started":
            started.add(key)
        expected = _expected(facts, said, children, event.owner, event.turn)
        if expected is None:
            continue
        if event.type == "message.delta":
            heard[key] += event.text
            whole = expected.startswith(heard[key]) if key in started else heard[key] in expected
            if not whole:
                problem = f"hears {heard[key][-60:]!r} of turn {event.turn}, which says {expected!r}"
                yield facts.violation("R3", index, f"subscription {event.subscription} of {event.owner} {problem}")
        elif event.type == "message.updated" and event.text not in expected:
            yield facts.violation("R3", index, f"{event.owner}: {event.text[:60]!r} is no part of turn {event.turn}")
        elif event.type == "turn.completed" and key in heard:
            is_whole = heard[key] == expected if key in started else expected.endswith(heard[key])
            if not is_whole:
                problem = f"heard {heard[key]!r} of turn {event.turn} at its end, instead of {expected!r}"
                yield facts.violation("R3", index, f"subscription {event.subscription} of {event.owner} {problem}")


def _check_waits(facts: Facts, said: dict[tuple[str, str], str], children: dict[str, list[str]]) -> Iterator[Violation]:
    for call in facts.calls:
        if call.job.what not in ("wait", "ask") or call.end is None or call.ended is None:
            continue
        end = call.end
        expected = _expected(facts, said, children, call.job.owner, end.turn)
        if end.outcome != "ok" or end.returned != "completed" or expected is None:
            continue
        if end.text != expected:
            problem = f"turn {end.turn} of {call.job.owner} is {end.text!r} instead of {expected!r}"
            yield facts.violation("R3", call.ended, f"the text of {problem}")


def _expected(
    facts: Facts, said: dict[tuple[str, str], str], children: dict[str, list[str]], owner: str, turn: str
) -> str | None:
    """Return what is said in a turn of an owner; None when that is not known."""
    for child in children.get(turn, ()):
        if facts.owner_of.get(child) == owner:
            return said[child, turn]
    return None


def turns_end_once_and_as_the_provider_said(facts: Facts) -> Iterator[Violation]:
    """R3, R7: a turn ends once for each subscription, as the provider said, and before the next one begins.

    A turn that the provider has said no end of, not even when it was asked, may be given up, `DOUBT_S` after its begin
    at the earliest; what it says of it later counts no more, and is not heard.
    """
    began = {(turn.child, turn.turn): (at, turn.at_s) for at, turn in facts.each(TurnBegan)}
    ends: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    active: dict[int, str] = {}
    over: set[tuple[int, str]] = set()
    given_up: set[tuple[int, str]] = set()
    for index, record in facts.all_of(TurnEnded, SeenEvent):
        if isinstance(record, TurnEnded):
            ends[record.turn].setdefault(record.child, (index, record.status))
        if not isinstance(record, SeenEvent):
            continue
        who = f"subscription {record.subscription} of {record.owner}"
        if record.type == "turn.started":
            before = active.get(record.subscription)
            if before is not None and before != record.turn:
                yield facts.violation("R3", index, f"{who}: {record.turn} begins, and {before} has not ended")
            if (record.subscription, record.turn) in over:
                yield facts.violation("R3", index, f"{who}: {record.turn} begins after its end")
            active[record.subscription] = record.turn
        status = TURN_ENDS.get(record.type)
        if status is None:
            if (record.subscription, record.turn) in given_up:
                yield facts.violation("R3", index, f"{who}: {record.type} of {record.turn}, which was given up")
            continue
        if (record.subscription, record.turn) in over:
            yield facts.violation("R3", index, f"{who}: {record.turn} ends again ({status})")
        over.add((record.subscription, record.turn))
        if active.get(record.subscription) == record.turn:
            del active[record.subscription]
        mine = [
            (at, said)
            for child, (at, said) in ends.get(record.turn, {}).items()
            if facts.owner_of.get(child) == record.owner
        ]
        is_given_up = status == "failed" and record.status == GIVEN_UP
        if is_given_up:
            # What is reported is reported at once; of a Side nobody knows when it was, a subscriber may be slow.
            reported = -1 if facts.is_side(record.owner) else facts.given_up[record.owner, record.turn]
            mine = [(at, said) for at, said in mine if at < reported]
            given_up.add((record.subscription, record.turn))
        if is_given_up and not mine:
            begins = [
                at_s
                for (child, turn), (at, at_s) in began.items()
                if at < index and (turn, facts.owner_of.get(child)) == (record.turn, record.owner)
            ]
            if any(round(record.at_s - at_s, 6) < DOUBT_S for at_s in begins):  # a sum of seconds is a little off
                yield facts.violation("R7", index, f"{who}: {record.turn} is given up as soon as it has begun")
        elif status not in [said for _, said in mine]:
            said = ", ".join(said for _, said in mine) or "nothing of its end"
            yield facts.violation("R7", index, f"{who}: {record.turn} is {status}, but the provider said {said}")
    yield from _check_returned(facts, ends)


def _check_returned(facts: Facts, ends: dict[str, dict[str, tuple[int, str]]]) -> Iterator[Violation]:
    for call in facts.calls:
        end = call.end
        if call.job.what not in ("wait", "ask") or end is None or call.ended is None or not end.returned:
            continue
        mine = [
            said for child, (_, said) in ends.get(end.turn, {}).items() if facts.owner_of.get(child) == call.job.owner
        ]
        if end.returned not in mine and not (end.returned == "failed" and end.reason == GIVEN_UP):
            problem = f"{call.job.owner} was told that {end.turn} is {end.returned}; the provider said {mine}"
            yield facts.violation("R7", call.ended, problem)
