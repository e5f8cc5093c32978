"""The table: each public await by each way in which a server can go, a typed error within a named bound.

Rows are awaits, held in mid-flight; columns are what then happens to the server. In memory on the virtual clock, with
the bounds as they are; killed and stopped it is a process (marked), on a clock that is fast once the process stands.
"""

import os
import pathlib
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

import tutti_providers.codex
from tutti_providers.codex import codex
from tutti_providers.codex._connection import LIFE_SIGN_DEADLINE_S, SILENCE_S
from tutti_providers.codex._side_open import FIRST_ITEM_WAIT_S
from tutti_providers.codex._turn_control import INTERRUPT_DEADLINE_S
from tutti_providers.codex.errors import UnansweredError
from tutti_providers.codex.testing import (
    AnswerLate,
    FakeSetup,
    NeverAnswer,
    StopReading,
    testing_env,
    write_fake_binary,
    write_setup,
)
from tutti_side import OpenFailedError, SessionExpiredError, SideExpiredError, open_host
from tutti_side.contract import ProviderLostError
from tutti_side.jsonrpc import REQUEST_DEADLINE_S
from tutti_side.jsonrpc.peer import DRAIN_S
from tutti_side.jsonrpc.transports.stdio import EXIT_WAIT_S, open_stdio
from tutti_side.runtime import HOST_STOP_S
from tutti_side.runtime._scope_handle import CANCEL_BOUND_S
from tutti_side.runtime._sessions import SNAPSHOT_WAIT_S
from tutti_side.runtime._side_scope import CLOSE_BOUND_S
from tutti_side.testing.processes import marked_processes

LIFE_BOUND_S = 2 * SILENCE_S + LIFE_SIGN_DEADLINE_S + DRAIN_S
"""A silent server is asked at the next full period after its last word, and then has its time to answer."""

LOST_BOUND_S = DRAIN_S + EXIT_WAIT_S
"""An end of the stream is known at once; what it waits for is the rest of the stream and the exit status."""

CLOCK_SLACK_S = 0.1

Call = Any
"""Called without arguments, it makes the await."""


class Row(NamedTuple):
    """One public await.

    `until_told`: it waits for the model, which may think for as long as it likes; a server that gives no sign of life
    meanwhile is lost. Its caller's own deadline and the end of the host bound it as well.
    """

    prepare: Callable[[Any, Any], Awaitable[Call]]
    lost: tuple[type[BaseException] | None, ...]
    silent: tuple[type[BaseException] | None, ...]
    bound_s: float
    faults: tuple[Any, ...] = ()
    until_told: bool = False


async def start_session(made: Any, host: Any) -> Call:  # noqa: ASYNC124 - as all rows
    return lambda: host.start_session(cwd="/project")


async def send(made: Any, host: Any) -> Call:
    session = await host.start_session(cwd="/project")
    return lambda: session.send("hold on")


async def ask(made: Any, host: Any) -> Call:
    session = await host.start_session(cwd="/project")
    return lambda: session.ask("hold on")


async def wait(made: Any, host: Any) -> Call:
    return (await start_working(host)).active_turn.wait


async def cancel(made: Any, host: Any) -> Call:
    return (await start_working(host)).active_turn.cancel


async def open_side(made: Any, host: Any) -> Call:
    return (await start_working(host)).open_side


async def ask_side(made: Any, host: Any) -> Call:
    side = await (await start_working(host)).open_side()
    return lambda: side.ask("hold on")


async def close_side(made: Any, host: Any) -> Call:
    side = await (await start_working(host)).open_side()
    await side.send("hold on")
    return side.close


async def close_session(made: Any, host: Any) -> Call:
    return (await start_working(host)).close


async def iterate_events(made: Any, host: Any) -> Call:
    side = await (await start_working(host)).open_side()
    subscription = side.events()

    async def to_the_end() -> None:
        kinds = [type(event).__name__ async for batch in subscription for event in batch.events]
        assert kinds[-1] == "SessionExpired"

    return to_the_end


async def start_working(host: Any) -> Any:
    """Start a session and a turn of it, and wait until the model halts in the middle of it."""
    session = await host.start_session(cwd="/project")
    with session.events() as subscription:
        await session.send("refactor")
        async for batch in subscription:
            if any(getattr(event, "text", "") == "p1 " for event in batch.events):
                break
    return session


NEVER_INTERRUPTED = (NeverAnswer(method="turn/interrupt"),)
SESSION_OVER, SIDE_OVER = (SessionExpiredError,), (SideExpiredError,)
UNANSWERED = (UnansweredError,)

ROWS = {
    "start_session": Row(
        start_session,
        (ProviderLostError,),
        UNANSWERED,
        REQUEST_DEADLINE_S,
        (AnswerLate(method="thread/start", gate="never"),),
    ),
    "send": Row(send, SESSION_OVER, UNANSWERED, REQUEST_DEADLINE_S, (AnswerLate(method="turn/start", gate="never"),)),
    "ask": Row(ask, SESSION_OVER, SESSION_OVER, LIFE_BOUND_S, until_told=True),
    "wait": Row(wait, SESSION_OVER, SESSION_OVER, LIFE_BOUND_S, until_told=True),
    # A turn whose connection is lost has ended, which is what its cancel wanted.
    "cancel": Row(cancel, (None, *SESSION_OVER), UNANSWERED, INTERRUPT_DEADLINE_S, NEVER_INTERRUPTED),
    "side open": Row(
        open_side,
        (OpenFailedError,),
        (OpenFailedError,),
        FIRST_ITEM_WAIT_S + REQUEST_DEADLINE_S,
        (AnswerLate(method="thread/fork", gate="never"),),
    ),
    "side ask": Row(ask_side, SIDE_OVER, SIDE_OVER, LIFE_BOUND_S, until_told=True),
    # A close is done when nobody waits any more; what the server owes is its connection's.
    "side close": Row(close_side, (None,), (None,), CLOSE_BOUND_S, NEVER_INTERRUPTED),
    "session close": Row(close_session, (None,), (None,), SNAPSHOT_WAIT_S, NEVER_INTERRUPTED),
    "events": Row(iterate_events, (None,), (None,), LIFE_BOUND_S, until_told=True),
}


class Outcome:
    """What became of a call."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.done = trio.Event()

    async def take(self, call: Call) -> None:
        try:
            await call()
        except Exception as error:
            self.error = error
        self.done.set()

    async def wait(self, bound_s: float) -> None:
        with trio.fail_after(bound_s + CLOCK_SLACK_S):
            await self.done.wait()

    def assert_one_of(self, expected: tuple[type[BaseException] | None, ...]) -> None:
        kind = None if self.error is None else type(self.error)
        assert kind in expected, repr(self.error)


def eof(made: Any) -> None:
    made.server.crash(0)


def broken_pipe(made: Any) -> None:
    made.wire.break_()


def garbage(made: Any) -> None:
    made.wire.talks_garbage = True


def silence(made: Any) -> None:
    made.wire.is_silent = True


@pytest.mark.parametrize("strike", [eof, broken_pipe], ids=["EOF", "broken pipe"])
@pytest.mark.parametrize("name", ROWS)
async def test_an_await_whose_stream_ends_fails_at_once_and_leaves_nothing(
    autojump_clock: Any, bench: Any, name: str, strike: Callable[[Any], None]
) -> None:
    """R8, R9, R13, F14, T14: within `LOST_BOUND_S`; the next session has a fresh process."""
    row, outcome = ROWS[name], Outcome()
    made = bench(faults=row.faults)
    made.later_setup = FakeSetup(script=made.setup.script)
    async with trio.open_nursery() as nursery, made.host() as host:
        nursery.start_soon(outcome.take, await row.prepare(made, host))  # noqa: ASYNC111 - outlives the host
        await trio.testing.wait_all_tasks_blocked()
        assert not outcome.done.is_set()
        strike(made)
        await outcome.wait(LOST_BOUND_S)
        outcome.assert_one_of(row.lost)
        await trio.sleep(61)
        made.assert_only(host)
        session = await start_working(host)
        async with session.side() as side:
            assert (await side.ask("what?")).text == "s0 s1 "
        assert len(made.servers) == 2


@pytest.mark.parametrize("strike", [garbage, silence], ids=["garbage", "silence"])
@pytest.mark.parametrize("name", ROWS)
async def test_an_await_on_a_server_that_makes_no_sense_any_more_ends_within_its_bound(
    autojump_clock: Any, bench: Any, name: str, strike: Callable[[Any], None]
) -> None:
    """R9, R12, R13, F12, T14: the bounds are the real ones; nonsense is dropped and counted, and answers nothing."""
    row, outcome = ROWS[name], Outcome()
    made = bench(faults=row.faults)
    async with trio.open_nursery() as nursery:
        async with made.host() as host:
            nursery.start_soon(outcome.take, await row.prepare(made, host))  # noqa: ASYNC111 - outlives the host
            await trio.testing.wait_all_tasks_blocked()
            assert not outcome.done.is_set()
            strike(made)
            await outcome.wait(row.bound_s)
            outcome.assert_one_of(row.silent)
            stopping = trio.current_time()
        assert trio.current_time() - stopping <= HOST_STOP_S + CLOCK_SLACK_S


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.until_told])
@pytest.mark.parametrize("strike", [garbage, silence], ids=["garbage", "silence"])
async def test_the_end_of_the_host_ends_what_waits_for_a_silent_model(
    autojump_clock: Any, bench: Any, name: str, strike: Callable[[Any], None]
) -> None:
    """R9, R12, R13: long before the server is found to be lost."""
    row, outcome = ROWS[name], Outcome()
    made = bench(faults=row.faults)
    async with trio.open_nursery() as nursery:
        async with made.host() as host:
            nursery.start_soon(outcome.take, await row.prepare(made, host))  # noqa: ASYNC111 - outlives the host
            await trio.testing.wait_all_tasks_blocked()
            strike(made)
            stopping = trio.current_time()
        assert trio.current_time() - stopping <= HOST_STOP_S + CLOCK_SLACK_S
        await outcome.wait(0)
        outcome.assert_one_of(row.silent)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.until_told])
async def test_who_waits_for_a_silent_model_can_be_cancelled(autojump_clock: Any, bench: Any, name: str) -> None:
    """R9, F33: an own deadline ends such a wait within the bound of the interrupt that it may cause."""
    row = ROWS[name]
    made = bench(faults=row.faults)
    async with made.host() as host:
        call = await row.prepare(made, host)
        silenced = trio.current_time()
        with trio.move_on_after(3) as patience:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                await trio.testing.wait_all_tasks_blocked()
                silence(made)
        assert patience.cancelled_caught
        assert trio.current_time() - silenced <= 3 + CANCEL_BOUND_S + CLOCK_SLACK_S


@pytest.mark.parametrize("strike", [eof, broken_pipe, garbage, silence], ids=lambda strike: strike.__name__)
@pytest.mark.parametrize("busy", [True, False], ids=["in turns", "idle"])
async def test_a_host_ends_within_its_bound_whatever_its_server_does(
    autojump_clock: Any, bench: Any, strike: Callable[[Any], None], busy: bool
) -> None:
    """R12, R13, R14: one deadline for everything, `HOST_STOP_S`, also for a close that had begun before."""
    made = bench()
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        async with made.host() as host:
            session = await start_working(host)
            sides = [await session.open_side() for _ in range(3)]
            for side in sides:
                if busy:
                    await side.send("hold on")
                else:
                    await side.ask("what?")
            strike(made)
            nursery.start_soon(sides[0].close)
            await trio.sleep(1)
            stopping = trio.current_time()
        assert trio.current_time() - stopping <= HOST_STOP_S + CLOCK_SLACK_S
    assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_a_server_that_stops_reading_ends_a_send_within_its_bound(autojump_clock: Any, bench: Any) -> None:
    """R9, R12, F14: the pipe is full behind a server that never reads again; the request is taken back."""
    made = bench(faults=(StopReading(method="thread/inject_items"),))
    async with made.working() as (_, session):
        side = await session.open_side()
        began = trio.current_time()
        with pytest.raises(UnansweredError):
            await side.send("x" * 200_000)
        assert trio.current_time() - began <= REQUEST_DEADLINE_S + CLOCK_SLACK_S


# The server as a process.

FAST = 60.0
"""Virtual seconds a second, while nothing but bounds runs."""

SLOW_MACHINE_S = 10.0
"""Real seconds that a busy machine may take on top: exact bounds are held above, here it is that each wait ends."""


class Processes:
    """Implements the provider's side of a bench over real processes."""

    name = "codex"

    def __init__(self, directory: pathlib.Path, setup: FakeSetup, clock: trio.testing.MockClock) -> None:
        environ = testing_env(directory / "home", directory)
        self.transports: list[Any] = []
        self.thread_wanted = trio.Event()
        """Set when the first session was asked for, on the wire."""
        self.clock = clock
        self._inner = codex(
            write_fake_binary(directory / "codex"),
            environ=environ,
            extra_environ={"TUTTI_FAKE_SETUP": str(write_setup(directory / "setup.json", setup))},
        )

    @asynccontextmanager
    async def open_stdio(self, command: list[str], *, env: dict[str, str], name: str) -> AsyncGenerator[Any]:
        """Stand in for `open_stdio`: know the process, and end it at its own pace."""
        async with open_stdio(command, env=env, name=name) as transport:
            self.transports.append(transport)
            send_all = transport.send_all

            async def send_and_tell(data: bytes) -> None:
                await send_all(data)
                if b'"thread/start"' in data:
                    self.thread_wanted.set()

            transport.send_all = send_and_tell  # type: ignore[method-assign]
            try:
                yield transport
            finally:
                self.clock.rate = 2.0

    def open(self, *ports: Any) -> Any:
        return self._inner.open(*ports)

    async def diagnose(self) -> Any:
        raise NotImplementedError


@pytest.fixture
def processes(
    tmp_path: pathlib.Path, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[[FakeSetup], Processes]:
    def make(setup: FakeSetup) -> Processes:
        made = Processes(tmp_path, setup, mock_clock)
        monkeypatch.setattr(tutti_providers.codex, "open_stdio", made.open_stdio)
        mock_clock.rate = 1.0
        return made

    return make


@pytest.mark.process
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP], ids=lambda sign: sign.name)
@pytest.mark.parametrize("name", ROWS)
async def test_an_await_on_a_killed_or_stopped_process_ends_within_its_bound_and_no_process_is_left(
    mock_clock: Any, bench: Any, processes: Any, name: str, sign: signal.Signals
) -> None:
    """R9, R13, T16, F14, F30: killed is the end of the stream, stopped is silence."""
    row, outcome = ROWS[name], Outcome()
    made = processes(FakeSetup(script=bench().setup.script, faults=row.faults))
    async with trio.open_nursery() as nursery:
        with trio.fail_after(3_000):
            async with open_host(made) as host:
                nursery.start_soon(outcome.take, await row.prepare(made, host))  # noqa: ASYNC111 - outlives the host
                await made.thread_wanted.wait()
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert not outcome.done.is_set()
                [transport] = made.transports
                os.kill(transport.pid, sign)
                if sign is signal.SIGKILL:
                    await outcome.wait(LOST_BOUND_S + SLOW_MACHINE_S)
                    outcome.assert_one_of(row.lost)
                    if isinstance(outcome.error, ProviderLostError):
                        assert outcome.error.exit_status == -signal.SIGKILL
                else:
                    mock_clock.rate = FAST
                    if not row.until_told:
                        await outcome.wait(row.bound_s + SLOW_MACHINE_S * FAST)
        await outcome.wait(0)
        outcome.assert_one_of(row.lost if sign is signal.SIGKILL else row.silent)
    assert marked_processes(transport.marker) == []
