"""One thread: what its messages become, and which turn is active, in every order in which the server may speak."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tutti_providers.codex import _thread_turns
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.schema.items import Turn
from tutti_providers.codex.schema.notifications import Head
from tutti_side.contract import (
    EndReason,
    Event,
    MessageDelta,
    MessageUpdated,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
    TurnStarted,
)
from tutti_side.jsonrpc import CODEX, Message, RequestId
from tutti_side.jsonrpc.codec import Codec

ME, TURN = "thread-1", TurnId("turn-1")


class Sink:
    """What the thread told."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.sizes: list[int] = []
        self.ends: list[str] = []

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        self.batches.append(list(events))
        self.sizes.append(size_bytes)

    def end(self, reason: EndReason) -> None:
        self.ends.append(reason)

    @property
    def turns(self) -> list[Event]:
        """What it told of turns and their text."""
        kinds = (TurnStarted, TurnCompleted, TurnFailed, TurnCanceled, MessageDelta, MessageUpdated)
        return [event for batch in self.batches for event in batch if isinstance(event, kinds)]


class Refusals:
    """Stands for the peer: keeps which requests were answered."""

    def __init__(self) -> None:
        self.answered: list[RequestId] = []

    def respond(self, request_id: RequestId, result: object) -> None:
        self.answered.append(request_id)

    def respond_error(self, request_id: RequestId, code: int, message: str) -> None:
        self.answered.append(request_id)

    def settle_request(self, request_id: RequestId) -> None:
        pass


class Lab:
    """A bound thread between a wire and a sink."""

    def __init__(self) -> None:
        self.sink = Sink()
        self.refusals = Refusals()
        self.thread = CodexThread(self.sink, self.refusals)
        self.thread.thread_id = ME

    def say(self, *messages: dict[str, Any]) -> None:
        lines = [msgspec.json.encode(message) for message in messages]
        read: list[Message[Head]] = list(Codec(Head, CODEX).decode_lines(lines))
        self.thread.deliver(read)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def started(turn: str = TURN) -> dict[str, Any]:
    return {"method": "turn/started", "params": {"threadId": ME, "turn": {"id": turn, "status": "inProgress"}}}


def completed(turn: str = TURN, status: str = "completed", error: str | None = None) -> dict[str, Any]:
    shape = {"id": turn, "status": status, "error": None if error is None else {"message": error}}
    return {"method": "turn/completed", "params": {"threadId": ME, "turn": shape}}


def delta(text: str, **changes: Any) -> dict[str, Any]:
    params = {"threadId": ME, "turnId": TURN, "itemId": "msg", "delta": text, **changes}
    return {"method": "item/agentMessage/delta", "params": {k: v for k, v in params.items() if v is not None}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    params = {"threadId": ME, "turnId": TURN, "item": {"type": kind, "id": "i", **fields}}
    return {"method": "item/completed", "params": params}


def approval() -> dict[str, Any]:
    params = {"threadId": ME, "turnId": TURN, "itemId": "i", "command": "ls"}
    return {"id": 7, "method": "item/commandExecution/requestApproval", "params": params}


def answer(turn: str = TURN) -> Turn:
    return Turn(id=turn, status="inProgress")


# what messages become


def test_a_turn_becomes_events_in_its_order_one_batch_a_read(lab: Lab) -> None:
    """R3: the kinds of the contract; the size is about that of the lines."""
    messages = [started(), delta("a"), delta("b"), item("agentMessage", text="ab"), completed()]
    lab.say(*messages)
    assert lab.sink.turns == [
        TurnStarted(TURN),
        MessageDelta(TURN, "msg", "a"),
        MessageDelta(TURN, "msg", "b"),
        MessageUpdated(TURN, "i", "ab"),
        TurnCompleted(TURN),
    ]
    assert len(lab.sink.batches) == 1
    assert lab.sink.sizes == [sum(len(msgspec.json.encode(message)) for message in messages)]


@pytest.mark.parametrize(
    ("status", "event"),
    [
        ("completed", TurnCompleted(TURN)),
        ("interrupted", TurnCanceled(TURN)),
        ("failed", TurnFailed(TURN, "words")),
        ("something new", TurnFailed(TURN, "words")),
    ],
)
def test_a_turns_end_says_how(lab: Lab, status: str, event: Event) -> None:
    """F34: the status is the word that counts; one that we don't know is no success."""
    lab.say(started(), completed(status=status, error="words"))
    assert lab.sink.turns[-1] == event


@pytest.mark.parametrize("missing", ["turnId", "itemId", "delta"])
def test_a_delta_that_lacks_a_part_is_dropped_and_the_next_is_not(lab: Lab, missing: str) -> None:
    """R9: nonsense on the hot path costs itself only."""
    lab.say(delta("a", **{missing: None}), delta("b"))
    assert lab.sink.turns == [MessageDelta(TURN, "msg", "b")]
    assert lab.thread.unread == {"malformed": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"method": "turn/started", "params": {"threadId": ME}},
        {"method": "turn/completed", "params": {"threadId": ME, "turn": {"id": 7}}},
        {"method": "item/completed", "params": {"threadId": ME, "turnId": TURN}},
        {"method": "thread/settings/updated", "params": {"threadId": ME, "threadSettings": {"cwd": 7}}},
    ],
    ids=lambda message: str(message["method"]),
)
def test_a_cold_message_without_its_form_is_dropped_and_counted(lab: Lab, message: dict[str, Any]) -> None:
    """R9."""
    lab.say(message, delta("b"))
    assert lab.sink.turns == [MessageDelta(TURN, "msg", "b")]
    assert lab.thread.unread == {"malformed": 1}


def test_what_we_do_not_model_is_counted_and_no_event(lab: Lab) -> None:
    """Our choice: a newer server says more."""
    lab.say({"method": "thread/newThing", "params": {"threadId": ME}}, item("newItem", deep={"a": [1]}))
    assert lab.sink.turns == []
    assert lab.thread.unread == {"not modelled": 2}


# turns, in every order

ORDERS = [order for size in (2, 3) for order in itertools.permutations(["answer", "started", "completed"], size)]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_the_active_turn_is_known_in_every_order_of_answer_start_and_end(lab: Lab, order: tuple[str, ...]) -> None:
    """F5, T7, T11: an end that comes before everything else is not lost, and nothing brings the turn back to life."""
    lab.thread.turns.begin_start()
    for what in order:
        if what == "answer":
            lab.thread.turns.end_start(answer())
        else:
            lab.say(started() if what == "started" else completed())
    ended = "completed" in order
    assert lab.thread.turns.active == (None if ended else TURN)
    assert lab.thread.is_busy is (not ended or "answer" not in order)
    assert lab.sink.turns.count(TurnCompleted(TURN)) == ended
    assert lab.thread.turns.start_settled.is_set() is ("answer" in order)
    if ended and TurnStarted(TURN) in lab.sink.turns:
        assert lab.sink.turns == [TurnStarted(TURN), TurnCompleted(TURN)]


def test_a_turn_is_in_doubt_when_its_thread_rests_afterwards_and_not_for_what_was_before() -> None:
    """R12, T7: a doubt asks the server. Right before a turn's end the word that its thread rests is none."""
    doubted: list[TurnId] = []
    lab = Lab()
    lab.thread = CodexThread(lab.sink, lab.refusals, on_doubt=lambda _, turn_id: doubted.append(turn_id))
    rests = {"method": "thread/status/changed", "params": {"threadId": ME, "status": {"type": "idle"}}}
    lab.say(rests)
    lab.say(started())
    assert doubted == []
    lab.say(rests)
    assert doubted == [TURN]
    lab.thread.turns.trust(TURN)
    lab.say(delta("a"))
    assert doubted == [TURN]
    lab.say(rests)
    assert doubted == [TURN] * 2
    lab.thread.turns.trust(TURN)
    lab.say(rests, completed())
    assert doubted == [TURN] * 2


def test_an_end_that_comes_twice_is_told_once(lab: Lab) -> None:
    """Contract: exactly one end for each turn; F9."""
    lab.say(started(), completed(), completed(status="interrupted"), started())
    assert lab.sink.turns == [TurnStarted(TURN), TurnCompleted(TURN)]
    assert lab.thread.unread["repeated end"] == 1
    assert not lab.thread.is_busy


def test_another_turns_end_leaves_the_active_one_running(lab: Lab) -> None:
    """F1, F8: a late end of an earlier turn."""
    lab.say(started("turn-0"), started(), completed("turn-0"))
    assert lab.thread.turns.active == TURN
    assert not lab.thread.turns.ended.is_set()
    lab.say(completed())
    assert lab.thread.turns.ended.is_set()


def test_an_item_after_its_turns_end_is_still_told_and_starts_nothing(lab: Lab) -> None:
    """T7: item/completed may come after turn/completed, or never."""
    lab.say(started(), completed(), item("agentMessage", text="late"))
    assert lab.sink.turns[-1] == MessageUpdated(TURN, "i", "late")
    assert lab.thread.turns.active is None


def test_a_start_that_fails_frees_the_thread(lab: Lab) -> None:
    """Our choice: the hook says none."""
    lab.thread.turns.begin_start()
    busy = [lab.thread.is_busy]
    lab.thread.turns.end_start(None)
    assert [*busy, lab.thread.is_busy] == [True, False]
    assert not lab.thread.turns.has_any


def test_only_so_many_ended_turns_are_remembered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12."""
    monkeypatch.setattr(_thread_turns, "ENDED_TURNS_MAX", 3)
    for number in range(10):
        lab.say(started(f"turn-{number}"), completed(f"turn-{number}"))
    assert list(lab.thread.turns.over) == ["turn-7", "turn-8", "turn-9"]


# its end


def test_a_thread_without_a_sink_still_follows_its_turn_and_refuses_requests(lab: Lab) -> None:
    """R6, R11, T5, T6: a close has to know that the turn ended, when nobody listens any more."""
    lab.say(started())
    lab.thread.detach()
    told = len(lab.sink.batches)
    request = {"method": "applyPatchApproval", "id": 0, "params": {"conversationId": ME, "callId": "c"}}
    lab.say(delta("a"), request, completed())
    assert len(lab.sink.batches) == told
    assert lab.refusals.answered == [0]
    assert lab.thread.turns.ended.is_set()
    lab.thread.connection_lost(1)
    assert lab.sink.ends == []


def test_a_lost_connection_settles_whatever_waits_and_is_told_once(lab: Lab) -> None:
    """R8, R9, F14, T16."""
    lab.thread.turns.begin_start()
    lab.say(started())
    lab.thread.connection_lost(-9)
    lab.thread.connection_lost(-9)
    lab.thread.crash(ValueError("a bug"))
    assert lab.sink.ends == ["lost"]
    assert (lab.thread.lost, lab.thread.exit_status, lab.thread.is_busy) == (True, -9, False)
    for event in (lab.thread.turns.start_settled, lab.thread.turns.ended, lab.thread.first_item):
        assert event.is_set()


def test_what_was_asked_on_a_connection_that_is_lost_waits_no_longer_and_is_not_refused(lab: Lab) -> None:
    """R9, R11: the request went with it; a refusal that nobody hears is none, and is not counted."""
    lab.say(started(), approval())
    assert len(lab.thread.interactions) == 1
    lab.thread.connection_lost(-9)
    assert len(lab.thread.interactions) == 0
    lab.thread.detach()
    assert (lab.refusals.answered, lab.thread.unread) == ([], {})


def test_a_thread_that_the_server_unloads_is_lost(lab: Lab) -> None:
    """F22: its close notification is the end of its session."""
    lab.say({"method": "thread/closed", "params": {"threadId": ME}}, delta("late"))
    assert lab.sink.ends == ["lost"]
    assert lab.sink.turns == []


def test_a_crash_of_its_route_ends_it_without_its_words(lab: Lab) -> None:
    """Architecture §3: contained. Its text may hold content, so nothing of it goes on."""
    lab.thread.crash(ValueError("model text"))
    assert lab.sink.ends == ["lost"]
    assert repr(lab.thread) == f"<CodexThread {ME}>"


@pytest.mark.parametrize("is_known", [False, True], ids=["given up", "ended as the server says"])
def test_what_a_turn_asked_whose_end_was_not_told_is_refused_before_it_ends(lab: Lab, is_known: bool) -> None:
    """R11, two fixed faults: the server may wait for it still, and no word of it would ever come."""
    lab.say(started(), approval())
    assert lab.refusals.answered == []
    if is_known:
        lab.thread.conclude(Turn(id=TURN, status="completed"))
    else:
        lab.thread.give_up(TURN)
    assert lab.refusals.answered == [7]
    last = [type(event).__name__ for event in lab.sink.batches[-1]]
    assert last == ["InteractionResolved", "TurnCompleted" if is_known else "TurnFailed"]


def test_a_start_that_is_answered_late_can_be_interrupted_also_when_its_thread_is_over(lab: Lab) -> None:
    """R6: its turn would run on, and nobody would hear of it. Source: our choice."""
    lab.thread.detach()
    lab.thread.note_late_start(TURN)
    assert lab.thread.turns.active == TURN
    lab.say(completed())
    lab.thread.note_late_start(TURN)
    assert lab.thread.turns.active is None
