"""A connection over a memory pair: wire order, the peer's requests, the write queue, and every way it can end."""

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_side.jsonrpc import (
    ConnectionClosedError,
    LocalError,
    Outcome,
    PeerExit,
    RequestNotOpenError,
    TransportBrokenError,
    memory_pair,
    open_peer,
)
from tutti_side.jsonrpc._correlation import OPEN_REQUESTS_MAX
from tutti_side.jsonrpc._write_queue import WRITE_QUEUE_BYTES_MAX, WRITE_RESERVE_BYTES
from tutti_side.jsonrpc.peer import TOO_MANY_REQUESTS_CODE


async def ask(call: Callable[[], Any], into: list[Any]) -> None:
    """Await the call and keep its result, or the exception."""
    try:
        result = await call()
    except Exception as error:
        into.append(error)
    else:
        into.append(result)


def logging_hook(log: list[Any], name: str) -> Callable[[Outcome], None]:
    """Make a hook that logs its name."""
    return lambda outcome: log.append(name)


def tasks_named(prefix: str) -> list[str]:
    """Return the names of the running tasks that begin like this."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found: list[str] = []
    tasks = [root]
    while tasks:
        task = tasks.pop()
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        found += [task.name] if task.name.startswith(prefix) else []
    return sorted(found)


# ---- wire order ----


async def test_hooks_and_messages_run_in_wire_order_inside_one_read(connect: Any) -> None:
    """ARCHITECTURE §3: a hook runs at the answer's place in the wire order; F4, F5: nothing early is lost."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            for name in ("fork", "start"):
                hook = logging_hook(line.log, f"<{name}>")
                nursery.start_soon(functools.partial(line.peer.request, name, hook=hook))
                await trio.testing.wait_all_tasks_blocked()
            await line.far.read(2)
            await line.far.send(
                {"method": "m1"},
                {"method": "m2"},
                {"id": 1, "result": {}},
                {"id": 0, "method": "ask"},
                {"method": "turn/completed"},
                {"id": 2, "result": {}},
                {"method": "m5"},
            )
            await trio.testing.wait_all_tasks_blocked()

            assert line.log == ["m1", "m2", "<fork>", "ask", "turn/completed", "<start>", "m5"]
            assert [len(batch) for batch in line.router.batches] == [2, 2, 1]


async def test_one_read_is_one_batch_with_typed_parameters(connect: Any, params_type: Any) -> None:
    """ARCHITECTURE §3: once per read the reader hands a batch over."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.send(*({"method": "d", "params": {"threadId": "t", "n": n}} for n in range(300)))
            await trio.testing.wait_all_tasks_blocked()

            [batch] = line.router.batches
            assert [message.params for message in batch] == [params_type(thread_id="t", n=n) for n in range(300)]
            assert msgspec.json.decode(batch[7].line)["params"]["n"] == 7


async def test_an_answer_does_not_wait_for_fifty_thousand_notifications_before_it(connect: Any) -> None:
    """F6, F7, R10: answers are settled by the reader, behind no queue and no consumer."""
    with trio.fail_after(30):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("fork", result_type=int), results)
            await line.far.read()
            await line.far.send(
                *[{"method": "delta", "params": {"n": n}} for n in range(50_000)], {"id": 1, "result": 1}
            )
            await trio.testing.wait_all_tasks_blocked()

            assert results == [1]
            assert [message.params.n for batch in line.router.batches for message in batch] == list(range(50_000))


async def test_a_line_of_three_megabytes_passes_in_both_directions(connect: Any) -> None:
    """F11, T22: long lines kill neither end."""
    text = "x" * 3_000_000
    with trio.fail_after(30):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", {"text": text}, result_type=str), results)
            [message] = await line.far.read()
            assert message["params"]["text"] == text
            await line.far.send({"id": 1, "result": text}, {"method": "after"})
            await trio.testing.wait_all_tasks_blocked()

            assert results == [text]
            assert line.log == ["after"]


async def test_garbage_between_messages_is_counted_and_the_connection_lives(connect: Any) -> None:
    """F12: a banner on stdout; our choice: one dropped and counted frame; U+2028 is data."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.send(
                b"Welcome!\n",
                {"method": "a\u2028b"},
                b"\n",
                b'{"method":"\xff"}\n',
                b"[1]\r\n",
                b'{"method":"crlf"}\r\n',
                b'{"method":"unfinished"',
            )
            await trio.testing.wait_all_tasks_blocked()
            assert line.log == ["a\u2028b", "crlf"]
            assert line.peer.statistics().dropped == {"not_json": 1, "blank": 1, "not_utf8": 1, "not_a_message": 1}
            assert line.peer.closed is None

            await line.far.end()
            await line.peer.wait_closed()
            assert line.peer.statistics().dropped["unfinished"] == 1


async def test_an_overlong_line_is_skipped_and_counted(connect: Any) -> None:
    """Our choice: skipped to its newline; the real bound is held by the splitter's own test."""
    with trio.fail_after(5):
        async with connect() as line:
            line.peer._splitter._line_bytes_max = 1000
            await line.far.send({"method": "x" * 2000}, {"method": "after"})
            await trio.testing.wait_all_tasks_blocked()

            assert line.log == ["after"]
            assert line.peer.statistics().dropped == {"overlong": 1}


# ---- the peer's requests ----


async def test_a_request_of_the_peer_gets_exactly_one_answer_under_its_exact_id(connect: Any) -> None:
    """T4: 0 and "0" are two; R11: one answer per request; a second is a typed error and no bytes."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.send({"id": 0, "method": "a"}, {"id": "0", "method": "b"}, {"id": "", "method": "c"})
            await trio.testing.wait_all_tasks_blocked()
            assert [(m.id, m.method) for m in line.router.batches[0]] == [(0, "a"), ("0", "b"), ("", "c")]
            assert line.peer.statistics().open_requests == 3

            line.peer.respond("0", {"ok": 1})
            line.peer.respond_error(0, -32000, "declined")
            for request_id in (0, "0", 1, "x"):
                with pytest.raises(RequestNotOpenError):
                    line.peer.respond(request_id, {})
                with pytest.raises(RequestNotOpenError):
                    line.peer.respond_error(request_id, 1, "no")
            line.peer.respond("", None)

            assert await line.far.read_now() == [
                {"id": "0", "result": {"ok": 1}},
                {"id": 0, "error": {"code": -32000, "message": "declined"}},
                {"id": "", "result": None},
            ]
            assert line.peer.statistics().open_requests == 0


async def test_a_settled_request_takes_back_an_answer_of_which_no_byte_is_written(connect: Any) -> None:
    """F28: no answer goes out after its request was resolved; one on its way to the pipe is as good as sent."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.send({"id": 0, "method": "a"}, {"id": 1, "method": "b"}, {"id": "0", "method": "c"})
            await trio.testing.wait_all_tasks_blocked()

            line.peer.respond(0, {"late": True})
            line.peer.settle_request(0)
            line.peer.settle_request(1)
            line.peer.settle_request("unknown")
            for request_id in (0, 1):
                with pytest.raises(RequestNotOpenError):
                    line.peer.respond(request_id, {})
            line.peer.respond("0", {})
            assert await line.far.read_now() == [{"id": "0", "result": {}}]
            line.peer.settle_request("0")
            assert line.peer.statistics().withdrawn_answers == 1
            assert line.peer.statistics().open_requests == 0
            assert line.peer.statistics().write_queue_bytes == 0


async def test_what_settles_an_id_before_its_request_in_one_read_leaves_the_request_open(connect: Any) -> None:
    """R11: wire order holds for what the router settles, too. Source: a fixed bug; a request was never answered."""
    with trio.fail_after(5):
        async with connect() as line:

            def settle(messages: list[Any]) -> None:
                for message in messages:
                    if message.method == "resolved":
                        line.peer.settle_request("0")

            line.router.on_feed = settle
            await line.far.send(
                {"method": "resolved"}, {"id": "0", "method": "a"}, {"method": "resolved"}, {"id": "0", "method": "b"}
            )
            await trio.testing.wait_all_tasks_blocked()
            line.peer.respond_error("0", 1, "no")

            assert line.log == ["resolved", "a", "resolved", "b"]
            assert await line.far.read_now() == [{"id": "0", "error": {"code": 1, "message": "no"}}]
            assert line.peer.statistics().repeated_requests == 0


async def test_an_answer_that_cannot_be_written_leaves_the_request_open(connect: Any) -> None:
    """T15, R11: it can still be declined."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.send({"id": 0, "method": "a"})
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(LocalError):
                line.peer.respond(0, {"x": "\ud800"})
            line.peer.respond_error(0, 1, "no")

            assert await line.far.read_now() == [{"id": 0, "error": {"code": 1, "message": "no"}}]


async def test_an_id_that_is_still_open_is_not_a_second_request(connect: Any) -> None:
    """R11: two requests under one id can't get one answer each."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.send({"id": 3, "method": "a"}, {"id": 3, "method": "b"})
            await trio.testing.wait_all_tasks_blocked()
            assert line.log == ["a"]
            assert line.peer.statistics().repeated_requests == 1
            line.peer.respond(3, 0)
            await line.far.send({"id": 3, "method": "c"})
            await trio.testing.wait_all_tasks_blocked()

            assert line.log == ["a", "c"]
            line.peer.respond(3, 1)
            assert [message["result"] for message in await line.far.read_now()] == [0, 1]


async def test_requests_beyond_the_bound_are_answered_at_once_and_counted(connect: Any) -> None:
    """R12: 4,096 open ones; R11: unanswered means declined."""
    with trio.fail_after(30):
        async with connect() as line:
            await line.far.send(*({"id": number, "method": "a"} for number in range(OPEN_REQUESTS_MAX + 1)))

            [answer] = await line.far.read_now()
            assert (answer["id"], answer["error"]["code"]) == (OPEN_REQUESTS_MAX, TOO_MANY_REQUESTS_CODE)
            assert len(line.log) == OPEN_REQUESTS_MAX
            assert line.peer.statistics().refused_requests == 1


async def test_the_router_may_answer_inside_feed(connect: Any) -> None:
    """ARCHITECTURE §3: delivery is synchronous; F27: an answer needs no other task."""
    with trio.fail_after(5):
        async with connect() as line:
            line.router.on_feed = lambda messages: [line.peer.respond(message.id, "ok") for message in messages]
            await line.far.send({"id": 0, "method": "a"}, {"id": 1, "method": "b"})

            assert [message["id"] for message in await line.far.read_now()] == [0, 1]


async def test_a_notification_of_ours_is_written_with_parameters(connect: Any) -> None:
    """T15: `params` always."""
    with trio.fail_after(5):
        async with connect() as line:
            line.peer.notify("initialized")
            line.peer.notify("n", {"a": 1})

            assert await line.far.read_now() == [
                {"method": "initialized", "params": {}},
                {"method": "n", "params": {"a": 1}},
            ]


# ---- the write queue ----


async def test_requests_wait_unsent_while_the_peer_does_not_read_and_answers_still_fit(connect: Any) -> None:
    """ARCHITECTURE §3: the writer's queue has a reserve for declines and cleanup; R12."""
    with trio.fail_after(10):
        async with connect(buffer_bytes=8192) as line, trio.open_nursery() as nursery:
            await line.far.send({"id": 0, "method": "ask"})
            await trio.testing.wait_all_tasks_blocked()
            line.peer.notify("being/written", {"x": "x" * 8192})
            await trio.testing.wait_all_tasks_blocked()
            line.peer.notify("big", {"x": "x" * WRITE_QUEUE_BYTES_MAX})
            nursery.start_soon(line.peer.request, "waits")
            await trio.testing.wait_all_tasks_blocked()
            statistics = line.peer.statistics()
            assert (statistics.waiting, statistics.in_flight, statistics.write_queue_frames) == (1, 0, 1)

            line.peer.respond(0, "declined")
            nursery.start_soon(lambda: line.peer.request("cleanup", cleanup=True))
            await trio.testing.wait_all_tasks_blocked()
            assert line.peer.statistics().write_queue_frames == 3

            written = await line.far.read(5)
            assert [message.get("method") for message in written] == ["being/written", "big", None, "cleanup", "waits"]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["notify", "respond", "cleanup"])
async def test_when_even_the_reserve_is_full_the_connection_fails_as_not_reading(connect: Any, what: str) -> None:
    """`peer_not_reading`, architecture §3; R9, R12."""
    with trio.fail_after(10):
        async with connect(buffer_bytes=16) as line, trio.open_nursery() as nursery:
            await line.far.send({"id": 0, "method": "ask"})
            await trio.testing.wait_all_tasks_blocked()
            pending: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("pending"), pending)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(2):
                line.peer.notify("big", {"x": "x" * WRITE_RESERVE_BYTES})

            async def say_more() -> None:
                if what == "notify":
                    line.peer.notify("more")
                elif what == "respond":
                    line.peer.respond(0, {})
                else:
                    await line.peer.request("more", cleanup=True)

            with pytest.raises(ConnectionClosedError) as caught:
                await say_more()
            await trio.testing.wait_all_tasks_blocked()

            assert caught.value.reason == "peer_not_reading"
            assert pending[0].reason == "peer_not_reading"
            assert line.log[-1] == "lost"
            assert line.peer.statistics().write_queue_bytes == 0


async def test_many_callers_write_whole_lines_whatever_is_cancelled(connect: Any) -> None:
    """F15: one client's cancelled write must not leave half a line."""
    with trio.fail_after(10):
        async with connect(buffer_bytes=7) as line, trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in range(20)]

            async def request(number: int) -> None:
                with scopes[number]:
                    await line.peer.request(f"r{number}", {"text": "x" * (number * 13)})

            for number in range(20):
                nursery.start_soon(request, number)
            received = b""
            for number in (*range(0, 20, 3), None, *range(1, 20, 3)):
                if number is None:
                    await trio.testing.wait_all_tasks_blocked()
                else:
                    received += await line.far.transport.receive_some(7)
                    scopes[number].cancel()
            line.peer.notify("last")
            while b'"last"' not in received or not received.endswith(b"\n"):
                received += await line.far.transport.receive_some(100)

            messages = [msgspec.json.decode(one) for one in received.splitlines()]
            assert len(messages) == 21 - line.peer.statistics().unsent
            assert messages[-1]["method"] == "last"
            nursery.cancel_scope.cancel()


# ---- ends ----


async def test_the_end_fails_everything_pending_with_the_exit_status_and_then_tells_the_router(connect: Any) -> None:
    """F14, R9; our choice: a typed error with the exit status; the last stderr lines are an attribute only."""
    with trio.fail_after(5):
        async with connect(in_flight_max=2) as line, trio.open_nursery() as nursery:
            errors: list[Any] = []
            for name in ("a", "b", "c"):
                hook = logging_hook(line.log, name)
                nursery.start_soon(ask, lambda name=name, hook=hook: line.peer.request(name, hook=hook), errors)
                await trio.testing.wait_all_tasks_blocked()
            await line.far.send({"method": "last"})
            await line.far.end(-9, "panicked at 'secret'")
            await trio.testing.wait_all_tasks_blocked()

            assert line.log == ["last", "a", "b", "c", "lost"]
            assert len(errors) == 3
            assert len({id(error) for error in [*errors, *line.router.lost, line.peer.closed]}) == 5
            for error in [*errors, *line.router.lost]:
                assert isinstance(error, ConnectionClosedError)
                assert (error.reason, error.exit) == ("eof", PeerExit(status=-9, stderr_tail=("panicked at 'secret'",)))
                assert "exit status -9" in str(error)
                assert "secret" not in str(error) + repr(error) + repr(error.exit)


async def test_after_the_end_every_call_fails_at_once(connect: Any) -> None:
    """R9: every later call ends too; our choice."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.send({"id": 0, "method": "ask"})
            await line.far.end(1)
            assert (await line.peer.wait_closed()).reason == "eof"

            for call in (
                functools.partial(line.peer.notify, "n"),
                functools.partial(line.peer.respond, 0, {}),
                functools.partial(line.peer.respond_error, 0, 1, "m"),
            ):
                with pytest.raises(ConnectionClosedError) as caught:
                    call()
                assert caught.value.exit == PeerExit(status=1)
            with pytest.raises(ConnectionClosedError):
                await line.peer.request("a", hook=logging_hook(line.log, "<a>"))
            assert line.log == ["ask", "lost", "<a>"]
            assert line.peer.statistics().open_requests == 0


async def test_answers_that_stand_before_the_end_are_still_given(connect: Any) -> None:
    """R9: the end fails what has no answer, not what has one."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", result_type=int), results)
            await line.far.read()
            await line.far.send({"id": 1, "result": 1})
            await line.far.end()
            await trio.testing.wait_all_tasks_blocked()

            assert results == [1]


class HalfDead:
    """A transport whose writes fail while its reads go on: a pipe that broke before the other one was read out."""

    def __init__(self, incoming: list[bytes], *, ends: bool) -> None:
        self._incoming = incoming
        self._ends = ends
        self.may_read = trio.Event()

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return what is left to read, once the test lets it."""
        await self.may_read.wait()
        await trio.lowlevel.checkpoint()
        if self._incoming:
            return self._incoming.pop(0)
        if not self._ends:
            await trio.sleep_forever()
        return b""

    async def send_all(self, data: bytes) -> None:
        """Fail."""
        await trio.lowlevel.checkpoint()
        self.may_read.set()
        raise TransportBrokenError

    async def wait_exit(self) -> PeerExit:
        """Return a status."""
        await trio.lowlevel.checkpoint()
        return PeerExit(status=101)

    async def aclose(self) -> None:
        """Nothing is owned."""
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("ends", [True, False], ids=["then the end", "then silence"])
async def test_a_broken_pipe_fails_everything_pending_with_the_exit_status(
    make_router: Any, params_type: Any, autojump_clock: trio.testing.MockClock, ends: bool
) -> None:
    """F14: a write that beats the pipe's closing must not wait for ever, and answers already written still count."""
    router = make_router()
    transport = HalfDead([b'{"method":"last words"}\n{"id":1,"result":1}\n'], ends=ends)
    results: list[Any] = []
    async with open_peer(transport, router, params_type=params_type) as peer, trio.open_nursery() as nursery:
        with trio.fail_after(2):
            for name in ("answered", "pending"):
                nursery.start_soon(ask, lambda name=name: peer.request(name, result_type=int), results)
                await trio.lowlevel.checkpoint()
            closed = await peer.wait_closed()

    assert (closed.reason, closed.exit) == ("broken_pipe", PeerExit(status=101))
    assert results[0] == 1
    assert isinstance(results[1], ConnectionClosedError)
    assert router.log == ["last words", "lost"]


class LastRead:
    """A transport whose read was done, but not yet taken, when the connection was ended: no cancel stops it."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk
        self.may_return = trio.Event()

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return the only chunk as late as the test wants."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await self.may_return.wait()
        chunk, self._chunk = self._chunk, b""
        return chunk

    async def send_all(self, data: bytes) -> None:
        """Write nowhere."""
        await trio.lowlevel.checkpoint()

    async def wait_exit(self) -> PeerExit:
        """Return a status."""
        await trio.lowlevel.checkpoint()
        return PeerExit(status=0)

    async def aclose(self) -> None:
        """Nothing is owned."""
        await trio.lowlevel.checkpoint()


async def test_what_was_read_when_the_connection_ended_reaches_nobody_and_opens_nothing(
    make_router: Any, params_type: Any
) -> None:
    """R9, R11: the router is told of the end last; a request that nobody can answer any more is none."""
    router = make_router()
    transport = LastRead(b'{"id":"1","method":"ask"}\n{"method":"late"}\n{"id":1,"result":1}\n')
    with trio.fail_after(5):
        async with open_peer(transport, router, params_type=params_type) as peer:
            await trio.testing.wait_all_tasks_blocked()
            peer.fail(ConnectionClosedError("closed"))
            transport.may_return.set()
            await trio.testing.wait_all_tasks_blocked()

            assert router.log == ["lost"]
            statistics = peer.statistics()
            assert (statistics.open_requests, statistics.duplicate_answers, statistics.unknown_answers) == (0, 0, 0)


async def test_a_stream_that_breaks_while_it_is_read_is_a_broken_pipe(connect: Any) -> None:
    """R9: `TransportBrokenError` of the reader ends the connection, typed."""
    with trio.fail_after(5):
        async with connect() as line:
            line.far.transport.exit = PeerExit(status=3)
            line.far.transport.break_()

            closed = await line.peer.wait_closed()
            assert (closed.reason, closed.exit) == ("broken_pipe", PeerExit(status=3))


async def test_a_router_that_raises_ends_its_connection_as_internal_and_nothing_else(connect: Any) -> None:
    """R9: a bug of ours is contained like a lost process; nothing is handed over after it."""

    def crash(messages: object) -> None:
        raise ZeroDivisionError("router")

    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            line.router.on_feed = crash
            errors: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a"), errors)
            await line.far.read()
            await line.far.send({"method": "m"}, {"id": 1, "result": 1}, {"method": "after"})
            await trio.testing.wait_all_tasks_blocked()

            assert [error.reason for error in [*errors, *line.router.lost]] == ["internal", "internal"]
            assert isinstance(errors[0].__cause__, ZeroDivisionError)
            assert line.log == ["m", "lost"]
            assert line.peer.statistics().router_failures == 1


async def test_a_router_that_raises_when_told_of_the_end_is_counted(connect: Any) -> None:
    """R9: the end is reached whatever the router does."""
    with trio.fail_after(5):
        async with connect() as line:

            def crash(error: ConnectionClosedError) -> None:
                raise ZeroDivisionError

            line.router.connection_lost = crash
            await line.far.end()

            assert (await line.peer.wait_closed()).reason == "eof"
            assert line.peer.statistics().router_failures == 1


async def test_a_transport_that_raises_anything_else_is_a_contained_bug(connect: Any) -> None:
    """R9: no exception of our tasks escapes the block."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            nursery.start_soon(line.far.transport.receive_some, 1)
            await trio.testing.wait_all_tasks_blocked()

            async def send_all(data: bytes) -> None:
                await trio.lowlevel.checkpoint()
                raise KeyError("bug")

            line.peer._transport.send_all = send_all
            line.peer.notify("n")

            closed = await line.peer.wait_closed()
            assert closed.reason == "internal"
            assert isinstance(closed.__cause__, KeyError)
            nursery.cancel_scope.cancel()


async def test_fail_counts_once_and_may_be_called_from_a_hook(connect: Any) -> None:
    """R9: every end goes through one place, once."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            errors: list[Any] = []

            def hook(outcome: Outcome) -> None:
                line.log.append("hook")
                line.peer.fail(ConnectionClosedError("closed", PeerExit(status=5)))
                line.peer.fail(ConnectionClosedError("internal"))

            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", result_type=int, hook=hook), results)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, lambda: line.peer.request("b"), errors)
            await line.far.read(2)
            await line.far.send({"method": "m"}, {"id": 1, "result": 1}, {"method": "after"})
            await trio.testing.wait_all_tasks_blocked()

            assert line.log == ["m", "hook", "lost"]
            assert results == [1]
            assert [(error.reason, error.exit) for error in errors] == [("closed", PeerExit(status=5))]


async def test_leaving_the_block_fails_what_is_pending_as_closed_and_ends_the_tasks(connect: Any) -> None:
    """R13: after the block there is no task of ours."""
    errors: list[Any] = []
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            async with connect() as line:
                nursery.start_soon(ask, lambda: line.peer.request("a"), errors)
                await line.far.read()
                assert tasks_named("peer/") == ["peer/connection", "peer/read", "peer/reap", "peer/write"]
            assert tasks_named("peer/") == []
        assert [error.reason for error in errors] == ["closed"]
        assert line.log == ["lost"]
        await line.far.send({"method": "nobody reads"})
        await trio.testing.wait_all_tasks_blocked()
        assert line.log == ["lost"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_exception_of_the_block_leaves_as_itself(connect: Any, cancelled: bool) -> None:
    """ARCHITECTURE §2: an exception of the user's block leaves our context managers as itself."""
    error = ValueError("mine")
    peers: list[Any] = []

    async def raise_in_block(scope: trio.CancelScope) -> None:
        async with connect() as line:
            peers.append(line.peer)
            if cancelled:
                scope.cancel()
            raise error

    with trio.fail_after(5), trio.CancelScope() as scope, pytest.raises(ValueError, match="mine") as caught:
        await raise_in_block(scope)
    assert not scope.cancelled_caught
    assert caught.value is error
    assert peers[0].closed.reason == "closed"


async def test_an_interrupt_that_hits_a_task_of_ours_leaves_the_block(connect: Any) -> None:
    """Our choice: only an `Exception` is contained; what should end the program does."""

    def interrupt(messages: object) -> None:
        raise KeyboardInterrupt

    async def wait_in_block() -> None:
        async with connect() as line:
            line.router.on_feed = interrupt
            await line.far.send({"method": "m"})
            await trio.sleep_forever()

    with trio.fail_after(5):
        with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
            await wait_in_block()


async def test_a_cancel_from_outside_leaves_the_block_at_once(connect: Any) -> None:
    """R14: level-triggered, absorbed by the scope that was cancelled."""
    with trio.fail_after(5):
        with trio.CancelScope() as scope:
            async with connect(buffer_bytes=1) as line:
                line.peer.notify("never read")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert line.peer.closed is not None
        assert line.peer.closed.reason == "closed"


async def test_the_block_goes_on_after_the_connection_has_ended(connect: Any) -> None:
    """ARCHITECTURE §2: connection lost is contained."""
    with trio.fail_after(5):
        async with connect() as line:
            await line.far.end()
            await line.peer.wait_closed()
            await trio.testing.wait_all_tasks_blocked()
            assert repr(line.peer) == "<Peer peer closed: eof, 0 in flight>"


async def test_two_peers_of_ours_serve_each_other(make_router: Any, params_type: Any) -> None:
    """Our choice: both directions, requests, responses, notifications, requests from the server."""
    one, other = memory_pair(buffer_bytes=100)
    client_router, server_router = make_router(), make_router()
    with trio.fail_after(10):
        async with (
            open_peer(one, client_router, params_type=params_type, name="client") as client,
            open_peer(other, server_router, params_type=params_type, name="server") as server,
        ):

            def serve(messages: list[Any]) -> None:
                for message in messages:
                    if message.id is not None:
                        server.notify("progress", {"n": message.params.n})
                        server.respond(message.id, message.params.n * 2)

            server_router.on_feed = serve

            def allow(messages: list[Any]) -> None:
                for message in messages:
                    if message.id is not None:
                        client.respond(message.id, "yes")

            client_router.on_feed = allow
            doubled: dict[int, int] = {}

            async def double(n: int) -> None:
                doubled[n] = await client.request("double", {"n": n}, result_type=int)

            async with trio.open_nursery() as nursery:
                for n in range(200):
                    nursery.start_soon(double, n)
            assert await server.request("may I?", result_type=str) == "yes"

            assert doubled == {n: n * 2 for n in range(200)}
            assert sorted(m.params.n for batch in client_router.batches for m in batch if m.id is None) == [*range(200)]
            for peer in (client, server):
                statistics = peer.statistics()
                assert (statistics.in_flight, statistics.waiting, statistics.open_requests) == (0, 0, 0)
                assert (statistics.dropped, statistics.duplicate_answers, statistics.unknown_answers) == ({}, 0, 0)
                assert (statistics.late_answers, statistics.unsent, statistics.forgotten) == (0, 0, 0)
