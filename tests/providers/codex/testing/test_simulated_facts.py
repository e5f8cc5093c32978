"""What a simulated wire tells: facts read off the lines of one connection, at our own end."""

from typing import Any

import msgspec
import pytest

from tutti_providers.codex.testing._simulated_facts import WireFacts
from tutti_side.testing.simulation.records import (
    Answered,
    Asked,
    BoundaryDrawn,
    BranchAnswered,
    BranchAsked,
    InterruptAsked,
    Record,
    ReleaseAnswered,
    ReleaseAsked,
    Rested,
    ResumeAsked,
    Settled,
    TurnAnswered,
    TurnAsked,
    TurnBegan,
    TurnEnded,
    World,
    side_mark,
)

READ_ONLY = {"type": "readOnly", "networkAccess": False}
WRITES = {"type": "workspaceWrite"}


class Bench:
    """The facts of connection 3, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.records: list[Record] = []
        world = World(answers={"<p0/1>": ("p0/1 ",)}, approvals={})
        texts = {"t1": "say <p0/1>"}
        self.facts = WireFacts(3, world, lambda turn: texts.get(turn, ""), self.records.append, lambda: self.now)

    def send(self, message: dict[str, Any], queued_s: float | None = None) -> list[Record]:
        return self._told(self.facts.sent, message, self.now if queued_s is None else queued_s)

    def read(self, message: dict[str, Any]) -> list[Record]:
        return self._told(self.facts.received, message)

    def call(self, number: int, method: str, **params: Any) -> list[Record]:
        return self.send({"id": number, "method": method, "params": params})

    def note(self, method: str, **params: Any) -> list[Record]:
        return self.read({"method": method, "params": params})

    def open_session(self, sandbox: dict[str, Any] = WRITES) -> None:
        self.call(1, "thread/start")
        result = {"thread": {"id": "src"}, "approvalPolicy": "on-request", "sandbox": sandbox}
        assert self.read({"id": 1, "result": result}) == []

    def tighten(self) -> None:
        settings = {"approvalPolicy": "never", "sandboxPolicy": READ_ONLY}
        assert self.note("thread/settings/updated", threadId="src", threadSettings=settings) == []

    def fork(self, number: int = 2, **changed: Any) -> Any:
        asked = {"sandbox": "read-only", "approvalPolicy": "on-request", "approvalsReviewer": "user"} | changed
        (record,) = self.call(number, "thread/fork", threadId="src", developerInstructions=side_mark("w/s1"), **asked)
        return record

    def open_side(self) -> None:
        self.open_session()
        self.fork()
        self.read({"id": 2, "result": {"thread": {"id": "kid"}}})

    def turn(self, number: int, queued_s: float | None = None, **changed: Any) -> Any:
        policy = {"sandboxPolicy": WRITES, "approvalPolicy": "on-request", "approvalsReviewer": "user"} | changed
        params = {"threadId": "kid", "input": [{"type": "text", "text": "say <p0/1>"}], **policy}
        (record,) = self.send({"id": number, "method": "turn/start", "params": params}, queued_s)
        return record

    def _told(self, take: Any, message: dict[str, Any], *more: Any) -> list[Record]:
        before = len(self.records)
        line = msgspec.json.encode(message)
        assert take(line[:7], *more) == []
        assert take(line[7:] + b"\n", *more) == [line]
        return self.records[before:]


def test_a_branch_names_its_owner_and_its_child() -> None:
    """R4, R6."""
    bench = Bench()
    bench.open_session()

    asked = bench.fork()
    assert asked == BranchAsked(at_s=0.0, connection=3, request="2", source="src", owner="w/s1", restricted=True)
    assert bench.facts.thread_of(2) == "src"
    answer = {"id": 2, "result": {"thread": {"id": "kid"}}}
    assert bench.read(answer) == [BranchAnswered(at_s=0.0, connection=3, request="2", child="kid")]
    assert bench.read(answer) == []


@pytest.mark.parametrize("answer", [{"error": {"code": 1, "message": "no"}}, {"result": {"thread": {"id": "src"}}}])
def test_a_refusal_makes_no_child_and_neither_does_an_answer_that_names_an_old_thread(answer: dict[str, Any]) -> None:
    """R6, T20: nobody has to release what was there before."""
    bench = Bench()
    bench.open_session()
    bench.fork()

    assert bench.read({"id": 2} | answer) == [BranchAnswered(at_s=0.0, connection=3, request="2")]


@pytest.mark.parametrize(
    "changed", [{"sandbox": "workspace-write"}, {"approvalPolicy": "x"}, {"approvalsReviewer": "m"}]
)
def test_a_branch_that_asks_for_more_than_its_source_may_is_seen(changed: dict[str, Any]) -> None:
    """R19, T3."""
    bench = Bench()
    bench.open_session()

    assert not bench.fork(**changed).restricted


@pytest.mark.parametrize(
    "changed", [{"sandboxPolicy": {"type": "dangerFullAccess"}}, {"approvalPolicy": "x"}, {"approvalsReviewer": "m"}]
)
def test_a_sides_turn_that_asks_for_more_than_its_source_may_is_seen(changed: dict[str, Any]) -> None:
    """R19."""
    bench = Bench()
    bench.open_side()

    assert bench.turn(3) == TurnAsked(
        at_s=0.0, connection=3, request="3", child="kid", question="<p0/1>", restricted=True
    )
    assert not bench.turn(4, **changed).restricted


def test_a_sides_turn_carries_what_its_source_was_last_restricted_to() -> None:
    """R19, T3: from the moment on when we have read it; what was made before may still be on its way."""
    bench = Bench()
    bench.open_side()
    bench.now = 1.0
    bench.tighten()
    bench.now = 2.0

    assert not bench.turn(3).restricted
    assert bench.turn(4, queued_s=0.5).restricted
    assert bench.turn(5, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted


@pytest.mark.parametrize(("code", "restricted"), [(-32001, True), (-32603, False)])
def test_a_turn_that_is_sent_again_since_the_server_was_overloaded_was_made_the_first_time(
    code: int, restricted: bool
) -> None:
    """R19: any other refusal is a new question's matter."""
    bench = Bench()
    bench.open_side()
    bench.turn(3)
    bench.now = 1.0
    bench.tighten()
    bench.read({"id": 3, "error": {"code": code, "message": ""}})
    bench.now = 2.0

    assert bench.turn(4).restricted is restricted


def test_turns_begin_and_end_once_whatever_is_said_twice() -> None:
    """R3, F9: facts, not frames. What it answers is known also before its start is answered."""
    bench = Bench()
    began = bench.note("turn/started", threadId="src", turn={"id": "t1"})
    bench.note("turn/started", threadId="src", turn={"id": "t1"})
    ended = bench.note("turn/completed", threadId="src", turn={"id": "t1", "status": "interrupted"})
    bench.note("turn/completed", threadId="src", turn={"id": "t1", "status": "completed"})
    bench.note("turn/completed", threadId="src", turn={"id": 5, "status": []})

    assert began == [TurnBegan(at_s=0.0, connection=3, child="src", turn="t1", question="<p0/1>")]
    assert ended == [TurnEnded(at_s=0.0, connection=3, child="src", turn="t1", status="canceled")]
    assert bench.records == [*began, *ended]


@pytest.mark.parametrize(
    ("method", "params", "asked", "answered"),
    [
        ("turn/start", {}, TurnAsked, TurnAnswered(at_s=0.0, connection=3, request="1", child="a", turn="t")),
        ("turn/interrupt", {"turnId": "t"}, InterruptAsked, None),
        ("thread/resume", {}, ResumeAsked, None),
        ("thread/unsubscribe", {}, ReleaseAsked, ReleaseAnswered(at_s=0.0, connection=3, child="a")),
    ],
)
def test_what_we_ask_for_and_what_comes_of_it(
    method: str, params: dict[str, Any], asked: type[Record], answered: Record | None
) -> None:
    """R5, R7, R8."""
    bench = Bench()

    assert [type(record) for record in bench.call(1, method, threadId="a", **params)] == [asked]
    assert bench.read({"id": 1, "result": {"turn": {"id": "t"}}}) == ([] if answered is None else [answered])


def test_a_refused_release_is_none() -> None:
    """R6."""
    bench = Bench()
    bench.call(1, "thread/unsubscribe", threadId="a")

    assert bench.read({"id": 1, "error": {"code": 1, "message": ""}}) == []


@pytest.mark.parametrize(
    ("result", "accepts", "outside"),
    [
        ({"decision": "accept"}, True, False),
        ({"decision": "acceptForSession"}, True, False),
        ({"decision": "decline"}, False, False),
        ({"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["x"]}}}, True, True),
        ({"permissions": {"network": {}}}, True, True),
        ({"permissions": {}}, False, False),
        ({"answers": {"q": {"answers": ["x"]}}}, True, False),
        ({"answers": {}}, False, False),
        ({"action": "accept", "content": {}}, True, False),
        ({"action": "cancel", "content": None}, False, False),
    ],
)
def test_an_answer_says_whether_it_allows_anything_and_what_reaches_beyond_the_side(
    result: dict[str, Any], accepts: bool, outside: bool
) -> None:
    """R11, R19, T18."""
    bench = Bench()
    params = {"threadId": "kid", "turnId": "t"}
    asked = bench.read({"method": "item/commandExecution/requestApproval", "id": 0, "params": params})

    assert asked == [Asked(at_s=0.0, connection=3, request="0", child="kid", turn="t", kind="command")]
    told = bench.send({"id": 0, "result": result})
    assert told == [Answered(at_s=0.0, connection=3, request="0", made_s=0.0, accepts=accepts, outside=outside)]
    assert bench.note("serverRequest/resolved", threadId="kid", requestId=0) == []


def test_what_the_server_takes_back_is_settled_and_ids_of_two_types_are_two() -> None:
    """R11, T4."""
    bench = Bench()
    bench.read({"method": "item/tool/requestUserInput", "id": 0, "params": {"threadId": "kid"}})

    assert bench.note("serverRequest/resolved", threadId="kid", requestId="0") == []
    assert bench.note("serverRequest/resolved", threadId="kid", requestId=0) == [
        Settled(at_s=0.0, connection=3, request="0")
    ]


def test_garbage_tells_nothing() -> None:
    """F12."""
    bench = Bench()
    bench.facts.received(b'[1]\n7\n{"id":0,\xff}\n{"method":4}\n{"id":null,"result":{}}\n{"method":"turn/started"}\n')

    assert bench.records == []


@pytest.mark.parametrize("step", ["thread/backgroundTerminals/clean", "thread/unsubscribe"])
def test_a_source_that_is_closing_may_be_listened_to_or_not(step: str) -> None:
    """R19: its last word can come while it is being released. Source: our choice."""
    bench = Bench()
    bench.open_side()
    bench.call(3, step, threadId="src")
    bench.tighten()

    assert bench.turn(4).restricted
    assert bench.turn(5, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted
    assert not bench.turn(6, sandboxPolicy={"type": "dangerFullAccess"}).restricted


def test_what_is_said_of_a_source_that_is_being_loaded_binds_nobody_before_the_answer() -> None:
    """R19: it is kept for the load. Source: our choice."""
    bench = Bench()
    bench.open_side()
    bench.call(3, "thread/unsubscribe", threadId="src")
    bench.now = 1.0
    bench.call(4, "thread/resume", threadId="src")
    bench.now = 2.0
    bench.tighten()
    bench.now = 3.0

    assert bench.turn(5).restricted
    assert bench.turn(6, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted
    assert not bench.turn(7, sandboxPolicy={"type": "dangerFullAccess"}).restricted
    bench.read({"id": 4, "result": {"thread": {"id": "src"}, "approvalPolicy": "never", "sandbox": READ_ONLY}})
    bench.now = 4.0
    assert bench.turn(8, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted
    assert not bench.turn(9).restricted


def test_what_is_said_of_a_source_whose_load_was_refused_binds_nobody() -> None:
    """R19: nobody holds it. Source: our choice."""
    bench = Bench()
    bench.open_side()
    bench.call(3, "thread/unsubscribe", threadId="src")
    bench.call(4, "thread/resume", threadId="src")
    bench.read({"id": 4, "error": {"code": 1, "message": "no"}})
    bench.now = 1.0
    bench.tighten()
    bench.now = 2.0

    assert bench.turn(5).restricted
    assert bench.turn(6, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted


def test_what_a_closing_source_said_is_over_when_it_is_loaded_again() -> None:
    """R19: but not before the load is answered; and a turn that was begun before that may have heeded it."""
    bench = Bench()
    bench.open_side()
    bench.call(3, "thread/unsubscribe", threadId="src")
    bench.now = 1.0
    bench.tighten()
    bench.now = 2.0
    bench.call(4, "thread/resume", threadId="src")
    bench.now = 3.0
    assert bench.turn(5, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted
    assert bench.turn(6).restricted
    policy = {"approvalPolicy": "on-request", "sandbox": {"type": "workspaceWrite"}}
    bench.read({"id": 4, "result": {"thread": {"id": "src"}, **policy}})
    bench.now = 4.0

    assert bench.turn(7, queued_s=1.5, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted
    assert not bench.turn(8, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted
    assert bench.turn(9, sandboxPolicy=policy["sandbox"], approvalPolicy="on-request").restricted


@pytest.mark.parametrize(
    ("told", "answer", "is_drawn"),
    [
        (["told <w/s1>", "<side_conversation_boundary>"], {"result": {}}, True),
        (["told <w/s1>"], {"result": {}}, False),
        (["<side_conversation_boundary>", "told <w/s1>"], {"result": {}}, False),
        (["told nobody", "<side_conversation_boundary>"], {"result": {}}, False),
        ([], {"result": {}}, False),
        (["told <w/s1>", "<side_conversation_boundary>"], {"error": {"code": 1, "message": "no"}}, False),
    ],
)
def test_a_boundary_is_drawn_when_the_last_of_what_was_injected_is_one(
    told: list[str], answer: dict[str, object], is_drawn: bool
) -> None:
    """R15: only once the server has taken it, and behind the instructions that name the Side."""
    bench = Bench()
    bench.open_session()
    bench.fork()
    items = [{"type": "message", "content": [{"text": text.replace("<w/s1>", side_mark("w/s1"))}]} for text in told]
    bench.send({"id": 7, "method": "thread/inject_items", "params": {"threadId": "kid", "items": items}})

    drawn = [BoundaryDrawn(at_s=0.0, connection=3, child="kid", owner="w/s1")] if is_drawn else []
    assert bench.read({"id": 7, **answer}) == drawn


def test_an_end_that_was_not_told_is_known_from_the_list_of_turns_once() -> None:
    """R7: how a turn ended is what the provider says, also when it has to be asked."""
    bench = Bench()
    bench.open_session()
    bench.note("turn/started", threadId="src", turn={"id": "t"})
    turns = [{"id": "u", "status": "inProgress"}, {"id": "t", "status": "interrupted"}]

    for number, told in ((5, ["canceled"]), (6, [])):
        assert bench.call(number, "thread/turns/list", threadId="src") == []
        ends = bench.read({"id": number, "result": {"data": turns}})
        assert [end.status for end in ends if isinstance(end, TurnEnded)] == told
    assert bench.note("turn/completed", threadId="src", turn={"id": "t", "status": "completed"}) == []


@pytest.mark.parametrize("status", ["idle", "active"])
def test_that_nothing_runs_in_a_thread_is_known_from_its_status(status: str) -> None:
    """R6: a Side says no more of a turn whose end was not told."""
    bench = Bench()
    bench.open_side()
    assert bench.call(5, "thread/read", threadId="kid") == []

    told = bench.read({"id": 5, "result": {"thread": {"id": "kid", "status": {"type": status}}}})

    assert told == ([Rested(at_s=0.0, connection=3, child="kid")] if status == "idle" else [])


def test_a_source_that_only_had_its_commands_ended_is_listened_to() -> None:
    """R19: it has a turn afterwards, so it was not closed."""
    bench = Bench()
    bench.open_side()
    bench.call(3, "thread/backgroundTerminals/clean", threadId="src")
    bench.call(4, "turn/start", threadId="src")
    bench.now = 1.0
    bench.tighten()
    bench.now = 2.0

    assert not bench.turn(5).restricted
    assert bench.turn(6, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted


def test_the_answer_of_a_load_that_was_given_up_says_nothing_of_a_later_one() -> None:
    """R19: it comes later, and what it says is older. Source: our choice."""
    bench = Bench()
    bench.open_side()
    bench.call(3, "thread/unsubscribe", threadId="src")
    bench.call(4, "thread/resume", threadId="src")
    bench.now = 1.0
    bench.call(5, "thread/resume", threadId="src")
    bench.read({"id": 5, "result": {"thread": {"id": "src"}, "approvalPolicy": "never", "sandbox": READ_ONLY}})
    bench.now = 2.0
    bench.read({"id": 4, "result": {"thread": {"id": "src"}, "approvalPolicy": "on-request", "sandbox": WRITES}})
    bench.now = 3.0

    assert bench.turn(6, sandboxPolicy=READ_ONLY, approvalPolicy="never").restricted
    assert not bench.turn(7).restricted
