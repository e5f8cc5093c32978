"""A tap on an app-server's wire for the conformance kit.

It does what nobody can make the binary do by itself: it holds the answer of a fork back, with all that comes after it
about the child, or spoils a fork's request so that the server refuses it. Everything else passes as it is. Beside that
it counts which threads the server holds for us, by the server's own answers.
"""

import uuid

import msgspec
import trio

from tutti_side.jsonrpc import PeerExit
from tutti_side.jsonrpc.codec import LineSplitter
from tutti_side.jsonrpc.transports.stdio import StdioTransport

__all__ = ["Hand", "KitTap"]

FORK, UNSUBSCRIBE = "thread/fork", "thread/unsubscribe"
CREATING = frozenset({"thread/start", "thread/resume", FORK})
"""Requests whose answer is a thread that the server holds for us, until it has answered an unsubscribe."""


class _Named(msgspec.Struct, rename="camel"):
    thread_id: str = ""


class _Thread(msgspec.Struct):
    id: str = ""


class _Made(msgspec.Struct):
    thread: _Thread | None = None


class _Message(msgspec.Struct):
    """As much of any message as is needed here."""

    id: int | str | None = None
    method: str = ""
    params: _Named | None = None
    result: _Made | None = None


_decoder = msgspec.json.Decoder(_Message)


def _decode(line: bytes) -> _Message:
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:  # of another form: nothing that a tap follows
        return _Message()


class Hand:
    """What the case wants done to every wire."""

    def __init__(self) -> None:
        self.refuses = False
        self.holds = False
        self.held = trio.Event()
        self.released = trio.Event()


class KitTap:
    """A transport with a hand on it. Implements `tutti_side.jsonrpc.Transport`."""

    def __init__(self, transport: StdioTransport, hand: Hand) -> None:
        self.pid = transport.pid
        self.threads: set[str] = set()
        """What the server holds for us, by its own answers."""
        self._transport = transport
        self._hand = hand
        self._arriving = LineSplitter()
        self._leaving = LineSplitter()
        self._asked: dict[object, tuple[str, str]] = {}
        """Requests without an answer that concern threads: id → method, and the thread that was named."""
        self._children: set[str] = set()
        self._kept: list[bytes] = []

    # Arriving

    async def receive_some(self, max_bytes: int) -> bytes:
        """Receive, without what is held."""
        while True:
            if self._kept and not self._hand.holds:
                kept, self._kept = self._kept, []
                self._children.clear()
                return b"".join(kept)
            data = await self._receive(max_bytes)
            if data is None:
                continue
            if not data:
                self.threads.clear()
                return data
            passed = [line + b"\n" for line in self._arriving.receive_data(data) if not self._is_kept(line)]
            if passed:
                return b"".join(passed)

    async def _receive(self, max_bytes: int) -> bytes | None:
        """Receive, or return None when what is held may go."""
        if not self._kept:
            return await self._transport.receive_some(max_bytes)
        received: list[bytes] = []
        failed: list[Exception] = []

        async def receive(scope: trio.CancelScope) -> None:
            try:
                received.append(await self._transport.receive_some(max_bytes))
            except Exception as error:  # as itself, not in the nursery's group
                failed.append(error)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, nursery.cancel_scope)
            await self._hand.released.wait()
            nursery.cancel_scope.cancel()
        if failed:
            raise failed[0]
        return received[0] if received else None

    def _is_kept(self, line: bytes) -> bool:
        """Follow one message of the server; keep a fork's answer, and what comes about its child behind it."""
        message = _decode(line)
        if message.method:
            keeps = message.params is not None and message.params.thread_id in self._children
        else:
            keeps = self._follow_answer(message)
        if keeps:
            self._kept.append(line + b"\n")
        return keeps

    def _follow_answer(self, message: _Message) -> bool:
        method, named = self._asked.pop(message.id, ("", ""))
        made = message.result.thread.id if method in CREATING and message.result and message.result.thread else ""
        if made:
            self.threads.add(made)
        if method == UNSUBSCRIBE:
            self.threads.discard(named)
        if method != FORK or not self._hand.holds:
            return False
        self._children.add(made)
        self._hand.held.set()
        return True

    # Leaving

    async def send_all(self, data: bytes) -> None:
        """Send, with forks spoiled when they are to be refused."""
        lines = [self._follow_request(line) + b"\n" for line in self._leaving.receive_data(data)]
        await self._transport.send_all(b"".join(lines))

    def _follow_request(self, line: bytes) -> bytes:
        message = _decode(line)
        if message.method not in CREATING and message.method != UNSUBSCRIBE:
            return line
        named = message.params.thread_id if message.params else ""
        self._asked[message.id] = (message.method, named)
        if message.method != FORK or not self._hand.refuses:
            return line
        return line.replace(named.encode(), str(uuid.uuid4()).encode())  # no thread has this id: the server says no

    # The rest

    async def wait_exit(self) -> PeerExit:
        """See `Transport`."""
        return await self._transport.wait_exit()

    async def aclose(self) -> None:
        """See `Transport`."""
        await self._transport.aclose()
