"""What a request that is never answered, or much too late, leaves behind: found by the simulator, held here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tutti_providers.codex import ConnectionStatistics
from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex.adapter import CodexAdapter, open_adapter
from tutti_providers.codex.testing import (
    Answer,
    AnswerLate,
    AppServerMachine,
    FakeAppServer,
    FakeSetup,
    ModelScript,
    NeverAnswer,
    Pause,
    Strangers,
)
from tutti_providers.codex.testing.app_server_faults import Fault
from tutti_side import AgentHost, SessionHandle, open_host
from tutti_side.contract import Diagnosis
from tutti_side.jsonrpc.transports.memory import memory_pair
from tutti_side.nursery import open_service_nursery

GIVEN_UP_S = 31.0
"""A little more than the adapter waits for an answer once its caller has gone."""


class FakedCodex:
    """The adapter over one fake app-server with the given faults; a `Provider`."""

    name = "codex"

    def __init__(self, *faults: Fault, script: ModelScript | None = None) -> None:
        setup = FakeSetup(faults=faults) if script is None else FakeSetup(faults=faults, script=script)
        self.machine = AppServerMachine(setup)
        self.fake = FakeAppServer(self.machine)
        self.adapters: list[CodexAdapter] = []

    @asynccontextmanager
    async def open(self, ports: object = None) -> AsyncIterator[CodexAdapter]:
        async with open_adapter(self._connect) as adapter:
            self.adapters.append(adapter)
            yield adapter

    async def diagnose(self) -> Diagnosis:
        raise NotImplementedError

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Connection]:
        ours, theirs = memory_pair()
        async with open_service_nursery() as nursery:
            nursery.start_soon(self.fake.serve, theirs)  # noqa: ASYNC113 - what we send waits in the pipe
            async with open_connection(ours, name=self.name) as connection:
                yield connection

    def statistics(self) -> ConnectionStatistics:
        return self.adapters[0].statistics()["live"]

    def subscribed(self) -> set[str]:
        return {thread.id for thread in self.machine.threads.values() if thread.subscribed}


@asynccontextmanager
async def session_on(provider: FakedCodex) -> AsyncIterator[tuple[AgentHost, SessionHandle]]:
    """A host with one session that has no turn yet; nothing in it can hang."""
    with trio.fail_after(1_000):
        async with open_host(provider) as host:
            yield host, await host.start_session(cwd="/")


async def cut_open(session: SessionHandle) -> None:
    """Begin to open a Side, and give up."""
    with trio.move_on_after(1) as cut:
        await session.open_side()
    assert cut.cancelled_caught


async def test_a_session_takes_turns_again_after_a_turn_start_that_was_never_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """T14, R9: some requests are never answered. Source: a bug that the simulator found (busy for ever)."""
    provider = FakedCodex(NeverAnswer(method="turn/start", times=1))
    async with session_on(provider) as (_, session):
        with trio.move_on_after(1) as cut:
            await session.ask("hello?")
        assert cut.cancelled_caught
        await trio.sleep(GIVEN_UP_S)

        assert (await session.ask("hello!")).text == "Done."


async def test_a_turn_whose_start_is_answered_long_after_its_caller_has_gone_disturbs_no_later_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """T14, F33: by then another turn runs, which is not the one to interrupt. Source: our choice."""
    provider = FakedCodex(AnswerLate(method="turn/start", after_s=50, times=1))
    async with session_on(provider) as (_, session):
        with trio.move_on_after(1) as cut:
            await session.ask("hello?")
        assert cut.cancelled_caught
        await trio.sleep(GIVEN_UP_S)
        assert (await session.ask("hello!")).text == "Done."
        await trio.sleep(60)

        assert (await session.ask("and again")).text == "Done."
        assert provider.machine.calls("turn/interrupt") == []
        assert provider.statistics().unreleased == 0


async def test_strangers_are_declined_again_once_a_fork_that_is_never_answered_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """R11, R12, T11: they are kept for a child that may still come, not for ever. Source: found by the simulator."""
    provider = FakedCodex(NeverAnswer(method="thread/fork", times=1), Strangers(method="turn/start"))
    async with session_on(provider) as (_, session):
        await session.ask("first")
        await cut_open(session)
        await session.ask("second")
        kept = provider.statistics()
        assert (kept.router.creations, kept.peer.open_requests) == (1, 1)
        assert kept.router.pooled > 0
        await trio.sleep(GIVEN_UP_S)

        left = provider.statistics()
        assert (left.router.creations, left.router.pooled, left.peer.open_requests) == (0, 0, 0)


@pytest.mark.parametrize("late_s", [10.0, 50.0, 200.0])
async def test_a_child_whose_fork_is_answered_late_is_released_however_late(
    autojump_clock: trio.testing.MockClock, late_s: float
) -> None:
    """R6, F18. Source: architecture §4: also when its fork answer is still to come."""
    provider = FakedCodex(AnswerLate(method="thread/fork", after_s=late_s, times=1))
    async with session_on(provider) as (host, session):
        await session.ask("first")
        await cut_open(session)
        assert len(provider.subscribed()) == 2
        await trio.sleep(late_s)
        await trio.testing.wait_all_tasks_blocked()

        assert provider.subscribed() == {session.provider_session_id}
        assert provider.statistics().router.routes == 1
        assert host.statistics().sides == {}


async def test_a_child_that_could_not_be_unsubscribed_stands_in_the_hosts_cleanup_table_until_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Architecture §4, R12: one table shows what is being retried, by whomever; F21."""
    provider = FakedCodex(NeverAnswer(method="thread/unsubscribe", times=2))
    async with session_on(provider) as (host, session):
        await (await session.send("start")).wait()
        side = await session.open_side()
        child = side.scope.binding
        assert child is not None
        await side.close()
        seen: set[tuple[str, int]] = set()
        with trio.fail_after(60):
            while rows := host.statistics().cleanup:
                seen |= {(row.label, row.tries) for row in rows}
                await trio.sleep(0.05)
        assert seen == {(f"thread {child.provider_session_id}", 0), (f"thread {child.provider_session_id}", 1)}
        assert child.provider_session_id not in provider.subscribed()


async def test_a_child_is_released_also_by_a_server_that_does_not_answer_for_minutes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """R6, F18: it lives on, and so would the child. Source: found by the simulator."""
    provider = FakedCodex(NeverAnswer(method="thread/unsubscribe", times=10))
    async with session_on(provider) as (_, session):
        await session.ask("hello")
        await (await session.open_side()).close()
        assert len(provider.subscribed()) == 2
        await trio.sleep(240)

        assert provider.subscribed() == {session.provider_session_id}
        assert provider.statistics().unreleased == 0


async def test_a_turn_whose_start_is_answered_after_all_waiting_is_interrupted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """R14, F33: its caller has gone long ago. Source: a bug that a planted fault led to (it ran to its end)."""
    endless = ModelScript(answers=(Answer.of(Pause(gate="never"), when="hello?"),))
    provider = FakedCodex(script=endless)
    async with session_on(provider) as (_, session):
        provider.fake.freeze(45)
        with trio.move_on_after(1) as cut:
            await session.send("hello?")
        assert cut.cancelled_caught
        await trio.sleep(60)

        assert len(provider.machine.calls("turn/interrupt")) == 1
        assert provider.statistics().doubted_turns == 0
