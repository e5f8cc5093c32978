"""What no recorded session shows, done to the fake and to the installed binary: the traces must be equal."""

import importlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from tutti_providers.codex.testing import (
    Answer,
    AppServerMachine,
    CallTool,
    Drop,
    Fail,
    FakeAppServer,
    FakeSetup,
    ModelScript,
    Pause,
    Reason,
    Reply,
    Say,
    SearchWeb,
    Think,
    ToolServer,
    apply_patch,
    ask_user,
    open_scripted_model,
    run_command,
    testing_env,
    write_codex_home,
)
from tutti_providers.codex.testing.traces import SessionLine, Trace, trace_of
from tutti_side.jsonrpc.transports import Transport
from tutti_side.jsonrpc.transports.memory import memory_pair
from tutti_side.jsonrpc.transports.stdio import open_stdio

pytestmark = [pytest.mark.codex, pytest.mark.process]

SESSION_S = 60
"""How long one session may take on a busy machine."""

MODEL = "gpt-5.5"
"""Known to Codex, so that it has `apply_patch`."""

COLOURS = [{"label": "Red", "description": "Warm"}, {"label": "Blue", "description": "Cool"}]

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\n"


def with_tool(when: str, *calls: CallTool) -> Answer:
    return Answer(when=when, replies=(Reply(steps=calls), Reply(steps=(Say(tokens=("ok",)),))))


SCRIPT = ModelScript(
    answers=(
        with_tool("patch", apply_patch(PATCH)),
        with_tool("command", run_command("true", justification="Why not?")),
        with_tool("plain", run_command("true")),
        with_tool("background", run_command("sleep 600", runs_until="never")),
        with_tool("elicit", CallTool(name="ask", namespace="mcp__docs", arguments='{"message":"Name?"}')),
        with_tool("question", ask_user([{"id": "q", "header": "H", "question": "Which?", "options": COLOURS}])),
        with_tool("nonesuch", CallTool(name="nonesuch", arguments="{}")),
        Answer.of(Reason(summary="hm"), Say(tokens=("thought",)), when="think"),
        Answer.of(
            Say(tokens=("well",)),
            Think(parts=(("h", "m"), ("so",)), text=("raw",)),
            Say(tokens=("ok",)),
            when="ponder",
        ),
        Answer.of(Say(tokens=("well",)), SearchWeb(query="cats"), Say(tokens=("ok",)), when="search"),
        Answer.of(Say(tokens=("a",)), Pause(gate="held"), Say(tokens=("b",)), when="hold"),
        Answer.of(Fail(), when="refused"),
        Answer.of(Say(tokens=("a",)), Fail(message="broke"), when="fails"),
        Answer.of(Say(tokens=("a",)), Drop(), when="drops"),
    ),
    otherwise=Reply(steps=(Say(tokens=("Hello",)),)),
)


class Session:
    """A client that keeps everything, and waits for things by method."""

    def __init__(self, transport: Transport, open_gate: Callable[[str], None]) -> None:
        self._transport = transport
        self.open_gate = open_gate
        self.lines: list[SessionLine] = []
        self._changed = trio.Condition()
        self._ids = 0
        self._seen = 0

    async def read(self) -> None:
        rest = b""
        while data := await self._transport.receive_some(65536):
            *lines, rest = (rest + data).split(b"\n")
            self.lines += [SessionLine(dir="in", msg=msgspec.json.decode(line)) for line in lines]
            async with self._changed:
                self._changed.notify_all()

    async def send(self, message: dict[str, Any]) -> None:
        self.lines.append(SessionLine(dir="out", msg=message))
        await self._transport.send_all(msgspec.json.encode(message) + b"\n")

    async def wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first matching message that no earlier wait passed."""
        async with self._changed:
            while True:
                for line in self.lines[self._seen :]:
                    self._seen += 1
                    if line.dir == "in" and wanted(line.msg):
                        return line.msg
                await self._changed.wait()

    async def wait_for(self, method: str) -> dict[str, Any]:
        return await self.wait(lambda message: message.get("method") == method)

    async def wait_end(self) -> None:
        await self.wait_for("turn/completed")

    async def call(self, method: str, **params: Any) -> Any:
        self._ids += 1
        request_id = self._ids
        await self.send({"id": request_id, "method": method, "params": params})
        seen = self._seen
        answer = await self.wait(lambda message: message.get("id") == request_id and "method" not in message)
        self._seen = seen
        return answer.get("result") or answer

    async def answer_next(self, answer: dict[str, Any]) -> None:
        request = await self.wait(lambda message: "id" in message and "method" in message)
        await self.send({"id": request["id"], **answer})

    async def start(self, **params: Any) -> str:
        client = {"name": "side_lab", "title": "Side Lab", "version": "0.1"}
        await self.call("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        await self.send({"method": "initialized", "params": {}})
        thread = (await self.call("thread/start", model=MODEL, **params))["thread"]
        return str(thread["id"])

    async def turn(self, thread_id: str, text: str, **params: Any) -> str:
        inputs = [{"type": "text", "text": text}]
        return str((await self.call("turn/start", threadId=thread_id, input=inputs, **params))["turn"]["id"])


Scenario = Callable[[Session], Awaitable[None]]


def one_turn(text: str, *answers: dict[str, Any], **params: Any) -> Scenario:
    """A turn whose questions get these answers."""

    async def scenario(session: Session) -> None:
        await session.turn(await session.start(), text, **params)
        for answer in answers:
            await session.answer_next(answer)
        await session.wait_end()

    return scenario


async def steer(session: Session) -> None:
    thread = await session.start()
    await session.turn(thread, "hold")
    await session.wait_for("item/agentMessage/delta")
    await session.turn(thread, "more")
    session.open_gate("held")
    await session.wait_end()


async def interrupt_the_first_turn(session: Session) -> None:
    thread = await session.start()
    turn = await session.turn(thread, "hold")
    await session.wait_for("item/agentMessage/delta")
    await session.call("turn/interrupt", threadId=thread, turnId=turn)
    await session.wait_end()


async def interrupt_a_command_and_clean(session: Session) -> None:
    thread = await session.start()
    turn = await session.turn(thread, "background")
    await session.wait(
        lambda message: message.get("method") == "item/started" and "command" in message["params"]["item"]
    )
    await session.call("turn/interrupt", threadId=thread, turnId=turn)
    await session.wait_end()
    await session.call("thread/backgroundTerminals/clean", threadId=thread)
    await session.wait_for("item/completed")  # some time after the answer
    await session.turn(thread, "hello")
    await session.wait_end()


async def fork_and_read(session: Session) -> None:
    thread = await session.start(approvalPolicy="never", sandbox="workspace-write")
    await session.turn(thread, "hello")
    await session.wait_end()
    side = (await session.call("thread/fork", threadId=thread, ephemeral=True, excludeTurns=True))["thread"]["id"]
    await session.wait(lambda message: message.get("params", {}).get("status") == "ready")
    await session.call("thread/read", threadId=side)
    await session.call("thread/read", threadId=thread)
    await session.call("thread/loaded/list")


def decision(word: Any) -> dict[str, Any]:
    return {"result": {"decision": word}}


PLAN = {"mode": "plan", "settings": {"model": MODEL, "reasoning_effort": None, "developer_instructions": None}}

SCENARIOS: dict[str, Scenario] = {
    "a patch is accepted": one_turn("patch", decision("accept")),
    "a patch is declined": one_turn("patch", decision("decline")),
    "a patch is cancelled": one_turn("patch", decision("cancel")),
    "an approval is answered with an error": one_turn("command", {"error": {"code": -32000, "message": "no"}}),
    "an approval holds for the session": one_turn("command", decision("acceptForSession")),
    "a command in the sandbox": one_turn("plain"),
    "an elicitation is accepted": one_turn("elicit", {"result": {"action": "accept", "content": {"name": "Bob"}}}),
    "an elicitation is cancelled": one_turn("elicit", {"result": {"action": "cancel", "content": None}}),
    "a question gets no answers": one_turn("question", {"result": {"answers": {}}}, collaborationMode=PLAN),
    "a question outside plan mode": one_turn("question"),
    "an unknown tool": one_turn("nonesuch"),
    "reasoning": one_turn("think"),
    "streamed reasoning": one_turn("ponder"),
    "a web search": one_turn("search"),
    "the model refuses": one_turn("refused"),
    "the model fails in the middle": one_turn("fails"),
    "the connection to the model drops": one_turn("drops"),
    "a second turn/start steers": steer,
    "the first turn is interrupted": interrupt_the_first_turn,
    "an interrupted command is cleaned up": interrupt_a_command_and_clean,
    "a fork is read": fork_and_read,
}


async def run_session(
    scenario: Scenario, server: AbstractAsyncContextManager[tuple[Session, Callable[[], None]]]
) -> Trace:
    async with server as (session, end):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.read)
            await scenario(session)
            end()
        return trace_of(session.lines)


@asynccontextmanager
async def open_fake() -> AsyncIterator[tuple[Session, Callable[[], None]]]:
    ours, theirs = memory_pair()
    fake = FakeAppServer(AppServerMachine(FakeSetup(script=SCRIPT, tool_servers=("docs",))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.serve, theirs)  # noqa: ASYNC113  (the pipe holds what comes before it starts)
        yield Session(ours, fake.open_gate), lambda: fake.crash(0)


@asynccontextmanager
async def open_binary(directory: Path) -> AsyncIterator[tuple[Session, Callable[[], None]]]:
    workspace = directory / "workspace"
    workspace.mkdir()
    binary = str(importlib.import_module("codex_cli_bin").bundled_codex_path())
    command = [binary, "app-server", "--listen", "stdio://"]
    async with open_scripted_model(SCRIPT) as model:
        home = write_codex_home(directory / "codex", model.base_url, tool_servers=(ToolServer(),))
        env = testing_env(directory / "home", home)
        async with open_stdio(command, env=env, cwd=workspace) as transport:
            yield (
                Session(transport, lambda gate: model.gate(gate).set()),
                lambda: os.kill(transport.pid, signal.SIGTERM),
            )


WARNING = ("global configWarning", None)
"""The binary warns when it finds no bubblewrap on PATH; the fake looks for none."""

DIFFERENCES = {
    "an interrupted command is cleaned up": [
        (
            "thread0",
            '"exitCode":137',
            '"exitCode":-1',
            "the binary says which of the two depending on who reaps the shell",
        )
    ]
}
"""Scenario → lane, what the binary may say, what the fake says, why."""


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_fake_and_the_binary_leave_the_same_trace(name: str, tmp_path: Path) -> None:
    """Required: same trace; T4, T6-T10 and PROTOCOL 1-3 where no session was recorded."""
    with trio.fail_after(SESSION_S):
        fake = await run_session(SCENARIOS[name], open_fake())
        binary = await run_session(SCENARIOS[name], open_binary(tmp_path))

    for lane, recorded, fakes, _reason in DIFFERENCES.get(name, ()):
        binary[lane] = [entry.replace(recorded, fakes) for entry in binary[lane]]
    binary.pop(*WARNING)
    assert fake == binary
