"""Many at once and many in a row on one real Codex: one fork for each identity, and nothing that grows with Sides."""

import gc
import os
import tracemalloc
from typing import Any

import pytest
import trio
import trio.testing

import tutti_providers
import tutti_side
from tutti_providers.codex.testing import Answer, ModelScript, Pause, Reply, Say, ToolServer, run_command
from tutti_side import SessionHandle, SideHandle, TurnHandle

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any

TASK = "Refactor the parser"
QUESTION = "What does the tokenizer do?"
SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK),
        Answer.of(Say(tokens=("answered",)), when=QUESTION),
    )
)

OPENERS = 100
WARM_CYCLES = 10
CYCLES = 100

GROWTH_BYTES_MAX = 2_048
"""What one Side more may leave behind in our memory: its id among the ended ones, its thread's among the retired."""


async def start_turn(bench: Bench, host: Any) -> tuple[SessionHandle, TurnHandle]:
    """Start a session, and a turn that is held in the middle."""
    session = await host.start_session(cwd=bench.workspace)
    turn = await session.send(TASK)
    await bench.wire.wait_said("one ")
    return session, turn


async def end_turn(bench: Bench, turn: TurnHandle) -> None:
    """Let the turn end: nothing of all this was felt in it (R7)."""
    assert turn.is_active
    bench.model.gate("parent").set()
    assert (await turn.wait()).answer.text == "one two"


class Openers:
    """A crowd that opens one Side."""

    def __init__(self, session: SessionHandle) -> None:
        self.session = session
        self.scopes = [trio.CancelScope() for _ in range(OPENERS)]
        self.sides: list[SideHandle] = []

    async def open(self, scope: trio.CancelScope) -> None:
        with scope:
            self.sides.append(await self.session.open_side(side_id="aside", request_id="click", subscribe=True))

    def start(self, nursery: trio.Nursery) -> None:
        for scope in self.scopes:
            nursery.start_soon(self.open, scope)


async def first_sequence(side: SideHandle) -> int:
    """The number of the first event that a handle's own subscription gives."""
    with side.events() as subscription:
        async for batch in subscription:
            return batch.first_sequence
    raise AssertionError("it said nothing")


async def test_a_hundred_opens_of_one_identity_are_one_fork_and_a_hundred_handles_of_one_side(lab: Lab) -> None:
    """R4, F17: each handle sees the Side's life from its sequence 1."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session, turn = await start_turn(bench, host)
        openers = Openers(session)
        async with trio.open_nursery() as nursery:
            openers.start(nursery)
        assert len(openers.sides) == OPENERS
        assert len({id(side.scope) for side in openers.sides}) == 1
        assert [await first_sequence(side) for side in openers.sides] == [1] * OPENERS
        assert len(bench.wire.requests("thread/fork")) == 1
        assert (await openers.sides[-1].ask(QUESTION)).text == "answered"
        await openers.sides[0].close()
        assert not any(side.is_open for side in openers.sides)
        assert bench.wire.results("thread/unsubscribe") == [{"status": "unsubscribed"}]
        await end_turn(bench, turn)


@pytest.mark.parametrize("who_stays", [1, 0])
async def test_openers_that_give_up_end_the_open_only_when_nobody_is_left(lab: Lab, who_stays: int) -> None:
    """R4, R6, F18: 99 of 100 are cancelled while the fork is asked; then the last one as well."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session, turn = await start_turn(bench, host)
        openers = Openers(session)
        async with trio.open_nursery() as nursery:
            with bench.wire.stopped():
                openers.start(nursery)
                await bench.wire.wait_sent("thread/fork")
                for scope in openers.scopes[who_stays:]:
                    scope.cancel(reason="gave up")
                await trio.testing.wait_all_tasks_blocked()
                assert openers.sides == []
        assert len(openers.sides) == who_stays
        assert len(bench.wire.requests("thread/fork")) == 1
        for side in openers.sides:
            assert await first_sequence(side) == 1
            assert (await side.ask(QUESTION)).text == "answered"
            await side.close()
        assert host.statistics().sides == {}
        assert bench.wire.results("thread/unsubscribe") == [{"status": "unsubscribed"}]
        connection = bench.connection
        assert (connection.leases, connection.releasing, connection.unreleased) == (1, 0, 0)
        assert (connection.router.routes, connection.router.creations, connection.router.pooled) == (1, 0, 0)
        await end_turn(bench, turn)


async def wait_process_ended(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def test_a_closed_side_takes_its_tool_servers_with_it(lab: Lab) -> None:
    """F21, F22, T17: Codex starts them for each thread, and by itself keeps an unsubscribed thread for many minutes."""
    pids = lab.directory / "pids"
    tools = [ToolServer(options=("--pid-file", str(pids)))]
    async with lab.bench(SCRIPT, tool_servers=tools) as bench, bench.host() as host:
        session, turn = await start_turn(bench, host)
        for _ in range(5):
            async with session.side() as side:
                child = side.scope.binding.provider_session_id  # type: ignore[union-attr]
                await bench.wire.wait_for(
                    lambda frame, child=child: (
                        frame.get("method") == "mcpServer/startupStatus/updated"
                        and (frame["params"]["threadId"], frame["params"]["status"]) == (child, "ready")
                    )
                )
                assert (await side.ask(QUESTION)).text == "answered"
        of_parent, *of_sides = [int(line) for line in pids.read_text().split()]
        assert len(of_sides) == 5
        for pid in of_sides:
            await wait_process_ended(pid)
        os.kill(of_parent, 0)  # the parent's is there
        assert await session.side_capabilities()
        await end_turn(bench, turn)
        assert (await session.ask(QUESTION)).text == "answered"


RUNS_ON = "Run it"
COMMAND = Answer(
    replies=(Reply(steps=(run_command("echo $$ > pid; read word < pipe"),)),),
    when=RUNS_ON,
)
"""A command that says who it is, and then reads from a pipe that nobody writes to."""


def is_command(frame: dict[str, Any]) -> bool:
    """The server says that a command runs; one that is interrupted before that is killed at once."""
    return frame.get("method") == "item/started" and frame["params"]["item"]["type"] == "commandExecution"


async def test_a_command_that_an_interrupt_left_running_ends_with_its_side(lab: Lab) -> None:
    """T5, T8, F33, R7: an interrupt ends the turn, not the command; the close ends that as well."""
    script = ModelScript(answers=(*SCRIPT.answers, COMMAND))
    async with (
        lab.bench(script, approval_policy="never", sandbox_mode="danger-full-access") as bench,
        bench.host() as host,
    ):
        os.mkfifo(bench.workspace / "pipe")
        session, turn = await start_turn(bench, host)
        side = await session.open_side()
        runs = await side.send(RUNS_ON)
        # Opening the pipe waits for its reader, so the command has written its id by then.
        writer = await trio.to_thread.run_sync(os.open, bench.workspace / "pipe", os.O_WRONLY, abandon_on_cancel=True)
        pid = int((bench.workspace / "pid").read_text())
        await bench.wire.wait_for(is_command)
        await runs.cancel()
        assert (await runs.wait()).status == "canceled"
        os.kill(pid, 0)  # it is there
        await side.close()
        await wait_process_ended(pid)
        os.close(writer)
        await end_turn(bench, turn)


class Footprint:
    """What this process holds of ours at one moment."""

    def __init__(self, bench: Bench) -> None:
        # What the tests themselves keep of the past is not ours to measure.
        bench.wire.frames.clear()
        bench.delivered.clear()
        gc.collect()
        ours = [f"{package.__path__[0]}/*" for package in (tutti_side, tutti_providers, trio)]
        filters = [tracemalloc.Filter(inclusive=True, filename_pattern=pattern) for pattern in ours]
        stand_ins = tracemalloc.Filter(inclusive=False, filename_pattern="*/codex/testing/*")
        traces = tracemalloc.take_snapshot().filter_traces(filters).filter_traces([stand_ins])
        self.bytes = sum(statistic.size for statistic in traces.statistics("filename"))
        self.descriptors = len(os.listdir("/proc/self/fd"))
        connection = bench.connection
        self.held = (connection.leases, connection.releasing, connection.unreleased, connection.router.routes)


async def test_a_hundred_sides_in_a_row_leave_no_child_no_descriptor_and_no_memory(lab: Lab) -> None:
    """R6, R12, F21: opened minus unsubscribed is nothing, on one connection, beside one turn."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session, turn = await start_turn(bench, host)
        opened: list[str] = []
        unsubscribed: list[str] = []

        async def use_sides(count: int) -> Footprint:
            for _ in range(count):
                async with session.side() as side:
                    assert (await side.ask(QUESTION)).text == "answered"
            opened.extend(result["thread"]["id"] for result in bench.wire.results("thread/fork"))
            asked = [frame["params"]["threadId"] for frame in bench.wire.requests("thread/unsubscribe")]
            assert bench.wire.results("thread/unsubscribe") == [{"status": "unsubscribed"}] * len(asked)
            unsubscribed.extend(asked)
            return Footprint(bench)

        tracemalloc.start()
        try:
            before = await use_sides(WARM_CYCLES)
            after = await use_sides(CYCLES)
        finally:
            tracemalloc.stop()
        assert len(opened) == WARM_CYCLES + CYCLES
        assert sorted(opened) == sorted(unsubscribed)
        assert (after.descriptors, after.held) == (before.descriptors, before.held)
        assert before.held == (1, 0, 0, 1)
        assert after.bytes - before.bytes < GROWTH_BYTES_MAX * CYCLES
        assert len(bench.wires) == 1
        await end_turn(bench, turn)
