"""A model on loopback that says what its script says: the streaming Responses API, well enough for the real Codex.

With it the real binary runs with no account and no network. Gates make every interleaving deterministic: a stream
pauses at a named gate, the test waits until it got there, does its part, and opens the gate.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
import trio

from ._model_http import Dropped, HttpConnection, HttpError
from ._model_request import ModelRequest, decode_request
from ._model_stream import ResponseStream
from .model_script import CallTool, Drop, Fail, ModelScript, Pause, Reason, Reply, Say, SearchWeb, Think

__all__ = ["Gate", "ModelRequest", "ModelStatistics", "ScriptedModel", "open_scripted_model"]

REQUESTS_KEPT_MAX = 1024
"""Requests kept for reading; older ones are dropped (a context may be megabytes)."""

THREADS_KEPT_MAX = 4096
"""Threads whose turns are counted."""


class Gate:
    """A named place where streams wait."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._arrivals = trio.Condition()
        self.reached = 0
        """How many streams have arrived here so far."""

    def set(self) -> None:
        """Open the gate for all who wait and all who come."""
        self._opened.set()

    def is_set(self) -> bool:
        """Say whether the gate is open."""
        return self._opened.is_set()

    async def pass_through(self) -> None:
        """Arrive, and wait until the gate is open."""
        async with self._arrivals:
            self.reached += 1
            self._arrivals.notify_all()
        await self._opened.wait()

    async def wait_reached(self, times: int = 1) -> None:
        """Wait until that many streams have arrived. Cancellation: harmless."""
        async with self._arrivals:
            while self.reached < times:
                await self._arrivals.wait()


class ModelStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on the server so far."""

    requests: int
    completed: int
    refused: int
    """Answered with an HTTP error: bad requests and scripted failures."""
    abandoned: int
    """Streams whose client went away in the middle."""


class ScriptedModel:
    """The server's handle: its address, its gates, and what it was sent."""

    def __init__(self, script: ModelScript, port: int) -> None:
        self.script = script
        self.port = port
        self._requests: deque[ModelRequest] = deque(maxlen=REQUESTS_KEPT_MAX)
        self._gates: dict[str, Gate] = {}
        self._turns: dict[str, tuple[str, int]] = {}
        self._count = 0
        self._completed = 0
        self._refused = 0
        self._abandoned = 0

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.base_url} requests={self._count}>"

    @property
    def base_url(self) -> str:
        """The address for `base_url` in Codex' configuration."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def requests(self) -> list[ModelRequest]:
        """The last requests, oldest first; at most `REQUESTS_KEPT_MAX`."""
        return list(self._requests)

    def gate(self, name: str) -> Gate:
        """The gate of that name; made when first named."""
        return self._gates.setdefault(name, Gate())

    async def wait_reached(self, name: str, times: int = 1) -> None:
        """Wait until `times` streams have come to the gate. Cancellation: harmless."""
        await self.gate(name).wait_reached(times)

    def statistics(self) -> ModelStatistics:
        """Counts so far."""
        return ModelStatistics(
            requests=self._count, completed=self._completed, refused=self._refused, abandoned=self._abandoned
        )

    async def serve_connection(self, stream: trio.abc.Stream) -> None:
        """Serve one client until it leaves."""
        connection = HttpConnection(stream, self._handle)
        try:
            await connection.serve()
        finally:
            self._abandoned += connection.abandoned

    async def _handle(self, method: str, target: str, headers: dict[str, str], body: bytes) -> AsyncGenerator[bytes]:
        path = target.partition("?")[0]
        if method == "GET" and path == "/v1/models":
            yield b"application/json"
            yield b'{"object":"list","data":[],"models":[]}'
            return
        try:
            if (method, path) != ("POST", "/v1/responses"):
                raise HttpError(404, "not_found", f"no {method} {path} here")
            request = self._record(path, headers, body)
            reply = self._reply_for(request)
            first = reply.steps[0] if reply.steps else None
            if isinstance(first, Fail):
                raise HttpError(first.status, first.code, first.message)
        except HttpError:
            self._refused += 1
            raise
        yield b"text/event-stream"
        async with aclosing(self._play(reply, ResponseStream(request.number, request.model))) as chunks:
            async for chunk in chunks:
                yield chunk  # noqa: ASYNC119 - whoever iterates this closes it (aclosing in _model_http)

    def _record(self, path: str, headers: dict[str, str], body: bytes) -> ModelRequest:
        try:
            request = decode_request(self._count + 1, path, headers, body)
        except (msgspec.DecodeError, RecursionError) as error:
            # Not the decoder's own words: they could quote the body.
            raise HttpError(400, "invalid_request", "the body is not a Responses API request") from error
        self._count += 1
        self._requests.append(request)
        return request

    def _reply_for(self, request: ModelRequest) -> Reply:
        return self.script.reply_for(
            request.last_user_text, turn=self._count_turn(request), tool_rounds=request.tool_rounds
        )

    def _count_turn(self, request: ModelRequest) -> int:
        thread = request.thread_id or ""
        turn_id, number = self._turns.get(thread, ("", 0))
        if number == 0 or request.turn_id != turn_id:
            number += 1
        if thread not in self._turns and len(self._turns) >= THREADS_KEPT_MAX:
            self._turns.pop(next(iter(self._turns)))
        self._turns[thread] = (request.turn_id, number)
        return number

    async def _play(self, reply: Reply, stream: ResponseStream) -> AsyncGenerator[bytes]:
        yield stream.open()
        for step in reply.steps:
            if isinstance(step, Say):
                for token in step.tokens:
                    if step.delay_s:
                        await trio.sleep(step.delay_s)
                    yield stream.say(token)
            elif isinstance(step, Pause):
                await self.gate(step.gate).pass_through()
            elif isinstance(step, Reason):
                yield stream.reason(step)
            elif isinstance(step, Think):
                yield stream.think(step)
            elif isinstance(step, SearchWeb):
                yield stream.search_web(step)
            elif isinstance(step, CallTool):
                yield stream.call_tool(step)
            elif isinstance(step, Drop):
                raise Dropped
            else:
                yield stream.fail(step)
                return
        yield stream.complete()
        self._completed += 1


@asynccontextmanager
async def open_scripted_model(script: ModelScript) -> AsyncIterator[ScriptedModel]:
    """Serve the script on a free loopback port for as long as the block runs.

    Raises:
      Exception: what the block raises, as itself.

    Cancellation: every connection and the listener are closed.
    """
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listeners[0].socket.getsockname()[1]
    model = ScriptedModel(script, port)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, model.serve_connection, listeners)
        try:
            yield model
        except Exception as error:  # the block's own: it leaves as itself, not in the nursery's group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
