"""One connection of ours over a memory pair, whose far end a test plays by hand."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_side.jsonrpc import (
    ConnectionClosedError,
    MemoryTransport,
    Message,
    Peer,
    PeerExit,
    memory_pair,
    open_peer,
)


class Params(msgspec.Struct, gc=False, rename="camel"):
    """The few hot fields of a router; wide, all optional."""

    thread_id: str | None = None
    n: int | None = None


class RecordingRouter:
    """Keeps what it is given: each batch, each message's name and number, and the end.

    `log` has one order for everything: tests let their hooks append to it too. `on_feed` runs inside `feed`.
    """

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.batches: list[list[Message[Params]]] = []
        self.lost: list[ConnectionClosedError] = []
        self.on_feed: Callable[[list[Message[Params]]], None] = lambda messages: None

    def feed(self, messages: list[Message[Params]]) -> None:
        """Record the batch."""
        self.batches.append(messages)
        self.log += [message.method for message in messages]
        self.on_feed(messages)

    def connection_lost(self, error: ConnectionClosedError) -> None:
        """Record the end."""
        self.lost.append(error)
        self.log.append("lost")


class Far:
    """The other end, by hand: it reads and writes lines, and answers only what a test lets it."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self._unread = b""

    async def send(self, *messages: object) -> None:
        """Send the messages, all in one write; bytes are sent as they are."""
        lines = [
            message if isinstance(message, bytes) else msgspec.json.encode(message) + b"\n" for message in messages
        ]
        await self.transport.send_all(b"".join(lines))

    async def read(self, count: int = 1) -> list[Any]:
        """Read the next `count` messages."""
        while self._unread.count(b"\n") < count:
            chunk = await self.transport.receive_some(65536)
            assert chunk, f"the end after {self._unread!r}"
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n", count)
        return [msgspec.json.decode(line) for line in lines]

    async def read_now(self) -> list[Any]:
        """Read whatever has been written by the time all tasks are blocked."""
        while True:
            chunk = b""
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_when_blocked, scope)
                    chunk = await self.transport.receive_some(65536)
                    nursery.cancel_scope.cancel()
            if not chunk:
                break
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        return [msgspec.json.decode(line) for line in lines]

    async def end(self, status: int | None = None, *stderr: str) -> None:
        """End like a process with this exit status and these last lines."""
        self.transport.exit = PeerExit(status=status, stderr_tail=stderr)
        await self.transport.aclose()


async def _cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


class Line:
    """What `connect` gives: both ends and the router."""

    def __init__(self, peer: Peer[Params], far: Far, router: RecordingRouter) -> None:
        self.peer = peer
        self.far = far
        self.router = router
        self.log = router.log


@pytest.fixture
def params_type() -> type[Params]:
    """The struct that `connect` decodes parameters to."""
    return Params


@pytest.fixture
def make_router() -> Callable[[], RecordingRouter]:
    """Makes a router that records."""
    return RecordingRouter


@pytest.fixture
def connect() -> Any:
    """Opens a peer over a memory pair: ``async with connect(**options) as line``."""

    @contextlib.asynccontextmanager
    async def connect(buffer_bytes: int = 65536, **options: Any) -> AsyncGenerator[Line]:
        near, far = memory_pair(buffer_bytes)
        router = RecordingRouter()
        async with open_peer(near, router, params_type=Params, **options) as peer:
            yield Line(peer, Far(far), router)

    return connect
