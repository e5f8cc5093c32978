"""How bytes reach the other side: one `Transport` protocol, one module per kind.

`memory` joins two ends in one process, `stdio` owns a child process behind a guard. A transport moves bytes; lines,
messages and ids are the business of `tutti_side.jsonrpc`.
"""

from typing import Protocol

import msgspec

__all__ = ["PeerExit", "Transport"]


class PeerExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the other side ended, as far as it is known."""

    status: int | None = None
    """Exit status as `subprocess` gives it (negative: the signal); None while unknown, or when there is no process."""
    stderr_tail: tuple[str, ...] = ()
    """Its last stderr lines. They can hold model text: for a person who asks, never for a message, a repr or a log."""

    def __repr__(self) -> str:
        return f"PeerExit(status={self.status}, stderr_tail=<{len(self.stderr_tail)} lines>)"


class Transport(Protocol):
    """A byte stream to one peer. One task may receive while another sends; two may not do the same at once."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return 1 to `max_bytes` bytes, or ``b""`` at the end of the stream.

        Raises:
          TransportBrokenError: the stream failed; nothing more will come.

        Cancellation: nothing that was received is lost.
        """
        ...

    async def send_all(self, data: bytes) -> None:
        """Send every byte of `data`.

        Raises:
          TransportBrokenError: the other side is gone, or this end was closed.

        Cancellation: a part may have been sent; the stream is then good for nothing but closing.
        """
        ...

    async def wait_exit(self) -> PeerExit:
        """Wait, bounded by the transport, until it is known how the other side ended; called after the stream's end.

        Returns what is known when the bound runs out. Cancellation: harmless.
        """
        ...

    async def aclose(self) -> None:
        """Close both directions and end what the transport owns; idempotent and bounded.

        Cancellation: what is owned is ended all the same, by force.
        """
        ...
