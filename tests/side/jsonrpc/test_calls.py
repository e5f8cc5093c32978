"""Requests of ours over a memory pair: hooks, deadlines, slots, retries, cancels."""

import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_side.jsonrpc import (
    OVERLOAD_RETRIES_MAX,
    REQUEST_DEADLINE_S,
    SLOT_GRACE_S,
    STRICT,
    UNANSWERED_MAX,
    ConnectionClosedError,
    InvalidResultError,
    LocalError,
    NotSentError,
    Outcome,
    RemoteError,
    RequestTimeoutError,
)
from tutti_side.jsonrpc._calls import OVERLOAD_DELAY_S
from tutti_side.jsonrpc._correlation import EXPIRED_ENTRIES_MAX

OVERLOADED = {"code": -32001, "message": "Server overloaded; retry later."}


def shown(outcome: Outcome) -> str:
    """Return a result's text or an error's type name."""
    return type(outcome).__name__ if isinstance(outcome, Exception) else bytes(outcome).decode()


class Recorder:
    """A hook that keeps what it was given."""

    def __init__(self, log: list[Any] | None = None, *, fails: bool = False) -> None:
        self.outcomes: list[str] = [] if log is None else log
        self.errors: list[Exception] = []
        self._fails = fails

    def __call__(self, outcome: Outcome) -> None:
        self.outcomes.append(shown(outcome))
        if isinstance(outcome, Exception):
            self.errors.append(outcome)
        if self._fails:
            raise ValueError("hook")


async def ask(call: Callable[[], Any], into: list[Any]) -> None:
    """Await the call and keep its result, or the exception."""
    try:
        result = await call()
    except Exception as error:
        into.append(error)
    else:
        into.append(result)


# ---- answers ----


async def test_a_request_is_written_whole_and_returns_its_result(connect: Any) -> None:
    """Required; T15: `params` is always there."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", {"x": 1}, result_type=dict[str, int]), results)
            assert await line.far.read() == [{"id": 1, "method": "a", "params": {"x": 1}}]
            await line.far.send({"id": 1, "result": {"y": 2}})
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, lambda: line.peer.request("b"), results)
            assert await line.far.read() == [{"id": 2, "method": "b", "params": {}}]
            await line.far.send(b'{"id":2,"result":[1, 2]}\n')
            await trio.testing.wait_all_tasks_blocked()

            assert results[0] == {"y": 2}
            assert bytes(results[1]) == b"[1, 2]"
            assert line.peer.statistics().in_flight == 0


async def test_the_strict_dialect_works_both_ways(connect: Any) -> None:
    """Our choice: a dialect flag."""
    with trio.fail_after(5):
        async with connect(dialect=STRICT) as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", result_type=int), results)
            assert await line.far.read() == [{"jsonrpc": "2.0", "id": 1, "method": "a", "params": {}}]
            await line.far.send({"id": 1, "result": 1}, {"jsonrpc": "2.0", "id": 1, "result": 2})
            await trio.testing.wait_all_tasks_blocked()

            assert results == [2]
            assert line.peer.statistics().dropped == {"version": 1}


async def test_an_error_answer_is_raised_and_given_to_the_hook(connect: Any) -> None:
    """Our choice."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            hook = Recorder()
            nursery.start_soon(ask, lambda: line.peer.request("a", hook=hook), results)
            await line.far.read()
            await line.far.send({"id": 1, "error": {"code": -32600, "message": "no", "data": [1]}})
            await trio.testing.wait_all_tasks_blocked()

            assert isinstance(results[0], RemoteError)
            assert (results[0].code, results[0].message, results[0].method) == (-32600, "no", "a")
            assert hook.outcomes == ["RemoteError"]


async def test_a_result_beside_a_null_error_is_a_result(connect: Any) -> None:
    """Our choice: some writers always put both fields."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", result_type=int), results)
            await line.far.read()
            await line.far.send({"id": 1, "result": 7, "error": None})
            nursery.start_soon(ask, lambda: line.peer.request("b", result_type=int), results)
            await line.far.read()
            await line.far.send({"id": 2, "error": None})
            await trio.testing.wait_all_tasks_blocked()

            assert results[0] == 7
            assert isinstance(results[1], RemoteError)


async def test_a_result_of_another_form_fails_the_caller_only(connect: Any) -> None:
    """R9: nonsense in an answer is a typed error; the connection lives."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", result_type=int), results)
            await line.far.read()
            await line.far.send({"id": 1, "result": "secret"})
            await trio.testing.wait_all_tasks_blocked()

            assert isinstance(results[0], InvalidResultError)
            assert "secret" not in str(results[0])
            assert line.peer.closed is None


async def test_duplicate_and_unknown_answers_are_counted_and_harm_nobody(connect: Any) -> None:
    """F16: a duplicate response must not end the reader."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", result_type=int), results)
            await line.far.read()
            answer = {"id": 1, "result": 1}
            await line.far.send({"id": "1", "result": 9}, {"id": 5, "result": 9}, answer, answer, answer)
            nursery.start_soon(ask, lambda: line.peer.request("b", result_type=int), results)
            await line.far.read()
            await line.far.send({"id": 2, "result": 2})
            await trio.testing.wait_all_tasks_blocked()

            assert results == [1, 2]
            statistics = line.peer.statistics()
            assert (statistics.duplicate_answers, statistics.unknown_answers) == (2, 2)


# ---- hooks ----


async def test_a_hook_that_raises_fails_its_request_and_nothing_else(connect: Any) -> None:
    """Our choice: a hook's failure is the request's failure."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a", hook=Recorder(fails=True)), results)
            await line.far.read()
            await line.far.send({"id": 1, "result": 1}, {"method": "after"})
            await trio.testing.wait_all_tasks_blocked()

            assert [type(result) for result in results] == [ValueError]
            assert line.peer.statistics().hook_failures == 1
            assert line.log == ["after"]
            assert line.peer.closed is None


@pytest.mark.parametrize("answer", [{"id": 1, "result": 1}, {"id": 1, "error": {"code": 1, "message": "no"}}])
async def test_a_hook_may_cancel_whoever_waits_for_its_request(connect: Any, answer: dict[str, Any]) -> None:
    """R9, R14: a child that is closed before its fork is answered ends its Side from within the hook, which then hung.

    Source: a bug that the simulator found.
    """
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(_answer, line.far, answer)  # noqa: ASYNC111 - it is done before the scope is
                await line.peer.request("a", hook=lambda outcome: scope.cancel())
            assert scope.cancelled_caught
            nursery.start_soon(_answer, line.far, {"id": 2, "result": 2})

            assert await line.peer.request("b", result_type=int) == 2
            statistics = line.peer.statistics()
            assert (statistics.in_flight, statistics.hook_failures, statistics.unsent) == (0, 0, 0)


async def _answer(far: Any, answer: dict[str, Any]) -> None:
    await far.read()
    await far.send(answer)


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_the_hook_runs_at_a_late_answer_when_the_waiter_is_gone(
    connect: Any, autojump_clock: trio.testing.MockClock, how: str
) -> None:
    """Our choice: a hook runs at the answer's place also when its waiter is gone; F18."""
    async with connect() as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        hook = Recorder(line.log)
        nursery.start_soon(line.far.read)
        with trio.CancelScope() as scope:
            if how == "cancel":
                nursery.start_soon(_cancel_when_blocked, scope)  # noqa: ASYNC111 - it is done long before the scope is
            await ask(lambda: line.peer.request("fork", deadline_s=5, hook=hook), results)
        assert line.log == []

        await line.far.send({"method": "before"}, {"id": 1, "result": {"child": 1}}, {"method": "after"})
        await trio.testing.wait_all_tasks_blocked()

        assert line.log == ["before", '{"child":1}', "after"]
        assert [type(result) for result in results] == ([] if how == "cancel" else [RequestTimeoutError])
        statistics = line.peer.statistics()
        assert (statistics.late_answers, statistics.in_flight, statistics.unsent) == (1, 0, 0)


async def _cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


# ---- deadlines and slots ----


async def test_an_unanswered_request_fails_at_its_deadline_and_is_never_sent_again(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """T14: some requests are never answered; F35, our choice: a timed-out fork is never retried."""
    async with connect() as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        started = trio.current_time()
        nursery.start_soon(ask, lambda: line.peer.request("fork"), results)
        assert len(await line.far.read()) == 1
        await trio.sleep_until(started + REQUEST_DEADLINE_S - 0.001)
        assert results == []
        await trio.sleep_until(started + REQUEST_DEADLINE_S + 0.001)

        assert isinstance(results[0], RequestTimeoutError)
        assert results[0].sent
        assert "may have been executed" in str(results[0])
        await trio.sleep(500)
        assert await line.far.read_now() == []


async def test_slots_are_given_in_order_and_a_cleanup_request_overtakes(connect: Any) -> None:
    """T14: at most 64 in flight, 8 kept for cleanup."""
    with trio.fail_after(5):
        async with connect(in_flight_max=2, cleanup_slots=1) as line, trio.open_nursery() as nursery:
            for name in ("a", "b", "c", "d"):
                nursery.start_soon(line.peer.request, name)
                await trio.testing.wait_all_tasks_blocked()
            for name in ("x", "y"):
                nursery.start_soon(functools.partial(line.peer.request, name, cleanup=True))
                await trio.testing.wait_all_tasks_blocked()

            async def methods() -> list[str]:
                await trio.testing.wait_all_tasks_blocked()
                return [message["method"] for message in await line.far.read_now()]

            assert await methods() == ["a", "b", "x"]
            statistics = line.peer.statistics()
            assert (statistics.in_flight, statistics.waiting) == (3, 3)
            await line.far.send({"id": 1, "result": 0})
            assert await methods() == ["y"]
            await line.far.send({"id": 2, "result": 0}, {"id": 5, "result": 0}, {"id": 6, "result": 0})
            assert await methods() == ["c", "d"]
            nursery.cancel_scope.cancel()


async def test_the_wait_for_a_slot_counts_and_what_was_not_sent_never_is(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Our choice: a deadline from the call; one still queued was never sent."""
    async with connect(in_flight_max=1) as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        hook = Recorder()
        nursery.start_soon(ask, lambda: line.peer.request("a"), results)
        await line.far.read()
        await ask(lambda: line.peer.request("b", deadline_s=2, hook=hook), results)

        assert isinstance(results[0], RequestTimeoutError)
        assert not results[0].sent
        assert "may have been" not in str(results[0])
        assert hook.outcomes == ["NotSentError"]
        await line.far.send({"id": 1, "result": 0})
        assert await line.far.read_now() == []
        assert line.peer.statistics().unsent == 1


async def test_a_slot_is_freed_a_grace_after_the_deadline_and_the_hook_is_still_due(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """R12, our choice: a slot whose deadline passed is freed after a grace time."""
    async with connect(in_flight_max=1) as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        hook = Recorder()
        await ask(lambda: line.peer.request("a", deadline_s=10, hook=hook), results)
        assert len(await line.far.read()) == 1
        nursery.start_soon(ask, lambda: line.peer.request("b", deadline_s=1000), results)

        await trio.sleep(SLOT_GRACE_S - 1)
        assert await line.far.read_now() == []
        await trio.sleep(2)
        assert [message["method"] for message in await line.far.read()] == ["b"]
        assert line.peer.statistics().expired == 1
        assert hook.outcomes == []
        await line.far.send({"id": 1, "result": "late"})
        await trio.testing.wait_all_tasks_blocked()
        assert hook.outcomes == ['"late"']
        nursery.cancel_scope.cancel()


async def test_too_many_unanswered_requests_end_the_connection_as_unresponsive(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Our choice: too many of those make the connection unhealthy; T14; R9."""
    async with connect() as line:
        results: list[Any] = []
        hooks = [Recorder() for _ in range(UNANSWERED_MAX)]
        async with trio.open_nursery() as nursery:
            for hook in hooks:
                nursery.start_soon(ask, lambda hook=hook: line.peer.request("a", hook=hook), results)
        assert all(isinstance(result, RequestTimeoutError) for result in results)
        assert line.peer.closed is None

        with trio.fail_after(SLOT_GRACE_S + 1):
            assert (await line.peer.wait_closed()).reason == "unresponsive"
        assert [hook.outcomes for hook in hooks] == [["ConnectionClosedError"]] * UNANSWERED_MAX


async def test_a_forgotten_request_tells_its_hook(connect: Any, autojump_clock: trio.testing.MockClock) -> None:
    """R12: at most 1,024 late answers are looked for; the hook is called exactly once all the same."""
    async with connect(in_flight_max=EXPIRED_ENTRIES_MAX) as line, trio.open_nursery() as nursery:
        nursery.start_soon(_drain, line.far)
        first = Recorder()
        rest = Recorder()

        async def time_out(hook: Recorder) -> None:
            with pytest.raises(RequestTimeoutError):
                await line.peer.request("a", deadline_s=1, hook=hook)

        async def answered() -> None:
            number = line.peer._correlation._last_number + 1
            async with trio.open_nursery() as inner:
                inner.start_soon(line.peer.request, "alive")
                await trio.testing.wait_all_tasks_blocked()
                await line.far.send({"id": number, "result": 0})

        await time_out(first)
        for _ in range(EXPIRED_ENTRIES_MAX // 32):
            async with trio.open_nursery() as inner:
                for _ in range(32):
                    inner.start_soon(time_out, rest)
            await trio.sleep(SLOT_GRACE_S + 1)
            await answered()

        assert line.peer.closed is None
        assert first.outcomes == ["RequestTimeoutError"]
        assert rest.outcomes == []
        statistics = line.peer.statistics()
        assert (statistics.expired, statistics.forgotten) == (EXPIRED_ENTRIES_MAX, 1)
        nursery.cancel_scope.cancel()


async def _drain(far: Any) -> None:
    while await far.transport.receive_some(65536):
        pass


async def test_the_reaper_sleeps_for_ever_when_nothing_is_due(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Our choice: no polling; with nothing due the virtual clock has nowhere to jump."""
    async with connect() as line, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: line.peer.request("a", deadline_s=1e6))
        await line.far.read()
        steps = 0

        class Count(trio.abc.Instrument):
            def after_task_step(self, task: trio.lowlevel.Task) -> None:
                nonlocal steps
                steps += task.name.endswith("/reap")

        trio.lowlevel.add_instrument(Count())
        await trio.sleep(10_000)

        assert steps == 0
        nursery.cancel_scope.cancel()


# ---- bad calls, taken back ----


async def test_what_cannot_be_sent_is_refused_before_anything_is_queued(connect: Any) -> None:
    """T15: a lone surrogate would be dropped by the server, and the request would hang."""
    with trio.fail_after(5):
        async with connect() as line:
            hook = Recorder()
            with pytest.raises(LocalError):
                await line.peer.request("a", {"x": "\ud800"}, hook=hook)
            with pytest.raises(LocalError):
                line.peer.notify("a", {"x": object()})

            assert hook.outcomes == ["NotSentError"]
            assert await line.far.read_now() == []
            statistics = line.peer.statistics()
            assert (statistics.in_flight, statistics.waiting, statistics.write_queue_frames) == (0, 0, 0)


async def test_a_request_in_the_write_queue_is_taken_back_whole_by_a_cancel(connect: Any) -> None:
    """F15: a cancelled caller never leaves half a line; our choice: one still queued was never sent."""
    with trio.fail_after(5):
        async with connect(buffer_bytes=10) as line, trio.open_nursery() as nursery:
            hooks = {name: Recorder() for name in ("written", "queued", "next")}
            scopes = {name: trio.CancelScope() for name in hooks}

            async def request(name: str) -> None:
                with scopes[name]:
                    await line.peer.request(name, {"text": "x" * 100}, hook=hooks[name])

            for name in hooks:
                nursery.start_soon(request, name)
                await trio.testing.wait_all_tasks_blocked()
            assert line.peer.statistics().write_queue_frames == 2

            scopes["written"].cancel()
            scopes["queued"].cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert hooks["queued"].outcomes == ["NotSentError"]
            assert hooks["written"].outcomes == []

            assert [message["method"] for message in await line.far.read(2)] == ["written", "next"]
            await line.far.send({"id": 1, "result": 1}, {"id": 3, "result": 3})
            await trio.testing.wait_all_tasks_blocked()
            assert {name: hook.outcomes for name, hook in hooks.items()} == {
                "written": ["1"],
                "queued": ["NotSentError"],
                "next": ["3"],
            }
            assert line.peer.statistics().in_flight == 0


async def test_a_cancel_that_has_come_already_sends_nothing(connect: Any) -> None:
    """R14: a cancel wherever it lands."""
    with trio.fail_after(5):
        async with connect() as line:
            hook = Recorder()
            with trio.CancelScope() as scope:
                scope.cancel()
                await line.peer.request("a", hook=hook)

            assert scope.cancelled_caught
            assert hook.outcomes == ["NotSentError"]
            assert await line.far.read_now() == []


async def test_a_cancelled_request_makes_room_for_the_next(connect: Any) -> None:
    """R14: slots are free after a cancel."""
    with trio.fail_after(5):
        async with connect(buffer_bytes=4, in_flight_max=2) as line, trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await line.peer.request("b")

            nursery.start_soon(line.peer.request, "a")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(cancelled)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(line.peer.request, "c")
            await trio.testing.wait_all_tasks_blocked()
            assert line.peer.statistics().waiting == 1
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()

            assert line.peer.statistics().waiting == 0
            assert [message["method"] for message in await line.far.read(2)] == ["a", "c"]
            nursery.cancel_scope.cancel()


# ---- overload ----


async def _refuse(far: Any, times: int) -> list[float]:
    """Answer the next requests as overloaded; return when each came."""
    moments: list[float] = []
    for _ in range(times):
        [message] = await far.read()
        moments.append(trio.current_time())
        await far.send({"id": message["id"], "error": OVERLOADED})
    return moments


async def test_an_overloaded_request_is_sent_again_with_growing_delays(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Our choice: an explicit -32001 is retried, with backoff and jitter, bounded."""
    async with connect(rng=random.Random(7)) as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        hook = Recorder()
        nursery.start_soon(ask, lambda: line.peer.request("a", result_type=int, hook=hook), results)
        moments = await _refuse(line.far, OVERLOAD_RETRIES_MAX)
        [message] = await line.far.read()
        moments.append(trio.current_time())
        await line.far.send({"id": message["id"], "result": 5})
        await trio.testing.wait_all_tasks_blocked()

        assert results == [5]
        assert hook.outcomes == ["5"]
        delays = [after - before for before, after in itertools.pairwise(moments)]
        for attempt, delay in enumerate(delays):
            assert 0.5 <= delay / (OVERLOAD_DELAY_S * 2**attempt) <= 1.0
        assert len({round(delay / 2**attempt, 9) for attempt, delay in enumerate(delays)}) > 1
        assert message["id"] == OVERLOAD_RETRIES_MAX + 1
        statistics = line.peer.statistics()
        assert (statistics.overload_retries, statistics.in_flight) == (OVERLOAD_RETRIES_MAX, 0)


async def test_after_the_last_retry_the_refusal_is_the_outcome(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """R12: every retry is bounded."""
    async with connect() as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        hook = Recorder()
        nursery.start_soon(ask, lambda: line.peer.request("a", hook=hook), results)
        await _refuse(line.far, OVERLOAD_RETRIES_MAX + 1)
        await trio.testing.wait_all_tasks_blocked()

        assert isinstance(results[0], RemoteError)
        assert results[0].code == -32001
        assert hook.outcomes == ["RemoteError"]
        await trio.sleep(100)
        assert await line.far.read_now() == []


async def test_a_retry_that_cannot_begin_before_the_deadline_is_none(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Our choice: within the deadline; our choice: the refusal says more than a timeout."""
    async with connect() as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        nursery.start_soon(ask, lambda: line.peer.request("a", deadline_s=OVERLOAD_DELAY_S / 4), results)
        await _refuse(line.far, 1)
        await trio.testing.wait_all_tasks_blocked()

        assert isinstance(results[0], RemoteError)
        assert line.peer.statistics().overload_retries == 0


@pytest.mark.parametrize(("dialect_options", "code"), [({}, -32000), ({"dialect": STRICT}, -32001)])
async def test_no_other_error_is_retried(connect: Any, dialect_options: dict[str, Any], code: int) -> None:
    """Our choice: only an explicit -32001, and only where the dialect gives it that meaning."""
    with trio.fail_after(5):
        async with connect(**dialect_options) as line, trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(ask, lambda: line.peer.request("a"), results)
            await line.far.read()
            await line.far.send({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "m"}})
            await trio.testing.wait_all_tasks_blocked()

            assert isinstance(results[0], RemoteError)
            assert line.peer.statistics().overload_retries == 0


async def test_a_refusal_that_comes_late_is_not_retried(connect: Any) -> None:
    """Our choice: nobody waits, so the hook learns that it was not executed."""
    with trio.fail_after(5):
        async with connect() as line:
            hook = Recorder()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_when_blocked, scope)
                    await line.peer.request("a", hook=hook)
            await line.far.read()
            await line.far.send({"id": 1, "error": OVERLOADED})

            assert await line.far.read_now() == []
            assert hook.outcomes == ["RemoteError"]


async def test_a_cancel_in_the_backoff_sends_nothing_more(connect: Any, autojump_clock: trio.testing.MockClock) -> None:
    """Our choice: the hook is told that nothing is on the wire."""
    async with connect() as line, trio.open_nursery() as nursery:
        hook = Recorder()
        scope = trio.CancelScope()

        async def request() -> None:
            with scope:
                await line.peer.request("a", hook=hook)

        nursery.start_soon(request)
        await _refuse(line.far, 1)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.sleep(100)

        assert hook.outcomes == ["NotSentError"]
        assert isinstance(hook.errors[0], NotSentError)
        assert await line.far.read_now() == []


async def test_the_end_in_the_backoff_fails_the_request_at_once(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """R9: every pending call ends, also one that is between two attempts; before the router is told."""
    async with connect() as line, trio.open_nursery() as nursery:
        results: list[Any] = []
        hook = Recorder(line.log)
        nursery.start_soon(ask, lambda: line.peer.request("a", hook=hook), results)
        await _refuse(line.far, 1)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        await line.far.end()
        await trio.testing.wait_all_tasks_blocked()

        assert trio.current_time() == before
        assert isinstance(results[0], ConnectionClosedError)
        assert line.log == ["ConnectionClosedError", "lost"]


async def test_the_end_right_after_a_refusal_is_told_to_the_hook_before_the_router(connect: Any) -> None:
    """R9: also when the refused caller has not run since."""
    with trio.fail_after(5):
        async with connect() as line, trio.open_nursery() as nursery:
            results: list[Any] = []

            def end(outcome: Outcome) -> None:
                line.peer.fail(ConnectionClosedError("closed"))

            for hook in (Recorder(line.log), end):
                nursery.start_soon(ask, functools.partial(line.peer.request, "a", hook=hook), results)
                await trio.testing.wait_all_tasks_blocked()
            await line.far.read(2)
            await line.far.send({"id": 1, "error": OVERLOADED}, {"id": 2, "result": 0})
            await trio.testing.wait_all_tasks_blocked()

            assert line.log == ["ConnectionClosedError", "lost"]
            assert {type(result) for result in results} == {ConnectionClosedError, msgspec.Raw}


async def test_a_cancel_and_the_end_in_the_backoff_tell_the_hook_once(
    connect: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """R14: the cancel is delivered, then the connection ends, before the caller runs again."""
    async with connect() as line, trio.open_nursery() as nursery:
        hook = Recorder()
        scope = trio.CancelScope()

        async def request() -> None:
            with scope:
                await line.peer.request("a", hook=hook)

        nursery.start_soon(request)
        await _refuse(line.far, 1)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        line.peer.fail(ConnectionClosedError("closed"))
        await trio.testing.wait_all_tasks_blocked()

        assert scope.cancelled_caught
        assert hook.outcomes == ["ConnectionClosedError"]
