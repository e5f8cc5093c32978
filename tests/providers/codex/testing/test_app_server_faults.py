"""The faults that a fake app-server can be told to commit."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tutti_providers.codex.testing import (
    AnswerLate,
    AnswerTwice,
    CrashAfterSends,
    CrashOn,
    FakeSetup,
    ForkAnswer,
    ForkOrder,
    GarbageBefore,
    NeverAnswer,
    Overloaded,
    StopReading,
    StoredThread,
    Strangers,
    TurnStartsFirst,
)
from tutti_providers.codex.testing.app_server_faults import CrashAfterEffect, Fault, Refuse, TurnFails
from tutti_providers.codex.testing.app_server_script import (
    OPEN_GATE_METHOD,
    Exit,
    SendBytes,
    SendMessage,
    StopsReading,
    Wake,
)

MakeClient = Callable[..., Any]
"""The fixture of conftest.py."""

UNKNOWN = "01a22bc4-9361-7b43-aa3a-000000000000"


def turn_end(client: Any) -> dict[str, Any]:
    (end,) = client.notes("turn/completed")
    turn: dict[str, Any] = end["turn"]
    return turn


def test_a_request_can_stay_without_answer_and_effect(make_client: MakeClient) -> None:
    """PROTOCOL 9, T14."""
    client = make_client(NeverAnswer(method="thread/fork", times=1))
    thread = client.start()
    client.ask("thread/fork", threadId=thread, ephemeral=True, excludeTurns=True)

    assert client.actions == []
    assert list(client.machine.threads) == [thread]
    assert client.fork(thread)["thread"]["ephemeral"]


def test_an_overloaded_server_says_so_and_does_nothing(make_client: MakeClient) -> None:
    """PROTOCOL 9."""
    client = make_client(Overloaded(method="thread/start", times=2))
    codes = [client.call("thread/start").get("code") for _ in range(3)]

    assert codes == [-32001, -32001, None]
    assert len(client.machine.threads) == 1


def test_an_answer_can_come_twice(make_client: MakeClient) -> None:
    """F16."""
    client = make_client(AnswerTwice(method="thread/loaded/list"))

    assert len(client.answers_to(client.ask("thread/loaded/list"))) == 2


@pytest.mark.parametrize("held", [{"gate": "answer"}, {"after_s": 9.0}])
def test_a_forks_answer_can_be_held_and_its_child_is_there_all_the_same(
    make_client: MakeClient, held: dict[str, Any]
) -> None:
    """F18: the fork completes later than anyone waits."""
    client = make_client(AnswerLate(method="thread/fork", **held))
    thread = client.start()
    request = client.ask("thread/fork", threadId=thread, ephemeral=True, excludeTurns=True)
    assert client.methods == []
    assert len(client.machine.threads) == 2
    wakes = [action for action in client.actions if isinstance(action, Wake)]
    client.actions = client.machine.wake(wakes[0].token) if wakes else client.machine.open_gate("answer")

    assert client.methods == ["answer", "thread/started"]
    assert len(client.answers_to(request)) == 1


def test_a_turn_can_end_before_its_start_is_answered(make_client: MakeClient) -> None:
    """F5."""
    client = make_client(AnswerLate(method="turn/start", gate="answer", times=1))
    thread = client.start(turns=0)
    client.ask("turn/start", threadId=thread, input=[{"type": "text", "text": "hello"}])

    assert client.methods[-1] == "turn/completed"
    assert "answer" not in client.methods
    client.actions = client.machine.open_gate("answer")
    assert client.methods == ["answer"]


def test_a_turn_can_start_before_its_start_is_answered(make_client: MakeClient) -> None:
    """T11, one in ten on the real one."""
    client = make_client(TurnStartsFirst())
    client.turn(client.start(turns=0), "hello")

    assert client.methods[:5] == ["warning", "thread/status/changed", "turn/started", "answer", "item/started"]


@pytest.mark.parametrize(
    "order",
    [
        ("starting", "response", "started", "ready"),
        ("started", "starting", "ready", "status", "response"),
        ("status", "request", "started", "response"),
        ("starting", "ready"),
    ],
)
def test_the_messages_about_a_child_come_in_any_order(make_client: MakeClient, order: tuple[Any, ...]) -> None:
    """F3, F4 and T11: an answer that was left out comes last."""
    client = make_client(ForkOrder(order=order), tool_servers=("docs",))
    thread = client.start()
    client.fork(thread)
    names = {
        "starting": "mcpServer/startupStatus/updated",
        "ready": "mcpServer/startupStatus/updated",
        "status": "thread/status/changed",
        "started": "thread/started",
        "request": "mcpServer/elicitation/request",
        "response": "answer",
    }
    wanted = order if "response" in order else (*order, "response")

    assert client.methods == [names[name] for name in wanted]


def test_a_question_about_a_new_child_has_no_turn(make_client: MakeClient) -> None:
    """PROTOCOL 1: `turnId` is nullable."""
    client = make_client(ForkOrder(order=("request", "response")))
    client.fork(client.start())
    (request,) = client.notes("mcpServer/elicitation/request")
    client.actions.clear()
    client.answer(0, {"action": "decline", "content": None})

    assert request["turnId"] is None
    assert client.methods == ["serverRequest/resolved"]


def test_a_forks_answer_can_lie(make_client: MakeClient) -> None:
    """PROTOCOL 14, T20: a persistent fork, a wrong lineage, another model than asked for."""
    lie = ForkAnswer(thread={"ephemeral": False, "path": "/x"}, result={"model": "other"}, without=("forkedFromId",))
    client = make_client(lie)
    result = client.fork(client.start(), model="gpt-5.5")

    assert (result["thread"]["ephemeral"], result["thread"]["path"], result["model"]) == (False, "/x", "other")
    assert "forkedFromId" not in result["thread"]


def test_strangers_speak_up_before_the_answer(make_client: MakeClient) -> None:
    """F1 and F2: another thread's turn on the same pipe, and its question."""
    client = make_client(Strangers(method="turn/start", times=1, thread_id=UNKNOWN))
    client.turn(client.start(turns=0), "hello")

    assert [message["params"]["threadId"] for message in client.sent[:5]] == [UNKNOWN] * 5
    assert client.methods[4] == "turn/completed"
    assert client.sent[3]["id"] == "stranger"


def test_garbage_comes_before_what_a_request_causes(make_client: MakeClient) -> None:
    """F12: a banner on stdout."""
    client = make_client(GarbageBefore(method="thread/loaded/list", data=b"banner\n"))
    client.ask("thread/loaded/list")

    assert client.actions[0] == SendBytes(data=b"banner\n")
    assert isinstance(client.actions[1], SendMessage)


def test_a_crash_comes_instead_of_an_answer_or_after_so_many_messages(make_client: MakeClient) -> None:
    """Required: process loss at every step."""
    client = make_client(CrashOn(method="thread/fork", status=7))
    thread = client.start()
    client.ask("thread/fork", threadId=thread)
    assert client.actions == [Exit(status=7)]

    counted = make_client(CrashAfterSends(sends=4, status=9), initialize=False)
    counted.ask("initialize", clientInfo={"name": "me"})
    counted.ask("thread/start")
    assert counted.methods == ["answer", "remoteControl/status/changed", "answer", "thread/started"]
    assert counted.actions[-1] == Exit(status=9)


def test_a_server_can_stop_reading(make_client: MakeClient) -> None:
    """R9: what is sent afterwards piles up in the pipe."""
    client = make_client(StopReading(method="thread/loaded/list"))
    client.ask("thread/loaded/list")

    assert client.actions[-1] == StopsReading()


def test_a_gate_in_another_process_is_opened_by_a_notification(make_client: MakeClient) -> None:
    """Our choice: the fake's own method; everything else is the app-server's."""
    client = make_client()
    client.turn(client.start(), "hold")
    assert client.machine.gate_arrivals("held") == 1
    client.send({"method": OPEN_GATE_METHOD, "params": {"gate": "held"}})

    assert turn_end(client)["status"] == "completed"


def test_a_setup_survives_being_sent_to_another_process() -> None:
    """Our choice: set-ups are data."""
    faults: tuple[Fault, ...] = (
        NeverAnswer(method="*"),
        ForkAnswer(thread={"path": None}),
        ForkOrder(order=("started", "response")),
        GarbageBefore(method="x", data=b"\xff\n"),
    )
    setup = FakeSetup(faults=faults, stored=(StoredThread(thread_id="x"),))

    assert msgspec.json.decode(msgspec.json.encode(setup), type=FakeSetup) == setup


def test_what_the_client_sent_can_be_read(make_client: MakeClient) -> None:
    """Our choice: tests assert the wire from here."""
    client = make_client()
    client.start()

    assert [call["threadId"] for call in client.machine.calls("turn/start")] == list(client.machine.threads)
    assert client.machine.received[0]["method"] == "initialize"


def test_a_request_can_be_refused_without_effect(make_client: MakeClient) -> None:
    """F21: a close that fails."""
    client = make_client(Refuse(method="thread/unsubscribe", times=1))
    thread = client.start()

    assert client.call("thread/unsubscribe", threadId=thread)["code"] == -32603
    assert client.machine.threads[thread].subscribed
    assert client.call("thread/unsubscribe", threadId=thread) == {"status": "unsubscribed"}


def test_a_process_can_die_between_effect_and_answer(make_client: MakeClient) -> None:
    """F35: nobody knows whether it was done."""
    client = make_client(CrashAfterEffect(method="thread/unsubscribe", status=7))
    thread = client.start()
    client.ask("thread/unsubscribe", threadId=thread)

    assert client.actions == [Exit(status=7)]
    assert not client.machine.threads[thread].subscribed


def test_a_forks_answer_can_name_a_thread_that_was_there_before(make_client: MakeClient) -> None:
    """T20: releasing what such an answer names would release the parent. No child is made."""
    client = make_client(ForkAnswer(known_child=True))
    thread = client.start()

    assert client.fork(thread)["thread"]["id"] == thread
    assert list(client.machine.threads) == [thread]


@pytest.mark.parametrize("after_tokens", [0, 1])
def test_the_model_can_fail_in_a_turn(make_client: MakeClient, after_tokens: int) -> None:
    """PROTOCOL 2: a failed turn ends as failed, and the next one works."""
    client = make_client(TurnFails(after_tokens=after_tokens, times=1))
    thread = client.start(turns=0)
    client.turn(thread, "hello")

    assert turn_end(client)["status"] == "failed"
    assert len(client.notes("item/agentMessage/delta")) == after_tokens
    client.actions.clear()
    client.turn(thread, "hello")
    assert turn_end(client)["status"] == "completed"


def test_a_server_can_stop_reading_for_a_time(make_client: MakeClient) -> None:
    """R9."""
    client = make_client(StopReading(method="thread/loaded/list", for_s=3.0))
    client.ask("thread/loaded/list")

    assert client.actions[-1] == StopsReading(for_s=3.0)


def test_threads_that_had_a_turn_are_there_for_a_later_process(make_client: MakeClient) -> None:
    """PROTOCOL 3: a thread without any turn is on no disk, and a Side never is."""
    client = make_client()
    thread = client.start()
    client.start(turns=0)
    client.turn(client.fork(thread)["thread"]["id"], "hello")

    stored = client.machine.persisted
    assert list(stored) == [thread]
    later = make_client(stored=tuple(stored.values()))
    assert later.call("thread/resume", threadId=thread)["thread"]["id"] == thread
