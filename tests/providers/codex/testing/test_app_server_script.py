"""The fake app-server as a pure machine: what no recorded session shows, in PROTOCOL's words; and its faults."""

from typing import Any

import msgspec
import pytest

from tutti_providers.codex.testing import (
    Answer,
    AnswerLate,
    AnswerTwice,
    AppServerMachine,
    CallTool,
    CrashAfterSends,
    CrashOn,
    Drop,
    Fail,
    FakeSetup,
    ForkAnswer,
    ForkOrder,
    GarbageBefore,
    ModelScript,
    NeverAnswer,
    Overloaded,
    Pause,
    Reason,
    Reply,
    Say,
    StopReading,
    StoredThread,
    Strangers,
    TurnStartsFirst,
    apply_patch,
    ask_user,
    run_command,
)
from tutti_providers.codex.testing.app_server_faults import Fault
from tutti_providers.codex.testing.app_server_script import (
    OPEN_GATE_METHOD,
    Action,
    Exit,
    SendBytes,
    SendMessage,
    StopsReading,
    Wake,
)

UNKNOWN = "01a22bc4-9361-7b43-aa3a-000000000000"

HELD = Answer.of(Say(tokens=("a", "b")), Pause(gate="held"), Say(tokens=("c",)), when="hold")


def with_tool(call: CallTool, when: str) -> Answer:
    return Answer(when=when, replies=(Reply(steps=(call,)), Reply(steps=(Say(tokens=("ok",)),))))


SCRIPT = ModelScript(
    answers=(
        HELD,
        with_tool(run_command("touch x", justification="Why not?"), "command"),
        with_tool(run_command("sleep 9", runs_until="slept"), "background"),
        with_tool(apply_patch("*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch"), "patch"),
        with_tool(ask_user([{"id": "q", "question": "Which?"}]), "question"),
        with_tool(CallTool(name="ask", namespace="mcp__docs", arguments='{"message":"Name?"}'), "elicit"),
        with_tool(CallTool(name="echo", namespace="mcp__docs", arguments="{}"), "echo"),
        with_tool(CallTool(name="nonesuch", arguments="{}"), "nonesuch"),
        Answer.of(Reason(summary="hm"), Say(tokens=("thought",)), when="think"),
        Answer.of(Say(tokens=("a", "b"), delay_s=0.5), when="slow"),
        Answer.of(Fail(), when="refused"),
        Answer.of(Say(tokens=("a",)), Fail(message="broke"), when="fails"),
        Answer.of(Say(tokens=("a",)), Drop(), when="drops"),
    ),
    otherwise=Reply(steps=(Say(tokens=("Hello",)),)),
)


class Client:
    """Talks to a machine and keeps what it sent."""

    def __init__(self, *faults: Fault, initialize: bool = True, **setup: Any) -> None:
        self.machine = AppServerMachine(FakeSetup(script=SCRIPT, faults=faults, **setup))
        self.actions: list[Action] = []
        self._ids = 100
        if initialize:
            self.call("initialize", clientInfo={"name": "me", "version": "1"}, capabilities={"experimentalApi": True})
        self.actions.clear()

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [action.message for action in self.actions if isinstance(action, SendMessage)]

    @property
    def methods(self) -> list[str]:
        return [message.get("method", "answer") for message in self.sent]

    def send(self, message: dict[str, Any]) -> None:
        self.actions += self.machine.receive(message)

    def ask(self, method: str, **params: Any) -> int:
        self._ids += 1
        self.send({"id": self._ids, "method": method, "params": params})
        return self._ids

    def answers_to(self, request_id: int) -> list[dict[str, Any]]:
        return [message for message in self.sent if message.get("id") == request_id and "method" not in message]

    def call(self, method: str, **params: Any) -> Any:
        """The result, or the error."""
        (answer,) = self.answers_to(self.ask(method, **params))
        return answer["result"] if "result" in answer else answer["error"]

    def start(self, *, turns: int = 1, **params: Any) -> str:
        thread_id: str = self.call("thread/start", **params)["thread"]["id"]
        for _ in range(turns):
            self.turn(thread_id, "hello")
        self.actions.clear()
        return thread_id

    def turn(self, thread_id: str, text: str, **params: Any) -> str:
        result = self.call("turn/start", threadId=thread_id, input=[{"type": "text", "text": text}], **params)
        return str(result["turn"]["id"])

    def fork(self, thread_id: str, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.call(
            "thread/fork", **{"threadId": thread_id, "ephemeral": True, "excludeTurns": True, **params}
        )
        return result

    def notes(self, method: str) -> list[dict[str, Any]]:
        return [message["params"] for message in self.sent if message.get("method") == method]

    def answer(self, request_id: Any, result: Any) -> None:
        self.send({"id": request_id, "result": result})


def turn_end(client: Client) -> dict[str, Any]:
    (end,) = client.notes("turn/completed")
    turn: dict[str, Any] = end["turn"]
    return turn


def statuses(client: Client) -> list[Any]:
    return [note["status"].get("activeFlags", note["status"]["type"]) for note in client.notes("thread/status/changed")]


# what every client meets ----------------------------------------------------------------------------------------------


def test_nothing_is_answered_before_initialize_and_it_only_once() -> None:
    """PROTOCOL 8: -32600 Not initialized, Already initialized, missing clientInfo; a retry is allowed."""
    client = Client(initialize=False)

    assert client.call("thread/start")["message"] == "Not initialized"
    assert client.call("initialize")["message"] == "Invalid request: missing field `clientInfo`"
    assert client.call("initialize", clientInfo={"name": "a/1", "version": "2"})["userAgent"].startswith(
        "a/1/0.163.0 ("
    )
    assert client.call("initialize", clientInfo={"name": "x"})["message"] == "Already initialized"


def test_the_user_agent_can_be_anything() -> None:
    """F38: what a version check has to refuse."""
    client = Client(initialize=False, user_agent="me/0.0.0-dev")

    assert client.call("initialize", clientInfo={"name": "me"})["userAgent"] == "me/0.0.0-dev"


def test_experimental_fields_need_the_capability() -> None:
    """PROTOCOL 13."""
    client = Client(initialize=False)
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
def test_a_line_that_is_no_request_is_skipped(line: bytes) -> None:
    """PROTOCOL 8: no reply, the connection survives."""
    client = Client()

    assert client.machine.receive_line(line) == []
    assert client.call("thread/loaded/list")["data"] == []


def test_invalid_utf8_ends_the_server() -> None:
    """PROTOCOL 8 and T15: exit status 0."""
    assert Client().machine.receive_line(b'{"a":"\xff"}') == [Exit(status=0)]


def test_the_end_of_input_ends_the_server_without_a_word_about_its_turns() -> None:
    """PROTOCOL 7, T16: status 0 does not mean completed."""
    client = Client()
    client.turn(client.start(), "hold")

    assert client.machine.end_of_input() == [Exit(status=0)]


def test_a_request_without_params_is_refused() -> None:
    """PROTOCOL 8, T15."""
    client = Client()
    client.send({"id": 1, "method": "thread/loaded/list"})

    assert client.sent == [{"id": 1, "error": {"code": -32600, "message": "Invalid request: missing field `params`"}}]


def test_equal_setups_and_inputs_give_equal_outputs() -> None:
    """Our choice: the simulation's traces depend on it."""

    def session() -> list[Action]:
        client = Client(seed=7, jitter=True, tool_servers=("docs",))
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


def test_a_fork_inherits_cwd_and_approval_but_not_model_provider_and_sandbox() -> None:
    """PROTOCOL 3, T3."""
    client = Client()
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


def test_a_thread_without_a_turn_and_a_side_cannot_be_forked() -> None:
    """PROTOCOL 5, T13: the same words for the empty source, the nested fork and the unknown thread."""
    client = Client()
    empty = client.start(turns=0)
    side = client.fork(client.start())["thread"]["id"]

    for source in (empty, side, UNKNOWN):
        assert client.fork(source)["message"] == f"no rollout found for thread id {source}"


def test_the_first_turn_of_a_thread_can_be_forked_while_it_runs() -> None:
    """PROTOCOL 3: "first turn ever, running: works"."""
    client = Client()
    thread = client.start(turns=0)
    client.turn(thread, "hold")

    assert client.fork(thread)["thread"]["forkedFromId"] == thread


def test_a_stored_thread_is_forked_without_being_loaded() -> None:
    """PROTOCOL 6: historical fork; an archived one is refused."""
    archived = "01a22bc4-9361-7b43-aa3a-000000000001"
    stored = (StoredThread(thread_id=UNKNOWN), StoredThread(thread_id=archived, archived=True))
    client = Client(stored=stored)
    child = client.fork(UNKNOWN)["thread"]

    assert (child["forkedFromId"], child["ephemeral"], child["path"]) == (UNKNOWN, True, None)
    assert client.call("thread/loaded/list")["data"] == [child["id"]]
    assert client.call("thread/read", threadId=UNKNOWN)["thread"]["status"] == {"type": "notLoaded"}
    assert "is archived" in client.fork(archived)["message"]


def test_reading_a_side_tells_nothing_of_its_lineage() -> None:
    """PROTOCOL 4."""
    client = Client()
    side = client.fork(client.start())["thread"]["id"]
    shape = client.call("thread/read", threadId=side)["thread"]

    assert (shape["forkedFromId"], shape["preview"]) == (None, "")


def test_injected_items_are_kept_for_the_test_to_read() -> None:
    """Issue A: instructions and boundary are asserted from here."""
    client = Client()
    side = client.fork(client.start())["thread"]["id"]
    item = {"type": "message", "role": "developer", "content": []}

    assert client.call("thread/inject_items", threadId=side, items=[item]) == {}
    assert list(client.machine.threads[side].injected) == [item]


@pytest.mark.parametrize("version", ["0.163.0", "0.171.0"])
def test_a_thread_nobody_subscribes_is_unloaded_after_the_delay(version: str) -> None:
    """PROTOCOL 12 and F22: status notLoaded and closed, also to those who left; then it is not found."""
    client = Client(version=version, unload_delay_s=60)
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


def test_a_fork_sets_its_own_unload_delay_on_the_newer_version_only() -> None:
    """PROTOCOL 12."""
    for version, delays in (("0.163.0", []), ("0.171.0", [0])):
        client = Client(version=version)
        side = client.fork(client.start(), config={"thread_unload_delay_secs": 0})["thread"]["id"]
        client.call("thread/unsubscribe", threadId=side)
        assert [action.after_s for action in client.actions if isinstance(action, Wake)] == delays


# turns ----------------------------------------------------------------------------------------------------------------


def user_texts(client: Client) -> list[str]:
    items = [note["item"] for note in client.notes("item/started")]
    return [item["content"][0]["text"] for item in items if item["type"] == "userMessage"]


def test_a_turn_start_on_a_busy_thread_steers_and_cuts_the_reply_off() -> None:
    """PROTOCOL 2, T10: the same turn id, no second turn/started. Measured on 0.163: a streaming reply has no end."""
    client = Client()
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


def test_input_for_a_turn_that_waits_for_an_answer_comes_after_it() -> None:
    """PROTOCOL 1: steers; delivered after the decision."""
    client = Client()
    thread = client.start()
    client.turn(thread, "command")
    client.turn(thread, "more")
    assert user_texts(client) == ["command"]
    client.answer(0, {"decision": "accept"})

    assert user_texts(client) == ["command", "more"]
    assert turn_end(client)["status"] == "completed"


def test_a_surplus_interrupt_hangs_on_the_older_version_until_the_next_turn_ends() -> None:
    """PROTOCOL 2, T9."""
    client = Client()
    thread = client.start()
    turn = client.turn(thread, "hold")
    assert client.call("turn/interrupt", threadId=thread, turnId=turn) == {}
    surplus = client.ask("turn/interrupt", threadId=thread, turnId=turn)

    assert client.answers_to(surplus) == []
    client.turn(thread, "hello")
    assert client.answers_to(surplus) == [{"id": surplus, "result": {}}]


def test_a_surplus_interrupt_is_refused_on_the_newer_version() -> None:
    """PROTOCOL 2."""
    client = Client(version="0.171.0")
    thread = client.start()
    turn = client.turn(thread, "hold")
    client.call("turn/interrupt", threadId=thread, turnId=turn)

    assert client.call("turn/interrupt", threadId=thread, turnId=turn)["message"] == "no active turn to interrupt"


def test_an_interrupted_command_runs_on_and_tells_its_end_after_the_turns() -> None:
    """PROTOCOL 2, T7 and T8."""
    client = Client()
    thread = client.start()
    turn = client.turn(thread, "background")
    client.call("turn/interrupt", threadId=thread, turnId=turn)
    assert turn_end(client)["status"] == "interrupted"
    client.actions = client.machine.open_gate("slept")

    assert client.methods == ["item/commandExecution/outputDelta", "item/completed"]
    assert client.notes("item/completed")[0]["turnId"] == turn


def test_cleaning_kills_what_runs_in_the_background() -> None:
    """PROTOCOL 2: `thread/backgroundTerminals/clean`; measured on 0.163: the item fails with -1."""
    client = Client()
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
def test_a_failed_turn_says_so_and_the_next_one_works(text: str, message: str) -> None:
    """PROTOCOL 2; the words are those of 0.163 with the scripted model."""
    client = Client()
    thread = client.start()
    client.turn(thread, text)

    assert client.methods[-4:] == ["thread/status/changed", "error", "thread/readState/changed", "turn/completed"]
    assert client.notes("thread/status/changed")[-1]["status"] == {"type": "systemError"}
    assert (turn_end(client)["status"], turn_end(client)["error"]["message"]) == ("failed", message)
    client.actions.clear()
    client.turn(thread, "hello")
    assert turn_end(client)["status"] == "completed"


def test_tokens_come_at_their_pace() -> None:
    """Our choice: time is the shell's; the machine asks to be woken."""
    client = Client()
    client.turn(client.start(), "slow")
    for _ in range(2):
        wake = client.actions[-1]
        assert isinstance(wake, Wake)
        client.actions += client.machine.wake(wake.token)

    assert [note["delta"] for note in client.notes("item/agentMessage/delta")] == ["a", "b"]
    assert client.machine.wake(99999) == []


def test_reasoning_is_an_item_of_its_own() -> None:
    """Measured on 0.163."""
    client = Client()
    client.turn(client.start(), "think")
    items = [note["item"] for note in client.notes("item/completed")]

    assert [item["type"] for item in items] == ["userMessage", "reasoning", "agentMessage"]


def test_settings_that_change_are_told_as_a_whole() -> None:
    """PROTOCOL 3: `thread/settings/updated` is a full snapshot."""
    client = Client()
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
def test_each_decision_on_a_command_has_its_end(answer: dict[str, Any], item: str, turn: str) -> None:
    """PROTOCOL 1, the table."""
    client = Client()
    client.turn(client.start(), "command")
    (request,) = client.notes("item/commandExecution/requestApproval")
    assert (request["reason"], request["command"]) == ("Why not?", "/bin/bash -lc 'touch x'")
    client.actions.clear()
    client.send({"id": 0, **answer})

    assert client.methods[0] == "serverRequest/resolved"
    ends = [note["item"]["status"] for note in client.notes("item/completed") if "command" in note["item"]]
    assert (ends, turn_end(client)["status"]) == ([item], turn)


def test_only_the_exact_id_answers_and_only_once() -> None:
    """PROTOCOL 1, T4: "0" is not 0; the second answer is ignored."""
    client = Client()
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


def test_an_acceptance_for_the_session_holds_for_that_thread_and_command() -> None:
    """PROTOCOL 1."""
    client = Client()
    thread, other = client.start(), client.start()
    client.turn(thread, "command")
    client.answer(0, {"decision": "acceptForSession"})
    client.actions.clear()
    client.turn(thread, "command")
    assert client.notes("item/commandExecution/requestApproval") == []
    client.turn(other, "command")
    assert len(client.notes("item/commandExecution/requestApproval")) == 1


def test_a_policy_of_never_asks_nothing_and_runs_nothing() -> None:
    """Our choice: what needs an approval that nobody is asked for does not happen."""
    client = Client()
    client.turn(client.start(approvalPolicy="never"), "command")

    assert [note["item"]["type"] for note in client.notes("item/started")] == ["userMessage", "agentMessage"]


@pytest.mark.parametrize(
    ("decision", "ends", "turn"),
    [("accept", ["completed"], "completed"), ("decline", ["declined"], "completed"), ("cancel", [], "interrupted")],
)
def test_a_patch_asks_after_its_item_and_shows_its_changes_there(decision: str, ends: list[str], turn: str) -> None:
    """PROTOCOL 1, file change: the request carries no diff; a cancelled one has no item/completed (T7)."""
    client = Client()
    client.turn(client.start(), "patch")
    started = [note["item"] for note in client.notes("item/started") if "changes" in note["item"]]
    assert started[0]["changes"] == [{"path": "/home/user/project/a.txt", "kind": {"type": "add"}, "diff": "hello\n"}]
    assert client.methods[-3:] == ["item/started", "thread/status/changed", "item/fileChange/requestApproval"]
    client.answer(0, {"decision": decision})

    assert [n["item"]["status"] for n in client.notes("item/completed") if "changes" in n["item"]] == ends
    diffs = [note["diff"] for note in client.notes("turn/diff/updated")]
    assert len(diffs) == (3 if decision == "accept" else 0)  # with the item, and after each round's usage
    assert turn_end(client)["status"] == turn


def test_a_question_is_asked_in_plan_mode_only() -> None:
    """PROTOCOL 1: otherwise the model gets an error and the client no request."""
    client = Client()
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


def test_an_elicitation_waits_for_its_answer() -> None:
    """PROTOCOL 1: cancel does not interrupt the turn; the flag is waitingOnApproval."""
    client = Client()
    client.turn(client.start(), "elicit")
    (request,) = client.notes("mcpServer/elicitation/request")
    assert (request["serverName"], request["message"], "environmentId" in request) == ("docs", "Name?", False)
    assert statuses(client)[-1] == ["waitingOnApproval"]
    client.answer(0, {"action": "cancel", "content": None})

    assert turn_end(client)["status"] == "completed"


def test_other_tools_end_at_once() -> None:
    """Our choice: nothing is run."""
    client = Client()
    thread = client.start()
    client.turn(thread, "echo")
    client.turn(thread, "nonesuch")

    assert [note["turn"]["status"] for note in client.notes("turn/completed")] == ["completed", "completed"]


def test_a_pending_question_survives_the_unsubscribe_and_can_still_be_answered() -> None:
    """PROTOCOL 1, T6 and T21: no resolved, no end is told, and the command runs all the same."""
    client = Client(unload_delay_s=1)
    thread = client.start()
    side = client.fork(thread)["thread"]["id"]
    client.turn(side, "command")
    client.call("thread/unsubscribe", threadId=side)
    assert not [action for action in client.actions if isinstance(action, Wake)]
    client.actions.clear()
    client.answer(0, {"decision": "accept"})

    assert set(client.methods) == {"thread/status/changed"}
    assert statuses(client)[-1] == "idle"


# faults ---------------------------------------------------------------------------------------------------------------


def test_a_request_can_stay_without_answer_and_effect() -> None:
    """PROTOCOL 9, T14."""
    client = Client(NeverAnswer(method="thread/fork", times=1))
    thread = client.start()
    client.ask("thread/fork", threadId=thread, ephemeral=True, excludeTurns=True)

    assert client.actions == []
    assert list(client.machine.threads) == [thread]
    assert client.fork(thread)["thread"]["ephemeral"]


def test_an_overloaded_server_says_so_and_does_nothing() -> None:
    """PROTOCOL 9."""
    client = Client(Overloaded(method="thread/start", times=2))
    codes = [client.call("thread/start").get("code") for _ in range(3)]

    assert codes == [-32001, -32001, None]
    assert len(client.machine.threads) == 1


def test_an_answer_can_come_twice() -> None:
    """F16."""
    client = Client(AnswerTwice(method="thread/loaded/list"))

    assert len(client.answers_to(client.ask("thread/loaded/list"))) == 2


@pytest.mark.parametrize("held", [{"gate": "answer"}, {"after_s": 9.0}])
def test_a_forks_answer_can_be_held_and_its_child_is_there_all_the_same(held: dict[str, Any]) -> None:
    """F18: the fork completes later than anyone waits."""
    client = Client(AnswerLate(method="thread/fork", **held))
    thread = client.start()
    request = client.ask("thread/fork", threadId=thread, ephemeral=True, excludeTurns=True)
    assert client.methods == []
    assert len(client.machine.threads) == 2
    wakes = [action for action in client.actions if isinstance(action, Wake)]
    client.actions = client.machine.wake(wakes[0].token) if wakes else client.machine.open_gate("answer")

    assert client.methods == ["answer", "thread/started"]
    assert len(client.answers_to(request)) == 1


def test_a_turn_can_end_before_its_start_is_answered() -> None:
    """F5."""
    client = Client(AnswerLate(method="turn/start", gate="answer", times=1))
    thread = client.start(turns=0)
    client.ask("turn/start", threadId=thread, input=[{"type": "text", "text": "hello"}])

    assert client.methods[-1] == "turn/completed"
    assert "answer" not in client.methods
    client.actions = client.machine.open_gate("answer")
    assert client.methods == ["answer"]


def test_a_turn_can_start_before_its_start_is_answered() -> None:
    """T11, one in ten on the real one."""
    client = Client(TurnStartsFirst())
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
def test_the_messages_about_a_child_come_in_any_order(order: tuple[Any, ...]) -> None:
    """F3, F4 and T11: an answer that was left out comes last."""
    client = Client(ForkOrder(order=order), tool_servers=("docs",))
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


def test_a_question_about_a_new_child_has_no_turn() -> None:
    """PROTOCOL 1: `turnId` is nullable."""
    client = Client(ForkOrder(order=("request", "response")))
    client.fork(client.start())
    (request,) = client.notes("mcpServer/elicitation/request")
    client.actions.clear()
    client.answer(0, {"action": "decline", "content": None})

    assert request["turnId"] is None
    assert client.methods == ["serverRequest/resolved"]


def test_a_forks_answer_can_lie() -> None:
    """PROTOCOL 14, T20: a persistent fork, a wrong lineage, another model than asked for."""
    lie = ForkAnswer(thread={"ephemeral": False, "path": "/x"}, result={"model": "other"}, without=("forkedFromId",))
    client = Client(lie)
    result = client.fork(client.start(), model="gpt-5.5")

    assert (result["thread"]["ephemeral"], result["thread"]["path"], result["model"]) == (False, "/x", "other")
    assert "forkedFromId" not in result["thread"]


def test_strangers_speak_up_before_the_answer() -> None:
    """F1 and F2: another thread's turn on the same pipe, and its question."""
    client = Client(Strangers(method="turn/start", times=1, thread_id=UNKNOWN))
    client.turn(client.start(turns=0), "hello")

    assert [message["params"]["threadId"] for message in client.sent[:5]] == [UNKNOWN] * 5
    assert client.methods[4] == "turn/completed"
    assert client.sent[3]["id"] == "stranger"


def test_garbage_comes_before_what_a_request_causes() -> None:
    """F12: a banner on stdout."""
    client = Client(GarbageBefore(method="thread/loaded/list", data=b"banner\n"))
    client.ask("thread/loaded/list")

    assert client.actions[0] == SendBytes(data=b"banner\n")
    assert isinstance(client.actions[1], SendMessage)


def test_a_crash_comes_instead_of_an_answer_or_after_so_many_messages() -> None:
    """Issue A: process loss at every step."""
    client = Client(CrashOn(method="thread/fork", status=7))
    thread = client.start()
    client.ask("thread/fork", threadId=thread)
    assert client.actions == [Exit(status=7)]

    counted = Client(CrashAfterSends(sends=4, status=9), initialize=False)
    counted.ask("initialize", clientInfo={"name": "me"})
    counted.ask("thread/start")
    assert counted.methods == ["answer", "remoteControl/status/changed", "answer", "thread/started"]
    assert counted.actions[-1] == Exit(status=9)


def test_a_server_can_stop_reading() -> None:
    """R9: what is sent afterwards piles up in the pipe."""
    client = Client(StopReading(method="thread/loaded/list"))
    client.ask("thread/loaded/list")

    assert client.actions[-1] == StopsReading()


def test_a_gate_in_another_process_is_opened_by_a_notification() -> None:
    """Our choice: the fake's own method; everything else is the app-server's."""
    client = Client()
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
    setup = FakeSetup(script=SCRIPT, faults=faults, stored=(StoredThread(thread_id="x"),))

    assert msgspec.json.decode(msgspec.json.encode(setup), type=FakeSetup) == setup


def test_what_the_client_sent_can_be_read() -> None:
    """Our choice: tests assert the wire from here."""
    client = Client()
    client.start()

    assert [call["threadId"] for call in client.machine.calls("turn/start")] == list(client.machine.threads)
    assert client.machine.received[0]["method"] == "initialize"
