"""One HTTP/1.1 connection of the scripted model: requests in, answers or event streams out, over h11.

Bad input gets an HTTP error and ends the connection, never the server; a client that goes away ends its connection
only.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol

import h11
import msgspec
import trio

__all__ = ["BODY_BYTES_MAX", "Dropped", "HttpConnection", "HttpError", "StreamHandler"]

BODY_BYTES_MAX = 64 * 1024 * 1024
"""A request carries the whole context; this is Codex' own line limit, and ours."""

READ_BYTES = 65536
"""Read at most this much at once: what a pipe or socket holds."""


class HttpError(Exception):
    """The answer to a request we don't serve."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class Dropped(Exception):
    """The script closes the connection in the middle of a stream."""


class StreamHandler(Protocol):
    """What the server does with a request."""

    def __call__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> AsyncGenerator[bytes]:
        """Yield the content type first, then the chunks of the body.

        Raises:
          HttpError: before the first chunk; becomes the answer.
          Dropped: at any time; the connection is closed as it is.
        """
        ...


class HttpConnection:
    """Serves one client until it leaves."""

    def __init__(self, stream: trio.abc.Stream, handler: StreamHandler) -> None:
        self._stream = stream
        self._handler = handler
        self._wire = h11.Connection(h11.SERVER)
        self._client_left = False
        self.abandoned = 0
        """Streams whose client went away before their end."""

    async def serve(self) -> None:
        """Answer requests until the client leaves, errs or is dropped. Cancellation: the connection is closed."""
        async with self._stream:
            try:
                while await self._serve_one():
                    self._wire.start_next_cycle()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            except h11.RemoteProtocolError as error:
                await self._refuse(HttpError(error.error_status_hint, "bad_request", "not a request we can read"))

    async def _serve_one(self) -> bool:
        """Answer one request; say whether another may follow."""
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            raise trio.BrokenResourceError("the client left")
        try:
            body = await self._read_body()
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            await self._answer(event.method.decode(), event.target.decode("latin-1"), headers, body)
        except HttpError as error:
            await self._refuse(error)
        return (self._wire.our_state, self._wire.their_state) == (h11.DONE, h11.DONE)

    async def _answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        async with aclosing(self._handler(method, target, headers, body)) as chunks:
            content_type = await anext(chunks)
            await self._send(h11.Response(status_code=200, headers=[(b"content-type", content_type)]))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_client, nursery.cancel_scope)
                await self._stream_body(chunks)
                nursery.cancel_scope.cancel()
            if self._wire.our_state is not h11.DONE:
                self.abandoned += self._client_left
                self._wire.send_failed()

    async def _stream_body(self, chunks: AsyncIterator[bytes]) -> None:
        """Send the chunks; how it ended is left in h11's state, so that no error leaves the nursery as a group."""
        try:
            async for chunk in chunks:
                await self._send(h11.Data(data=chunk))
            await self._send(h11.EndOfMessage())
        except Dropped:
            return
        except trio.BrokenResourceError:
            self._client_left = True

    async def _watch_client(self, stream_scope: trio.CancelScope) -> None:
        """End a stream whose client left: it might be held at a gate for ever."""
        try:
            data = await self._stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError:
            data = b""
        self._wire.receive_data(bytes(data))
        if not data:
            self._client_left = True
            stream_scope.cancel()

    async def _read_body(self) -> bytes:
        body = bytearray()
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_BYTES_MAX:
                    raise HttpError(413, "too_large", f"at most {BODY_BYTES_MAX} bytes")
            else:
                return bytes(body)

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._wire.next_event()
            if event is h11.NEED_DATA:
                if self._wire.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                self._wire.receive_data(bytes(await self._stream.receive_some(READ_BYTES)))
            elif isinstance(event, h11.ConnectionClosed):
                raise trio.BrokenResourceError("the client left")
            else:
                return event  # type: ignore[return-value]

    async def _refuse(self, error: HttpError) -> None:
        if self._wire.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = msgspec.json.encode({"error": {"code": error.code, "type": error.code, "message": error.message}})
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        try:
            await self._send(h11.Response(status_code=error.status, headers=headers))
            await self._send(h11.Data(data=body))
            await self._send(h11.EndOfMessage())
        except trio.BrokenResourceError:
            return

    async def _send(self, event: h11.Event) -> None:
        data = self._wire.send(event)
        if data:
            await self._stream.send_all(data)
