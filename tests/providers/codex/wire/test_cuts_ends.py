"""The end of the server, and of the host, after the k-th step of any task, with a fork in flight.

The fork is answered late, never, as something else, or with errors; its opener goes on waiting, or is cancelled in the
same instant.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import AnswerLate, FakeSetup, ForkAnswer, ForkOrder, NeverAnswer, Overloaded
from tutti_side import (
    AgentHost,
    HostStoppedError,
    OpenFailedError,
    SessionExpiredError,
    SessionHandle,
    SideExpiredError,
    SideHandle,
    TurnHandle,
    TuttiSideError,
)
from tutti_side.runtime import HOST_STOP_S
from tutti_side.testing.cuts import Cut, cut_at_every_step

FORK = "thread/fork"
ORDER = ForkOrder(order=("starting", "request", "response", "started"))
FORKS: dict[str, tuple[Any, ...]] = {
    "late": (ORDER, AnswerLate(method=FORK, after_s=3.0), AnswerLate(method="thread/inject_items", after_s=0.5)),
    "never": (NeverAnswer(method=FORK),),
    "a lie": (ORDER, ForkAnswer(thread={"forkedFromId": "01a0ffff-0000-7000-8000-000000000001"})),
    "errors": (Overloaded(method=FORK, times=6),),
}
"""How the fork is answered."""

SETTLED_S = 200.0
"""Longer than everything that still has to happen after a cut."""

OPENERS = {"the opener waits": False, "the opener is cut too": True}

Outcome = SideHandle | TuttiSideError


class Opener:
    """Opens a Side; remembers what it was told."""

    def __init__(self, session: SessionHandle) -> None:
        self.scope = trio.CancelScope()
        self.outcome: Outcome | None = None
        self.done = trio.Event()
        self._session = session

    async def run(self) -> None:
        try:
            with self.scope:
                self.outcome = await self._session.open_side()
        except TuttiSideError as error:
            self.outcome = error
        finally:
            self.done.set()

    async def assert_told(self, *errors: type[TuttiSideError]) -> None:
        """An error of these types, or a Side that is over; nothing only if it was cancelled."""
        if isinstance(self.outcome, SideHandle):
            with pytest.raises(SideExpiredError):
                await self.outcome.ask("what?")
        elif self.outcome is None:
            assert self.scope.cancelled_caught
        else:
            assert isinstance(self.outcome, errors), self.outcome


@pytest.mark.parametrize("cuts_opener", OPENERS.values(), ids=OPENERS)
@pytest.mark.parametrize("answered", FORKS)
async def test_the_servers_end_at_any_step_of_an_open_tells_the_opener_and_leaves_nothing(
    autojump_clock: Any, bench: Any, answered: str, cuts_opener: bool
) -> None:
    """R6, R8, R9, R14, F14: a typed error, whatever the fork's answer would have been."""

    async def once(cut: Cut) -> None:
        made = bench(faults=FORKS[answered], tool_servers=("docs",))
        made.later_setup = FakeSetup(script=made.setup.script)
        async with made.host() as host:
            session = await made.start_working(host)
            opener = Opener(session)

            def strike() -> None:
                made.servers[0].crash(101)
                if cuts_opener:
                    opener.scope.cancel()

            with cut.striking(strike):
                await opener.run()
            await trio.sleep(SETTLED_S)
            if cut.has_struck:
                assert await session.wait_ended() == "lost"
                await opener.assert_told(OpenFailedError, SideExpiredError)
                made.assert_only(host)
                session = await made.start_working(host)
                async with session.side() as side:
                    assert (await side.ask("what?")).text == "s0 s1 "
            elif isinstance(opener.outcome, SideHandle):
                await opener.outcome.close()
            else:
                assert isinstance(opener.outcome, OpenFailedError)
            await trio.sleep(SETTLED_S)
            made.assert_only(host, session, lies=not cut.has_struck and answered == "a lie")

    report = await cut_at_every_step(once)

    assert report.cuts > 12, "the cuts did not reach the wire"


async def be_told(turn: TurnHandle, told: list[str]) -> None:
    """Wait for a turn whose host stops: it is interrupted, or lost when there is no time left for that."""
    try:
        told.append((await turn.wait()).status)
    except SessionExpiredError:
        told.append("expired")


@pytest.mark.parametrize("cuts_opener", OPENERS.values(), ids=OPENERS)
@pytest.mark.parametrize("answered", FORKS)
async def test_a_stop_of_the_host_at_any_step_of_an_open_is_bounded_tells_the_opener_and_leaves_nothing(
    autojump_clock: Any, bench: Any, answered: str, cuts_opener: bool
) -> None:
    """R6, R9, R12, R13, R14: the opener stands outside the host; so does whoever waits for the source's turn."""

    async def once(cut: Cut) -> None:
        made = bench(faults=FORKS[answered], tool_servers=("docs",))
        told: list[str] = []
        async with trio.open_nursery() as outside:
            async with made.host() as host:
                session = await made.start_working(host)
                outside.start_soon(be_told, session.active_turn, told)
                opener = Opener(session)
                stop = opener.done

                def strike() -> None:
                    stop.set()
                    if cuts_opener:
                        opener.scope.cancel()

                with cut.striking(strike):
                    outside.start_soon(opener.run)
                    await stop.wait()
                began = trio.current_time()
            took_s = trio.current_time() - began
        assert took_s <= HOST_STOP_S + 0.001
        assert told in (["canceled"], ["expired"])
        await opener.assert_told(HostStoppedError, SideExpiredError, OpenFailedError, SessionExpiredError)
        statistics = host.controller.statistics()
        assert (statistics.sides, statistics.sessions, statistics.locks_in_use) == ({}, 0, 0)
        assert made.running == 0

    report = await cut_at_every_step(once)

    assert report.cuts > 12, "the cuts did not reach the wire"


@pytest.mark.parametrize("answered", ["late", "never"])
async def test_a_host_cut_at_any_step_of_its_stop_with_a_fork_in_flight_leaves_nothing(
    autojump_clock: Any, bench: Any, answered: str
) -> None:
    """R6, R9, R13, R14: the whole life is cut, so that the last cuts fall into the stop; strangers are told."""

    async def once(cut: Cut) -> None:
        made = bench(faults=FORKS[answered], tool_servers=("docs",))
        host = None
        openers: list[Opener] = []
        async with trio.open_nursery() as outside:
            with cut.cancelling():
                async with made.host() as host:
                    session = await made.start_working(host)
                    openers.append(Opener(session))
                    outside.start_soon(openers[0].run)
                    await made.server.wait_received(FORK)
        for opener in openers:
            await opener.assert_told(HostStoppedError, SideExpiredError, OpenFailedError, SessionExpiredError)
        if host is not None:
            statistics = host.controller.statistics()
            assert (statistics.sides, statistics.sessions, statistics.locks_in_use) == ({}, 0, 0)
        assert made.running == 0

    report = await cut_at_every_step(once)

    assert {"RuntimeController.stop", "open_controller"} <= report.inside


async def test_starts_that_a_host_s_stop_overtakes_are_told_so(
    autojump_clock: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R9: one waits for a process that is slow to come, one for the other; the second got an error of Trio's.

    Source: a bug that the simulator found.
    """
    told: list[str] = []
    late = bench()
    connect = late._connect

    @asynccontextmanager
    async def connect_late() -> AsyncGenerator[Any]:
        await trio.sleep(2 * HOST_STOP_S)
        async with connect() as connection:
            yield connection

    async def start(host: AgentHost) -> None:
        try:
            await host.start_session(cwd="/project")
        except TuttiSideError as error:
            told.append(type(error).__name__)

    monkeypatch.setattr(late, "_connect", connect_late)
    with trio.fail_after(100):
        async with trio.open_nursery() as users, late.host() as host:
            for _ in range(2):
                users.start_soon(start, host)  # noqa: ASYNC111 - the call is to outlive its host
            await trio.testing.wait_all_tasks_blocked()

    assert told == ["HostStoppedError", "HostStoppedError"]
