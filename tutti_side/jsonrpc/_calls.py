"""Requests of ours from the call to the outcome: `_correlation` decides, this does it with tasks, hooks and frames.

A call has one outcome. It is settled in one place, `Calls._settle`, where its hook runs and its waiter is woken; so
an answer, a refusal, the end of the connection and a taken back request all do the same thing.
"""

import random
from collections.abc import Callable
from typing import Any

import trio
from msgspec import Raw

from tutti_side.jsonrpc._correlation import Correlation, Entry
from tutti_side.jsonrpc._write_queue import QueuedFrame, WriteQueue
from tutti_side.jsonrpc.codec import Codec, read_error
from tutti_side.jsonrpc.errors import ConnectionClosedError, LocalError, NotSentError, RequestTimeoutError
from tutti_side.jsonrpc.messages import NO_RAW, Message

__all__ = ["OVERLOAD_DELAY_S", "OVERLOAD_RETRIES_MAX", "Call", "Calls", "Outcome", "ResultHook"]

OVERLOAD_RETRIES_MAX = 5
"""How often a request that the peer refused as overloaded is sent again: with the delays below, for up to 3.1 s."""

OVERLOAD_DELAY_S = 0.1
"""The longest delay before the first of these, doubled for each next; a half to the whole of it is drawn, so that
callers refused together don't come back together."""

Outcome = Raw | Exception
"""What became of a request: its raw result, or `RemoteError`, `ConnectionClosedError`, `NotSentError` (no byte of it
was written), or `RequestTimeoutError` (so long ago that its entry was forgotten)."""

ResultHook = Callable[[Outcome], None]
"""Called exactly once, synchronously, with a request's outcome: for an answer at its place in the wire order, also when
nobody waits for it any more. It runs in the reader: code of ours, short. What it raises is the request's failure."""


class Call(Entry):
    """One attempt of one request, between `Calls.start` and its outcome."""

    __slots__ = (
        "attempt",
        "deadline_s",
        "frame",
        "hook",
        "is_over",
        "is_taken_back",
        "line",
        "outcome",
        "retry_delay_s",
        "task",
    )

    def __init__(
        self,
        number: int,
        method: str,
        *,
        due: float,
        deadline_s: float,
        cleanup: bool,
        hook: ResultHook | None,
        attempt: int,
    ) -> None:
        super().__init__(number, method, due, cleanup=cleanup)
        self.deadline_s = deadline_s
        self.line = b""
        self.hook = hook
        self.attempt = attempt
        self.frame: QueuedFrame[Call] | None = None
        self.task: trio.lowlevel.Task | None = None
        self.outcome: Outcome | None = None
        self.retry_delay_s: float | None = None
        self.is_over = False
        self.is_taken_back = False


class Calls:
    """The calls of one connection.

    Args:
      codec: writes the requests.
      correlation: decides; only this class changes it.
      write_queue: shared with the peer's writer.
      overload_code: the error code that is retried, or None.
      rng: draws the retries' delays.
      wake_writer: called when a frame was queued.
      wake_reaper: called when a grace began; the next one ends at the given moment.
      give_up: called when not even the reserve has room; it must end the connection, and so call `close`.

    Attributes:
      late_answers, unsent, overload_retries, hook_failures: see `PeerStatistics`.
    """

    def __init__(
        self,
        codec: Codec[Any],
        correlation: Correlation[Call],
        write_queue: WriteQueue[Call],
        *,
        overload_code: int | None,
        rng: random.Random,
        wake_writer: Callable[[], None],
        wake_reaper: Callable[[float], None],
        give_up: Callable[[], None],
    ) -> None:
        self._codec = codec
        self._correlation = correlation
        self._write_queue = write_queue
        self._overload_code = overload_code
        self._rng = rng
        self._wake_writer = wake_writer
        self._wake_reaper = wake_reaper
        self._give_up = give_up
        self._backing_off: dict[int, Call] = {}
        self._closed = trio.Event()
        self._error: ConnectionClosedError | None = None
        self.late_answers = 0
        self.unsent = 0
        self.overload_retries = 0
        self.hook_failures = 0

    async def request(
        self, method: str, params: object, *, deadline_s: float, hook: ResultHook | None, cleanup: bool
    ) -> Raw:
        """Send a request, again if it is refused as overloaded, and return its result; see `Peer.request`."""
        due = trio.current_time() + deadline_s
        attempt = 0
        while True:
            number = self._correlation.next_number()
            call = Call(number, method, due=due, deadline_s=deadline_s, cleanup=cleanup, hook=hook, attempt=attempt)
            self._start(call, params)
            with trio.CancelScope(deadline=due) as scope:
                await self._wait(call)
                if call.retry_delay_s is not None:
                    await self._back_off(call, call.retry_delay_s)
            if scope.cancelled_caught:
                raise RequestTimeoutError(method, deadline_s, sent=not call.is_taken_back)
            if isinstance(call.outcome, Exception):
                raise call.outcome
            if call.outcome is not None:
                return call.outcome
            attempt += 1

    def pump(self) -> None:
        """Queue what may be queued now; called whenever a slot or room in the write queue may have come free."""
        queue = self._write_queue
        while (call := self._correlation.admit(cleanup_only=not queue.has_room)) is not None:
            if not queue.has_reserve:
                self._give_up()
                return
            call.frame = queue.put(call.line, call)
            self._wake_writer()

    def written(self, call: Call) -> None:
        """Note that the writer has taken the call: from now on it counts as sent."""
        self._correlation.write(call)
        call.frame = None

    def answer(self, message: Message[Any]) -> None:
        """Settle the call that the peer's answer belongs to, if there is one: its hook runs now."""
        assert message.id is not None
        call = self._correlation.answer(message.id)
        if call is None:
            return
        outcome: Outcome = message.result
        if message.error is not NO_RAW and (message.result is NO_RAW or bytes(message.error) != b"null"):
            outcome = error = read_error(message.error, call.method)
            if error.code == self._overload_code and call.task is not None and self._may_retry(call):
                self.overload_retries += 1
                self._backing_off[call.number] = call
                self._wake(call)
                self.pump()
                return
        if call.task is None:
            self.late_answers += 1
        self._settle(call, outcome)
        self.pump()

    def expire(self, now: float) -> None:
        """Free the slots whose grace has run out."""
        for call in self._correlation.expire(now):
            self._settle(call, RequestTimeoutError(call.method, call.deadline_s))
        self.pump()

    def close(self, error: ConnectionClosedError) -> None:
        """Settle every call with an error of its own."""
        self._error = error
        self._closed.set()
        for call in [*self._backing_off.values(), *self._correlation.close()]:
            if call.outcome is None:
                self._settle(call, error.again())

    def _start(self, call: Call, params: object) -> None:
        """Let the call wait for its slot and its place in the write queue; it may have both at once.

        Raises:
          LocalError: it can't be written; nothing is queued.
        """
        try:
            call.line = self._codec.encode_request(call.number, call.method, params)
        except LocalError:
            self._settle(call, NotSentError(call.method))
            raise
        if self._error is not None:
            self._settle(call, self._error.again())
            return
        self._correlation.add(call)
        self.pump()

    async def _wait(self, call: Call) -> None:
        """Wait until the call has an outcome or is to be retried.

        Cancellation: an unsent call is taken back at the moment of the cancel; another one is left to its answer.
        """
        if call.outcome is not None:
            return

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            call.task = None
            if not call.is_over:  # its own hook may be what cancels its waiter
                self._leave(call)
            return trio.lowlevel.Abort.SUCCEEDED

        call.task = trio.lowlevel.current_task()
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            if call.is_taken_back:
                self._settle(call, NotSentError(call.method))

    async def _back_off(self, call: Call, delay_s: float) -> None:
        """Wait until the refused call may be sent again, or has an outcome since the connection ended meanwhile.

        Cancellation: it isn't sent again.
        """
        try:
            with trio.move_on_after(delay_s):
                await self._closed.wait()
        except trio.Cancelled:
            if call.outcome is None:
                call.is_taken_back = True
                self._settle(call, NotSentError(call.method))
            raise
        finally:
            del self._backing_off[call.number]

    def _leave(self, call: Call) -> None:
        """Take the call back if it is unsent. Runs in Trio's cancel delivery: it calls nothing that may raise."""
        call.is_taken_back = self._correlation.leave(call)
        if not call.is_taken_back:
            self._wake_reaper(self._correlation.next_expiry())
            return
        self.unsent += 1
        if call.frame is not None:
            self._write_queue.take_back(call.frame)
            call.frame = None
        self.pump()

    def _may_retry(self, call: Call) -> bool:
        """Decide on another attempt, and when. One that can't begin before the deadline is none."""
        if call.attempt >= OVERLOAD_RETRIES_MAX:
            return False
        delay_s = OVERLOAD_DELAY_S * 2.0**call.attempt * self._rng.uniform(0.5, 1.0)
        if trio.current_time() + delay_s >= call.due:
            return False
        call.retry_delay_s = delay_s
        return True

    def _settle(self, call: Call, outcome: Outcome) -> None:
        call.is_over = True
        if call.hook is not None:
            try:
                call.hook(outcome)
            except Exception as failure:
                self.hook_failures += 1
                outcome = failure
        call.outcome = outcome
        self._wake(call)

    def _wake(self, call: Call) -> None:
        if call.task is not None:
            trio.lowlevel.reschedule(call.task)
            call.task = None
