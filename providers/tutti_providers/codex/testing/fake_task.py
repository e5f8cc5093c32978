"""The fake app-server as a Trio task over a transport, for tests and simulations in one process.

One task steps the machine and writes, another reads: memory streams refuse two writers, and one order of steps is what
makes equal seeds give equal traces.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import trio

from tutti_side.jsonrpc.errors import TransportBrokenError
from tutti_side.jsonrpc.transports import PeerExit, Transport
from tutti_side.jsonrpc.transports.memory import MemoryTransport

from ._fake_outbox import Action, SendBytes, SendMessage, StopsReading, Wake
from .app_server_script import AppServerMachine

__all__ = ["FakeAppServer", "Wire", "Write", "serve_fake"]

READ_BYTES = 65536
"""Read at most this much at once, as from a pipe."""

INPUTS_QUEUED_MAX = 64
"""Chunks read ahead of the machine; then the reader waits, as a pipe would fill."""

_encode = msgspec.json.Encoder().encode


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that go out at once."""

    data: bytes
    pause_s: float = 0.0
    """So long before it nothing happens, as when a pipe is slow."""
    exit_status: int | None = None
    """Right behind it the process ends, if this is given."""


class Wire(Protocol):
    """Stands between what the machine sends and the transport."""

    def put(self, message: dict[str, Any] | None, line: bytes) -> None:
        """Take what the machine sends; no message when it is mere bytes."""
        ...

    def take(self, now: float) -> list[Write]:
        """Hand out what goes out now."""
        ...

    def goes_out(self, write: Write) -> None:
        """Take note that this is being written now."""
        ...

    def next_due(self) -> float:
        """When the next of what is held goes out; infinity when nothing is held."""
        ...


class PlainWire:
    """Sends all at once, and nothing else."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def put(self, message: dict[str, Any] | None, line: bytes) -> None:
        """See `Wire`."""
        del message
        self._lines.append(line)

    def take(self, now: float) -> list[Write]:
        """See `Wire`."""
        del now
        lines, self._lines = self._lines, []
        return [Write(data=b"".join(lines))] if lines else []

    def goes_out(self, write: Write) -> None:
        """See `Wire`."""

    def next_due(self) -> float:
        """See `Wire`."""
        return math.inf


class FakeAppServer:
    """Steers a fake that runs in a task: opens its gates, waits for them, ends it.

    Args:
      machine: what it does.
      wire: what becomes of its lines on their way; they simply go out when not given.
    """

    def __init__(self, machine: AppServerMachine, wire: Wire | None = None) -> None:
        self.machine = machine
        self._wire = PlainWire() if wire is None else wire
        self.exit_status: int | None = None
        """Known once it exited."""
        self._changed = trio.Condition()
        self._orders: deque[str | Callable[[AppServerMachine], list[Action]]] = deque()
        self._killed: int | None = None
        self._frozen_until = 0.0
        self._shell: _Shell | None = None
        self._woken = trio.Event()
        self._resumed = trio.Event()

    def open_gate(self, name: str) -> None:
        """Open a gate of the machine; what waits there is sent by the fake's own task."""
        self._orders.append(name)
        self._woken.set()

    def crash(self, status: int = -9) -> None:
        """End at once, as if killed: no word more, the stream just ends."""
        self._killed = status
        self._resumed.set()
        self._woken.set()

    def do(self, act: Callable[[AppServerMachine], list[Action]]) -> None:
        """Do something to the machine; what follows is sent by the fake's own task."""
        self._orders.append(act)
        self._woken.set()

    def freeze(self, seconds: float) -> None:
        """Stand still for so long, as a stopped process: nothing is read, nothing written, no timer runs off."""
        self._frozen_until = max(self._frozen_until, trio.current_time() + seconds)
        self._woken.set()

    def resume(self) -> None:
        """End a freeze, and read again, if it reads no more for a time."""
        self._frozen_until = 0.0
        if self._shell is not None:
            self._shell.reads_again_at = -math.inf
        self._resumed.set()
        self._resumed = trio.Event()
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
        shell = self._shell = _Shell(self.machine, transport, self._wire)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, transport, inputs, shell)
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
        if self._killed is not None:
            shell.status = self._killed
        elif self._frozen_until > trio.current_time():
            with trio.CancelScope(deadline=self._frozen_until):
                await self._resumed.wait()
            return
        elif self._orders:
            order = self._orders.popleft()
            await shell.act(self.machine.open_gate(order) if isinstance(order, str) else order(self.machine))
        elif shell.deadline() <= trio.current_time():
            await shell.wake()
        elif shell.reading and shell.has_lines:
            await shell.go_on()
        elif shell.reading and (data := _take(queue)) is not None:
            await shell.feed(data)
        else:
            with trio.CancelScope(deadline=shell.deadline()):
                await self._woken.wait()
            return
        async with self._changed:
            self._changed.notify_all()

    async def _read(self, transport: Transport, inputs: trio.MemorySendChannel[bytes], shell: "_Shell") -> None:
        """Pass on what comes; an empty chunk says that it ended."""
        while True:
            while not shell.reading:
                if self._killed is not None:
                    return  # it reads no more, and waits for nothing
                with trio.CancelScope(deadline=shell.reads_again_at):
                    await self._resumed.wait()
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

    def __init__(self, machine: AppServerMachine, transport: Transport, wire: Wire) -> None:
        self._machine = machine
        self._transport = transport
        self._wire = wire
        self._timers: list[tuple[float, int]] = []
        self._rest = b""
        self._lines: deque[bytes] = deque()
        self.reads_again_at = -math.inf
        """Nothing is read before then."""
        self.status: int | None = None

    @property
    def reading(self) -> bool:
        return self.reads_again_at <= trio.current_time()

    @property
    def has_lines(self) -> bool:
        return bool(self._lines)

    def deadline(self) -> float:
        """When there is something to do again, if nothing comes before."""
        resumes = math.inf if self.reading else self.reads_again_at
        return min(self._timers[0][0] if self._timers else math.inf, self._wire.next_due(), resumes)

    async def wake(self) -> None:
        """Do what is due: one timer, or what the wire has held."""
        if self._timers and self._timers[0][0] <= trio.current_time():
            _, token = heapq.heappop(self._timers)
            await self.act(self._machine.wake(token))
        else:
            await self._flush()

    async def feed(self, data: bytes) -> None:
        """Take what was read; nothing is the end of input."""
        if not data:
            await self.act(self._machine.end_of_input())
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += lines
        await self.go_on()

    async def go_on(self) -> None:
        """Handle the lines that were read, as long as it reads."""
        while self._lines and self.status is None and self.reading:
            await self.act(self._machine.receive_line(self._lines.popleft()))

    async def act(self, actions: list[Action]) -> None:
        status: int | None = None
        for action in actions:
            if isinstance(action, SendMessage):
                self._wire.put(action.message, _encode(action.message) + b"\n")
            elif isinstance(action, SendBytes):
                self._wire.put(None, action.data)
            elif isinstance(action, Wake):
                heapq.heappush(self._timers, (trio.current_time() + action.after_s, action.token))
            elif isinstance(action, StopsReading):
                self.reads_again_at = trio.current_time() + (math.inf if action.for_s is None else action.for_s)
            else:
                status = action.status
                break
        await self._flush()
        self.status = self.status if status is None else status

    async def _flush(self) -> None:
        for write in self._wire.take(trio.current_time()):
            if write.pause_s:
                await trio.sleep(write.pause_s)
            self._wire.goes_out(write)
            try:
                await self._transport.send_all(write.data)
            except TransportBrokenError:
                self.status = 0 if self.status is None else self.status
                return
            if write.exit_status is not None:
                self.status = write.exit_status
                return


def _take(queue: trio.MemoryReceiveChannel[bytes]) -> bytes | None:
    try:
        return queue.receive_nowait()
    except trio.WouldBlock:
        return None
