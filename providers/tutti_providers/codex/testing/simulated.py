"""Codex for a simulation: the real adapter over fake app-servers that run as tasks, every fault drawn from one source.

No process, no thread, and no clock but Trio's. Each connection that the adapter opens gets a fake of its own; threads
that have had a turn are on a disk that outlives it. `_simulated_faults` says what goes wrong, `_simulated_wire` does it
to lines, the fakes do it to requests, and `_simulated_facts` tells what really went over the wire.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast
from zlib import crc32

import msgspec
import trio

from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex.adapter import CodexAdapter, open_adapter
from tutti_side.contract import Diagnosis
from tutti_side.jsonrpc import PeerExit, Transport, TransportBrokenError
from tutti_side.jsonrpc.transports.memory import memory_pair
from tutti_side.nursery import open_service_nursery
from tutti_side.testing.simulation.coverage import STATES
from tutti_side.testing.simulation.records import (
    AskKind,
    ConnectionEnded,
    ConnectionOpened,
    Read,
    Record,
    WentOver,
    World,
)

from ._simulated_facts import WireFacts
from ._simulated_faults import FAULT_POINTS, DrawnFaults, FaultDrawer, Weather
from ._simulated_wire import LINE_BYTES_MAX, DrawnWire
from .app_server_script import AppServerMachine, FakeSetup, StoredThread
from .fake_task import FakeAppServer
from .model_script import Answer, CallTool, ModelScript, Reply, Say, apply_patch, ask_user, run_command

__all__ = ["SimulatedCodex"]

TOKEN_DELAY_S = 0.01
"""Pace of a turn's text; the fake stretches each delay by a drawn factor."""

PIPE_BYTES = (4096, 64 * 1024)
"""What a pipe holds: a Linux pipe's size, or so little that a server which reads no more is felt."""

TWIN_IDS_CHANCE = 0.3
"""How often a server's requests come in pairs whose ids differ by their type only."""

SANDBOXES = ("read-only", "workspace-write", "danger-full-access")
"""What sessions of a connection begin with; they can be restricted further then."""

MOMENT_S = 0.1
"""Between two things that a server does of itself lies this much time at most at the beginning of a storm…"""

MOMENT_GROWTH = 1.15
"""…and each time so much more, so that a long storm costs no more than a short one…"""

MOMENT_S_MAX = 20.0
"""…but never more than this."""

FROZEN_S = (0.3, 3.0, 20.0, 100.0)
"""A process stands still for one of these; the last is longer than a silent server with a turn is waited for."""

FROZEN_S_MAX = 150.0
"""And for no longer in all: whatever is to be released is tried for up to four minutes, and is given up then."""

UNPROVEN: tuple[Mapping[str, str], ...] = (
    {"version": "0.171.0"},
    {"version": "0.0.0"},
    {"user_agent": "nobody knows"},
)
"""What a server that may not be offered Sides says of itself."""

_CALLS: Mapping[AskKind, CallTool] = {
    "command": run_command("touch x", justification="May it?"),
    "change": apply_patch("*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"),
    "input": ask_user([{"id": "q", "header": "Colour", "question": "Which?", "options": [{"label": "Blue"}]}]),
    "elicitation": CallTool(name="ask", namespace="mcp__tools", arguments='{"message":"Your name?"}'),
}


class _Line:
    """One connection, as the bed knows it."""

    def __init__(self, number: int, fake: FakeAppServer, *, is_proven: bool) -> None:
        self.number = number
        self.fake = fake
        self.is_proven = is_proven
        self.connection: Connection | None = None
        self.has_ended = False
        self.frozen_s = 0.0

    @property
    def is_usable(self) -> bool:
        return self.connection is not None and self.connection.is_usable


class _OurEnd:
    """Our end of a connection's transport: passes everything on, and tells the facts and the lines."""

    def __init__(self, transport: Transport, line: _Line, facts: WireFacts, tell: "_Teller") -> None:
        self._transport = transport
        self._line = line
        self._facts = facts
        self._tell = tell
        self._writing_s = 0.0
        self._written_s = -1.0

    async def receive_some(self, max_bytes: int) -> bytes:
        """See `Transport`."""
        try:
            data = await self._transport.receive_some(max_bytes)
        except TransportBrokenError:
            self._tell.ended(self._line)
            raise
        if not data:
            self._tell.ended(self._line)
        elif not self._line.has_ended:
            self._tell.record(Read(at_s=trio.current_time(), connection=self._line.number, bytes=len(data)))
            self._tell.lines(self._line, "<", self._facts.received(data))
        return data

    async def send_all(self, data: bytes) -> None:
        """See `Transport`."""
        now = trio.current_time()
        # What waited behind a write that took time may be as old as that write.
        queued_s = self._writing_s if self._written_s == now else now
        self._writing_s = now
        if not self._line.has_ended:
            self._tell.lines(self._line, ">", self._facts.sent(data, queued_s))
        await self._transport.send_all(data)
        self._written_s = trio.current_time()

    async def wait_exit(self) -> PeerExit:
        """See `Transport`."""
        return await self._transport.wait_exit()

    async def aclose(self) -> None:
        """See `Transport`."""
        self._tell.ended(self._line)
        await self._transport.aclose()


class _Teller:
    """Where records and lines go."""

    def __init__(self, record: Callable[[Record], None], note: Callable[[str], None]) -> None:
        self.record = record
        self._note = note

    def lines(self, line: _Line, direction: str, lines: list[bytes]) -> None:
        """Note each line by its title and checksum."""
        for data in lines:
            self._note(f"{line.number} {direction} {_title(data)} {crc32(data):08x}")

    def went_over(self, line: _Line, size: int) -> None:
        """Record that the fake writes so much."""
        if not line.has_ended:
            self.record(WentOver(at_s=trio.current_time(), connection=line.number, bytes=size))

    def ended(self, line: _Line) -> None:
        """Record, once, that a connection has ended."""
        if not line.has_ended:
            line.has_ended = True
            self.record(ConnectionEnded(at_s=trio.current_time(), connection=line.number))


class SimulatedCodex:
    """A `Provider` for one simulated run; made by `CodexTestbed.simulate`.

    Args:
      rng: everything is drawn from it.
      world: what the model says to each question and what its turns ask; to any other question it says one word.
      record: takes the facts.
      note: is told of every line on every wire.
    """

    name = "codex"
    faults: Mapping[str, str]
    """Every fault by its name, with a sentence that says what it does."""
    impossible: Mapping[tuple[str, str], str]
    """Pairs of a Side's state and a fault that cannot meet, each with why."""

    def __init__(
        self, rng: random.Random, world: World, record: Callable[[Record], None], note: Callable[[str], None]
    ) -> None:
        self.faults = {name: point.says for name, point in FAULT_POINTS.items()}
        self.impossible = {
            (state, name): point.meets_no_side
            for name, point in FAULT_POINTS.items()
            if point.meets_no_side
            for state in STATES
        }
        self._rng = rng
        self._world = world
        self._tell = _Teller(record, note)
        self._weather = Weather()
        self._drawer = FaultDrawer(rng, self._weather, record, trio.current_time)
        self._lines: list[_Line] = []
        self._script = _script_of(world)

    @property
    def provider(self) -> "SimulatedCodex":
        """What `open_host` takes."""
        return self

    def open(self, ports: object = None) -> AbstractAsyncContextManager[CodexAdapter]:
        """Open the adapter; see `tutti_side.contract.Provider.open`. What the host offers is not used."""
        del ports
        return open_adapter(self._open_app_server)

    async def diagnose(self) -> Diagnosis:
        """Say that there is nothing to find."""
        await trio.lowlevel.checkpoint()
        return Diagnosis(provider=self.name, found=True)

    def storm(self) -> None:
        """Let the faults begin."""
        self._weather.storm()

    def heal(self) -> None:
        """End them: who stands still goes on, an unproven version is replaced. What is held still comes."""
        self._weather.heal()
        for line in self._lines:
            line.fake.resume()
            if not line.is_proven:
                line.fake.crash()

    def connection_of(self, child: str) -> int | None:
        """Return the number of the connection whose server has loaded that thread; None for none."""
        for line in reversed(self._lines):
            if not line.has_ended and child in line.fake.machine.threads:
                return line.number
        return None

    def counts(self) -> Mapping[str, int]:
        """Sums over the connections that live, by name: what each bounded thing holds now."""
        sums: Counter[str] = Counter()
        for line in self._lines:
            if line.connection is not None and line.is_usable:
                sums.update(_held_by(line.connection), connections=1)
        return dict(sums)

    def leftovers(self, live: frozenset[str]) -> list[str]:
        """Say what is left that no live session needs, in one phrase each.

        Args:
          live: the thread ids of the live sessions.
        """
        left: list[str] = []
        for line in self._lines:
            if line.connection is not None:
                threads = line.fake.machine.threads.values()
                needed: frozenset[str] = live & {thread.id for thread in threads} if line.is_usable else frozenset()
                # A sub-agent is followed as long as the thread that called it.
                agents = [child for child, parent in line.fake.machine.sub_agents.items() if parent in needed]
                left += _leftovers_of_client(line.connection, len(needed), len(agents))
                if line.is_usable:
                    subscribed = {thread.id for thread in threads if thread.subscribed}
                    left += [f"R6 thread still subscribed: {thread_id}" for thread_id in sorted(subscribed - live)]
        return left

    @asynccontextmanager
    async def _open_app_server(self) -> AsyncIterator[Connection]:
        number, rng = len(self._lines), self._rng
        longest = _line_bytes_max(self._world)
        ours, theirs = memory_pair(rng.choice(PIPE_BYTES))
        unproven = dict(rng.choice(UNPROVEN)) if self._drawer.strikes("version_unproven") else {}
        if unproven:
            self._drawer.strike("version_unproven", number)
        machine = AppServerMachine(self._set_up(number, unproven), DrawnFaults(self._drawer, number))
        facts = WireFacts(
            number, self._world, machine.text_of, self._tell.record, trio.current_time, line_bytes_max=longest
        )

        def went_over(size: int) -> None:
            self._tell.went_over(line, size)

        wire = DrawnWire(self._drawer, number, facts.thread_of, went_over, line_bytes_max=longest)
        line = _Line(number, FakeAppServer(machine, wire), is_proven=not unproven)
        self._lines.append(line)
        transport = _OurEnd(ours, line, facts, self._tell)
        self._tell.record(ConnectionOpened(at_s=trio.current_time(), connection=number, attested=not unproven))
        async with open_service_nursery() as nursery:
            # It may start as late as it likes: what we send waits in the pipe.
            nursery.start_soon(line.fake.serve, theirs, name=f"fake-app-server-{number}")  # noqa: ASYNC113
            nursery.start_soon(self._disturb, line, name=f"disturb-{number}")
            try:
                async with open_connection(
                    transport, name=self.name, rng=random.Random(rng.random()), line_bytes_max=longest
                ) as line.connection:
                    yield line.connection
            finally:
                self._tell.ended(line)

    def _set_up(self, number: int, unproven: Mapping[str, Any]) -> FakeSetup:
        rng = self._rng
        stored: dict[str, StoredThread] = {}
        for line in self._lines:
            stored |= line.fake.machine.persisted
        return FakeSetup(
            script=self._script,
            stored=tuple(stored.values()),
            # Two connections of one run never make the same id.
            seed=(rng.randrange(1 << 10) << 6) | (number & 0x3F),
            jitter=True,
            sandbox=rng.choice(SANDBOXES),
            tool_servers=rng.choice(((), ("tools",))),
            unload_delay_s=rng.choice((None, 0.5)),
            user_input_everywhere=True,
            has_twin_ids=rng.random() < TWIN_IDS_CHANCE,
            **unproven,
        )

    async def _disturb(self, line: _Line) -> None:
        """Do what servers do of themselves, at drawn moments of each storm."""
        gap_s = MOMENT_S
        while True:
            await self._weather.wait_stormy()
            await trio.sleep(self._rng.random() * gap_s)
            gap_s = min(gap_s * MOMENT_GROWTH, MOMENT_S_MAX)
            name = self._drawer.draw_moment()
            if name is not None:
                self._disturb_once(line, name)

    def _disturb_once(self, line: _Line, name: str) -> None:
        disturb = FAULT_POINTS[name].disturb
        if disturb is not None:

            def tell(child: str) -> None:
                self._drawer.strike(name, line.number, child)

            line.fake.do(lambda machine: machine.disturb(disturb, self._rng.randrange, tell))
            return
        if name == "frozen":
            seconds = self._rng.choice(FROZEN_S)
            if line.frozen_s + seconds > FROZEN_S_MAX:
                return
            line.frozen_s += seconds
            line.fake.freeze(seconds)
        else:
            line.fake.crash()
        self._drawer.strike(name, line.number)


def _script_of(world: World) -> ModelScript:
    answers: list[Answer] = []
    for question, tokens in world.answers.items():
        say = Say(tokens=tuple(tokens), delay_s=TOKEN_DELAY_S)
        asks = tuple(_CALLS[kind] for kind in world.approvals.get(question, ()))
        replies = (Reply(steps=asks), Reply(steps=(say,))) if asks else (Reply(steps=(say,)),)
        answers.append(Answer(replies=replies, when=question))
    return ModelScript(answers=tuple(answers))


def _held_by(connection: Connection) -> dict[str, int]:
    """Return what our own side of a connection holds now."""
    statistics = connection.statistics()
    return {
        "routes": statistics.router.routes,
        "creations": statistics.router.creations,
        "pooled": statistics.router.pooled,
        "leases": statistics.leases,
        "releasing": statistics.releasing,
        "in_flight": statistics.peer.in_flight,
        "waiting": statistics.peer.waiting,
        "expired": statistics.peer.expired,
        "open_requests": statistics.peer.open_requests,
        "write_queue_frames": statistics.peer.write_queue_frames,
        "write_queue_bytes": statistics.peer.write_queue_bytes,
    }


def _line_bytes_max(world: World) -> int:
    """Return the longest line that a client of this world reads: a turn's end repeats all that it said."""
    return max(LINE_BYTES_MAX, *(2 * sum(map(len, tokens)) for tokens in world.answers.values()))


def _leftovers_of_client(connection: Connection, needed: int, agents: int) -> list[str]:
    """What our own side still holds beyond what so many sessions need, and so many sub-agents at most."""
    statistics, held = connection.statistics(), _held_by(connection)
    left = {
        "R6 routes": held["routes"] - needed - min(agents, max(0, held["routes"] - needed)),
        "R6 leases": held["leases"] - needed if connection.is_usable else 0,
        "R6 unanswered creations": held["creations"],
        "R6 pooled messages": held["pooled"],
        "R6 releases under way": held["releasing"],
        "R6 threads given up": statistics.unreleased,
        "R9 requests in flight": held["in_flight"],
        "R9 requests waiting": held["waiting"],
        "R11 requests of the server unanswered": held["open_requests"],
        "R9 route failures": statistics.router.route_failures,
        "R9 router failures": statistics.peer.router_failures,
        "R9 ends by an error of our own": connection.peer.closed is not None
        and connection.peer.closed.reason == "internal",
    }
    return [f"{what}: {count}" for what, count in left.items() if count]


def _title(line: bytes) -> str:
    """Name a line without its content."""
    try:
        message: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = None
    if not isinstance(message, dict):
        return "garbage"
    fields = cast("dict[str, Any]", message)
    return str(fields.get("method", "answer")) if "method" in fields or "error" not in fields else "error"
