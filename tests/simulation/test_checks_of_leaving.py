"""The checkers of how things are let go bite: for each a run that it lets pass, and one that breaks its rule."""

from collections.abc import Callable, Iterator

import msgspec
import pytest

from tutti_side.testing.simulation.checks import Context, Facts, Violation
from tutti_side.testing.simulation.checks.delivery import (
    agents_are_heard_from_their_start,
    subscriptions_end,
    turns_leave_nothing_asked,
    what_waited_was_seen,
    who_asked_for_all_sees_the_first,
)
from tutti_side.testing.simulation.checks.giving_up import (
    given_up_turns_do_not_run_on,
    joined_opens_outlive_each_other,
    turns_of_cut_calls_are_given_up,
)
from tutti_side.testing.simulation.checks.lifecycle import one_branch_for_each_identity
from tutti_side.testing.simulation.checks.releases import (
    deleted_sources_take_their_sides,
    turns_are_interrupted_before_their_release,
    what_is_over_is_released,
    what_waits_is_declined_before_its_release,
)
from tutti_side.testing.simulation.checks.sequence import turns_end_once_and_as_the_provider_said
from tutti_side.testing.simulation.checks.wire import parents_are_left_alone, steers_reach_their_own_turn
from tutti_side.testing.simulation.records import (
    Answered,
    Asked,
    BranchAnswered,
    BranchAsked,
    CommandsEnded,
    ConnectionEnded,
    ConnectionOpened,
    Fault,
    HostEnded,
    InterruptAsked,
    JobBegan,
    JobEnded,
    Read,
    Record,
    ReleaseAsked,
    Rested,
    SeenEvent,
    SideEnded,
    SideOpened,
    SteerAsked,
    Stored,
    SubscriptionBegan,
    SubscriptionEnded,
    TurnAnswered,
    TurnAsked,
    TurnBegan,
    TurnEnded,
    World,
)

CONTEXT = Context(world=World(answers={}, approvals={}), sides={"w/s1": "side-1"})

Check = Callable[[Facts], Iterator[Violation]]
Told = tuple[float, type[Record], dict[str, object]]


def told(at_s: float, kind: type[Record], /, **fields: object) -> Told:
    """One record; the connection is 0 unless it says otherwise."""
    names = {field.name for field in msgspec.structs.fields(kind)}
    return at_s, kind, ({"connection": 0} if "connection" in names else {}) | fields


def opened(at_s: float = 1.0) -> list[Told]:
    """The Side ``w/s1`` of ``p0``, child C, is opened."""
    return [
        told(0, ConnectionOpened),
        told(0, BranchAsked, request="1", source="P", owner="w/s1"),
        told(at_s, BranchAnswered, request="1", child="C"),
        told(at_s, SideOpened, owner="w/s1", source="p0", child="C"),
        told(at_s, SeenEvent, subscription=1, owner="w/s1", sequence=1, type="session.started", child="C"),
    ]


def seen(at_s: float, sequence: int, kind: str, **fields: object) -> Told:
    """An event of ``w/s1``."""
    return told(at_s, SeenEvent, subscription=1, owner="w/s1", sequence=sequence, type=kind, **fields)


def call(at_s: float, number: int, what: str, owner: str, **fields: object) -> Told:
    """A call begins."""
    return told(at_s, JobBegan, job=1, call=number, what=what, owner=owner, **fields)


def ended(at_s: float, number: int, outcome: str = "ok") -> Told:
    """It ends."""
    return told(at_s, JobEnded, job=1, call=number, outcome=outcome)


ASKED = told(2, Asked, request="0", child="C", turn="t", kind="command")
DECLINED = told(3, Answered, request="0", made_s=3, accepts=False)
READ = told(2, Read, bytes=10)
RELEASED = told(3, ReleaseAsked, child="C")
BEGAN = told(2, TurnBegan, child="C", turn="t", question="q")
LATE = told(200, Fault, fault="late_answer")
COMPLETED = told(3, TurnEnded, child="C", turn="t", status="completed")
OVER = told(3, SideEnded, owner="w/s1", reason="overflow")
ENDED_BEFORE = told(2, SideEnded, owner="w/s1", reason="closed")
OPENING = call(0, 8, "open", "w/s1", source="p0", request="r")
FOLLOWED = told(1, SubscriptionBegan, subscription=1, owner="w/s1", opened_by=8)
STEERED = call(1, 7, "steer", "p0", turn="t", detail="q")
AGENT_BEGAN = told(1, TurnBegan, child="A", turn="a", question="")


def of_agent(at_s: float, sequence: int, kind: str) -> Told:
    return seen(at_s, sequence, "sub_agent.event", child="A", status=kind)


CUT = [
    call(1, 5, "send", "w/s1", detail="q"),
    told(1, TurnAsked, request="7", child="C", question="q"),
    ended(2, 5, "cut off"),
    BEGAN,
    told(2, TurnAnswered, request="7", child="C", turn="t"),
]
GIVEN_UP = told(
    2,
    SeenEvent,
    subscription=1,
    owner="w/s1",
    sequence=2,
    type="turn.failed",
    status="terminal_event_missing",
    turn="t",
)
FIRST = [
    told(0, ConnectionOpened),
    told(0, BranchAsked, request="1", source="P", owner="w/s1"),
    told(3, BranchAnswered, request="1", child="C"),
]
SECOND = told(3, BranchAsked, request="2", source="P", owner="w/s1")
STARTED = [call(0, 1, "start", "p0"), told(0, JobEnded, job=1, call=1, outcome="ok", child="P")]
REPORTED = told(
    2,
    Stored,
    what="report",
    owner="p0",
    text='{"events":[{"type":"turn.failed","turn_id":"t","message":"","reason":"terminal_event_missing"}]}',
)
JOINED = [
    call(1, 1, "open", "w/s1", source="p0", request="r"),
    call(1, 2, "open", "w/s1", source="p0", request="r"),
]

CASES: dict[str, tuple[Check, str, list[Told], list[Told]]] = {
    "what is asked is declined behind the release": (
        what_waits_is_declined_before_its_release,
        "R11",
        [*opened(), ASKED, READ, DECLINED, RELEASED],
        [*opened(), ASKED, READ, RELEASED, DECLINED],
    ),
    "what we could not read yet is asked at the release": (
        what_waits_is_declined_before_its_release,
        "R11",
        [*opened(), ASKED, RELEASED],
        [*opened(), ASKED, READ, RELEASED],
    ),
    "a question whose turn has not ended": (
        what_waits_is_declined_before_its_release,
        "R11",
        [*opened(), ASKED, READ, told(3, TurnEnded, child="C", turn="t", status="canceled"), RELEASED],
        [*opened(), ASKED, READ, told(3, TurnEnded, child="C", turn="u", status="canceled"), RELEASED],
    ),
    "a turn that nobody interrupts": (
        turns_are_interrupted_before_their_release,
        "R6",
        [*opened(), BEGAN, READ, told(3, InterruptAsked, child="C", turn="t"), RELEASED],
        [*opened(), BEGAN, READ, told(3, InterruptAsked, child="C", turn="u"), RELEASED],
    ),
    "a turn that has not ended": (
        turns_are_interrupted_before_their_release,
        "R6",
        [*opened(), BEGAN, READ, told(3, TurnEnded, child="C", turn="t", status="completed"), RELEASED],
        [*opened(), BEGAN, READ, RELEASED],
    ),
    "a turn of which the provider says that it is over, and no more": (
        turns_are_interrupted_before_their_release,
        "R6",
        [*opened(), BEGAN, READ, told(3, Rested, child="C"), RELEASED],
        [*opened(), BEGAN, READ, told(3, Rested, child="D"), RELEASED],
    ),
    "a turn that begins when its Side is over, and is stopped then": (
        turns_are_interrupted_before_their_release,
        "R6",
        [*opened(), ENDED_BEFORE, BEGAN, READ, RELEASED, told(8, InterruptAsked, child="C", turn="t")],
        [*opened(), ENDED_BEFORE, BEGAN, READ, RELEASED, told(20, InterruptAsked, child="C", turn="t")],
    ),
    "a turn that began in a Side that was not over": (
        turns_are_interrupted_before_their_release,
        "R6",
        [*opened(), BEGAN, READ, told(3, InterruptAsked, child="C", turn="t"), RELEASED],
        [*opened(), BEGAN, READ, ENDED_BEFORE, RELEASED, told(8, InterruptAsked, child="C", turn="t")],
    ),
    "a turn that was lost with another connection": (
        turns_are_interrupted_before_their_release,
        "R6",
        [*opened(), BEGAN, READ, told(3, ReleaseAsked, child="C", connection=1)],
        [*opened(), BEGAN, READ, RELEASED],
    ),
    "a turn on a connection that reads": (
        turns_are_interrupted_before_their_release,
        "R6",
        [*opened(), told(2, Fault, fault="stops_reading"), BEGAN, READ, RELEASED],
        [*opened(), told(2, Fault, fault="late_answer"), BEGAN, READ, RELEASED],
    ),
    "a Side that is over and held": (
        what_is_over_is_released,
        "R6",
        [*opened(), OVER, RELEASED, LATE],
        [*opened(), OVER, LATE],
    ),
    "a Side that is released far too late": (
        what_is_over_is_released,
        "R6",
        [*opened(), OVER, told(30, ConnectionEnded), LATE],
        [*opened(), OVER, told(90, ReleaseAsked, child="C"), LATE],
    ),
    "a Side that lives on without its source": (
        deleted_sources_take_their_sides,
        "R8",
        [*opened(), call(2, 7, "delete", "p0"), RELEASED, ended(4, 7), LATE],
        [*opened(), call(2, 7, "delete", "p0"), ended(4, 7), LATE],
    ),
    "a subscription without an end": (
        subscriptions_end,
        "R9",
        [
            *opened(),
            told(3, SubscriptionEnded, subscription=1, owner="w/s1"),
            told(4, HostEnded, host=0, tasks=0, threads=0),
        ],
        [*opened(), told(4, HostEnded, host=0, tasks=0, threads=0)],
    ),
    "a question that is open behind its turn's end": (
        turns_leave_nothing_asked,
        "R11",
        [
            seen(1, 2, "interaction.requested", turn="t", interaction="0"),
            seen(2, 3, "interaction.resolved", interaction="0"),
            seen(3, 4, "turn.canceled", turn="t"),
        ],
        [
            seen(1, 2, "interaction.requested", turn="t", interaction="0"),
            seen(2, 3, "interaction.resolved", interaction="1"),
            seen(3, 4, "turn.canceled", turn="t"),
        ],
    ),
    "a question that waited and was never seen": (
        what_waited_was_seen,
        "R3",
        [
            *opened(),
            ASKED,
            seen(2, 2, "interaction.requested", interaction="0"),
            DECLINED,
            seen(4, 3, "session.closed"),
        ],
        [*opened(), ASKED, DECLINED, seen(4, 2, "session.closed")],
    ),
    "a question that was not refused at once": (
        what_waited_was_seen,
        "R3",
        [*opened(), ASKED, told(2, Answered, request="0", made_s=2, accepts=False), seen(4, 2, "session.closed")],
        [*opened(), ASKED, told(3, Answered, request="0", made_s=3, accepts=False), seen(4, 2, "session.closed")],
    ),
    "a question whose refusal waited for its writer": (
        what_waited_was_seen,
        "R3",
        [*opened(), ASKED, told(3, Answered, request="0", made_s=2, accepts=False), seen(4, 2, "session.closed")],
        [*opened(), ASKED, told(4, Answered, request="0", made_s=3, accepts=False), seen(4, 2, "session.closed")],
    ),
    "a question whose refusal was perhaps older than the open Side": (
        what_waited_was_seen,
        "R3",
        [
            told(0, Asked, request="0", child="C", turn="t", kind="command"),
            *opened(),
            told(2, Answered, request="0", made_s=1, accepts=False),
            seen(4, 2, "session.closed"),
        ],
        [
            told(0, Asked, request="0", child="C", turn="t", kind="command"),
            *opened(),
            told(2, Answered, request="0", made_s=2, accepts=False),
            seen(4, 2, "session.closed"),
        ],
    ),
    "a subscription that was asked for in time": (
        who_asked_for_all_sees_the_first,
        "R3",
        [OPENING, *opened(), FOLLOWED],
        [OPENING, *opened()[:-1], FOLLOWED, seen(2, 2, "state.patch")],
    ),
    "a sub-agent whose turn seems to have no start": (
        agents_are_heard_from_their_start,
        "R3",
        [FOLLOWED, AGENT_BEGAN, of_agent(2, 1, "turn.started"), of_agent(2, 2, "turn.completed")],
        [FOLLOWED, AGENT_BEGAN, of_agent(2, 1, "message.delta"), of_agent(2, 2, "turn.completed")],
    ),
    "a sub-agent whose turn began before anybody listened": (
        agents_are_heard_from_their_start,
        "R3",
        [AGENT_BEGAN, FOLLOWED, of_agent(2, 1, "turn.completed")],
        [FOLLOWED, AGENT_BEGAN, of_agent(2, 1, "turn.completed")],
    ),
    "a subscription that was not asked for later": (
        who_asked_for_all_sees_the_first,
        "R3",
        [*opened()[:-1], OPENING, FOLLOWED, seen(2, 2, "state.patch")],
        [OPENING, *opened()[:-1], FOLLOWED, seen(2, 2, "state.patch")],
    ),
    "a second branch in the instant in which the first is released": (
        one_branch_for_each_identity,
        "R4",
        [*FIRST, SECOND, told(3, ReleaseAsked, child="C")],
        [*FIRST, SECOND, told(4, ReleaseAsked, child="C")],
    ),
    "a turn that runs on when its call is cut": (
        turns_of_cut_calls_are_given_up,
        "R14",
        [*opened(), *CUT, told(2, InterruptAsked, child="C", turn="t"), COMPLETED],
        [*opened(), *CUT, told(2, InterruptAsked, child="C", turn="u"), COMPLETED],
    ),
    "a turn that begins when its Side is being closed": (
        turns_of_cut_calls_are_given_up,
        "R14",
        [*opened(), *CUT[:3], call(2, 6, "close", "w/s1"), *CUT[3:], COMPLETED],
        [*opened(), *CUT, call(2, 6, "close", "w/s1"), COMPLETED],
    ),
    "a turn that begins when its Side is over": (
        turns_of_cut_calls_are_given_up,
        "R14",
        [*opened(), *CUT[:3], OVER, *CUT[3:], COMPLETED],
        [*opened(), *CUT, OVER, COMPLETED],
    ),
    "a turn that answers another request than the call's": (
        turns_of_cut_calls_are_given_up,
        "R14",
        [*opened(), *CUT[:-1], told(2, TurnAnswered, request="9", child="C", turn="t"), COMPLETED],
        [*opened(), *CUT, COMPLETED],
    ),
    "a turn that was given up, begins after all and runs on": (
        given_up_turns_do_not_run_on,
        "R6",
        [*opened(), GIVEN_UP, BEGAN, told(2, InterruptAsked, child="C", turn="t"), COMPLETED],
        [*opened(), GIVEN_UP, BEGAN, told(2, InterruptAsked, child="C", turn="u"), COMPLETED],
    ),
    "a turn that was given up after it had begun": (
        given_up_turns_do_not_run_on,
        "R6",
        [*opened(), BEGAN, GIVEN_UP, COMPLETED],
        [*opened(), GIVEN_UP, BEGAN, COMPLETED],
    ),
    "a turn of which more is heard than its failing": (
        turns_end_once_and_as_the_provider_said,
        "R3",
        [*opened(), GIVEN_UP, seen(3, 3, "message.delta", turn="u", text="x")],
        [*opened(), GIVEN_UP, seen(3, 3, "message.delta", turn="t", text="x")],
    ),
    "a session's turn that was given up and is interrupted": (
        parents_are_left_alone,
        "R7",
        [*STARTED, REPORTED, told(3, InterruptAsked, child="P", turn="t")],
        [*STARTED, REPORTED, told(3, InterruptAsked, child="P", turn="u")],
    ),
    "a session's turn that is interrupted and given up then": (
        parents_are_left_alone,
        "R7",
        [*STARTED, REPORTED, told(3, InterruptAsked, child="P", turn="t")],
        [*STARTED, told(1, InterruptAsked, child="P", turn="t"), REPORTED],
    ),
    "a session's commands that its user ends": (
        parents_are_left_alone,
        "R7",
        [*STARTED, call(1, 7, "end commands", "p0"), told(1, CommandsEnded, child="P")],
        [*STARTED, call(1, 7, "end commands", "w/s1"), told(1, CommandsEnded, child="P")],
    ),
    "a turn that is given more": (
        steers_reach_their_own_turn,
        "R7",
        [*STARTED, STEERED, told(2, SteerAsked, child="P", turn="t", question="q")],
        [*STARTED, STEERED, told(2, SteerAsked, child="P", turn="u", question="q")],
    ),
    "what a turn is given": (
        steers_reach_their_own_turn,
        "R7",
        [*STARTED, STEERED, told(2, SteerAsked, child="P", turn="t", question="q")],
        [*STARTED, STEERED, told(2, SteerAsked, child="P", turn="t", question="another")],
    ),
    "an open that fails since another was cut": (
        joined_opens_outlive_each_other,
        "R14",
        [*JOINED, ended(2, 1, "cut off"), ended(3, 2, "OpenFailedError")],
        [*JOINED, ended(2, 2, "OpenFailedError"), ended(3, 1, "cut off")],
    ),
    "an open that fails without a word of the provider": (
        joined_opens_outlive_each_other,
        "R14",
        [*JOINED, told(2, ConnectionEnded), ended(2, 2, "OpenFailedError"), ended(3, 1, "cut off")],
        [*JOINED, ended(2, 2, "OpenFailedError"), ended(3, 1, "cut off")],
    ),
}


def rules(check: Check, run: list[Told]) -> list[str]:
    """The rules that a checker says a run breaks."""
    records = [msgspec.convert({**fields, "at_s": at_s, "record": kind.__name__}, kind) for at_s, kind, fields in run]
    return [violation.rule for violation in check(Facts(records, CONTEXT))]


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_breaks_the_rule_is_found_and_its_healthy_twin_passes(name: str) -> None:
    """R3, R6, R8, R9, R11, R14 as the simulation judges them. Source: our choice: a checker that can't fail is none."""
    check, rule, healthy, broken = CASES[name]

    assert rules(check, healthy) == []
    assert rules(check, broken) == [rule]
