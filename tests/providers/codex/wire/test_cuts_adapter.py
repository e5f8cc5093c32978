"""The Codex adapter's own calls, each cut after the k-th step of any task, for every k.

No controller stands above it: what a cut leaves is what the "Cancellation:" lines of the contract say. `CUTS` names
what the cuts must have fallen into; `tests/side/test_cuts_complete.py` reads it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex import CodexAdapter
from tutti_providers.codex.testing import AnswerLate, ForkOrder
from tutti_side.contract import (
    CanonicalRef,
    EndReason,
    Event,
    ExecTurn,
    OpenSide,
    ProviderLostError,
    ResumeSession,
    SessionBinding,
    SessionId,
    SideBinding,
    SideId,
    SideRef,
    SourceMetadata,
    StartSession,
    TextContent,
    TurnCanceled,
    TurnNotActiveError,
    WorkspaceId,
)
from tutti_side.testing.cuts import Cut, cut_at_every_step

CUTS = {
    "start": ("CodexAdapter.start",),
    "resume": ("CodexAdapter.resume",),
    "exec": ("CodexAdapter.exec",),
    "cancel": ("CodexAdapter.cancel",),
    "steer": ("CodexAdapter.steer",),
    "end commands": ("CodexAdapter.end_commands",),
    "close a session": ("CodexAdapter.close",),
    "close a session while a turn starts": ("CodexAdapter.close",),
    "close a Side": ("CodexAdapter.close",),
    "attest": ("CodexAdapter.side_capabilities",),
    "open a Side": ("CodexAdapter.open_side",),
    "open a Side and wait for its release": ("CodexAdapter.open_side",),
    "wait for what a failed open left": ("CodexAdapter.wait_side_released",),
    "the life of an adapter": ("open_adapter", "CodexAdapter.start", "CodexAdapter.exec", "CodexAdapter.open_side"),
}

LATE = (
    ForkOrder(order=("starting", "request", "response", "started")),
    *(
        AnswerLate(method=method, after_s=0.5)
        for method in (
            "thread/fork",
            "thread/inject_items",
            "thread/start",
            "thread/resume",
            "thread/backgroundTerminals/clean",
            "turn/start",
            "turn/steer",
            "turn/interrupt",
            "thread/unsubscribe",
        )
    ),
)
"""Every answer takes its time, so that the cut also falls while one is awaited."""

SETTLED_S = 200.0
"""Longer than everything that the adapter and the server still do after a cut."""

WORKSPACE = WorkspaceId("w")
MAIN, NEW, KEPT = (CanonicalRef(WORKSPACE, SessionId(name)) for name in ("main", "new", "kept"))
SIDE = SideRef(WORKSPACE, SideId("side"))

Bench = Any  # tests/providers/codex/wire/conftest.py


class Recorder:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended: EndReason | None = None

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        assert self.ended is None, "an event after the end"
        self.events += events

    def end(self, reason: EndReason) -> None:
        assert self.ended is None, "a second end"
        self.ended = reason


def question(text: str) -> ExecTurn:
    return ExecTurn(content=(TextContent(text),))


class Stage:
    """An open adapter with a session whose turn is held in the middle."""

    def __init__(self, made: Bench, adapter: CodexAdapter) -> None:
        self.made = made
        self.adapter = adapter
        self.kept = ""

    async def start(self, ref: CanonicalRef, sink: Recorder) -> SessionBinding:
        return await self.adapter.start(StartSession(ref=ref, cwd="/project"), sink)

    async def resume(self, sink: Recorder) -> SessionBinding:
        kept = SourceMetadata(provider="codex", provider_session_id=self.kept, cwd="/project")
        return await self.adapter.resume(ResumeSession(ref=KEPT, metadata=kept), sink)

    async def open(self, sink: Recorder) -> SideBinding:
        return await self.adapter.open_side(OpenSide(side=SIDE, source=MAIN), sink)

    async def work(self) -> None:
        await self.start(MAIN, Recorder())
        self.turn = await self.adapter.exec(MAIN, question("refactor"))
        await self.made.server.wait_gate_reached("parent")
        await trio.testing.wait_all_tasks_blocked()

    async def keep_one(self) -> None:
        """Leave a session behind that can be resumed."""
        self.kept = (await self.start(KEPT, Recorder())).provider_session_id
        await self.adapter.exec(KEPT, question("what?"))
        await trio.sleep(SETTLED_S)
        await self.adapter.close(KEPT)

    def assert_only_main(self) -> None:
        """One route and one lease, nothing on its way, nothing pooled, one thread subscribed, its turn as it was."""
        seen = self.adapter.statistics()["live"]
        assert (seen.router.routes, seen.router.creations, seen.router.pooled) == (1, 0, 0)
        assert (seen.leases, seen.releasing, seen.unreleased) == (1, 0, 0)
        assert (seen.peer.in_flight, seen.peer.waiting, seen.peer.open_requests, seen.peer.hook_failures) == (
            0,
            0,
            0,
            0,
        )
        live = self.adapter._live[MAIN].thread
        assert live.turns.active == self.turn
        assert self.made.subscribed == {live.thread_id}
        assert set(self.adapter._live) == {MAIN}
        assert self.adapter._openings == {}
        running = [thread.id for thread in self.made.machine.threads.values() if thread.turn is not None]
        assert running == [live.thread_id]


async def settle() -> None:
    await trio.sleep(SETTLED_S)


Operation = Callable[[Stage, Cut], Awaitable[None]]


async def cut_a_creation(
    stage: Stage,
    cut: Cut,
    ref: CanonicalRef | SideRef,
    make: Callable[[Recorder], Awaitable[Any]],
    quiet: Callable[[], Awaitable[None]] = settle,
) -> None:
    """It is live when its caller was told so; otherwise nothing is left, its sink stays quiet, and it works again."""
    sink, binding = Recorder(), None
    with cut.cancelling() as scope:
        binding = await make(sink)
    assert scope.cancelled_caught is (binding is None)
    assert stage.adapter.liveness(ref) == ("unknown" if binding is None else "live")
    said = list(sink.events)
    await quiet()
    if binding is None:
        assert (sink.events, sink.ended) == (said, None), "an abandoned creation speaks"
        stage.adapter._openings.pop(SIDE, None)  # a controller would have waited for its release
        stage.assert_only_main()
        await make(Recorder())
    await stage.adapter.close(ref)


async def start(stage: Stage, cut: Cut) -> None:
    await cut_a_creation(stage, cut, NEW, lambda sink: stage.start(NEW, sink))


async def resume(stage: Stage, cut: Cut) -> None:
    await stage.keep_one()
    await cut_a_creation(stage, cut, KEPT, stage.resume)


async def open_a_side(stage: Stage, cut: Cut) -> None:
    await cut_a_creation(stage, cut, SIDE, stage.open)


async def open_a_side_and_wait_for_its_release(stage: Stage, cut: Cut) -> None:
    """The wait alone says when nothing is left."""

    async def released() -> None:
        if SIDE not in stage.adapter._live:
            await stage.adapter.wait_side_released(SIDE)
            stage.assert_only_main()

    await cut_a_creation(stage, cut, SIDE, stage.open, released)


async def exec_a_turn(stage: Stage, cut: Cut) -> None:
    """Not sent, or interrupted as soon as the provider names it."""
    sink = Recorder()
    await stage.start(NEW, sink)
    turn = None
    with cut.cancelling():
        turn = await stage.adapter.exec(NEW, question("hold on"))
    await settle()
    active = stage.adapter._live[NEW].thread.turns.active
    assert active == turn
    begun = [event for event in sink.events if type(event).__name__ == "TurnStarted"]
    ended = [event for event in sink.events if isinstance(event, TurnCanceled)]
    assert len(begun) - len(ended) == (turn is not None)
    if turn is not None:
        await stage.adapter.cancel(NEW, turn)
        await settle()
    await stage.adapter.exec(NEW, question("what?"))
    await settle()
    assert stage.adapter._live[NEW].thread.turns.active is None
    await stage.adapter.close(NEW)


async def cancel_a_turn(stage: Stage, cut: Cut) -> None:
    """May have been sent; then another one is no fault."""
    sink = Recorder()
    await stage.start(NEW, sink)
    turn = await stage.adapter.exec(NEW, question("hold on"))
    with cut.cancelling():
        await stage.adapter.cancel(NEW, turn)
    await settle()
    try:
        await stage.adapter.cancel(NEW, turn)
    except TurnNotActiveError:
        assert cut.after_steps > 1
    await settle()
    assert len([event for event in sink.events if isinstance(event, TurnCanceled)]) == 1
    await stage.adapter.close(NEW)


async def steer_a_turn(stage: Stage, cut: Cut) -> None:
    """May have been sent, once; the turn goes on either way."""
    with cut.cancelling():
        await stage.adapter.steer(MAIN, stage.turn, (TextContent("refactor"),))  # which is held again
    await settle()
    assert len(stage.made.machine.calls("turn/steer")) <= 1


async def end_commands(stage: Stage, cut: Cut) -> None:
    with cut.cancelling():
        await stage.adapter.end_commands(MAIN)


async def close_a_session(stage: Stage, cut: Cut) -> None:
    """What is left to do is handed to the provider's nursery: it is released wherever its caller was cut."""
    sink = Recorder()
    await stage.start(NEW, sink)
    await stage.adapter.exec(NEW, question("hold on"))
    with cut.cancelling():
        await stage.adapter.close(NEW)
    said = list(sink.events)
    assert stage.adapter.liveness(NEW) == "unknown"
    await settle()
    assert sink.events == said, "it emits nothing after its close"


async def close_while_a_turn_starts(stage: Stage, cut: Cut) -> None:
    """The turn has no name yet when its session's close is cut; it is stopped all the same."""
    await stage.start(NEW, Recorder())

    async def begin_a_turn() -> None:
        with suppress(ProviderLostError):  # the close may give it up
            await stage.adapter.exec(NEW, question("hold on"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin_a_turn)
        await trio.testing.wait_all_tasks_blocked()
        assert stage.adapter._live[NEW].thread.turns.starting
        with cut.cancelling():
            await stage.adapter.close(NEW)


async def close_a_side(stage: Stage, cut: Cut) -> None:
    sink = Recorder()
    await stage.open(sink)
    await stage.adapter.exec(SIDE, question("hold on"))
    with cut.cancelling():
        await stage.adapter.close(SIDE)
    said = list(sink.events)
    assert stage.adapter.liveness(SIDE) == "unknown"
    await settle()
    assert sink.events == said, "it emits nothing after its close"


async def attest(stage: Stage, cut: Cut) -> None:
    with cut.cancelling():
        assert await stage.adapter.side_capabilities(MAIN)


async def wait_for_what_a_failed_open_left(stage: Stage, cut: Cut) -> None:
    """Harmless; the release goes on."""
    with trio.move_on_after(0.2) as gave_up:
        await stage.open(Recorder())
    assert gave_up.cancelled_caught
    with cut.cancelling():
        await stage.adapter.wait_side_released(SIDE)
    await stage.adapter.wait_side_released(SIDE)
    await settle()


OPERATIONS: dict[str, Operation] = {
    "start": start,
    "resume": resume,
    "exec": exec_a_turn,
    "cancel": cancel_a_turn,
    "steer": steer_a_turn,
    "end commands": end_commands,
    "close a session": close_a_session,
    "close a session while a turn starts": close_while_a_turn_starts,
    "close a Side": close_a_side,
    "attest": attest,
    "open a Side": open_a_side,
    "open a Side and wait for its release": open_a_side_and_wait_for_its_release,
    "wait for what a failed open left": wait_for_what_a_failed_open_left,
}


@asynccontextmanager
async def staged(made: Bench) -> AsyncIterator[Stage]:
    async with made.open() as adapter:
        stage = Stage(made, adapter)
        await stage.work()
        yield stage
    assert made.running == 0


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_call_of_the_adapter_cut_after_any_step_leaves_what_the_contract_says(
    autojump_clock: trio.testing.MockClock, bench: Any, operation: str
) -> None:
    """R14, R6, R7: rolled back, handed on or harmless; the source's turn goes on, and the server holds nothing else."""

    async def once(cut: Cut) -> None:
        async with staged(bench(faults=LATE, tool_servers=("docs",))) as stage:
            await OPERATIONS[operation](stage, cut)
            await settle()
            stage.assert_only_main()
            assert len(stage.made.servers) == 1
            await stage.open(Recorder())
            await stage.adapter.close(SIDE)
            await settle()
            stage.assert_only_main()

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS[operation])


async def test_an_adapter_cut_at_any_step_of_its_life_leaves_no_process_and_no_task(
    autojump_clock: trio.testing.MockClock, bench: Any
) -> None:
    """R13, R14, F32."""

    async def once(cut: Cut) -> None:
        made = bench(faults=LATE, tool_servers=("docs",))
        sinks = [Recorder(), Recorder()]
        with cut.cancelling():
            async with made.open() as adapter:
                stage = Stage(made, adapter)
                await stage.work()
                await stage.open(sinks[0])
                await adapter.exec(SIDE, question("hold on"))
        assert made.running == 0

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["the life of an adapter"])
