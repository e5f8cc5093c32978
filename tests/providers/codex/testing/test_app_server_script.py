"""The fake app-server as a pure machine: what every client meets, and forks, in PROTOCOL's words."""

from collections.abc import Callable
from typing import Any

import pytest

from tutti_providers.codex.testing import (
    StoredThread,
)
from tutti_providers.codex.testing.app_server_script import (
    Action,
    Exit,
    Wake,
)

MakeClient = Callable[..., Any]
"""The fixture of conftest.py."""

UNKNOWN = "01a22bc4-9361-7b43-aa3a-000000000000"


# what every client meets ----------------------------------------------------------------------------------------------


def test_nothing_is_answered_before_initialize_and_it_only_once(make_client: MakeClient) -> None:
    """PROTOCOL 8: -32600 Not initialized, Already initialized, missing clientInfo; a retry is allowed."""
    client = make_client(initialize=False)

    assert client.call("thread/start")["message"] == "Not initialized"
    assert client.call("initialize")["message"] == "Invalid request: missing field `clientInfo`"
    assert client.call("initialize", clientInfo={"name": "a/1", "version": "2"})["userAgent"].startswith(
        "a/1/0.163.0 ("
    )
    assert client.call("initialize", clientInfo={"name": "x"})["message"] == "Already initialized"


def test_the_user_agent_can_be_anything(make_client: MakeClient) -> None:
    """F38: what a version check has to refuse."""
    client = make_client(initialize=False, user_agent="me/0.0.0-dev")

    assert client.call("initialize", clientInfo={"name": "me"})["userAgent"] == "me/0.0.0-dev"


def test_experimental_fields_need_the_capability(make_client: MakeClient) -> None:
    """PROTOCOL 13."""
    client = make_client(initialize=False)
    client.call("initialize", clientInfo={"name": "me"})
    thread = client.start()

    mode = {"mode": "plan", "settings": {"model": "m"}}
    for error in (
        client.call("turn/start", threadId=thread, input=[], collaborationMode=mode),
        client.fork(thread, beforeTurnId="x"),
        client.call("thread/backgroundTerminals/clean", threadId=thread),
    ):
        assert error["message"].endswith("requires experimentalApi capability")


@pytest.mark.parametrize(
    "line", [b"", b"nonsense", b"1", b"[]", b'{"id":1} {"id":2}', b'{"a":"\\ud800"}', b"[" * 9999, b'{"id":null}']
)
def test_a_line_that_is_no_request_is_skipped(make_client: MakeClient, line: bytes) -> None:
    """PROTOCOL 8: no reply, the connection survives."""
    client = make_client()

    assert client.machine.receive_line(line) == []
    assert client.call("thread/loaded/list")["data"] == []


def test_invalid_utf8_ends_the_server(make_client: MakeClient) -> None:
    """PROTOCOL 8 and T15: exit status 0."""
    assert make_client().machine.receive_line(b'{"a":"\xff"}') == [Exit(status=0)]


def test_the_end_of_input_ends_the_server_without_a_word_about_its_turns(make_client: MakeClient) -> None:
    """PROTOCOL 7, T16: status 0 does not mean completed."""
    client = make_client()
    client.turn(client.start(), "hold")

    assert client.machine.end_of_input() == [Exit(status=0)]


def test_a_request_without_params_is_refused(make_client: MakeClient) -> None:
    """PROTOCOL 8, T15."""
    client = make_client()
    client.send({"id": 1, "method": "thread/loaded/list"})

    assert client.sent == [{"id": 1, "error": {"code": -32600, "message": "Invalid request: missing field `params`"}}]


def test_equal_setups_and_inputs_give_equal_outputs(make_client: MakeClient) -> None:
    """Our choice: the simulation's traces depend on it."""

    def session() -> list[Action]:
        client = make_client(seed=7, jitter=True, tool_servers=("docs",))
        actions: list[Action] = []
        thread = client.start()
        for _ in range(5):
            client.fork(thread)
            client.turn(thread, "slow")
            actions += client.actions
            client.actions.clear()
        return actions

    assert session() == session()


# forks ----------------------------------------------------------------------------------------------------------------


def test_a_fork_inherits_cwd_and_approval_but_not_model_provider_and_sandbox(make_client: MakeClient) -> None:
    """PROTOCOL 3, T3."""
    client = make_client()
    source = client.start(
        cwd="/elsewhere",
        model="gpt-5.5",
        modelProvider="other",
        approvalPolicy="never",
        approvalsReviewer="auto_review",
        sandbox="workspace-write",
    )

    plain = client.fork(source)
    asked = client.fork(source, model="gpt-5.5", modelProvider="other", approvalsReviewer="user")

    assert (plain["cwd"], plain["approvalPolicy"], plain["approvalsReviewer"]) == ("/elsewhere", "never", "auto_review")
    assert (plain["model"], plain["modelProvider"], plain["sandbox"]["type"]) == ("mock-model", "mock", "readOnly")
    assert (asked["model"], asked["modelProvider"], asked["approvalsReviewer"]) == ("gpt-5.5", "other", "user")


def test_a_thread_without_a_turn_and_a_side_cannot_be_forked(make_client: MakeClient) -> None:
    """PROTOCOL 5, T13: the same words for the empty source, the nested fork and the unknown thread."""
    client = make_client()
    empty = client.start(turns=0)
    side = client.fork(client.start())["thread"]["id"]

    for source in (empty, side, UNKNOWN):
        assert client.fork(source)["message"] == f"no rollout found for thread id {source}"


def test_the_first_turn_of_a_thread_can_be_forked_while_it_runs(make_client: MakeClient) -> None:
    """PROTOCOL 3: "first turn ever, running: works"."""
    client = make_client()
    thread = client.start(turns=0)
    client.turn(thread, "hold")

    assert client.fork(thread)["thread"]["forkedFromId"] == thread


def test_a_stored_thread_is_forked_without_being_loaded(make_client: MakeClient) -> None:
    """PROTOCOL 6: historical fork; an archived one is refused."""
    archived = "01a22bc4-9361-7b43-aa3a-000000000001"
    stored = (StoredThread(thread_id=UNKNOWN), StoredThread(thread_id=archived, archived=True))
    client = make_client(stored=stored)
    child = client.fork(UNKNOWN)["thread"]

    assert (child["forkedFromId"], child["ephemeral"], child["path"]) == (UNKNOWN, True, None)
    assert client.call("thread/loaded/list")["data"] == [child["id"]]
    assert client.call("thread/read", threadId=UNKNOWN)["thread"]["status"] == {"type": "notLoaded"}
    assert "is archived" in client.fork(archived)["message"]


def test_reading_a_side_tells_nothing_of_its_lineage(make_client: MakeClient) -> None:
    """PROTOCOL 4."""
    client = make_client()
    side = client.fork(client.start())["thread"]["id"]
    shape = client.call("thread/read", threadId=side)["thread"]

    assert (shape["forkedFromId"], shape["preview"]) == (None, "")


def test_injected_items_are_kept_for_the_test_to_read(make_client: MakeClient) -> None:
    """Required: instructions and boundary are asserted from here."""
    client = make_client()
    side = client.fork(client.start())["thread"]["id"]
    item = {"type": "message", "role": "developer", "content": []}

    assert client.call("thread/inject_items", threadId=side, items=[item]) == {}
    assert list(client.machine.threads[side].injected) == [item]


@pytest.mark.parametrize("version", ["0.163.0", "0.171.0"])
def test_a_thread_nobody_subscribes_is_unloaded_after_the_delay(make_client: MakeClient, version: str) -> None:
    """PROTOCOL 12 and F22: status notLoaded and closed, also to those who left; then it is not found."""
    client = make_client(version=version, unload_delay_s=60)
    thread = client.start()
    side = client.fork(thread)["thread"]["id"]
    client.actions.clear()
    client.call("thread/unsubscribe", threadId=side)
    (wake,) = [action for action in client.actions if isinstance(action, Wake)]
    assert wake.after_s == 60
    client.actions = client.machine.wake(wake.token)

    assert client.methods == ["thread/status/changed", "thread/closed"]
    assert client.call("turn/start", threadId=side, input=[])["message"] == f"thread not found: {side}"
    assert client.call("thread/unsubscribe", threadId=side) == {"status": "notLoaded"}


def test_a_fork_sets_its_own_unload_delay_on_the_newer_version_only(make_client: MakeClient) -> None:
    """PROTOCOL 12."""
    for version, delays in (("0.163.0", []), ("0.171.0", [0])):
        client = make_client(version=version)
        side = client.fork(client.start(), config={"thread_unload_delay_secs": 0})["thread"]["id"]
        client.call("thread/unsubscribe", threadId=side)
        assert [action.after_s for action in client.actions if isinstance(action, Wake)] == delays
