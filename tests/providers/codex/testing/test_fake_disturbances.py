"""What the fake app-server does of itself, with no request before it."""

from collections.abc import Callable
from typing import Any

import pytest

from tutti_providers.codex.testing._fake_disturbances import Disturb, Disturbances

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


def test_a_sub_agent_has_a_turn_of_its_own_under_the_turn_that_called_it(make_client: MakeClient) -> None:
    """F1: its events carry its own ids, on the same pipe."""
    client = make_client()
    thread = client.start(turns=0)
    client.turn(thread, "hold")

    assert disturb(client, Disturbances.play_sub_agent) == [thread]
    started, *rest = client.sent
    child = started["params"]["thread"]["id"]
    assert started["params"]["thread"]["parentThreadId"] == thread
    assert child != thread
    assert {message["params"]["threadId"] for message in rest} == {child}
    assert client.methods[-1] == "turn/completed"


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
