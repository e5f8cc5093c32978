"""The fake app-server as a Trio task over a transport, for tests and simulations in one process.

One task steps the machine and writes, another reads: memory streams refuse two writers, and one order of steps is what
makes equal seeds give equal traces.
"""

import heapq
import math
from collections import deque

import msgspec
import trio

from tutti_side.jsonrpc.errors import TransportBrokenError
from tutti_side.jsonrpc.transports import PeerExit, Transport
from tutti_side.jsonrpc.transports.memory import MemoryTransport

from ._fake_outbox import Action, SendBytes, SendMessage, StopsReading, Wake
from .app_server_script import AppServerMachine

__all__ = ["FakeAppServer", "serve_fake"]

READ_BYTES = 65536
"""Read at most this much at once, as from a pipe."""

INPUTS_QUEUED_MAX = 64
"""Chunks read ahead of the machine; then the reader waits, as a pipe would fill."""

_encode = msgspec.json.Encoder().encode


class FakeAppServer:
    """Steers a fake that runs in a task: opens its gates, waits for them, ends it."""

    def __init__(self, machine: AppServerMachine) -> None:
        self.machine = machine
        self.exit_status: int | None = None
        """Known once it exited."""
        self._changed = trio.Condition()
        self._orders: deque[str | int] = deque()
        self._woken = trio.Event()

    def open_gate(self, name: str) -> None:
        """Open a gate of the machine; what waits there is sent by the fake's own task."""
        self._orders.append(name)
        self._woken.set()

    def crash(self, status: int = -9) -> None:
        """End at once, as if killed: no word more, the stream just ends."""
        self._orders.append(status)
        self._woken.set()

    async def wait_gate_reached(self, name: str, times: int = 1) -> None:
        """Wait until that many turns came to the gate. Cancellation: harmless."""
        async with self._changed:
            while self.machine.gate_arrivals(name) < times:
                await self._changed.wait()

    async def wait_received(self, method: str, times: int = 1) -> None:
        """Wait until so many messages of the method were handled. Cancellation: harmless."""
        async with self._changed:
            while len(self.machine.calls(method)) < times:
                await self._changed.wait()

    async def serve(self, transport: Transport) -> None:
        """Serve one client until the machine exits or the client is gone; the transport is closed in any case.

        Cancellation: the transport is closed, as if the process was killed.
        """
        inputs, queue = trio.open_memory_channel[bytes](INPUTS_QUEUED_MAX)
        shell = _Shell(self.machine, transport)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, transport, inputs)
                while shell.status is None:
                    await self._step(shell, queue)
                nursery.cancel_scope.cancel()
        finally:
            self.exit_status = shell.status
            if isinstance(transport, MemoryTransport):
                transport.exit = PeerExit(status=-9 if shell.status is None else shell.status)
            await transport.aclose()

    async def _step(self, shell: "_Shell", queue: trio.MemoryReceiveChannel[bytes]) -> None:
        """Do the next thing: an order, a due timer, or input; or wait for one."""
        # No checkpoint lies between this and the wait below, so no wake-up is lost.
        self._woken = trio.Event()
        if self._orders:
            order = self._orders.popleft()
            if isinstance(order, int):
                shell.status = order
            else:
                await shell.act(self.machine.open_gate(order))
        elif shell.deadline() <= trio.current_time():
            await shell.wake()
        elif shell.reading and (data := _take(queue)) is not None:
            await shell.feed(data)
        else:
            with trio.CancelScope(deadline=shell.deadline()):
                await self._woken.wait()
            return
        async with self._changed:
            self._changed.notify_all()

    async def _read(self, transport: Transport, inputs: trio.MemorySendChannel[bytes]) -> None:
        """Pass on what comes; an empty chunk says that it ended."""
        while True:
            try:
                data = await transport.receive_some(READ_BYTES)
            except TransportBrokenError:
                data = b""
            await inputs.send(data)
            self._woken.set()
            if not data:
                return


async def serve_fake(transport: Transport, machine: AppServerMachine) -> None:
    """Run the machine over the transport until it exits or the client is gone; see `FakeAppServer` for a handle."""
    await FakeAppServer(machine).serve(transport)


class _Shell:
    """Carries out actions: sends, keeps timers, remembers the end."""

    def __init__(self, machine: AppServerMachine, transport: Transport) -> None:
        self._machine = machine
        self._transport = transport
        self._timers: list[tuple[float, int]] = []
        self._rest = b""
        self.reading = True
        self.status: int | None = None

    def deadline(self) -> float:
        return self._timers[0][0] if self._timers else math.inf

    async def wake(self) -> None:
        _, token = heapq.heappop(self._timers)
        await self.act(self._machine.wake(token))

    async def feed(self, data: bytes) -> None:
        """Take what was read; nothing is the end of input."""
        if not data:
            await self.act(self._machine.end_of_input())
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self.status is None and self.reading:
                await self.act(self._machine.receive_line(line))

    async def act(self, actions: list[Action]) -> None:
        out: list[bytes] = []
        for action in actions:
            if isinstance(action, SendMessage):
                out.append(_encode(action.message) + b"\n")
            elif isinstance(action, SendBytes):
                out.append(action.data)
            elif isinstance(action, Wake):
                heapq.heappush(self._timers, (trio.current_time() + action.after_s, action.token))
            elif isinstance(action, StopsReading):
                self.reading = False
            else:
                self.status = action.status
                break
        if out:
            try:
                await self._transport.send_all(b"".join(out))
            except TransportBrokenError:
                self.status = 0 if self.status is None else self.status


def _take(queue: trio.MemoryReceiveChannel[bytes]) -> bytes | None:
    try:
        return queue.receive_nowait()
    except trio.WouldBlock:
        return None
