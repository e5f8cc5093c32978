"""Codex for a simulation: the real adapter over fake app-servers that run as tasks, every fault drawn from one source.

No process, no thread, and no clock but Trio's. Each connection that the adapter opens gets a fake of its own; `heal`
ends the faults of all, and `leftovers` says what is left that nobody needs.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, cast
from zlib import crc32

import msgspec
import trio

from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex.adapter import CodexAdapter, open_adapter
from tutti_side.contract import Diagnosis
from tutti_side.jsonrpc import PeerExit, Transport
from tutti_side.jsonrpc.codec import LineSplitter
from tutti_side.jsonrpc.transports.memory import memory_pair
from tutti_side.nursery import open_service_nursery
from tutti_side.testing.simulation.records import Record, World

from .app_server_faults import (
    AnswerLate,
    AnswerTwice,
    CrashAfterSends,
    CrashOn,
    FaultPlan,
    ForkAnswer,
    ForkMessage,
    ForkOrder,
    GarbageBefore,
    NeverAnswer,
    Overloaded,
    Strangers,
    TurnStartsFirst,
)
from .app_server_script import AppServerMachine, FakeSetup
from .fake_task import FakeAppServer
from .model_script import Answer, ModelScript, Say

__all__ = ["SimulatedCodex"]

_Kind = TypeVar("_Kind", bound=msgspec.Struct)

TOKEN_DELAY_S = 0.01
"""Pace of a turn's text; the fake stretches each delay by a drawn factor."""

LATENESS_S = (0.0, 0.001, 0.02, 0.3, 3.0, 40.0)
"""How late an answer comes; the last is later than any request waits."""

CRASH_CHANCE = 0.5
"""How often a connection's process has a drawn number of messages to live."""

CRASH_SENDS_MAX = 300
"""The number is at most this: about what one simulation makes a process say."""

FORK_MESSAGES: tuple[ForkMessage, ...] = ("starting", "ready", "status", "started", "request", "response")

_Drawer = Callable[[random.Random, str], msgspec.Struct]

RATES: Mapping[type[msgspec.Struct], tuple[float, _Drawer]] = {
    CrashOn: (0.002, lambda rng, method: CrashOn(method=method)),
    GarbageBefore: (0.02, lambda rng, method: GarbageBefore(method=method, data=b'{"id":0,\xff}\n')),
    NeverAnswer: (0.02, lambda rng, method: NeverAnswer(method=method)),
    Overloaded: (0.05, lambda rng, method: Overloaded(method=method)),
    Strangers: (0.03, lambda rng, method: Strangers(method=method)),
    AnswerTwice: (0.03, lambda rng, method: AnswerTwice(method=method)),
    AnswerLate: (0.5, lambda rng, method: AnswerLate(method=method, after_s=rng.choice(LATENESS_S))),
    ForkAnswer: (0.05, lambda rng, method: ForkAnswer(thread=rng.choice(({"ephemeral": False}, {"path": "/x"})))),
    ForkOrder: (0.5, lambda rng, method: ForkOrder(order=tuple(rng.sample(FORK_MESSAGES, rng.randint(1, 6))))),
    TurnStartsFirst: (0.3, lambda rng, method: TurnStartsFirst()),
}
"""How often each fault strikes a request, and how it is drawn. A child's id is never bent: nobody could release it."""


class Weather:
    """Whether there are faults now; the same for all connections."""

    stormy = False


class DrawnFaults(FaultPlan):
    """Draws each fault when it is asked for, so that they fall on any request and not on the first ones."""

    def __init__(self, rng: random.Random, weather: Weather) -> None:
        super().__init__(())
        self._rng = rng
        self._weather = weather
        self._crash: CrashAfterSends | None = None
        if rng.random() < CRASH_CHANCE:
            self._crash = CrashAfterSends(sends=rng.randint(1, CRASH_SENDS_MAX))

    def take(self, kind: type[Any], method: str) -> Any:
        """Draw a fault of that kind for one request; None when it is spared."""
        drawn = RATES.get(kind)
        if drawn is None or not self._weather.stormy or self._rng.random() >= drawn[0]:
            return None
        return drawn[1](self._rng, method)

    def crash_after_sends(self) -> CrashAfterSends | None:
        """The drawn length of the process' life."""
        return self._crash if self._weather.stormy else None


class TracedTransport:
    """Passes everything on, and notes each line of both directions."""

    def __init__(self, transport: Transport, note: Callable[[str], None]) -> None:
        self._transport = transport
        self._note = note
        self._lines = {"<": LineSplitter(), ">": LineSplitter()}

    async def receive_some(self, max_bytes: int) -> bytes:
        """See `Transport`."""
        data = await self._transport.receive_some(max_bytes)
        self._note_lines("<", data)
        return data

    async def send_all(self, data: bytes) -> None:
        """See `Transport`."""
        self._note_lines(">", data)
        await self._transport.send_all(data)

    async def wait_exit(self) -> PeerExit:
        """See `Transport`."""
        return await self._transport.wait_exit()

    async def aclose(self) -> None:
        """See `Transport`."""
        await self._transport.aclose()

    def _note_lines(self, direction: str, data: bytes) -> None:
        for line in self._lines[direction].receive_data(data):
            self._note(f"{direction} {_title(line)} {crc32(line):08x}")


class SimulatedCodex:
    """A `Provider`; made by `CodexTestbed.simulate`, and good for one host.

    Args:
      rng: everything is drawn from it.
      world: what the model says to each question, token by token; to any other question one word.
      record: is told of every fact.
      note: is told of every line on every wire.
    """

    name = "codex"

    def __init__(
        self, rng: random.Random, world: World, record: Callable[[Record], None], note: Callable[[str], None]
    ) -> None:
        self._rng = rng
        self._record = record
        self._note = note
        self._weather = Weather()
        self._adapters: list[CodexAdapter] = []
        self._connections: list[tuple[Connection, FakeAppServer]] = []
        self._script = ModelScript(
            answers=tuple(
                Answer.of(Say(tokens=tuple(tokens), delay_s=TOKEN_DELAY_S), when=question)
                for question, tokens in world.answers.items()
            )
        )

    @property
    def provider(self) -> "SimulatedCodex":
        """What `open_host` takes."""
        return self

    def open(self, ports: object = None) -> AbstractAsyncContextManager[CodexAdapter]:
        """Open the adapter; see `tutti_side.contract.Provider.open`. What the host offers is not used."""
        del ports
        return self._open()

    async def diagnose(self) -> Diagnosis:
        """Say that there is nothing to find."""
        await trio.lowlevel.checkpoint()
        return Diagnosis(provider=self.name, found=True)

    @property
    def faults(self) -> Mapping[str, str]:
        """Every fault point by its name."""
        return {}

    def connection_of(self, child: str) -> int | None:
        """Return the number of the connection whose app-server holds a thread; None for none."""
        for number, (connection, fake) in enumerate(self._connections):
            if connection.is_usable and child in fake.machine.threads:
                return number
        return None

    def counts(self) -> Mapping[str, int]:
        """Sums over the connections, by name."""
        return {}

    def storm(self) -> None:
        """Let the faults begin."""
        self._weather.stormy = True

    def heal(self) -> None:
        """End them; answers that are held still come when their time has come."""
        self._weather.stormy = False

    def leftovers(self, live: frozenset[str]) -> list[str]:
        """Say what is left that no live session needs, in one phrase each.

        Args:
          live: the thread ids of the live sessions.
        """
        left: list[str] = []
        for connection, fake in self._connections:
            left += _leftovers_of_client(connection, live)
            if connection.is_usable:
                subscribed = {thread.id for thread in fake.machine.threads.values() if thread.subscribed}
                left += [f"R6 thread still subscribed: {thread_id}" for thread_id in sorted(subscribed - live)]
        return left

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[CodexAdapter]:
        async with open_adapter(self._open_app_server) as adapter:
            yield adapter

    @asynccontextmanager
    async def _open_app_server(self) -> AsyncIterator[Connection]:
        number = len(self._connections)
        rng = self._rng
        setup = FakeSetup(
            script=self._script,
            seed=rng.randrange(1 << 16),
            jitter=True,
            tool_servers=rng.choice(((), ("tools",))),
            unload_delay_s=rng.choice((None, 0.5)),
        )
        ours, theirs = memory_pair()
        fake = FakeAppServer(AppServerMachine(setup, DrawnFaults(rng, self._weather)))
        transport = TracedTransport(ours, lambda line: self._note(f"{number} {line}"))
        async with open_service_nursery() as nursery:
            # It may start as late as it likes: what we send waits in the pipe.
            nursery.start_soon(fake.serve, theirs, name=f"fake-app-server-{number}")  # noqa: ASYNC113
            async with open_connection(transport, name=self.name, rng=random.Random(rng.random())) as connection:
                self._connections.append((connection, fake))
                yield connection


def _leftovers_of_client(connection: Connection, live: frozenset[str]) -> list[str]:
    """What our own side of a connection still holds."""
    statistics = connection.statistics()
    needed = len(live) if connection.is_usable else 0
    held = {
        "R6 routes": statistics.router.routes - needed,
        "R6 leases": statistics.leases - needed if connection.is_usable else 0,
        "R6 unanswered creations": statistics.router.creations,
        "R6 pooled messages": statistics.router.pooled,
        "R6 releases under way": statistics.releasing,
        "R6 threads given up": statistics.unreleased,
        "R9 requests in flight": statistics.peer.in_flight,
        "R9 requests waiting": statistics.peer.waiting,
        "R11 requests of the server unanswered": statistics.peer.open_requests,
        "route failures": statistics.router.route_failures,
        "router failures": statistics.peer.router_failures,
    }
    return [f"{what}: {count}" for what, count in held.items() if count]


def _title(line: bytes) -> str:
    """Name a line without its content."""
    try:
        message = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return "garbage"
    fields = cast("dict[str, Any]", message)
    return str(fields.get("method", "answer")) if "method" in fields or "error" not in fields else "error"
