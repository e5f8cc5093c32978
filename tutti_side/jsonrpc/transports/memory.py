"""Two transports joined in one process, for tests and for a peer that runs as a task.

Bounded like a pipe: a side that doesn't read stops the one that writes. There is no clock and no randomness in it.
"""

import trio

from tutti_side.jsonrpc.errors import TransportBrokenError
from tutti_side.jsonrpc.transports import PeerExit

__all__ = ["MemoryTransport", "memory_pair"]

BUFFER_BYTES = 64 * 1024
"""What one direction holds, as a Linux pipe does."""


class _Pipe:
    """One direction. `ended`: no more is written; `broken`: no more is read, and what is in it is gone."""

    def __init__(self, buffer_bytes: int) -> None:
        self._buffer_bytes = buffer_bytes
        self._data = bytearray()
        self._moved = trio.Event()
        self._sending = False
        self._receiving = False
        self._ended = False
        self._broken = False

    async def send_all(self, data: bytes) -> None:
        if self._sending:
            raise trio.BusyResourceError("another task is sending on this transport")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
            sent = 0
            while True:
                if self._ended or self._broken:
                    raise TransportBrokenError
                if part := data[sent : sent + self._buffer_bytes - len(self._data)]:
                    self._data += part
                    sent += len(part)
                    self._wake()
                if sent == len(data):
                    return
                await self._moved.wait()
        finally:
            self._sending = False

    async def receive_some(self, max_bytes: int) -> bytes:
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving on this transport")
        self._receiving = True
        try:
            await trio.lowlevel.checkpoint()
            while not self._data and not self._ended and not self._broken:
                await self._moved.wait()
            if self._broken:
                raise TransportBrokenError
            data = bytes(self._data[:max_bytes])
            del self._data[:max_bytes]
            self._wake()
            return data
        finally:
            self._receiving = False

    def end(self) -> None:
        self._ended = True
        self._wake()

    def break_(self) -> None:
        self._broken = True
        self._data.clear()
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = trio.Event()


class MemoryTransport:
    """One end of a `memory_pair`; a `Transport`.

    Attributes:
      exit: how *this* end ends, as the other end's `wait_exit` will tell; set it before `aclose` or `break_`.
    """

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._other = self
        self.exit = PeerExit()

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return what the other end has sent; see `Transport`."""
        return await self._incoming.receive_some(max_bytes)

    async def send_all(self, data: bytes) -> None:
        """Send `data`, waiting for the other end to read whenever the buffer is full; see `Transport`."""
        await self._outgoing.send_all(data)

    async def wait_exit(self) -> PeerExit:
        """Return the other end's `exit` as it stands; there is nothing to wait for."""
        await trio.lowlevel.checkpoint()
        return self._other.exit

    async def aclose(self) -> None:
        """Close both directions: the other end reads what is buffered, then the end, and can send no more."""
        self._outgoing.end()
        self._incoming.break_()
        await trio.lowlevel.checkpoint()

    def break_(self) -> None:
        """Break both directions at once: both ends' calls fail and what is buffered is lost."""
        self._outgoing.break_()
        self._incoming.break_()


def memory_pair(buffer_bytes: int = BUFFER_BYTES) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two transports, each the other's peer, that hold up to `buffer_bytes` in each direction."""
    there, back = _Pipe(buffer_bytes), _Pipe(buffer_bytes)
    one, other = MemoryTransport(back, there), MemoryTransport(there, back)
    one._other, other._other = other, one
    return one, other
