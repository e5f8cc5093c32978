"""A client of the fake app-server's pure machine, and the script it plays."""

from typing import Any

import pytest

from tutti_providers.codex.testing import (
    Answer,
    AppServerMachine,
    CallTool,
    Drop,
    Fail,
    FakeSetup,
    ModelScript,
    Pause,
    Reason,
    Reply,
    Say,
    apply_patch,
    ask_user,
    run_command,
)
from tutti_providers.codex.testing.app_server_faults import Fault
from tutti_providers.codex.testing.app_server_script import (
    Action,
    SendMessage,
)

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


@pytest.fixture
def make_client() -> type[Client]:
    """Makes a client of a fresh machine, from faults and fields of the set-up."""
    return Client
