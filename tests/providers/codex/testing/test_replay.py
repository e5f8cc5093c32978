"""One client script, three servers: what was recorded, the fake app-server, the installed binary. Same trace."""

import difflib
import importlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from tutti_providers.codex.testing import (
    Answer,
    AppServerMachine,
    FakeAppServer,
    FakeSetup,
    ForkAnswer,
    ModelScript,
    NeverAnswer,
    Pause,
    Reply,
    Say,
    StoredThread,
    ToolServer,
    TurnStartsFirst,
    ask_user,
    open_scripted_model,
    run_command,
    testing_env,
    write_codex_home,
    write_fake_binary,
    write_setup,
)
from tutti_providers.codex.testing.app_server_faults import Fault
from tutti_providers.codex.testing.app_server_script import OPEN_GATE_METHOD
from tutti_providers.codex.testing.fake_process import SETUP_VARIABLE
from tutti_providers.codex.testing.replay import Replay
from tutti_providers.codex.testing.traces import (
    Trace,
    Transcript,
    load_transcript,
    trace_of,
)
from tutti_side.jsonrpc.transports.memory import memory_pair
from tutti_side.jsonrpc.transports.stdio import StdioTransport, open_stdio

GOLDEN = Path(__file__).parents[3] / "golden" / "codex" / "transcripts"
TRANSCRIPTS = {path.stem: path for path in sorted(GOLDEN.glob("*.jsonl"))}

REPLAY_S = 60
"""Longest that one replay may take; the slow one waits two seconds for an unload."""

COLOURS = [
    {"label": "Red (Recommended)", "description": "Warm"},
    {"label": "Blue", "description": "Cool"},
]


def parent_says(count: int) -> tuple[Say | Pause, ...]:
    """Six tokens freely, the rest behind a gate."""
    tokens = tuple(f"parent-token-{number} " for number in range(count))
    return Say(tokens=tokens[:6]), Pause(gate="parent"), Say(tokens=tokens[6:])


def side_tokens(count: int) -> tuple[str, ...]:
    return tuple(f"side-token-{number} " for number in range(count))


def script_for(parent_tokens: int) -> ModelScript:
    """What the model said in the recorded sessions."""
    write_file = (
        Say(tokens=("I need to write a file. ",)),
        run_command("touch notes.txt", justification="Allow creating notes.txt?"),
    )
    colour = {"id": "color", "header": "Color", "question": "Which color?", "options": COLOURS}
    return ModelScript(
        answers=(
            Answer.of(Say(tokens=("Hello! How can I help?",)), when="hello"),
            Answer.of(*parent_says(parent_tokens), when="Refactor the parser"),
            Answer.of(Say(tokens=side_tokens(12)), when="What is the status"),
            Answer.of(Say(tokens=side_tokens(6)), Pause(gate="side"), when="Slow side question"),
            Answer(when="Create notes.txt", replies=(Reply(steps=write_file), Reply(steps=(Say(tokens=("Done.",)),)))),
            Answer(
                when="Ask me a colour",
                replies=(
                    Reply(steps=(Say(tokens=("Let me ask. ",)), ask_user([colour]))),
                    Reply(steps=(Say(tokens=("Thanks, noted.",)),)),
                ),
            ),
        )
    )


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What a session needs around its client script."""

    parent_tokens: int = 60
    gates_after: dict[int, tuple[str, ...]] = {}
    """Request id → gates opened once it was answered."""
    unload_s: int | None = None
    tool_servers: bool = False


SCENARIOS = {
    "a_live_fork_mid_turn": Scenario(gates_after={8: ("parent",)}),
    "b_historical_fork": Scenario(tool_servers=True),
    "c_approval_in_side_accepted": Scenario(),
    "d_approval_declined_cancelled_interrupted": Scenario(),
    "e_request_user_input": Scenario(),
    "f_crash_mid_side_turn": Scenario(),
    "g_unsubscribe_late_notifications": Scenario(gates_after={8: ("side", "parent")}, unload_s=2),
    "h_errors_catalogue": Scenario(),
}


def parts(name: str) -> tuple[Transcript, Scenario]:
    transcript = load_transcript(TRANSCRIPTS[name])
    return transcript, SCENARIOS[name.rsplit("_", 1)[0]]


def stored_source(transcript: Transcript) -> str | None:
    """The thread that the session forks although it never started it."""
    first = next(line.msg for line in transcript.lines if line.msg.get("id") == 2)
    return first["params"]["threadId"] if first["method"] == "thread/fork" else None


def fake_setup(transcript: Transcript, scenario: Scenario) -> FakeSetup:
    source = stored_source(transcript)
    return FakeSetup(
        version=transcript.version,
        script=script_for(scenario.parent_tokens),
        stored=() if source is None else (StoredThread(thread_id=source),),
        tool_servers=("docs",) if scenario.tool_servers else (),
        unload_delay_s=scenario.unload_s,
    )


def at_answers(scenario: Scenario, open_gate: Callable[[str], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    async def on_answer(request_id: Any) -> None:
        for gate in scenario.gates_after.get(request_id, ()):
            await open_gate(gate)

    return on_answer


async def replay_on_task(name: str, directory: Path, setup: FakeSetup | None = None) -> Trace:
    """The fake, as a task."""
    transcript, scenario = parts(name)
    ours, theirs = memory_pair()
    fake = FakeAppServer(AppServerMachine(setup or fake_setup(transcript, scenario)))

    async def open_gate(gate: str) -> None:
        fake.open_gate(gate)
        await trio.lowlevel.checkpoint()

    def end(killed: bool) -> None:
        fake.crash(-9 if killed else 0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.serve, theirs)
        replay = Replay(transcript, ours, on_answer=at_answers(scenario, open_gate), end=end)
        await replay.run()
    return replay.trace()


async def replay_on_process(name: str, directory: Path) -> Trace:
    """The fake, as a process."""
    transcript, scenario = parts(name)
    setup = write_setup(directory / "setup.json", fake_setup(transcript, scenario))
    binary = write_fake_binary(directory / "codex")
    command = [str(binary), "app-server", "--listen", "stdio://"]
    async with open_stdio(command, env={SETUP_VARIABLE: str(setup)}) as transport:

        async def open_gate(gate: str) -> None:
            order = {"method": OPEN_GATE_METHOD, "params": {"gate": gate}}
            await transport.send_all(msgspec.json.encode(order) + b"\n")

        return await Replay(
            transcript, transport, on_answer=at_answers(scenario, open_gate), end=ending(transport)
        ).run()


async def replay_on_binary(name: str, directory: Path) -> Trace:
    """The installed binary, with the scripted model."""
    transcript, scenario = parts(name)
    workspace = directory / "workspace"
    workspace.mkdir()
    async with open_scripted_model(script_for(scenario.parent_tokens)) as model:
        home = write_codex_home(
            directory / "home",
            model.base_url,
            tool_servers=(ToolServer(),) if scenario.tool_servers else (),
            settings={} if scenario.unload_s is None else {"thread_unload_delay_secs": scenario.unload_s},
        )
        env = testing_env(directory / "user", home)
        ids = {"/home/user/project": str(workspace)}
        source = stored_source(transcript)
        if source is not None:
            ids[source] = await make_stored_thread(env, workspace)

        async def open_gate(gate: str) -> None:
            model.gate(gate).set()
            await trio.lowlevel.checkpoint()

        async with open_app_server(env) as transport:
            on_answer = at_answers(scenario, open_gate)
            return await Replay(transcript, transport, ids=ids, on_answer=on_answer, end=ending(transport)).run()


def ending(transport: StdioTransport) -> Callable[[bool], None]:
    return lambda killed: os.kill(transport.pid, signal.SIGKILL if killed else signal.SIGTERM)


@asynccontextmanager
async def open_app_server(env: dict[str, str]) -> AsyncIterator[StdioTransport]:
    binary = str(importlib.import_module("codex_cli_bin").bundled_codex_path())
    async with open_stdio([binary, "app-server", "--listen", "stdio://"], env=env) as transport:
        yield transport


async def make_stored_thread(env: dict[str, str], workspace: Path) -> str:
    """Let another process of the binary have one turn, and return the thread it leaves on disk."""
    client = {"name": "side_lab", "title": "Side Lab", "version": "0.1"}
    session = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": client}},
        {"method": "initialized", "params": {}},
        {"id": 2, "method": "thread/start", "params": {"cwd": str(workspace)}},
    ]
    thread_id = ""
    async with open_app_server(env) as transport:
        for message in session:
            await transport.send_all(msgspec.json.encode(message) + b"\n")
        rest = b""
        while data := await transport.receive_some(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = msgspec.json.decode(line)
                if message.get("id") == 2:
                    thread_id = message["result"]["thread"]["id"]
                    hello = {"threadId": thread_id, "input": [{"type": "text", "text": "hello"}]}
                    request = {"id": 3, "method": "turn/start", "params": hello}
                    await transport.send_all(msgspec.json.encode(request) + b"\n")
                elif message.get("method") == "turn/completed":
                    return thread_id
    raise AssertionError("the binary ended before its turn")


Run = Callable[[str, Path], Awaitable[Trace]]

RUNS: dict[str, Run] = {"task": replay_on_task, "process": replay_on_process, "binary": replay_on_binary}

WARNING = "global configWarning: -0 configWarning"

DIFFERENCES: dict[tuple[str, str], dict[str, str]] = {
    (run, name): {WARNING: "the fake looks for no bubblewrap on PATH, so it has nothing to warn of"}
    for run in ("task", "process")
    for name in TRANSCRIPTS
}
"""(run, transcript) → each difference, with its reason. All of them, and only they, must be there."""

MACHINE_DEPENDENT: dict[str, str] = {
    WARNING: "the binary warns when there is no bubblewrap on PATH",
}
"""Differences of the binary that depend on the machine."""


def differences(recorded: Trace, got: Trace) -> list[str]:
    """What is missing (-) and what is too much (+): lane, position in its sequence, method."""
    found: list[str] = []
    for lane in sorted({*recorded, *got}):
        before, after = recorded.get(lane, []), got.get(lane, [])
        for tag, left, left_end, right, right_end in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
            if tag != "equal":
                found += [f"{lane}: -{at} {subject(before[at])}" for at in range(left, left_end)]
                found += [f"{lane}: +{at} {subject(after[at])}" for at in range(right, right_end)]
    return sorted(found)


def subject(entry: str) -> str:
    message = msgspec.json.decode(entry) if entry.startswith("{") else {"method": entry}
    return str(message.get("method") or message.get("answer to"))


def check(run: str, name: str, got: Trace) -> None:
    recorded = trace_of(load_transcript(TRANSCRIPTS[name]).lines)
    found = differences(recorded, got)
    if run == "binary":
        found = [difference for difference in found if difference not in MACHINE_DEPENDENT]
    listed = sorted(DIFFERENCES.get((run, name), {}))
    details = {lane: (recorded.get(lane), got.get(lane)) for lane in {text.partition(":")[0] for text in found}}
    assert found == listed, details


@pytest.mark.parametrize("name", TRANSCRIPTS)
async def test_the_fake_as_a_task_leaves_the_recorded_trace(name: str, tmp_path: Path, autojump_clock: object) -> None:
    """Required: replayed against the recorded transcripts, both versions."""
    with trio.fail_after(REPLAY_S):
        check("task", name, await replay_on_task(name, tmp_path))


@pytest.mark.process
@pytest.mark.parametrize("name", [name for name in TRANSCRIPTS if name.endswith("_163")])
async def test_the_fake_as_a_process_leaves_the_recorded_trace(name: str, tmp_path: Path) -> None:
    """Required: the second shell over the same machine."""
    with trio.fail_after(REPLAY_S):
        check("process", name, await replay_on_process(name, tmp_path))


@pytest.mark.codex
@pytest.mark.process
@pytest.mark.parametrize("name", [name for name in TRANSCRIPTS if name.endswith("_163")])
async def test_the_installed_binary_leaves_the_recorded_trace(name: str, tmp_path: Path) -> None:
    """Required: the same client script against the real binary, with the scripted model."""
    with trio.fail_after(REPLAY_S):
        check("binary", name, await replay_on_binary(name, tmp_path))


HISTORICAL = "b_historical_fork_163"


async def replay_with(fault: Fault, directory: Path) -> list[str]:
    transcript, scenario = parts(HISTORICAL)
    setup = msgspec.structs.replace(fake_setup(transcript, scenario), faults=(fault,))
    got = await replay_on_task(HISTORICAL, directory, setup)
    return [text for text in differences(trace_of(transcript.lines), got) if text != WARNING]


async def test_a_wrong_answer_and_a_wrong_notification_are_noticed(tmp_path: Path, autojump_clock: object) -> None:
    """Our choice: the comparison can fail."""
    with trio.fail_after(REPLAY_S):
        found = await replay_with(ForkAnswer(thread={"path": "/somewhere"}), tmp_path)

    assert found == [
        "answers: +1 thread/fork",
        "answers: -1 thread/fork",
        "fork0: +0 thread/started",
        "fork0: -0 thread/started",
    ]


async def test_whether_a_turn_starts_before_its_answer_is_no_difference(tmp_path: Path, autojump_clock: object) -> None:
    """T11: it does about one time in ten, so answers are a lane of their own."""
    with trio.fail_after(REPLAY_S):
        assert await replay_with(TurnStartsFirst(), tmp_path) == []


async def test_a_missing_answer_holds_the_replay_up(tmp_path: Path, autojump_clock: object) -> None:
    """Our choice: nothing is sent before what was recorded ahead of it has come."""
    with pytest.raises(trio.TooSlowError), trio.fail_after(REPLAY_S):
        await replay_with(NeverAnswer(method="thread/unsubscribe"), tmp_path)
