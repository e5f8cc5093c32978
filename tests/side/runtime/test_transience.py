"""A Side is transient: nothing durable is touched by any of its operations, and its words go nowhere else."""

import types
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import AgentHost, SideUnsupportedError, TuttiSideError, open_host
from tutti_side.contract import (
    CanonicalRef,
    EventBatch,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    MessageDelta,
    MessageUpdated,
    SideRef,
    SourceMetadata,
    TurnCompleted,
    TurnId,
)
from tutti_side.runtime import MemoryMetadata

Provider = Any  # tests/side/conftest.py: HeldProvider


class Durable(MemoryMetadata):
    """Both durable ports in one; notes every call that reaches either."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def report(self, ref: CanonicalRef, batch: EventBatch) -> None:
        self.calls.append("report")

    def submitted(self, ref: CanonicalRef, turn_id: TurnId, client_submit_id: str | None) -> None:
        self.calls.append("bind a turn")

    async def read(self, ref: CanonicalRef) -> SourceMetadata | None:
        self.calls.append("read metadata")
        return await super().read(ref)

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        self.calls.append("write metadata")
        await super().write(ref, metadata)


async def live_a_whole_life(host: AgentHost, adapter: Any) -> None:
    """Use every operation on a Side: resolve, open, send, respond, an answer, cancel, close."""
    assert await host.resolve_side("main")
    side = await host.open_side("main", "s", "r", subscribe=True)
    events, ref = side.events(), side.scope.ref
    first = await host.send_side("main", "s", "r", "q", client_submit_id="c")
    adapter.ask(ref, InteractionRequested(InteractionId("i"), first.id, "plan", "?"))
    await host.respond_side("main", "s", "r", "i", InteractionAnswer())
    sink = adapter.sinks[ref]
    sink.emit([MessageDelta(first.id, "m", "a"), MessageUpdated(first.id, "m", "a"), TurnCompleted(first.id)], 10)
    assert (await first.wait()).status == "completed"
    second = await host.send_side("main", "s", "r", "q")
    await host.cancel_side("main", "s", "r", second.id)
    await host.close_side("main", "s", "r")
    assert len([batch async for batch in events]) > 5


@pytest.mark.parametrize("source", ["live", "historical"])
async def test_no_operation_on_a_side_writes_or_binds_anything_durable(provider: Provider, source: str) -> None:
    """SC-side-storage, SC-binding, SC-host-sagas, R2: of a source that is not live, what was kept is read; no more."""
    adapter = provider.adapter
    adapter.offers_history = True
    durable = Durable()
    async with open_host(provider, reporter=durable, metadata=durable) as host:
        session = await host.start_session(cwd=".", session_id="main")
        await (await session.send("q", client_submit_id="of the session")).cancel()
        assert "bind a turn" in durable.calls
        assert "write metadata" in durable.calls
        if source == "historical":
            await session.close()
        durable.calls.clear()
        await live_a_whole_life(host, adapter)
        assert set(durable.calls) == (set() if source == "live" else {"read metadata"})
        assert host.statistics().refused_durable_writes == 0


def bring_into(name: str) -> Callable[[AgentHost, Any, trio.Nursery], Awaitable[None]]:
    """Return what brings an open Side into a state in which it takes no turn."""

    async def busy(host: AgentHost, adapter: Any, nursery: trio.Nursery) -> None:
        await host.send_side("main", "s", "r", "first")

    async def closing(host: AgentHost, adapter: Any, nursery: trio.Nursery) -> None:
        adapter.closing.hold()
        nursery.start_soon(host.close_side, "main", "s", "r")
        await adapter.closing.reached.wait()

    async def closed(host: AgentHost, adapter: Any, nursery: trio.Nursery) -> None:
        await host.close_side("main", "s", "r")

    async def lost(host: AgentHost, adapter: Any, nursery: trio.Nursery) -> None:
        adapter.sinks[SideRef(host.identity.workspace, "s")].end("lost")  # type: ignore[arg-type]
        await trio.testing.wait_all_tasks_blocked()

    return {"busy": busy, "closing": closing, "closed": closed, "lost": lost}[name]


@pytest.mark.parametrize("state", ["busy", "closing", "closed", "lost"])
async def test_a_question_that_a_side_cannot_take_now_is_refused_and_asked_nowhere_else(
    provider: Provider, state: str
) -> None:
    """F24: it is not queued, so nothing of it is sent later, and the main conversation never sees it."""
    adapter = provider.adapter
    with trio.fail_after(5):
        async with open_host(provider) as host, trio.open_nursery() as nursery:
            session = await host.start_session(cwd=".", session_id="main")
            side = await host.open_side("main", "s", "r")
            await bring_into(state)(host, adapter, nursery)
            asked = list(adapter.turns_asked)
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: side.ask("a follow-up"),
                lambda: side.send("a follow-up"),
                lambda: host.send_side("main", "s", "r", "a follow-up"),
            ]
            for call in calls:
                with pytest.raises(TuttiSideError):
                    await call()
            adapter.closing.release()
            if side.active_turn is not None:
                adapter.sinks[side.scope.ref].emit([TurnCompleted(side.active_turn.id)], 1)
            await trio.testing.wait_all_tasks_blocked()
            assert adapter.turns_asked == asked
            assert session.active_turn is None


@pytest.mark.parametrize("how", ["closed", "lost", "overflow"])
async def test_a_question_whose_side_ends_while_it_is_asked_stays_with_its_side(provider: Provider, how: Any) -> None:
    """F24: the caller is told; it is not asked again, of nobody."""
    adapter = provider.adapter
    with trio.fail_after(5):
        async with open_host(provider) as host, trio.open_nursery() as nursery:
            session = await host.start_session(cwd=".", session_id="main")
            side = await host.open_side("main", "s", "r")
            adapter.starting_turn.hold()
            caught: list[TuttiSideError] = []

            async def ask() -> None:
                try:
                    await side.ask("a follow-up")
                except TuttiSideError as error:
                    caught.append(error)

            nursery.start_soon(ask)
            await adapter.starting_turn.reached.wait()
            if how == "closed":
                await side.close()
            else:
                adapter.sinks[side.scope.ref].end(how)
            adapter.starting_turn.release()
            await trio.testing.wait_all_tasks_blocked()
            assert [getattr(error, "reason", None) for error in caught] == [how]
            assert [ref for ref, _ in adapter.turns_asked] == [side.scope.ref]
            assert session.active_turn is None


async def test_a_provider_offers_sides_by_implementing_one_more_protocol_and_else_none(provider: Provider) -> None:
    """SC-contract-adapter: an adapter of sessions alone is served as before, and refused by name for a Side."""
    held = provider.adapter
    ordinary = ("name", "start", "resume", "liveness", "exec", "cancel", "close", "log", "sinks")
    plain = types.SimpleNamespace(**{name: getattr(held, name) for name in ordinary})
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        assert await host.resolve_side("main")
        async with session.side() as side:
            assert side.is_open
    provider.adapter = plain
    held.log.clear()
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        assert (await host.resolve_side("main")).reason == "provider held offers no Sides"
        with pytest.raises(SideUnsupportedError) as caught:
            await session.open_side()
        assert caught.value.reason == "provider held offers no Sides"
        assert held.log == []
        assert (await session.send("q")).is_active
