"""Turns and questions of the fake app-server, where no recorded session shows them, in PROTOCOL's words."""

from collections.abc import Callable
from typing import Any

import pytest

from tutti_providers.codex.testing.app_server_script import (
    Wake,
)

MakeClient = Callable[..., Any]
"""The fixture of conftest.py."""


def turn_end(client: Any) -> dict[str, Any]:
    (end,) = client.notes("turn/completed")
    turn: dict[str, Any] = end["turn"]
    return turn


def statuses(client: Any) -> list[Any]:
    return [note["status"].get("activeFlags", note["status"]["type"]) for note in client.notes("thread/status/changed")]


# turns ----------------------------------------------------------------------------------------------------------------


def user_texts(client: Any) -> list[str]:
    items = [note["item"] for note in client.notes("item/started")]
    return [item["content"][0]["text"] for item in items if item["type"] == "userMessage"]


def test_a_turn_start_on_a_busy_thread_steers_and_cuts_the_reply_off(make_client: MakeClient) -> None:
    """PROTOCOL 2, T10: the same turn id, no second turn/started. Measured on 0.163: a streaming reply has no end."""
    client = make_client()
    thread = client.start()
    turn = client.turn(thread, "hold")
    client.actions.clear()

    assert client.turn(thread, "hold again") == turn
    assert client.call(
        "turn/steer", threadId=thread, expectedTurnId=turn, input=[{"type": "text", "text": "more"}]
    ) == {"turnId": turn}
    assert client.methods.count("turn/started") == 0
    assert user_texts(client) == ["hold again", "more"]
    assert [item["text"] for item in turn_end(client)["items"]] == ["Hello"]
    assert client.machine.open_gate("held") == []


def test_input_for_a_turn_that_waits_for_an_answer_comes_after_it(make_client: MakeClient) -> None:
    """PROTOCOL 1: steers; delivered after the decision."""
    client = make_client()
    thread = client.start()
    client.turn(thread, "command")
    client.turn(thread, "more")
    assert user_texts(client) == ["command"]
    client.answer(0, {"decision": "accept"})

    assert user_texts(client) == ["command", "more"]
    assert turn_end(client)["status"] == "completed"


def test_a_surplus_interrupt_hangs_on_the_older_version_until_the_next_turn_ends(make_client: MakeClient) -> None:
    """PROTOCOL 2, T9."""
    client = make_client()
    thread = client.start()
    turn = client.turn(thread, "hold")
    assert client.call("turn/interrupt", threadId=thread, turnId=turn) == {}
    surplus = client.ask("turn/interrupt", threadId=thread, turnId=turn)

    assert client.answers_to(surplus) == []
    client.turn(thread, "hello")
    assert client.answers_to(surplus) == [{"id": surplus, "result": {}}]


def test_a_surplus_interrupt_is_refused_on_the_newer_version(make_client: MakeClient) -> None:
    """PROTOCOL 2."""
    client = make_client(version="0.171.0")
    thread = client.start()
    turn = client.turn(thread, "hold")
    client.call("turn/interrupt", threadId=thread, turnId=turn)

    assert client.call("turn/interrupt", threadId=thread, turnId=turn)["message"] == "no active turn to interrupt"


def test_an_interrupted_command_runs_on_and_tells_its_end_after_the_turns(make_client: MakeClient) -> None:
    """PROTOCOL 2, T7 and T8."""
    client = make_client()
    thread = client.start()
    turn = client.turn(thread, "background")
    client.call("turn/interrupt", threadId=thread, turnId=turn)
    assert turn_end(client)["status"] == "interrupted"
    client.actions = client.machine.open_gate("slept")

    assert client.methods == ["item/commandExecution/outputDelta", "item/completed"]
    assert client.notes("item/completed")[0]["turnId"] == turn


def test_cleaning_kills_what_runs_in_the_background(make_client: MakeClient) -> None:
    """PROTOCOL 2: `thread/backgroundTerminals/clean`; measured on 0.163: the item fails with -1."""
    client = make_client()
    thread = client.start()
    turn = client.turn(thread, "background")
    client.call("turn/interrupt", threadId=thread, turnId=turn)
    client.actions.clear()
    client.call("thread/backgroundTerminals/clean", threadId=thread)

    (end,) = client.notes("item/completed")
    assert (end["item"]["status"], end["item"]["exitCode"]) == ("failed", -1)
    assert client.machine.open_gate("slept") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("refused", "We\u2019re currently experiencing high demand, which may cause temporary errors."),
        ("fails", "stream disconnected before completion: broke"),
        (
            "drops",
            "stream disconnected before completion: Transport error: network error: error decoding response body",
        ),
    ],
)
def test_a_failed_turn_says_so_and_the_next_one_works(make_client: MakeClient, text: str, message: str) -> None:
    """PROTOCOL 2; the words are those of 0.163 with the scripted model."""
    client = make_client()
    thread = client.start()
    client.turn(thread, text)

    assert client.methods[-4:] == ["thread/status/changed", "error", "thread/readState/changed", "turn/completed"]
    assert client.notes("thread/status/changed")[-1]["status"] == {"type": "systemError"}
    assert (turn_end(client)["status"], turn_end(client)["error"]["message"]) == ("failed", message)
    client.actions.clear()
    client.turn(thread, "hello")
    assert turn_end(client)["status"] == "completed"


def test_tokens_come_at_their_pace(make_client: MakeClient) -> None:
    """Our choice: time is the shell's; the machine asks to be woken."""
    client = make_client()
    client.turn(client.start(), "slow")
    for _ in range(2):
        wake = client.actions[-1]
        assert isinstance(wake, Wake)
        client.actions += client.machine.wake(wake.token)

    assert [note["delta"] for note in client.notes("item/agentMessage/delta")] == ["a", "b"]
    assert client.machine.wake(99999) == []


def test_reasoning_is_an_item_of_its_own(make_client: MakeClient) -> None:
    """Measured on 0.163."""
    client = make_client()
    client.turn(client.start(), "think")
    items = [note["item"] for note in client.notes("item/completed")]

    assert [item["type"] for item in items] == ["userMessage", "reasoning", "agentMessage"]


def test_settings_that_change_are_told_as_a_whole(make_client: MakeClient) -> None:
    """PROTOCOL 3: `thread/settings/updated` is a full snapshot."""
    client = make_client()
    thread = client.start()
    client.turn(thread, "hello", effort="high", sandboxPolicy={"type": "readOnly", "networkAccess": False})
    (note,) = client.notes("thread/settings/updated")
    client.actions.clear()
    client.turn(thread, "hello", effort="high")

    assert note["threadSettings"]["effort"] == "high"
    assert client.notes("thread/settings/updated") == []


# questions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "item", "turn"),
    [
        ({"result": {"decision": "accept"}}, "completed", "completed"),
        ({"result": {"decision": "acceptForSession"}}, "completed", "completed"),
        ({"result": {"decision": "decline"}}, "declined", "completed"),
        ({"result": {"decision": "cancel"}}, "declined", "interrupted"),
        ({"result": {"decision": "bogus"}}, "failed", "completed"),
        ({"result": {"decision": {"acceptWithExecpolicyAmendment": {}}}}, "completed", "completed"),
        ({"error": {"code": 1, "message": "no"}}, "failed", "completed"),
    ],
)
def test_each_decision_on_a_command_has_its_end(
    make_client: MakeClient, answer: dict[str, Any], item: str, turn: str
) -> None:
    """PROTOCOL 1, the table."""
    client = make_client()
    client.turn(client.start(), "command")
    (request,) = client.notes("item/commandExecution/requestApproval")
    assert (request["reason"], request["command"]) == ("Why not?", "/bin/bash -lc 'touch x'")
    client.actions.clear()
    client.send({"id": 0, **answer})

    assert client.methods[0] == "serverRequest/resolved"
    ends = [note["item"]["status"] for note in client.notes("item/completed") if "command" in note["item"]]
    assert (ends, turn_end(client)["status"]) == ([item], turn)


def test_only_the_exact_id_answers_and_only_once(make_client: MakeClient) -> None:
    """PROTOCOL 1, T4: "0" is not 0; the second answer is ignored."""
    client = make_client()
    client.turn(client.start(), "command")
    client.actions.clear()
    for wrong in ("0", 1, True, 0.0):
        client.answer(wrong, {"decision": "accept"})
    assert client.actions == []
    assert client.machine.pending_requests == [0]
    client.answer(0, {"decision": "decline"})
    sent = len(client.actions)
    client.answer(0, {"decision": "accept"})

    assert sent > 0
    assert len(client.actions) == sent


def test_an_acceptance_for_the_session_holds_for_that_thread_and_command(make_client: MakeClient) -> None:
    """PROTOCOL 1."""
    client = make_client()
    thread, other = client.start(), client.start()
    client.turn(thread, "command")
    client.answer(0, {"decision": "acceptForSession"})
    client.actions.clear()
    client.turn(thread, "command")
    assert client.notes("item/commandExecution/requestApproval") == []
    client.turn(other, "command")
    assert len(client.notes("item/commandExecution/requestApproval")) == 1


def test_a_policy_of_never_asks_nothing_and_runs_nothing(make_client: MakeClient) -> None:
    """Our choice: what needs an approval that nobody is asked for does not happen."""
    client = make_client()
    client.turn(client.start(approvalPolicy="never"), "command")

    assert [note["item"]["type"] for note in client.notes("item/started")] == ["userMessage", "agentMessage"]


@pytest.mark.parametrize(
    ("decision", "ends", "turn"),
    [("accept", ["completed"], "completed"), ("decline", ["declined"], "completed"), ("cancel", [], "interrupted")],
)
def test_a_patch_asks_after_its_item_and_shows_its_changes_there(
    make_client: MakeClient, decision: str, ends: list[str], turn: str
) -> None:
    """PROTOCOL 1, file change: the request carries no diff; a cancelled one has no item/completed (T7)."""
    client = make_client()
    client.turn(client.start(), "patch")
    started = [note["item"] for note in client.notes("item/started") if "changes" in note["item"]]
    assert started[0]["changes"] == [{"path": "/home/user/project/a.txt", "kind": {"type": "add"}, "diff": "hello\n"}]
    assert client.methods[-3:] == ["item/started", "thread/status/changed", "item/fileChange/requestApproval"]
    client.answer(0, {"decision": decision})

    assert [n["item"]["status"] for n in client.notes("item/completed") if "changes" in n["item"]] == ends
    diffs = [note["diff"] for note in client.notes("turn/diff/updated")]
    assert len(diffs) == (3 if decision == "accept" else 0)  # with the item, and after each round's usage
    assert turn_end(client)["status"] == turn


def test_a_question_is_asked_in_plan_mode_only(make_client: MakeClient) -> None:
    """PROTOCOL 1: otherwise the model gets an error and the client no request."""
    client = make_client()
    thread = client.start()
    client.turn(thread, "question")
    assert client.notes("item/tool/requestUserInput") == []
    mode = {"mode": "plan", "settings": {"model": "m", "reasoning_effort": None, "developer_instructions": None}}
    client.turn(thread, "question", collaborationMode=mode)
    (request,) = client.notes("item/tool/requestUserInput")

    assert (request["isBlocking"], request["questions"][0]["isOther"]) == (True, True)
    assert statuses(client)[-1] == ["waitingOnUserInput"]
    client.answer(0, {"answers": {}})
    assert client.notes("turn/completed")[-1]["turn"]["status"] == "completed"


def test_an_elicitation_waits_for_its_answer(make_client: MakeClient) -> None:
    """PROTOCOL 1: cancel does not interrupt the turn; the flag is waitingOnApproval."""
    client = make_client()
    client.turn(client.start(), "elicit")
    (request,) = client.notes("mcpServer/elicitation/request")
    assert (request["serverName"], request["message"], "environmentId" in request) == ("docs", "Name?", False)
    assert statuses(client)[-1] == ["waitingOnApproval"]
    client.answer(0, {"action": "cancel", "content": None})

    assert turn_end(client)["status"] == "completed"


def test_other_tools_end_at_once(make_client: MakeClient) -> None:
    """Our choice: nothing is run."""
    client = make_client()
    thread = client.start()
    client.turn(thread, "echo")
    client.turn(thread, "nonesuch")

    assert [note["turn"]["status"] for note in client.notes("turn/completed")] == ["completed", "completed"]


def test_a_pending_question_survives_the_unsubscribe_and_can_still_be_answered(make_client: MakeClient) -> None:
    """PROTOCOL 1, T6 and T21: no resolved, no end is told, and the command runs all the same."""
    client = make_client(unload_delay_s=1)
    thread = client.start()
    side = client.fork(thread)["thread"]["id"]
    client.turn(side, "command")
    client.call("thread/unsubscribe", threadId=side)
    assert not [action for action in client.actions if isinstance(action, Wake)]
    client.actions.clear()
    client.answer(0, {"decision": "accept"})

    assert set(client.methods) == {"thread/status/changed"}
    assert statuses(client)[-1] == "idle"
