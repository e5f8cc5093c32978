"""A cancel wherever it lands: each operation is cut after the k-th step of any task, for every k.

`CUTS` names, for each operation, what its cuts must have fallen into; `tests/side/test_cuts_complete.py` reads it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import AgentHost, SessionHandle, SideExpiredError, SideHandle, TuttiSideError, open_host
from tutti_side.contract import (
    NO_METRICS,
    CanonicalRef,
    Event,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    MessageDelta,
    ProviderPorts,
    RequestId,
    SessionId,
    SideId,
    SideRef,
    SourceMetadata,
    TurnCompleted,
    WorkspaceId,
)
from tutti_side.runtime import MemoryMetadata, Subscription, TurnHandle, open_controller, open_sweeper
from tutti_side.testing.cuts import Cut, cut_at_every_step

WORKSPACE = WorkspaceId("w")

SCHEDULES = 4
"""Each operation is walked through so many schedules; they are cheap here."""

Provider = Any  # tests/side/conftest.py: HeldProvider

CUTS = {
    "start a session": ("AgentHost.start_session", "RuntimeController.start_session"),
    "resume a session": ("AgentHost.resume_session", "RuntimeController.resume_session"),
    "close a session": ("SessionHandle.close", "RuntimeController.close_session"),
    "delete a session": ("AgentHost.delete_session", "RuntimeController.delete_session"),
    "delete a session whose Side is opening": ("AgentHost.delete_session", "RuntimeController.delete_session"),
    "set the host context": ("SessionHandle.set_host_context", "RuntimeController.set_host_context"),
    "wait for a session's end": ("SessionHandle.wait_ended",),
    "resolve": ("AgentHost.resolve_side", "RuntimeController.side_capabilities", "RuntimeController.find_source"),
    "ask what a session offers": ("SessionHandle.side_capabilities",),
    "open": ("AgentHost.open_side", "RuntimeController.open_side"),
    "open by a handle": ("SessionHandle.open_side",),
    "open from history": ("AgentHost.open_side",),
    "read what is kept": ("RuntimeController.find_source", "RuntimeController.read_history"),
    "open what the provider holds back": ("AgentHost.open_side",),
    "join an open that another waits for": ("AgentHost.open_side",),
    "hold a Side for a block": ("SessionHandle.side", "SideHandle.send"),
    "send to a Side": ("AgentHost.send_side", "SideHandle.send"),
    "send to a session": ("SessionHandle.send",),
    "ask a Side": ("SideHandle.ask", "TurnHandle.wait"),
    "ask a session": ("SessionHandle.ask",),
    "wait for a turn": ("TurnHandle.wait",),
    "cancel a turn": ("AgentHost.cancel_side", "TurnHandle.cancel"),
    "steer a turn": ("TurnHandle.steer",),
    "end a Side's commands": ("SideHandle.end_commands",),
    "end a session's commands": ("SessionHandle.end_commands",),
    "respond": ("AgentHost.respond_side",),
    "close a Side": ("AgentHost.close_side", "RuntimeController.close_side"),
    "close a Side by its handle": ("SideHandle.close",),
    "read events": ("Subscription.__anext__",),
    "the life of a host": ("open_host", "open_controller", "open_sweeper", "RuntimeController.stop", "Sweeper.run"),
    "the life of a controller": ("open_controller", "open_service_nursery", "RuntimeController.stop"),
    "the life of a sweeper": ("open_sweeper", "Sweeper.run"),
    "stop a controller": ("RuntimeController.stop",),
}


class Stage:
    """A host with a live session `main`, a kept one `kept`, an open Side `open`, and nobody else."""

    def __init__(self, host: AgentHost, adapter: Any, main: SessionHandle, side: SideHandle) -> None:
        self.host = host
        self.adapter = adapter
        self.main = main
        self.side = side

    @property
    def here(self) -> set[str]:
        """The Sides that are registered."""
        return {ref.side for ref in self.host.controller.registry.sides}

    @property
    def sessions(self) -> set[str]:
        return {ref.session for ref in self.host.controller.registry.sessions}

    def say(self, handle: SideHandle | SessionHandle, *events: Event) -> None:
        self.adapter.sinks[handle.scope.ref].emit(events, 1)

    def finish(self, handle: SideHandle | SessionHandle) -> None:
        """Complete the turn that runs."""
        self.say(handle, TurnCompleted(self.adapter.active.pop(handle.scope.ref)))


def the_side(stage: Stage) -> SideHandle:
    return stage.side


def the_session(stage: Stage) -> SessionHandle:
    return stage.main


Operation = Callable[[Stage, Cut], Awaitable[None]]


def plain(call: Callable[[Stage], Awaitable[Any]], check: Callable[[Stage, Any], None]) -> Operation:
    """Cut one call; `check` gets what it returned, or None when it was cut."""

    async def run(stage: Stage, cut: Cut) -> None:
        result = None
        with cut.cancelling() as scope:
            result = await call(stage)
        await trio.testing.wait_all_tasks_blocked()
        assert scope.cancelled_caught is (result is None), "neither a result nor a cancel, or both"
        check(stage, result)

    return run


def unchanged(stage: Stage, result: Any) -> None:
    assert stage.here == {"open"}
    assert stage.sessions == {"main"}


def session_or_nothing(stage: Stage, result: Any) -> None:
    """It lives exactly when its caller was told so."""
    assert stage.sessions == ({"main"} if result is None else {"main", result.ref.session})


async def start_a_session(stage: Stage, cut: Cut) -> None:
    """A session that was rolled back was never there: nothing of it is kept, and the id may be used again."""
    started = None
    with cut.cancelling():
        started = await stage.host.start_session(cwd=".", session_id="new")
    session_or_nothing(stage, started)
    kept = await stage.host.controller.durable.read_metadata(CanonicalRef(stage.main.ref.workspace, SessionId("new")))
    assert (kept is None) is (started is None)
    if started is None:
        await stage.host.start_session(cwd=".", session_id="new")


def side_or_nothing(stage: Stage, result: Any) -> None:
    """Before the commit it is rolled back, after it the handle is returned."""
    assert stage.here == ({"open"} if result is None else {"open", result.id})
    if result is not None:
        assert result.is_open
        result.events().close()


def closed(stage: Stage, result: Any) -> None:
    """The close goes on in the Side's own task, wherever its caller was cut."""
    assert stage.here == set()


async def done(call: Awaitable[Any]) -> str:
    await call
    return "done"


async def close_a_session(stage: Stage, cut: Cut) -> None:
    with cut.cancelling():
        await stage.main.close()
    await trio.testing.wait_all_tasks_blocked()
    assert stage.main.scope.state in ("open", "closed")
    assert stage.adapter.log.count("close main") == (stage.main.scope.state == "closed")
    assert stage.here == {"open"}, "its Sides live on"
    await stage.main.close()
    assert await stage.main.wait_ended() == "closed"


async def delete_a_session(stage: Stage, cut: Cut) -> None:
    with cut.cancelling():
        await stage.host.delete_session("main")
    await trio.testing.wait_all_tasks_blocked()
    assert stage.here == set(), "its Sides are closed, wherever the caller was cut"
    await stage.host.delete_session("main")
    assert await stage.main.wait_ended() == "source_deleted"
    with pytest.raises(TuttiSideError):
        await stage.host.start_session(cwd=".", session_id="main")


async def delete_a_session_whose_side_is_opening(stage: Stage, cut: Cut) -> None:
    stage.adapter.opening.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(typed, lambda: stage.host.open_side("main", "s", "r"))
        await stage.adapter.opening.reached.wait()
        with cut.cancelling():
            await stage.host.delete_session("main")
        stage.adapter.opening.release()
    await stage.host.delete_session("main")
    assert stage.here == set()


async def typed(call: Callable[[], Awaitable[Any]]) -> None:
    """Make a call that may be refused, but only with an error of ours."""
    try:
        await call()
    except TuttiSideError:
        return


async def set_the_host_context(stage: Stage, cut: Cut) -> None:
    with cut.cancelling():
        await stage.main.set_host_context("new")
    kept = await stage.host.controller.durable.read_metadata(stage.main.ref)
    assert kept is not None
    assert kept.host_context == stage.main.scope.host_context, "what is kept and what is used are the same"
    assert kept.host_context in (None, "new")


async def wait_for_a_sessions_end(stage: Stage, cut: Cut) -> None:
    async with trio.open_nursery() as nursery:
        with cut.cancelling():
            nursery.start_soon(stage.main.close)
            assert await stage.main.wait_ended() == "closed"
    assert await stage.main.wait_ended() == "closed"


async def open_what_is_held_back(stage: Stage, cut: Cut) -> None:
    """Nobody lets the provider go on after a cut, so it is the opener's leaving that has to end the open."""
    stage.adapter.opening.hold()
    opened = None

    async def let_go() -> None:
        await stage.adapter.opening.reached.wait()
        await trio.testing.wait_all_tasks_blocked()
        stage.adapter.opening.release()

    with cut.cancelling():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go)
            opened = await stage.host.open_side("main", "s", "r")
    side_or_nothing(stage, opened)
    stage.adapter.opening.release()


async def join_an_open(stage: Stage, cut: Cut) -> None:
    """One opener's cancel is not another's."""
    opened: list[SideHandle] = []

    async def other() -> None:
        opened.append(await stage.host.open_side("main", "s", "r"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        with cut.cancelling():
            joined = await stage.host.open_side("main", "s", "r", subscribe=True)
            joined.events().close()
    assert [side.is_open for side in opened] == [True]


async def hold_a_side_for_a_block(stage: Stage, cut: Cut) -> None:
    with cut.cancelling():
        async with stage.main.side(side_id="block") as side:
            await side.send("q")
    assert stage.here == {"open"}, "closed, however the block ended"


def running_or_not_sent(who: Callable[[Stage], SideHandle | SessionHandle]) -> Callable[[Stage, Any], None]:
    def check(stage: Stage, result: TurnHandle | None) -> None:
        turn = who(stage).active_turn
        assert (None if turn is None else turn.id) == (None if result is None else result.id)

    return check


def ask(who: Callable[[Stage], SideHandle | SessionHandle]) -> Operation:
    """Ask; the answer comes as soon as the turn runs. A cut ends the turn: the next may be asked at once."""

    async def answer(handle: SideHandle | SessionHandle, stage: Stage) -> None:
        await trio.testing.wait_all_tasks_blocked()
        if handle.active_turn is not None:
            stage.finish(handle)

    async def run(stage: Stage, cut: Cut) -> None:
        handle = who(stage)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, handle, stage)
            with cut.cancelling():
                await handle.ask("q")
            nursery.cancel_scope.cancel()
        assert handle.active_turn is None

    return run


async def wait_for_a_turn(stage: Stage, cut: Cut) -> None:
    turn = await stage.side.send("q")
    with cut.cancelling():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.wait)
            await trio.testing.wait_all_tasks_blocked()
            stage.finish(stage.side)
    if stage.side.scope.ref in stage.adapter.active:
        assert turn.is_active, "a cancelled wait ends no turn"
        stage.finish(stage.side)
    assert (await turn.wait()).status == "completed"


async def cancel_a_turn(stage: Stage, cut: Cut) -> None:
    turn = await stage.side.send("q")
    with cut.cancelling():
        await stage.host.cancel_side("main", "open", "r", turn.id)
    await turn.cancel()
    assert (await turn.wait()).status == "canceled"


async def steer_a_turn(stage: Stage, cut: Cut) -> None:
    """May have been sent, once; the turn goes on."""
    turn = await stage.side.send("q")
    with cut.cancelling():
        await turn.steer("more")
    assert stage.adapter.log.count(f"steer {turn.id}") <= 1
    assert turn.is_active
    await turn.steer("and more")


async def respond(stage: Stage, cut: Cut) -> None:
    """Before the answer, or not at all: it is still open exactly when nothing was sent."""
    turn = await stage.side.send("q")
    request = InteractionRequested(interaction_id=InteractionId("i"), turn_id=turn.id, kind="approval", title="?")
    stage.adapter.ask(stage.side.scope.ref, request)
    with cut.cancelling():
        await stage.host.respond_side("main", "open", "r", "i", InteractionAnswer())
    assert len(stage.side.interactions) + len(stage.adapter.answers) == 1
    if stage.side.interactions:
        stage.side.respond(InteractionId("i"), InteractionAnswer())
    assert len(stage.adapter.answers) == 1


async def read_events(stage: Stage, cut: Cut) -> None:
    """No batch is lost, none comes twice."""
    subscription: Subscription = stage.side.events()
    turn = await stage.side.send("q")
    first = stage.side.scope.events.last_sequence
    seen: list[int] = []

    async def speak() -> None:
        for _ in range(4):
            stage.say(stage.side, MessageDelta(turn.id, "m", "x"))
            await trio.lowlevel.checkpoint()

    async def listen(until: int) -> None:
        async for batch in subscription:
            seen.extend(number for number, _ in batch.numbered())
            if seen[-1] >= until:
                return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak)
        with cut.cancelling():
            await listen(first + 4)
    if not seen or seen[-1] < first + 4:
        await listen(first + 4)
    assert seen == list(range(seen[0], first + 5))
    assert seen[0] <= first
    subscription.close()


OPERATIONS: dict[str, Operation] = {
    "start a session": start_a_session,
    "resume a session": plain(lambda stage: stage.host.resume_session("kept"), session_or_nothing),
    "close a session": close_a_session,
    "delete a session": delete_a_session,
    "delete a session whose Side is opening": delete_a_session_whose_side_is_opening,
    "set the host context": set_the_host_context,
    "wait for a session's end": wait_for_a_sessions_end,
    "resolve": plain(lambda stage: stage.host.resolve_side("main"), unchanged),
    "ask what a session offers": plain(lambda stage: stage.main.side_capabilities(), unchanged),
    "open": plain(lambda stage: stage.host.open_side("main", "s", "r", subscribe=True), side_or_nothing),
    "open by a handle": plain(lambda stage: stage.main.open_side(side_id="s", request_id="r"), side_or_nothing),
    "read what is kept": plain(lambda stage: stage.host.resolve_side("kept"), unchanged),
    "open from history": plain(lambda stage: stage.host.open_side("kept", "s", "r"), side_or_nothing),
    "open what the provider holds back": open_what_is_held_back,
    "join an open that another waits for": join_an_open,
    "hold a Side for a block": hold_a_side_for_a_block,
    "send to a Side": plain(
        lambda stage: stage.host.send_side("main", "open", "r", "q"), running_or_not_sent(the_side)
    ),
    "send to a session": plain(lambda stage: stage.main.send("q"), running_or_not_sent(the_session)),
    "ask a Side": ask(the_side),
    "ask a session": ask(the_session),
    "wait for a turn": wait_for_a_turn,
    "cancel a turn": cancel_a_turn,
    "steer a turn": steer_a_turn,
    "end a Side's commands": plain(lambda stage: done(stage.side.end_commands()), unchanged),
    "end a session's commands": plain(lambda stage: done(stage.main.end_commands()), unchanged),
    "respond": respond,
    "close a Side": plain(lambda stage: done(stage.host.close_side("main", "open", "r")), closed),
    "close a Side by its handle": plain(lambda stage: done(stage.side.close()), closed),
    "read events": read_events,
}


class SlowMetadata(MemoryMetadata):
    """Metadata with a checkpoint before and after each effect: a cut can come when it has happened already."""

    async def read(self, ref: CanonicalRef) -> SourceMetadata | None:
        await trio.lowlevel.checkpoint()
        return await super().read(ref)

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        await trio.lowlevel.checkpoint()
        await super().write(ref, metadata)
        await trio.lowlevel.checkpoint()

    async def forget(self, ref: CanonicalRef) -> None:
        await trio.lowlevel.checkpoint()
        await super().forget(ref)
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def staged(provider: Provider) -> AsyncIterator[Stage]:
    """Open the host, and set the stage."""
    adapter = provider.adapter
    adapter.offers_history = True
    async with open_host(provider, metadata=SlowMetadata()) as host:
        main = await host.start_session(cwd=".", session_id="main")
        await (await host.start_session(cwd=".", session_id="kept")).close()
        yield Stage(host, adapter, main, await host.open_side("main", "open", "r"))


def alive_at_the_provider(log: list[str]) -> set[str]:
    """Return the Sides that the provider has forked and not released."""
    alive: set[str] = set()
    for line in log:
        verb, _, name = line.partition(" ")
        if verb == "fork":
            alive.add(name)
        elif verb in ("close", "release"):
            alive.discard(name)
    return alive


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_cancel_after_any_step_of_any_task_leaves_everything_consistent(
    make_provider: Callable[[], Provider], operation: str
) -> None:
    """R14, R6, R13: what the provider holds is what is open here, nothing is locked, and the host still works."""

    async def once(cut: Cut) -> None:
        async with staged(make_provider()) as stage:
            await OPERATIONS[operation](stage, cut)
            await trio.testing.wait_all_tasks_blocked()
            host, adapter = stage.host, stage.adapter
            seen = host.statistics()
            assert set(seen.sides) <= {"open"}
            assert alive_at_the_provider(adapter.log) == stage.here
            assert (seen.locks_in_use, seen.locks_waiting, seen.buffered_events, seen.subscribers) == (0, 0, 0, 0)
            assert {session.state for session in host.controller.registry.sessions.values()} <= {"open"}
            registry = host.controller.registry
            scopes: list[Any] = [*registry.sides.values(), *registry.sessions.values()]
            for scope in scopes:
                turns = scope.events.turns
                assert not turns._starting
                assert adapter.active.get(scope.ref) == (None if turns.active is None else turns.active.turn_id)
            again = await host.start_session(cwd=".", session_id="afterwards")
            assert (await again.open_side()).is_open
            if operation not in ("delete a session", "delete a session whose Side is opening"):
                await host.open_side("kept" if operation == "open from history" else "main", "s", "r")
        assert host.statistics().sides == {}

    inside: set[str] = set()
    for _ in range(SCHEDULES):
        inside |= (await cut_at_every_step(once, run_s=60)).inside
    assert inside >= set(CUTS[operation])


NO_PORTS = ProviderPorts()


class SlowProvider:
    """The held provider, with a checkpoint on its way in and one on its way out."""

    name = "held"

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.is_open = False

    @asynccontextmanager
    async def open(self, ports: ProviderPorts = NO_PORTS) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        self.is_open = True
        try:
            async with self._provider.open(ports) as adapter:
                yield adapter
        finally:
            self.is_open = False
        await trio.lowlevel.checkpoint()

    async def diagnose(self) -> Any:
        raise NotImplementedError


async def live_a_whole_life(host: AgentHost) -> None:
    session = await host.start_session(cwd=".", session_id="main")
    await session.open_side(side_id="idle")
    async with session.side(side_id="asked", subscribe=True) as side:
        await side.send("q")


async def test_a_host_cut_at_any_step_of_its_life_leaves_nothing(make_provider: Callable[[], Provider]) -> None:
    """R13, R14: also while it opens and while it closes."""

    async def once(cut: Cut) -> None:
        provider = make_provider()
        slow = SlowProvider(provider)
        host: AgentHost | None = None
        with cut.cancelling():
            async with open_host(slow) as host:
                # A Side that the cut closed first says so to the block; that error, too, leaves as itself.
                with suppress(SideExpiredError):
                    await live_a_whole_life(host)
        assert not slow.is_open
        assert alive_at_the_provider(provider.adapter.log) == set()
        if host is not None:
            assert (host.statistics().sides, host.statistics().sessions) == ({}, 0)
            assert host.statistics().locks_in_use == 0

    report = await cut_at_every_step(once, run_s=60)

    assert report.cuts > 20
    assert report.inside >= set(CUTS["the life of a host"])


async def test_a_controller_cut_at_any_step_of_its_life_leaves_its_adapters_empty(
    make_provider: Callable[[], Provider],
) -> None:
    """R13, R14: a controller of its own, without a host."""
    source, side = CanonicalRef(WORKSPACE, SessionId("main")), SideRef(WORKSPACE, SideId("s"))

    async def once(cut: Cut) -> None:
        adapter = make_provider().adapter
        controller = None
        with cut.cancelling():
            async with open_controller({"held": adapter}) as controller:
                await controller.start_session(source, "held", "/")
                await controller.open_side(side, source, RequestId("r"))
        assert alive_at_the_provider(adapter.log) == set()
        assert controller is None or controller.registry.sides == {}
        assert controller is None or controller.registry.sessions == {}

    report = await cut_at_every_step(once, run_s=60)

    assert report.inside >= set(CUTS["the life of a controller"])


async def test_a_stop_that_is_cut_at_any_step_has_closed_everything(make_provider: Callable[[], Provider]) -> None:
    """R14: it is shielded, with a deadline; the second stop finds nothing to do."""

    async def once(cut: Cut) -> None:
        async with staged(make_provider()) as stage:
            with cut.cancelling():
                await stage.host.controller.stop()
            await stage.host.controller.stop()
            assert (stage.here, stage.sessions) == (set(), set())
            assert alive_at_the_provider(stage.adapter.log) == set()

    report = await cut_at_every_step(once, run_s=60)

    assert report.inside >= set(CUTS["stop a controller"])


async def test_a_host_that_is_cancelled_at_any_step_of_its_stop_is_left_empty(
    make_provider: Callable[[], Provider],
) -> None:
    """R13, R14: controller shutdown with an open in flight and a Side in a turn."""

    async def once(cut: Cut) -> None:
        provider = make_provider()
        adapter = provider.adapter
        async with staged(provider) as stage:
            await stage.side.send("q")
            adapter.opening.hold()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(typed, lambda: stage.host.open_side("main", "s", "r"))
                await adapter.opening.reached.wait()
                with cut.cancelling():
                    nursery.cancel_scope.cancel()
                    await stage.host.controller.stop()
        assert (stage.here, stage.sessions) == (set(), set())
        assert alive_at_the_provider(adapter.log) == set()

    report = await cut_at_every_step(once, run_s=60)

    assert report.cuts > 5


class Stubborn:
    """Closes after some checkpoints; must be closed or forced, once. Implements `CleanupOwner`."""

    label = "stubborn"

    def __init__(self) -> None:
        self.ends: list[str] = []

    async def close(self) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        self.ends.append("closed")

    def force(self) -> None:
        self.ends.append("forced")


async def test_a_sweeper_cut_at_any_step_of_its_life_ends_what_it_took_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """R14: closed, or ended by force, and once."""

    async def once(cut: Cut) -> None:
        owner = Stubborn()
        sweeper = None
        with cut.cancelling():
            async with open_sweeper(NO_METRICS) as sweeper:
                sweeper.register(owner)
                await trio.sleep(2)
        if sweeper is not None:
            assert owner.ends in (["closed"], ["forced"])
            assert sweeper.rows() == ()

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["the life of a sweeper"])
