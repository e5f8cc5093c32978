"""A place to run the real Codex in: its model, its home, a tap on its wire, and a watch over its processes."""

import dataclasses
import json
import os
import pathlib
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio

import tutti_providers.codex
from tutti_providers.codex import CodexAdapter, codex
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.testing import ModelScript, ScriptedModel, open_scripted_model, testing_env, write_codex_home
from tutti_side import AgentHost, EventBatch, open_host
from tutti_side.jsonrpc import PeerExit
from tutti_side.jsonrpc.transports.stdio import StdioTransport, open_stdio
from tutti_side.testing.processes import descendants_of, is_alive, marked_processes

BOUND_S = 30.0
"""Each bench is inside one `trio.fail_after`: nothing that is awaited in a test here can hang for longer."""

Frame = dict[str, Any]


class Wire:
    """One app-server's wire: every message of both directions in the order in which it was written or read."""

    def __init__(self, transport: StdioTransport) -> None:
        self.transport = transport
        self.frames: list[tuple[str, Frame]] = []
        self.processes: dict[int, int] = {}
        self.forks_answered_late = False
        """Hand a fork's answer over behind the first start-up notification of its child's tool server."""
        self._rest = {"in": b"", "out": b"", "late": b""}
        self._late: dict[str, bytes] = {}
        self._grown = trio.Event()

    # Transport

    async def receive_some(self, max_bytes: int) -> bytes:
        while True:
            data = await self.transport.receive_some(max_bytes)
            if data and (self.forks_answered_late or self._rest["late"]):
                data = self._reorder(data)
                if not data:
                    continue
            self._record("in", data)
            return data

    async def send_all(self, data: bytes) -> None:
        self._record("out", data)
        await self.transport.send_all(data)

    async def wait_exit(self) -> PeerExit:
        return await self.transport.wait_exit()

    async def aclose(self) -> None:
        await self.transport.aclose()

    def _reorder(self, data: bytes) -> bytes:
        *lines, self._rest["late"] = (self._rest["late"] + data).split(b"\n")
        passed: list[bytes] = []
        for line in lines:
            frame: Frame = json.loads(line)
            thread = (frame.get("result") or {}).get("thread") or {}
            if thread.get("forkedFromId") and self.forks_answered_late:
                self._late[thread["id"]] = line
                continue
            passed.append(line)
            if frame.get("method") == "mcpServer/startupStatus/updated":
                passed += [late for late in [self._late.pop(frame["params"]["threadId"], None)] if late]
        return b"".join(line + b"\n" for line in passed)

    # What it carried

    def _record(self, direction: str, data: bytes) -> None:
        *lines, self._rest[direction] = (self._rest[direction] + data).split(b"\n")
        self.frames += [(direction, json.loads(line)) for line in lines if line.strip()]
        self._grown.set()

    async def wait_for(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Wait until the server has said something like that, and return it."""
        return await self._wait(lambda: next((frame for frame in self.received if wanted(frame)), None))

    async def wait_sent(self, method: str) -> Frame:
        """Wait until we have sent such a request, and return it."""
        return await self._wait(lambda: next(iter(self.requests(method)), None))

    async def _wait(self, find: Callable[[], Frame | None]) -> Frame:
        while (found := find()) is None:
            self._grown = trio.Event()
            await self._grown.wait()
        return found

    async def wait_said(self, token: str) -> None:
        """Wait until the server has passed on that piece of an agent's text: the model is ahead of it."""
        await self.wait_for(lambda frame: frame.get("params", {}).get("delta") == token)

    @property
    def sent(self) -> list[Frame]:
        return [frame for direction, frame in self.frames if direction == "out"]

    @property
    def received(self) -> list[Frame]:
        return [frame for direction, frame in self.frames if direction == "in"]

    def requests(self, method: str) -> list[Frame]:
        """Our requests of that method."""
        return [frame for frame in self.sent if frame.get("method") == method]

    def results(self, method: str) -> list[Frame]:
        """The results that the server gave to our requests of that method, in the order of the answers."""
        ids = [frame["id"] for frame in self.requests(method)]
        return [frame["result"] for frame in self.received if "result" in frame and frame["id"] in ids]

    def of_thread(self, thread_id: str) -> list[Frame]:
        """The notifications and requests of the server about one thread."""
        return [frame for frame in self.received if "method" in frame and thread_of(frame) == thread_id]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The app-server stands still for the block."""
        os.kill(self.transport.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.transport.pid, signal.SIGCONT)

    def note_processes(self) -> dict[int, int]:
        """Remember what descends from the guard now; none of it may outlive the connection."""
        found = descendants_of(self.transport.guard_pid)
        self.processes |= found
        return found


def thread_of(frame: Frame) -> str | None:
    """The thread that a message of the server is about."""
    params: Frame = frame.get("params") or {}
    return params.get("threadId") or params.get("conversationId") or (params.get("thread") or {}).get("id")


@dataclasses.dataclass
class Bench:
    """A scripted model, a home, and what a test sees of the app-servers that run there."""

    model: ScriptedModel
    directory: pathlib.Path
    codex_home: pathlib.Path
    environ: dict[str, str]
    marker: str
    wires: list[Wire]
    delivered: dict[str, list[Frame]]
    """What each thread's route was given, by thread id."""
    adapters: list[CodexAdapter] = dataclasses.field(default_factory=list)
    forks_before: int = 0
    """Forks asked for before the present part of a test."""

    @property
    def workspace(self) -> pathlib.Path:
        return self.directory / "workspace"

    @property
    def wire(self) -> Wire:
        """The latest app-server's."""
        return self.wires[-1]

    @property
    def connection(self) -> Any:
        """Statistics of the live connection."""
        return self.adapters[-1].statistics()["live"]

    @asynccontextmanager
    async def host(self, binary: pathlib.Path | None = None) -> AsyncIterator[AgentHost]:
        """Open a host over Codex; the binary is the real one by default."""
        async with open_host(Watched(self, binary)) as host:
            yield host

    def texts_below(self, folder: str) -> str:
        """Everything that stands in the files of a folder of the home."""
        paths = sorted(path for path in (self.codex_home / folder).rglob("*") if path.is_file())
        return "\n".join(path.read_bytes().decode(errors="replace") for path in paths)


class Watched:
    """The provider, with its adapter within reach of the test."""

    name = "codex"

    def __init__(self, bench: Bench, binary: pathlib.Path | None) -> None:
        name, _, value = bench.marker.partition("=")
        self._bench = bench
        self._inner = codex(binary, environ=bench.environ, extra_environ={name: value})

    @asynccontextmanager
    async def open(self, *arguments: Any, **options: Any) -> AsyncIterator[CodexAdapter]:
        async with self._inner.open(*arguments, **options) as adapter:
            self._bench.adapters.append(adapter)
            yield adapter

    async def diagnose(self) -> Any:
        return await self._inner.diagnose()


class CodexLab:
    """Makes benches, and knows every process that was started on them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.marker = f"TUTTI_TEST_LAB={uuid.uuid4().hex}"
        self.wires: list[Wire] = []
        self.delivered: dict[str, list[Frame]] = {}
        self.bound_s = BOUND_S
        """A test that does a thing very often may give itself more."""

    @asynccontextmanager
    async def open_stdio(self, command: list[str], *, env: dict[str, str], name: str) -> AsyncIterator[Wire]:
        """Stand in for `open_stdio`, with a tap."""
        async with open_stdio(command, env=env, name=name) as transport:
            wire = Wire(transport)
            self.wires.append(wire)
            try:
                yield wire
            finally:
                wire.note_processes()

    @asynccontextmanager
    async def bench(self, script: ModelScript, **home: Any) -> AsyncIterator[Bench]:
        """Serve a model and write a home (options as of `write_codex_home`); all of it is bounded by `bound_s`."""
        with trio.fail_after(self.bound_s):
            async with open_scripted_model(script) as model:
                codex_home = write_codex_home(self.directory / "codex", model.base_url, **home)
                (self.directory / "workspace").mkdir(exist_ok=True)
                environ = testing_env(self.directory / "home", codex_home)
                yield Bench(model, self.directory, codex_home, environ, self.marker, self.wires, self.delivered)

    def left_over(self) -> list[int]:
        """What is still alive of all that was started."""
        noted = [pid for wire in self.wires for pid, start in wire.processes.items() if is_alive(pid, start)]
        return sorted({*noted, *marked_processes(self.marker)})


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodexLab]:
    """A lab in which no process may be left when the test ends (R13, F30 to F32)."""
    lab = CodexLab(tmp_path)
    deliver = CodexThread.deliver

    def record(thread: CodexThread, messages: list[Any]) -> None:
        lab.delivered.setdefault(thread.thread_id, []).extend(json.loads(message.line) for message in messages)
        deliver(thread, messages)

    monkeypatch.setattr(CodexThread, "deliver", record)
    monkeypatch.setattr(tutti_providers.codex, "open_stdio", lab.open_stdio)
    yield lab
    assert lab.left_over() == []


class Listener:
    """Everything that a subscription gave, until its end."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []

    async def listen(self, subscription: Any) -> None:
        with subscription:
            async for batch in subscription:
                self.batches.append(batch)

    @property
    def events(self) -> list[Any]:
        return [event for batch in self.batches for event in batch.events]

    @property
    def sequences(self) -> list[int]:
        return [number for batch in self.batches for number, _ in batch.numbered()]

    @property
    def tokens(self) -> list[str]:
        """The streamed pieces of text, in order."""
        return [event.text for event in self.events if type(event).__name__ == "MessageDelta"]

    @property
    def text(self) -> str:
        """All of it, joined."""
        return "".join(self.tokens)

    @property
    def kinds(self) -> list[str]:
        """The kind of each event."""
        return [type(event).__name__ for event in self.events]

    @property
    def runs(self) -> list[str]:
        """The kinds, without repeats in a row."""
        return [kind for kind, before in zip(self.kinds, [None, *self.kinds], strict=False) if kind != before]

    @property
    def told(self) -> list[str]:
        """The kinds without what the thread is doing, which comes beside the turns."""
        return [kind for kind in self.kinds if kind != "StatePatch"]


@pytest.fixture
def listen() -> Callable[[trio.Nursery, Any], Listener]:
    """Listen to a subscription in a task of the nursery."""

    def start(nursery: trio.Nursery, subscription: Any) -> Listener:
        listener = Listener()
        nursery.start_soon(listener.listen, subscription)
        return listener

    return start
