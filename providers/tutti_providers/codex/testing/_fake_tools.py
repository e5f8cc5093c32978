"""Tool calls of the fake app-server: their items, the questions they ask the client, and what its answers do.

Nothing is run. A command ends at once and well, or when its gate opens.
"""

import json
from collections.abc import Callable
from typing import Any, cast

from ._fake_outbox import Outbox
from ._fake_shapes import (
    command_item,
    completed_params,
    diff_of,
    file_change_item,
    started_params,
    sub_object,
    tool_call_item,
)
from ._fake_threads import FakeSetup, FakeThread, FakeTool, FakeTurn
from .model_script import CallTool

__all__ = ["Tools"]

_APPROVED = ("accept", "acceptForSession", "acceptWithExecpolicyAmendment")

_NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Tools:
    """Runs the tool calls of all turns; `done` and `interrupt` lead back to the turn."""

    def __init__(
        self,
        setup: FakeSetup,
        outbox: Outbox,
        *,
        tell: Callable[[FakeThread, str, dict[str, Any]], None],
        done: Callable[[FakeThread, FakeTurn, FakeTool], None],
        interrupt: Callable[[FakeThread, FakeTurn], None],
    ) -> None:
        self._setup = setup
        self._outbox = outbox
        self._tell = tell
        self._done = done
        self._interrupt = interrupt
        self._next_request_id = 0
        self._pending: dict[int | str, tuple[FakeThread, FakeTurn, FakeTool]] = {}

    @property
    def pending(self) -> list[int | str]:
        """Ids of the requests that wait for an answer."""
        return list(self._pending)

    def start(self, thread: FakeThread, turn: FakeTurn, call: CallTool, item_id: str) -> None:
        """Start a tool call: it asks, runs or ends at once."""
        if call.name == "exec_command":
            self._start_command(thread, turn, call, item_id)
        elif call.name == "apply_patch":
            item = file_change_item(item_id, call.arguments, thread.cwd)
            tool = self._add(turn, FakeTool(item=item, turn_id=turn.id, kind="patch"))
            self._item(thread, tool, "item/started")
            params = {"itemId": item_id, "startedAtMs": self._outbox.now_ms(), "reason": None, "grantRoot": None}
            self._ask(thread, turn, tool, "item/fileChange/requestApproval", params)
        elif call.name == "request_user_input":
            if thread.in_plan_mode or self._setup.user_input_everywhere:
                self._ask_user(thread, turn, call, item_id)
        elif call.namespace is not None:
            self._start_tool_server_call(thread, turn, call, item_id)

    def answer(self, request_id: Any, message: dict[str, Any]) -> None:
        """Take an answer of the client; one that answers nothing is ignored. The id's type counts: "0" is not 0."""
        if type(request_id) not in (int, str) or request_id not in self._pending:
            return
        thread, turn, tool = self._pending.pop(request_id)
        self._resolved(thread, tool, request_id)
        if tool.kind == "question":
            self._tell_flags(thread)
        elif tool.kind == "elicitation":
            self._tell_flags(thread)
            answer = {name: value for name, value in sub_object(message, "result").items() if value is not None}
            self._end_item(thread, tool, "completed", durationMs=1, result=_tool_result(json.dumps(answer)))
        elif self._settle_approval(thread, turn, tool, message):
            return
        self._done(thread, turn, tool)

    def ask_early(self, thread: FakeThread) -> None:
        """Ask something about a thread without a turn, as a tool server of a new thread can."""
        self._ask_elicitation(thread, None, FakeTool(item=None, turn_id="", kind="elicitation"), "docs", "Your name?")

    def ask_for_ended_turn(self, thread: FakeThread) -> None:
        """Ask something for a turn of the thread that is over, as a slow tool does."""
        turn = FakeTurn(str(thread.last_turn_id), "", 0)
        turn.over = True
        self._ask_elicitation(thread, turn, FakeTool(item=None, turn_id=turn.id, kind="elicitation"), "docs", "Late?")

    def ask_for_permissions(self, thread: FakeThread, turn: FakeTurn) -> None:
        """Ask whether the running turn may reach further than its policy; it goes on once that is answered."""
        tool = self._add(turn, FakeTool(item=None, turn_id=turn.id, kind="permissions"))
        params = {"itemId": f"call_more_{turn.id}", "permissions": {"network": {"enabled": True}}, "reason": None}
        self._ask(thread, turn, tool, "item/permissions/requestApproval", params)

    def thread_of(self, request_id: int | str) -> FakeThread:
        """The thread that asks."""
        return self._pending[request_id][0]

    def take_back(self, request_id: int | str) -> None:
        """Wait for no answer any more: what was asked fails, and its turn goes on."""
        thread, turn, tool = self._pending.pop(request_id)
        self._resolved(thread, tool, request_id)
        self._end_item(thread, tool, "failed")
        self._tell_flags(thread)
        self._done(thread, turn, tool)

    def forget(self, thread: FakeThread) -> None:
        """Drop without a word what the thread asks: it is unloaded."""
        for request_id, (owner, _, _) in list(self._pending.items()):
            if owner is thread:
                del self._pending[request_id]

    def resolve_orphans(self, thread: FakeThread, turn: FakeTurn) -> None:
        """Declare resolved what the ended turn still asked; the client hears it after the turn's end."""
        for request_id, (_, owner, tool) in list(self._pending.items()):
            if owner is turn:
                del self._pending[request_id]
                self._resolved(thread, tool, request_id)

    def clean(self, thread: FakeThread) -> None:
        """Kill the commands that outlived their turn."""
        for tool in thread.background:
            tool.over = True
            self._end_item(thread, tool, "failed", exitCode=-1, durationMs=1)
        thread.background.clear()

    def _start_command(self, thread: FakeThread, turn: FakeTurn, call: CallTool, item_id: str) -> None:
        arguments = json.loads(call.arguments)
        command = arguments["cmd"]
        asks = arguments.get("sandbox_permissions") == "require_escalated" and command not in thread.allowed_commands
        if asks and thread.approval_policy == "never":
            return
        item = command_item(item_id, command, thread.cwd, process=None if asks else "4711")
        tool = self._add(turn, FakeTool(item=item, turn_id=turn.id, kind="command" if asks else "running"))
        tool.command = command
        if asks:
            # For a command the status comes before its item, for a patch after (both as recorded).
            self._ask(thread, turn, tool, "item/commandExecution/requestApproval", self._question(tool, arguments))
        else:
            self._item(thread, tool, "item/started")
            self._run(thread, turn, tool, call.runs_until)

    def _question(self, tool: FakeTool, arguments: dict[str, Any]) -> dict[str, Any]:
        item = tool.item or {}
        amendment = str(tool.command).split()
        choices = ["accept", {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": amendment}}, "cancel"]
        return {
            "kind": "command",
            "itemId": item["id"],
            "startedAtMs": self._outbox.now_ms(),
            "environmentId": "local",
            "reason": arguments.get("justification"),
            "command": item["command"],
            "cwd": item["cwd"],
            "commandActions": item["commandActions"],
            "proposedExecpolicyAmendment": amendment,
            "availableDecisions": choices,
        }

    def _run(self, thread: FakeThread, turn: FakeTurn, tool: FakeTool, until: str | None) -> None:
        if until is None:
            self._end_command(thread, turn, tool)
        else:
            self._outbox.at_gate(until, lambda: self._end_command(thread, turn, tool))

    def _end_command(self, thread: FakeThread, turn: FakeTurn, tool: FakeTool) -> None:
        """End a command that runs; its turn may be over long since (then it ran on in the background)."""
        if tool.over:
            return
        if tool in thread.background:
            thread.background.remove(tool)
            item_id = (tool.item or {})["id"]
            output = {"turnId": tool.turn_id, "itemId": item_id, "delta": "late output\n"}
            self._tell(thread, "item/commandExecution/outputDelta", output)
        self._end_item(thread, tool, "completed", exitCode=0, durationMs=0)
        self._done(thread, turn, tool)

    def _ask_user(self, thread: FakeThread, turn: FakeTurn, call: CallTool, item_id: str) -> None:
        questions = [
            {"isOther": True, "isSecret": False, **question} for question in json.loads(call.arguments)["questions"]
        ]
        tool = self._add(turn, FakeTool(item=None, turn_id=turn.id, kind="question"))
        params = {
            "itemId": item_id,
            "questions": questions,
            "isBlocking": thread.in_plan_mode,
            "autoResolutionMs": None,
        }
        self._ask(thread, turn, tool, "item/tool/requestUserInput", params)

    def _start_tool_server_call(self, thread: FakeThread, turn: FakeTurn, call: CallTool, item_id: str) -> None:
        server = str(call.namespace).removeprefix("mcp__")
        arguments = json.loads(call.arguments)
        item = tool_call_item(item_id, server, call.name, arguments)
        tool = self._add(turn, FakeTool(item=item, turn_id=turn.id, kind="elicitation"))
        self._item(thread, tool, "item/started")
        if call.name == "ask":
            self._ask_elicitation(thread, turn, tool, server, arguments.get("message", ""))
        else:
            result = _tool_result(str(arguments.get("text", "")))
            self._end_item(thread, tool, "completed", durationMs=1, result=result)
            tool.over = True

    def _ask_elicitation(
        self, thread: FakeThread, turn: FakeTurn | None, tool: FakeTool, server: str, message: str
    ) -> None:
        params: dict[str, Any] = {"serverName": server}
        if self._setup.is_new:
            params["environmentId"] = None
        params |= {"mode": "form", "_meta": None, "message": message, "requestedSchema": _NAME_SCHEMA}
        if turn is None:
            turn = FakeTurn("", "", 0)
            turn.over = True
        self._ask(thread, turn, tool, "mcpServer/elicitation/request", params)

    def _ask(self, thread: FakeThread, turn: FakeTurn, tool: FakeTool, method: str, params: dict[str, Any]) -> None:
        request_id = tool.request_id = self._new_request_id()
        self._pending[request_id] = (thread, turn, tool)
        self._tell_flags(thread)
        if tool.kind == "command":
            self._item(thread, tool, "item/started")
        if thread.subscribed:
            params = {"threadId": thread.id, "turnId": turn.id or None, **params}
            self._outbox.send({"method": method, "id": request_id, "params": params})

    def _new_request_id(self) -> int | str:
        number = self._next_request_id
        self._next_request_id += 1
        if not self._setup.has_twin_ids:
            return number
        return str(number // 2) if number % 2 else number // 2

    def _settle_approval(self, thread: FakeThread, turn: FakeTurn, tool: FakeTool, message: dict[str, Any]) -> bool:
        """Act on a decision; say whether it ended the turn."""
        decision: Any = sub_object(message, "result").get("decision")
        name = next(iter(cast("dict[str, Any]", decision)), None) if isinstance(decision, dict) else decision
        if name in _APPROVED:
            if name == "acceptForSession" and tool.command is not None:
                thread.allowed_commands.add(tool.command)
            self._tell_flags(thread)
            self._end_approved(thread, turn, tool)
            return False
        if name == "cancel":
            if tool.kind == "command":
                self._end_item(thread, tool, "declined")
            tool.over = True
            self._tell_flags(thread)
            self._interrupt(thread, turn)
            return True
        self._end_item(thread, tool, "declined" if name == "decline" else "failed")
        self._tell_flags(thread)
        return False

    def _end_approved(self, thread: FakeThread, turn: FakeTurn, tool: FakeTool) -> None:
        if tool.kind == "command":
            self._end_item(
                thread, tool, "completed", exitCode=0, durationMs=0, processId="4711", source="unifiedExecStartup"
            )
        else:
            self._end_item(thread, tool, "completed")
            turn.diff += diff_of(tool.item or {}, thread.cwd)
            self._tell(thread, "turn/diff/updated", {"turnId": turn.id, "diff": turn.diff})

    def _resolved(self, thread: FakeThread, tool: FakeTool, request_id: int | str) -> None:
        tool.request_id = None
        self._tell(thread, "serverRequest/resolved", {"requestId": request_id})

    def _tell_flags(self, thread: FakeThread) -> None:
        if thread.turn is not None:
            self._outbox.notify("thread/status/changed", {"threadId": thread.id, "status": thread.status()})

    def _end_item(self, thread: FakeThread, tool: FakeTool, status: str, **fields: Any) -> None:
        if tool.item is not None:
            tool.item |= {"status": status, **fields}
            self._item(thread, tool, "item/completed")

    def _item(self, thread: FakeThread, tool: FakeTool, method: str) -> None:
        if tool.item is None:
            return
        shape = started_params if method == "item/started" else completed_params
        params = shape(dict(tool.item), self._outbox.now_ms(), timed=self._setup.is_new)
        self._tell(thread, method, {"turnId": tool.turn_id, **params})

    @staticmethod
    def _add(turn: FakeTurn, tool: FakeTool) -> FakeTool:
        turn.tools.append(tool)
        return tool


def _tool_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": None, "_meta": None}
