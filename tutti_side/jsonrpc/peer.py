"""The Trio half of a connection: one nursery with a reader, a writer and a reaper, around pure parts that decide.

    transport ▶ reader: split, decode ─┬▶ answers: hook, then waiter, at once
                                       └▶ notifications, requests of the peer: `MessageRouter.feed`, one batch a read
    callers ▶ admission ▶ write queue ▶ writer ▶ transport

The reader awaits nothing but the transport: hooks and the router are synchronous, ours, and bounded. A caller never
writes itself, so its cancel can't cut a line in half. Every end of the connection goes through `Peer.fail`, once.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, overload

import trio
from msgspec import Raw

from tutti_side.jsonrpc._calls import Call, Calls, ResultHook
from tutti_side.jsonrpc._correlation import CLEANUP_SLOTS, IN_FLIGHT_MAX, Correlation, OpenRequests
from tutti_side.jsonrpc._write_queue import QueuedFrame, WriteQueue
from tutti_side.jsonrpc.codec import LINE_BYTES_MAX, Codec, LineSplitter, read_result
from tutti_side.jsonrpc.errors import (
    ClosedReason,
    ConnectionClosedError,
    RequestNotOpenError,
    TransportBrokenError,
)
from tutti_side.jsonrpc.messages import CODEX, Dialect, Message, MessageRouter, RequestId
from tutti_side.jsonrpc.statistics import PeerStatistics
from tutti_side.jsonrpc.transports import Transport

__all__ = ["REQUEST_DEADLINE_S", "Peer", "open_peer"]

P = TypeVar("P")
T = TypeVar("T")

REQUEST_DEADLINE_S = 30.0
"""How long an answer may take unless the caller says otherwise. Some requests are never answered: malformed to the
server, lost in an overload, a surplus interrupt. The slowest answer seen, a fork among 300, took nine seconds."""

DRAIN_S = 1.0
"""After a failed write, how long what the peer wrote before its end is still read: answers may be among it."""

READ_BYTES = 64 * 1024
"""One read: as much as a pipe holds."""

ANSWERS_REMEMBERED_MAX = 256
"""Answers of ours that can still be taken back while they are queued; far more than are ever queued at once."""

TOO_MANY_REQUESTS_CODE = -32000
"""Our error answer to a request of the peer beyond the bound of open ones."""


class Peer(Generic[P]):
    """One end of a JSON-RPC connection; made by `open_peer`, used from any task of the same Trio run.

    Attributes:
      closed: why the connection has ended, or None while it lives.
      heard: how often a read held a message; while it stands still the peer is silent, or talks nonsense.
    """

    def __init__(
        self,
        transport: Transport,
        router: MessageRouter[P],
        *,
        params_type: type[P],
        dialect: Dialect,
        name: str,
        rng: random.Random,
        in_flight_max: int,
        cleanup_slots: int,
        line_bytes_max: int,
    ) -> None:
        self._transport = transport
        self._router = router
        self._name = name
        self._splitter = LineSplitter(line_bytes_max)
        self._codec = Codec(params_type, dialect)
        self._correlation: Correlation[Call] = Correlation(in_flight_max, cleanup_slots)
        self._open_requests = OpenRequests()
        self._answers: dict[RequestId, QueuedFrame[Call]] = {}
        self._withdrawn_answers = 0
        self._write_queue: WriteQueue[Call] = WriteQueue()
        self._calls = Calls(
            self._codec,
            self._correlation,
            self._write_queue,
            overload_code=dialect.overload_code,
            rng=rng,
            wake_writer=self._wake_writer,
            wake_reaper=self._wake_reaper,
            give_up=self._give_up,
        )
        self._tasks_scope = trio.CancelScope()
        self._writer_wake = trio.Event()
        self._reaper_wake = trio.Event()
        self._reaper_due = float("inf")
        self._reader_ended = trio.Event()
        self._closed = trio.Event()
        self._end_reason: ClosedReason | None = None
        self._router_failures = 0
        self.closed: ConnectionClosedError | None = None
        self.heard = 0

    def __repr__(self) -> str:
        state = "open" if self.closed is None else f"closed: {self.closed.reason}"
        return f"<Peer {self._name} {state}, {self._correlation.in_flight} in flight>"

    # -- what callers do ---------------------------------------------------------------------------------------------

    @overload
    async def request(
        self,
        method: str,
        params: object = None,
        *,
        deadline_s: float = REQUEST_DEADLINE_S,
        hook: ResultHook | None = None,
        cleanup: bool = False,
    ) -> Raw: ...

    @overload
    async def request(
        self,
        method: str,
        params: object = None,
        *,
        result_type: type[T],
        deadline_s: float = REQUEST_DEADLINE_S,
        hook: ResultHook | None = None,
        cleanup: bool = False,
    ) -> T: ...

    async def request(
        self,
        method: str,
        params: object = None,
        *,
        result_type: type[Any] = Raw,
        deadline_s: float = REQUEST_DEADLINE_S,
        hook: ResultHook | None = None,
        cleanup: bool = False,
    ) -> Any:
        """Send a request and return its result.

        Args:
          method: the method's name on the wire.
          params: anything msgspec encodes; None is sent as ``{}``.
          result_type: what the result is decoded to; `Raw` leaves it as it is.
          deadline_s: seconds from this call until nobody waits any more, the wait for a slot included.
          hook: called exactly once with the outcome, whatever happens; see `ResultHook`.
          cleanup: whether it may use the slots and the room kept for cleanup.

        Raises:
          RemoteError: the peer answered with an error. An overload was retried as often as the deadline allows.
          RequestTimeoutError: no answer within `deadline_s`; it may have been executed, and is not sent again.
          ConnectionClosedError: the connection ended before the answer, or had ended before.
          InvalidResultError: the result doesn't fit `result_type`.
          LocalError: `params` can't be sent; nothing was.
          Exception: whatever the hook raised.

        Cancellation: a request of which no byte is written is taken back and never sent. Otherwise it may be executed;
        it keeps its slot until its answer or a grace after its deadline, and its hook still runs at the answer.
        """
        result = await self._calls.request(method, params, deadline_s=deadline_s, hook=hook, cleanup=cleanup)
        return result if result_type is Raw else read_result(result, result_type, method)

    def notify(self, method: str, params: object = None) -> None:
        """Queue a notification; it is written in its turn.

        Raises:
          LocalError: `params` can't be sent; nothing was.
          ConnectionClosedError: the connection has ended, or ends by this: not even the reserve has room for it.
        """
        self._raise_if_closed()
        self._put_reserved(self._codec.encode_notification(method, params))

    def respond(self, request_id: RequestId, result: object) -> None:
        """Queue the answer to a request of the peer. Exactly one answer is given to each.

        Raises:
          RequestNotOpenError: no such request is open: it is unknown or was answered. Nothing is sent.
          LocalError: `result` can't be sent; nothing was, and the request is still open.
          ConnectionClosedError: as for `notify`.
        """
        self._answer_peer(request_id, lambda: self._codec.encode_response(request_id, result))

    def respond_error(self, request_id: RequestId, code: int, message: str) -> None:
        """Queue an error as the answer to a request of the peer; otherwise as `respond`."""
        self._answer_peer(request_id, lambda: self._codec.encode_error(request_id, code, message))

    def settle_request(self, request_id: RequestId) -> None:
        """Take the peer's word that a request of its own needs no answer any more.

        Nothing is sent for it from now on, and an answer of which no byte is written is taken back. Unknown ids are
        ignored: the request was settled before.
        """
        self._open_requests.close(request_id)
        frame = self._answers.pop(request_id, None)
        if frame is not None and self._write_queue.holds(frame):
            self._write_queue.take_back(frame)
            self._withdrawn_answers += 1

    def fail(self, error: ConnectionClosedError) -> None:
        """End the connection: everything pending and everything later fails with `error`; only the first call counts.

        Every waiter and hook gets an exception of its own. The router is told last. The transport stays its owner's.
        """
        if self.closed is not None:
            return
        self.closed = error
        self._tasks_scope.cancel()
        self._write_queue.clear()
        self._open_requests.clear()
        self._answers.clear()
        self._calls.close(error)
        try:
            self._router.connection_lost(error.again())
        except Exception:
            self._router_failures += 1  # nothing is left that it could end
        self._closed.set()

    async def wait_closed(self) -> ConnectionClosedError:
        """Wait until the connection has ended and return why. Cancellation: harmless."""
        await self._closed.wait()
        assert self.closed is not None
        return self.closed.again()

    def statistics(self) -> PeerStatistics:
        """Return what the connection holds now, and its counters."""
        correlation = self._correlation
        dropped = dict(self._codec.dropped)
        if self._splitter.overlong:
            dropped["overlong"] = self._splitter.overlong
        if self._reader_ended.is_set() and self._splitter.unfinished_bytes:
            dropped["unfinished"] = 1
        return PeerStatistics(
            in_flight=correlation.in_flight,
            waiting=correlation.waiting,
            expired=correlation.expired,
            open_requests=len(self._open_requests),
            write_queue_frames=len(self._write_queue),
            write_queue_bytes=self._write_queue.queued_bytes,
            dropped=dropped,
            duplicate_answers=correlation.duplicate_answers,
            unknown_answers=correlation.unknown_answers,
            late_answers=self._calls.late_answers,
            unsent=self._calls.unsent,
            forgotten=correlation.forgotten,
            overload_retries=self._calls.overload_retries,
            refused_requests=self._open_requests.refused,
            repeated_requests=self._open_requests.repeated,
            withdrawn_answers=self._withdrawn_answers,
            hook_failures=self._calls.hook_failures,
            router_failures=self._router_failures,
        )

    def _answer_peer(self, request_id: RequestId, encode: Callable[[], bytes]) -> None:
        self._raise_if_closed()
        if request_id not in self._open_requests:
            raise RequestNotOpenError(request_id)
        line = encode()
        self._open_requests.close(request_id)
        self._answers[request_id] = self._put_reserved(line)
        if len(self._answers) > ANSWERS_REMEMBERED_MAX:
            del self._answers[next(iter(self._answers))]

    def _put_reserved(self, line: bytes) -> QueuedFrame[Call]:
        """Queue what can't wait; when even the reserve is full the connection ends, and that is raised."""
        if not self._write_queue.has_reserve:
            self._give_up()
        self._raise_if_closed()
        frame = self._write_queue.put(line)
        self._writer_wake.set()
        return frame

    def _raise_if_closed(self) -> None:
        if self.closed is not None:
            raise self.closed.again()

    def _give_up(self) -> None:
        self.fail(ConnectionClosedError("peer_not_reading"))

    def _fail_internally(self, cause: Exception) -> None:
        error = ConnectionClosedError("internal")
        error.__cause__ = cause
        self.fail(error)

    def _wake_writer(self) -> None:
        self._writer_wake.set()

    def _wake_reaper(self, due: float) -> None:
        if due < self._reaper_due:
            self._reaper_wake.set()

    # -- the tasks ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Run the three tasks until the connection has ended; never raises an `Exception`."""
        with self._tasks_scope:
            async with trio.open_nursery() as nursery:
                for task in (self._read, self._write, self._reap):
                    nursery.start_soon(self._contain, task, name=f"{self._name}/{task.__name__[1:]}")

    async def _contain(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except Exception as error:
            self._fail_internally(error)

    async def _read(self) -> None:
        receive_some = self._transport.receive_some
        reason: ClosedReason = "eof"
        try:
            while chunk := await receive_some(READ_BYTES):
                if self.closed is not None:
                    return  # the read was done as the connection ended: its router has been told so, as its last word
                self._receive(chunk)
        except TransportBrokenError:
            reason = "broken_pipe"
        finally:
            self._reader_ended.set()
        await self._end(reason)

    def _receive(self, chunk: bytes) -> None:
        """Take one read: everything in it is settled or handed over in wire order before this returns."""
        messages = self._codec.decode_lines(self._splitter.receive_data(chunk))
        if messages:
            self.heard += 1
        batch: list[Message[P]] = []
        append = batch.append
        for message in messages:
            if message.id is None:
                append(message)
            elif message.method is not None:
                if batch and batch[-1].id is None:  # it may settle an earlier request of this id
                    self._hand_over(batch)
                    batch = []
                    append = batch.append
                    if self.closed is not None:
                        return
                if self._open_request(message.id):
                    append(message)
            else:
                if batch:
                    self._hand_over(batch)
                    batch = []
                    append = batch.append
                self._calls.answer(message)
            if self.closed is not None:
                return
        if batch:
            self._hand_over(batch)

    def _hand_over(self, batch: list[Message[P]]) -> None:
        try:
            self._router.feed(batch)
        except Exception as error:
            self._router_failures += 1
            self._fail_internally(error)

    def _open_request(self, request_id: RequestId) -> bool:
        opened = self._open_requests.open(request_id)
        if opened is False:
            line = self._codec.encode_error(request_id, TOO_MANY_REQUESTS_CODE, "too many requests are open")
            try:
                self._put_reserved(line)
            except ConnectionClosedError:
                return False
        return opened is True

    async def _write(self) -> None:
        try:
            while True:
                frames = self._write_queue.take()
                if not frames:
                    self._writer_wake = trio.Event()
                    await self._writer_wake.wait()
                    continue
                for frame in frames:
                    if frame.request is not None:
                        self._calls.written(frame.request)
                self._calls.pump()
                await self._transport.send_all(b"".join([frame.data for frame in frames]))
        except TransportBrokenError:
            self._end_reason = self._end_reason or "broken_pipe"
        with trio.move_on_after(DRAIN_S):
            await self._reader_ended.wait()
        await self._end("broken_pipe")

    async def _reap(self) -> None:
        """Free the slots whose grace has run out; wakes at the next such moment only."""
        while True:
            self._calls.expire(trio.current_time())
            if self._correlation.is_unhealthy:
                self.fail(ConnectionClosedError("unresponsive"))
            self._reaper_wake = trio.Event()
            self._reaper_due = self._correlation.next_expiry()
            with trio.CancelScope(deadline=self._reaper_due):
                await self._reaper_wake.wait()

    async def _end(self, reason: ClosedReason) -> None:
        """End the connection when the stream has: everything pending learns how the peer ended."""
        reason = self._end_reason or reason
        self._end_reason = reason
        exit = await self._transport.wait_exit()
        self.fail(ConnectionClosedError(reason, exit))


@asynccontextmanager
async def open_peer(
    transport: Transport,
    router: MessageRouter[P],
    *,
    params_type: type[P],
    dialect: Dialect = CODEX,
    name: str = "peer",
    rng: random.Random | None = None,
    in_flight_max: int = IN_FLIGHT_MAX,
    cleanup_slots: int = CLEANUP_SLOTS,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> AsyncGenerator[Peer[P]]:
    """Run a connection over `transport` for as long as the block runs, and give its `Peer`.

    Args:
      transport: stays the caller's: it is not closed here, and nobody else may use it meanwhile.
      router: gets what the peer sends of itself.
      params_type: msgspec struct of the parameters that the router needs of every message; all fields optional.
      dialect: `CODEX` or `STRICT`.
      name: names the tasks.
      rng: draws the delays of overload retries; give a seeded one for a repeatable run.
      in_flight_max: requests on the wire at once.
      cleanup_slots: slots on top for ``cleanup=True``.
      line_bytes_max: a longer line of the peer is skipped, and counted.

    The end of the connection doesn't end the block: calls fail with `ConnectionClosedError`, and the router is told. An
    exception of the block leaves as itself.

    Cancellation: as at the end of the block, what is pending fails with the reason `closed`. A line may be half
    written: the transport is good for nothing but closing.
    """
    peer = Peer(
        transport,
        router,
        params_type=params_type,
        dialect=dialect,
        name=name,
        rng=rng or random.Random(),
        in_flight_max=in_flight_max,
        cleanup_slots=cleanup_slots,
        line_bytes_max=line_bytes_max,
    )
    raised: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer._run, name=f"{name}/connection")
            try:
                yield peer
            except BaseException as error:  # noqa: ASYNC103 - raised again below, outside the nursery that would wrap it
                raised = error
            peer.fail(ConnectionClosedError("closed"))
    except BaseExceptionGroup as group:
        # Our tasks raise no `Exception`: this is a cancel from outside, or an interrupt that hit one of them.
        if raised is None or group.split(trio.Cancelled)[1] is not None:
            raise
    if raised is not None:
        try:
            raise raised
        finally:
            del raised  # the frame would keep itself alive
