"""The fake app-server as a pure machine: messages in, actions out. No await, no clock, no I/O.

It behaves as the recorded versions do (0.163, and 0.171 where that differs): initialisation, threads and their forks,
turns with approvals and questions, interrupts, unloading, the error catalogue. What a turn says is a `ModelScript`, the
same that drives the scripted model. Faults make it misbehave. Two shells run it: `fake_process` (a process in place of
the binary) and `fake_task` (a Trio task over a transport).
"""

import random
from collections import deque
from typing import Any, cast

import msgspec

from ._fake_disturbances import Choose, Disturb, Disturbances, Tell
from ._fake_outbox import Action, Exit, Outbox, SendBytes, SendMessage, StopsReading, Wake
from ._fake_requests import INVALID_REQUEST, Outcome, Refused, Requests
from ._fake_shapes import UNKNOWN_METHOD, sub_object, turn_shape
from ._fake_threads import FakeSetup, FakeThread, StoredThread
from .app_server_faults import (
    AnswerLate,
    AnswerTwice,
    CrashAfterEffect,
    CrashOn,
    FaultPlan,
    GarbageBefore,
    NeverAnswer,
    Overloaded,
    Refuse,
    StopReading,
    Strangers,
)

__all__ = [
    "OPEN_GATE_METHOD",
    "Action",
    "AppServerMachine",
    "Exit",
    "FakeSetup",
    "FakeThread",
    "SendBytes",
    "SendMessage",
    "StopsReading",
    "StoredThread",
    "Wake",
]

RECEIVED_KEPT_MAX = 4096
"""Received messages kept for reading."""

OPEN_GATE_METHOD = "fake/openGate"
"""A notification ``{gate}`` of our own: opens a gate of a fake in another process."""

OVERLOADED = {"code": -32001, "message": "Server overloaded; retry later."}
"""What the real one answers to a burst, if it answers."""

BROKEN = "internal error"
"""What a request is refused with by `Refuse`."""


class AppServerMachine:
    """A fake app-server. Equal set-ups and inputs give equal outputs.

    Args:
      setup: what it is and says.
      plan: hands out faults in another way than `FakeSetup.faults` does.
    """

    def __init__(self, setup: FakeSetup | None = None, plan: FaultPlan | None = None) -> None:
        self.setup = setup or FakeSetup()
        self._plan = FaultPlan(self.setup.faults) if plan is None else plan
        self._outbox = Outbox(self.setup.seed)
        self._requests = Requests(self.setup, self._outbox, self._plan, random.Random(self.setup.seed))
        self._disturbances = Disturbances(self._requests, self._outbox)
        self._received: deque[dict[str, Any]] = deque(maxlen=RECEIVED_KEPT_MAX)
        self._client: dict[str, Any] | None = None
        self._sends = 0
        self._strangers = 0
        self.ignored_lines = 0
        """Lines that were no message; the real one logs them and goes on."""

    @property
    def received(self) -> list[dict[str, Any]]:
        """What the client sent, oldest first; at most `RECEIVED_KEPT_MAX`."""
        return list(self._received)

    @property
    def threads(self) -> dict[str, FakeThread]:
        """The loaded threads."""
        return self._requests.threads

    @property
    def persisted(self) -> dict[str, StoredThread]:
        """The threads that are on disk now, for a later process."""
        return self._requests.persisted

    @property
    def sub_agents(self) -> dict[str, str]:
        """The sub-agents that there were, and which thread called each."""
        return self._disturbances.agents

    def text_of(self, turn_id: str) -> str:
        """What a turn began with; empty for an unknown one."""
        return self._requests.turns.texts.get(turn_id, "")

    @property
    def pending_requests(self) -> list[int | str]:
        """Ids of our requests that the client has not answered."""
        return self._requests.turns.tools.pending

    def calls(self, method: str) -> list[dict[str, Any]]:
        """The params of every received message of that method."""
        return [message.get("params", {}) for message in self._received if message.get("method") == method]

    def gate_arrivals(self, name: str) -> int:
        """How many turns have come to the gate so far."""
        return self._outbox.arrivals(name)

    def receive_line(self, line: bytes) -> list[Action]:
        """Take one line, without its newline. As for the real one invalid UTF-8 is fatal, other nonsense skipped."""
        try:
            line.decode()
        except UnicodeDecodeError:
            return [Exit(status=0)]
        try:
            message: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.ignored_lines += 1
            return []
        return self.receive(cast("dict[str, Any]", message))

    def receive(self, message: dict[str, Any]) -> list[Action]:
        """Take one message and return what follows from it, in order."""
        self._received.append(message)
        method = message.get("method")
        # A null or fractional id makes it a notification to the real one; no notification of a client matters to us.
        is_request = isinstance(message.get("id"), int | str) and not isinstance(message.get("id"), bool)
        if method == OPEN_GATE_METHOD:
            self._outbox.open_gate(message["params"]["gate"])
        elif is_request and isinstance(method, str):
            self._receive_request(method, message)
        elif is_request:
            self._requests.turns.tools.answer(message["id"], message)
        return self._finish()

    def wake(self, token: int) -> list[Action]:
        """Tell the machine that the time of a `Wake` has come."""
        self._outbox.wake(token)
        return self._finish()

    def open_gate(self, name: str) -> list[Action]:
        """Open a gate of the script or of an `AnswerLate`."""
        self._outbox.open_gate(name)
        return self._finish()

    def disturb(self, disturb: Disturb, choose: Choose, tell: Tell) -> list[Action]:
        """Let the server do something of itself; see `_fake_disturbances`."""
        disturb(self._disturbances, choose, tell)
        return self._finish()

    def end_of_input(self) -> list[Action]:
        """The client closed its end: the real one drops its turns and exits with status 0."""
        return [Exit(status=0)]

    def _receive_request(self, method: str, message: dict[str, Any]) -> None:
        self._plan.begin_request(method, sub_object(message, "params"))
        crash = self._plan.take(CrashOn, method)
        if crash is not None:
            self._outbox.put(Exit(status=crash.status))
            return
        garbage = self._plan.take(GarbageBefore, method)
        if garbage is not None:
            self._outbox.put(SendBytes(data=garbage.data))
        if self._plan.take(NeverAnswer, method) is not None:
            return
        if self._plan.take(Overloaded, method) is not None:
            self._outbox.send({"error": OVERLOADED, "id": message["id"]})
            return
        refuse = self._plan.take(Refuse, method)
        if refuse is not None:
            self._outbox.send({"error": {"code": refuse.code, "message": BROKEN}, "id": message["id"]})
            return
        strangers = self._plan.take(Strangers, method)
        if strangers is not None:
            self._play_stranger(strangers.thread_id)
        self._answer_request(method, message)
        stop = self._plan.take(StopReading, method)
        if stop is not None:
            self._outbox.put(StopsReading(for_s=stop.for_s))

    def _answer_request(self, method: str, message: dict[str, Any]) -> None:
        request_id = message["id"]
        try:
            outcome = self._handle(method, message)
        except Refused as refused:
            self._send_answer(
                method, {"error": {"code": refused.code, "message": refused.message}, "id": request_id}, lambda: None
            )
            return
        outcome.before()
        crash = self._plan.take(CrashAfterEffect, method)
        if crash is not None:
            self._outbox.put(Exit(status=crash.status))
            return
        if outcome.result is None:
            self._requests.remember_surplus_interrupt(request_id, message["params"])
        else:
            self._send_answer(method, {"id": request_id, "result": outcome.result}, outcome.tied)
        outcome.then()

    def _send_answer(self, method: str, answer: dict[str, Any], tied: Any) -> None:
        twice = self._plan.take(AnswerTwice, method) is not None

        def send() -> None:
            self._outbox.send(answer)
            if twice:
                self._outbox.send(answer)
            tied()

        late = self._plan.take(AnswerLate, method)
        if late is None:
            send()
        elif late.gate is not None:
            self._outbox.at_gate(late.gate, send)
        else:
            self._outbox.after(late.after_s, send)

    def _handle(self, method: str, message: dict[str, Any]) -> Outcome:
        handler = self._requests.handlers.get(method)
        if handler is None and method != "initialize":
            raise Refused(UNKNOWN_METHOD.format(method))
        params = message.get("params")
        if params is None:
            raise Refused("Invalid request: missing field `params`")
        if handler is None:
            return self._initialize(params)
        if self._client is None:
            raise Refused("Not initialized", INVALID_REQUEST)
        return handler(params)

    def _initialize(self, params: dict[str, Any]) -> Outcome:
        client = params.get("clientInfo")
        if client is None:
            raise Refused("Invalid request: missing field `clientInfo`")
        if self._client is not None:
            raise Refused("Already initialized")
        self._client = client
        self._requests.experimental = bool(sub_object(params, "capabilities").get("experimentalApi"))
        name, version = client["name"], client.get("version", "0")
        made = f"{name}/{self.setup.version} (Debian 12.0.0; x86_64) dumb ({name}; {version})"
        result = {
            "userAgent": made if self.setup.user_agent is None else self.setup.user_agent,
            "codexHome": self.setup.codex_home,
            "platformFamily": "unix",
            "platformOs": "linux",
        }
        remote = {"status": "disabled", "serverName": "fake", "installationId": "fake", "environmentId": None}
        return Outcome(result=result, tied=lambda: self._outbox.notify("remoteControl/status/changed", remote))

    def _play_stranger(self, thread_id: str) -> None:
        """A whole turn, and a question, of a thread that nobody asked for."""
        self._strangers += 1
        turn = "01a0ffff-0000-7000-8000-0000000000ff"
        where = {"threadId": thread_id, "turnId": turn}
        notify = self._outbox.notify
        notify("thread/status/changed", {"threadId": thread_id, "status": {"type": "active", "activeFlags": []}})
        notify("turn/started", {"threadId": thread_id, "turn": turn_shape(turn, "inProgress")})
        notify("item/agentMessage/delta", {**where, "itemId": "msg_stranger", "delta": "stranger"})
        self._outbox.send(
            {
                "method": "item/fileChange/requestApproval",
                "id": "stranger" if self._strangers == 1 else f"stranger-{self._strangers}",
                "params": {**where, "itemId": "call_stranger"},
            }
        )
        notify("turn/completed", {"threadId": thread_id, "turn": turn_shape(turn, "completed")})

    def _finish(self) -> list[Action]:
        """Hand out the actions, cut off at the message that a counting crash strikes at."""
        self._requests.watch_unloads()
        actions = self._outbox.take()
        crash = self._plan.crash_after_sends()
        if crash is None:
            return actions
        for position, action in enumerate(actions):
            self._sends += isinstance(action, SendMessage)
            if self._sends >= crash.sends:
                return [*actions[: position + 1], Exit(status=crash.status)]
        return actions
