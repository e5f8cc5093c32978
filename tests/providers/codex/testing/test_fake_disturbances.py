"""What the fake app-server does of itself, with no request before it."""

from collections.abc import Callable
from typing import Any

import pytest

from tutti_providers.codex.testing._fake_disturbances import Disturb, Disturbances
from tutti_providers.codex.testing._fake_outbox import Wake

MakeClient = Callable[..., Any]
"""The fixture of conftest.py."""

EVERY = (
    Disturbances.tighten_settings,
    Disturbances.drop_thread,
    Disturbances.play_sub_agent,
    Disturbances.ask_for_ended_turn,
    Disturbances.ask_for_permissions,
    Disturbances.take_question_back,
    Disturbances.resolve_nothing,
)


def disturb(client: Any, what: Disturb) -> list[str]:
    """Let it happen to the last of what it can happen to; return the threads concerned."""
    told: list[str] = []
    client.actions = client.machine.disturb(what, lambda count: count - 1, told.append)
    return told


def wakes(client: Any) -> list[int]:
    return [action.token for action in client.actions if isinstance(action, Wake)]


@pytest.mark.parametrize("what", EVERY, ids=lambda what: what.__name__)
def test_nothing_happens_and_nothing_is_told_where_there_is_nothing(make_client: MakeClient, what: Disturb) -> None:
    """Our choice: a fault that did not strike does not count."""
    client = make_client()

    assert disturb(client, what) == []
    assert client.actions == []


def test_a_session_is_restricted_step_by_step_until_it_can_be_no_further(make_client: MakeClient) -> None:
    """T3, R19: each update is a whole snapshot."""
    client = make_client(sandbox="danger-full-access")
    thread = client.start()
    seen = []
    while disturb(client, Disturbances.tighten_settings):
        (note,) = client.notes("thread/settings/updated")
        settings = note["threadSettings"]
        seen.append((settings["sandboxPolicy"]["type"], settings["approvalPolicy"]))

    assert note["threadId"] == thread
    assert seen == [("workspaceWrite", "on-request"), ("readOnly", "on-request"), ("readOnly", "never")]


def test_a_side_keeps_its_settings(make_client: MakeClient) -> None:
    """R19: what a Side may do comes with its turns; the server changes its source's only."""
    client = make_client()
    thread = client.start()
    client.fork(thread)

    assert disturb(client, Disturbances.tighten_settings) == [thread]


def test_a_thread_in_use_is_unloaded_and_its_turn_says_nothing_more(make_client: MakeClient) -> None:
    """F22, PROTOCOL 12: status first, then the end; here with a subscriber and in mid-turn."""
    client = make_client()
    thread = client.start(turns=0)
    client.turn(thread, "command")
    assert client.machine.pending_requests == [0]

    assert disturb(client, Disturbances.drop_thread) == [thread]
    assert client.methods[-2:] == ["thread/status/changed", "thread/closed"]
    client.actions.clear()
    client.answer(0, {"decision": "accept"})
    assert client.sent == []
    assert client.machine.pending_requests == []
    assert thread not in client.machine.threads


@pytest.mark.parametrize("way", [0, 1, 2])
def test_a_sub_agent_has_a_turn_of_its_own_under_the_turn_that_called_it(make_client: MakeClient, way: int) -> None:
    """F1: its events carry its own ids, on the same pipe; and it may begin before it is named."""
    client = make_client()
    thread = client.start(turns=0)
    client.turn(thread, "hold")

    for _ in range(way + 1):
        assert disturb(client, Disturbances.play_sub_agent) == [thread]
    early = client.methods
    for token in wakes(client):
        client.actions += client.machine.wake(token)
    child = client.machine.sub_agents
    *_, agent = child
    assert child[agent] == thread
    of_parent = [message["params"] for message in client.sent if message["params"].get("threadId") == thread]
    of_agent = [message for message in client.sent if message["params"].get("threadId") == agent]
    named = [params["item"] for params in of_parent]
    assert [message["method"] for message in of_agent][-3:] == [
        "item/agentMessage/delta",
        "item/fileChange/requestApproval",
        "turn/completed",
    ]
    assert len({message["params"].get("turnId") for message in of_agent[-3:-1]}) == 1
    if way == 0:
        assert early == ["item/started", "thread/status/changed", "turn/started"]
        assert [item["receiverThreadIds"] for item in named] == [[], [agent]]
    elif way == 1:
        assert early == ["thread/status/changed"]
        assert [(item["type"], item["agentThreadId"]) for item in named] == [("subAgentActivity", agent)]
    else:
        assert client.sent[0]["params"]["thread"]["parentThreadId"] == thread


def test_a_sub_agent_whose_caller_ends_first_is_never_named(make_client: MakeClient) -> None:
    """Our choice: what it said stays a stranger's."""
    client = make_client()
    thread = client.start(turns=0)
    turn = client.turn(thread, "hold")
    disturb(client, Disturbances.play_sub_agent)
    (token,) = wakes(client)
    client.call("turn/interrupt", threadId=thread, turnId=turn)
    assert client.machine.wake(token) == []


def test_a_turn_that_is_over_asks_something(make_client: MakeClient) -> None:
    """T7: nobody can answer for it any more; the server takes a refusal all the same."""
    client = make_client()
    thread = client.start(turns=0)
    turn = client.turn(thread, "hello")

    assert disturb(client, Disturbances.ask_for_ended_turn) == [thread]
    (asked,) = client.notes("mcpServer/elicitation/request")
    assert (asked["threadId"], asked["turnId"]) == (thread, turn)
    client.actions.clear()
    client.answer(0, {"action": "decline", "content": None})
    assert client.methods == ["serverRequest/resolved"]


@pytest.mark.parametrize("answer", [{"permissions": {}}, {"permissions": {"network": {"enabled": True}}}])
def test_a_turn_asks_for_more_than_its_policy_allows_and_waits_for_the_answer(
    make_client: MakeClient, answer: dict[str, Any]
) -> None:
    """R19: a Side has to refuse it."""
    client = make_client()
    thread = client.start(turns=0)
    turn = client.turn(thread, "hold")

    assert disturb(client, Disturbances.ask_for_permissions) == [thread]
    (asked,) = client.notes("item/permissions/requestApproval")
    assert (asked["threadId"], asked["turnId"], asked["permissions"]) == (thread, turn, {"network": {"enabled": True}})
    client.actions = client.machine.open_gate("held")
    assert client.notes("turn/completed") == []
    client.answer(0, answer)
    assert client.notes("turn/completed") != []


@pytest.mark.parametrize("text", ["command", "patch", "elicit"])
def test_what_a_turn_asks_is_taken_back_and_the_turn_goes_on(make_client: MakeClient, text: str) -> None:
    """F28: an answer may cross it, and counts for nothing."""
    client = make_client()
    thread = client.start(turns=0)
    client.turn(thread, text)

    assert disturb(client, Disturbances.take_question_back) == [thread]
    assert client.notes("serverRequest/resolved") == [{"threadId": thread, "requestId": 0}]
    (end,) = client.notes("turn/completed")
    assert end["turn"]["status"] == "completed"
    client.actions.clear()
    client.answer(0, {"decision": "accept"})
    assert client.sent == []


def test_a_request_that_never_was_is_called_resolved(make_client: MakeClient) -> None:
    """T4: the text "0" is not the number 0, which still waits."""
    client = make_client()
    thread = client.start(turns=0)
    client.turn(thread, "command")

    assert disturb(client, Disturbances.resolve_nothing) == [thread]
    assert client.notes("serverRequest/resolved") == [{"threadId": thread, "requestId": "0"}]
    assert client.machine.pending_requests == [0]
