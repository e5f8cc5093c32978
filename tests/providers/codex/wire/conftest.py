"""A host over the fake app-server, joined by a wire in memory that a test can read, tear, cut and silence."""

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.adapter import CodexAdapter, open_adapter
from tutti_providers.codex.testing import (
    Answer,
    AppServerMachine,
    FakeAppServer,
    FakeSetup,
    ModelScript,
    Pause,
    Say,
)
from tutti_side import AgentHost, SessionHandle, open_host
from tutti_side.jsonrpc import MemoryTransport, PeerExit, memory_pair
from tutti_side.nursery import open_service_nursery

BOUND_S = 2_000.0
"""Each bench is inside one `trio.fail_after`; on the virtual clock a hang gets there at once."""

TASK, QUESTION, HELD = "refactor", "what?", "hold on"
PARENT, SIDE = ("p0 ", "p1 ", "p2 ", "p3 "), ("s0 ", "s1 ")

SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=PARENT[:2]), Pause(gate="parent"), Say(tokens=PARENT[2:]), when=TASK),
        Answer.of(Say(tokens=SIDE), when=QUESTION),
        Answer.of(Say(tokens=SIDE[:1]), Pause(gate="held"), Say(tokens=SIDE[1:]), when=HELD),
    )
)
"""The parent's task halts at the gate ``parent``, a question is answered at once, a hold halts at ``held``."""

Frame = dict[str, Any]


class Wire:
    """The client's end of one connection: records whole messages, and does to the bytes what it is told."""

    def __init__(self, near: MemoryTransport, far: MemoryTransport) -> None:
        self.received: list[Frame] = []
        self.sent: list[Frame] = []
        self.read_bytes: int | None = None
        """Hand over at most so many bytes at a time; 0: a whole line at a time."""
        self.between: Callable[[Frame], list[Frame]] = lambda frame: []
        """Messages that the server is made to say right after this one."""
        self.is_silent = False
        self.talks_garbage = False
        self._near = near
        self._far = far
        self._rest = {"in": b"", "out": b""}
        self._ready: deque[bytes] = deque()

    async def receive_some(self, max_bytes: int) -> bytes:
        if self._ready:
            await trio.lowlevel.checkpoint()
        while not self._ready:
            data = await self._near.receive_some(max_bytes)
            if self.is_silent:
                await trio.sleep_forever()
            if not data:
                return b""
            if self.talks_garbage:
                return b"\x00{[nonsense\xff\n" * 3
            self._take(data)
        return self._ready.popleft()

    async def send_all(self, data: bytes) -> None:
        *lines, self._rest["out"] = (self._rest["out"] + data).split(b"\n")
        self.sent += [json.loads(line) for line in lines]
        await self._near.send_all(data)

    async def wait_exit(self) -> PeerExit:
        return await self._near.wait_exit()

    async def aclose(self) -> None:
        await self._near.aclose()

    def break_(self) -> None:
        """Break the pipe in both directions, at once."""
        self._far.break_()

    def _take(self, data: bytes) -> None:
        *lines, self._rest["in"] = (self._rest["in"] + data).split(b"\n")
        out: list[bytes] = []
        for line in lines:
            frames = [json.loads(line)]
            frames += self.between(frames[0])
            self.received += frames
            out += [json.dumps(frame).encode() + b"\n" for frame in frames]
        if self.read_bytes is None:
            out = [b"".join(out)]
        elif self.read_bytes:
            whole, size = b"".join(out), self.read_bytes
            out = [whole[at : at + size] for at in range(0, len(whole), size)]
        self._ready.extend(piece for piece in out if piece)

    def requests(self, method: str) -> list[Frame]:
        """Our requests of that method."""
        return [frame for frame in self.sent if frame.get("method") == method]

    def of_thread(self, thread_id: str) -> list[Frame]:
        """What the server said of one thread by itself, in wire order."""
        return [frame for frame in self.received if "method" in frame and thread_of(frame) == thread_id]


def thread_of(frame: Frame) -> str | None:
    params: Frame = frame.get("params") or {}
    return params.get("threadId") or params.get("conversationId") or (params.get("thread") or {}).get("id")


class Bench:
    """Implements `tutti_side.contract.Provider` over fakes; also opens a host over itself."""

    name = "codex"

    def __init__(self, delivered: dict[str, list[Frame]], **setup: Any) -> None:
        self.setup = FakeSetup(**{"script": SCRIPT, **setup})
        self.later_setup: FakeSetup | None = None
        """What every app-server but the first is set up with, if anything else."""
        self.delivered = delivered
        self.servers: list[FakeAppServer] = []
        self.wires: list[Wire] = []
        self.running = 0
        """App-servers whose connection is open."""
        self.adapter: CodexAdapter

    # Provider

    @asynccontextmanager
    async def open(self, ports: Any = None) -> AsyncGenerator[CodexAdapter]:
        async with open_adapter(self._connect) as adapter:
            self.adapter = adapter
            yield adapter

    async def diagnose(self) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Connection]:
        near, far = memory_pair()
        setup = self.later_setup if self.later_setup is not None and self.servers else self.setup
        server = FakeAppServer(AppServerMachine(setup))
        wire = Wire(near, far)
        self.servers.append(server)
        self.wires.append(wire)
        self.running += 1
        try:
            async with open_service_nursery() as nursery:
                nursery.start_soon(server.serve, far)  # noqa: ASYNC113 - what is sent before it runs waits for it
                async with open_connection(wire, name="codex") as connection:
                    yield connection
        finally:
            self.running -= 1

    # What a test uses

    @asynccontextmanager
    async def host(self) -> AsyncGenerator[AgentHost]:
        """Open a host; whatever hangs in it fails."""
        assert isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
        with trio.fail_after(BOUND_S):
            async with open_host(self) as host:
                yield host
        assert self.running == 0

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[tuple[AgentHost, SessionHandle]]:
        """Open a host with a session whose turn is halted in the middle."""
        async with self.host() as host:
            yield host, await self.start_working(host)

    async def start_working(self, host: AgentHost) -> SessionHandle:
        """Start a session and a turn of it that is halted in the middle."""
        session = await host.start_session(cwd="/project")
        await session.send(TASK)
        await self.server.wait_gate_reached("parent")
        await trio.testing.wait_all_tasks_blocked()
        return session

    @property
    def server(self) -> FakeAppServer:
        """The latest."""
        return self.servers[-1]

    @property
    def machine(self) -> AppServerMachine:
        return self.server.machine

    @property
    def wire(self) -> Wire:
        """The latest."""
        return self.wires[-1]

    @property
    def connection(self) -> Any:
        """Statistics of the live connection."""
        return self.adapter.statistics()["live"]

    @property
    def subscribed(self) -> set[str]:
        """The threads that the server sends us events of."""
        return {thread.id for thread in self.machine.threads.values() if thread.subscribed}

    @property
    def children(self) -> list[str]:
        """Every fork that the server made, oldest first."""
        return [thread.id for thread in self.machine.threads.values() if thread.forked_from is not None]

    def assert_only(self, host: AgentHost, *sessions: SessionHandle, lies: int = 0) -> None:
        """Nothing is left but these sessions: no Side, route, lease, pooled message, subscription or lock (R6, R14).

        `lies`: how many answers were refused as something else than was asked for.
        """
        statistics = host.controller.statistics()
        assert (statistics.sides, statistics.locks_in_use, statistics.sessions) == ({}, 0, len(sessions))
        if not sessions:
            assert self.running == 0
            return
        connection = self.connection
        router = connection.router
        assert (router.routes, router.creations, router.pooled) == (len(sessions), 0, 0)
        assert (connection.leases, connection.releasing, connection.unreleased) == (len(sessions), 0, 0)
        assert (connection.peer.in_flight, connection.peer.waiting, connection.peer.hook_failures) == (0, 0, lies)
        assert self.subscribed == {session.provider_session_id for session in sessions}
        assert self.running == 1
        assert len(self.adapter._live) == len(sessions)
        assert self.adapter._openings == {}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Makes benches: ``bench(**fields of FakeSetup)``; the test itself asks for ``autojump_clock``."""
    delivered: dict[str, list[Frame]] = {}
    deliver = CodexThread.deliver

    def record(thread: CodexThread, messages: list[Any]) -> None:
        delivered.setdefault(thread.thread_id, []).extend(json.loads(message.line) for message in messages)
        deliver(thread, messages)

    monkeypatch.setattr(CodexThread, "deliver", record)

    def make(**setup: Any) -> Bench:
        delivered.clear()
        return Bench(delivered, **setup)

    return make
