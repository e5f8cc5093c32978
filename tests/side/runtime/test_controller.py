"""Opening, joining and closing Sides, over an adapter whose every step the test holds."""

from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import (
    OpenFailedError,
    SessionExpiredError,
    SideConflictError,
    SideExpiredError,
    SideHandle,
    SideUnsupportedError,
    TurnCanceledError,
    TurnFailedError,
    open_host,
)
from tutti_side.contract import (
    InvalidContentError,
    InvalidIdError,
    MessageDelta,
    MessageUpdated,
    SessionStarted,
    SideCapabilities,
    TurnCompleted,
    TurnFailed,
    TurnId,
)
from tutti_side.runtime import HostStoppedError, SessionBusyError, SideBusyError, SideInProgressError
from tutti_side.runtime._sessions import SNAPSHOT_WAIT_S
from tutti_side.runtime._side_scope import RELEASE_BOUND_S
from tutti_side.runtime.controller import HOST_STOP_S

Provider = Any  # tests/side/conftest.py: HeldProvider


async def open_in(nursery: trio.Nursery, session: Any, results: list[Any], **arguments: Any) -> trio.CancelScope:
    """Open a Side in a task of its own; its handle or error goes to `results`."""
    scope = trio.CancelScope()

    async def opener(task_status: trio.TaskStatus[None]) -> None:
        with scope:
            task_status.started()
            try:
                results.append(await session.open_side(**arguments))
            except Exception as error:
                results.append(error)

    await nursery.start(opener)
    return scope


async def test_an_open_side_is_asked_and_answers(provider: Provider) -> None:
    """Specification: Exec of an open Side is the ordinary one."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        async with session.side() as side:
            turn = await side.send("q")
            sink = adapter.sinks[side.scope.ref]
            sink.emit([MessageDelta(turn.id, "i", "par")], 3)
            assert turn.answer.text == "par"
            sink.emit([MessageUpdated(turn.id, "i", "whole"), TurnCompleted(turn.id)], 9)
            result = await turn.wait()
            assert (result.status, result.answer.text) == ("completed", "whole")
    assert next(line for line in adapter.log if line.startswith("close")) == f"close {side.id}"


async def test_a_side_id_names_one_side_whatever_the_concurrency(provider: Provider) -> None:
    """R4, F17: a hundred opens of one identity are one fork and a hundred equal handles, each from sequence 1."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        adapter.opening.hold()
        results: list[Any] = []
        for _ in range(100):
            await open_in(nursery, session, results, side_id="s", request_id="r", subscribe=True)
        await trio.testing.wait_all_tasks_blocked()
        assert adapter.log == ["fork s"]
        adapter.opening.release()
        await trio.testing.wait_all_tasks_blocked()
        assert len(results) == 100
        for handle in results:
            batch = await anext(handle.events())
            assert (batch.first_sequence, batch.events) == (1, (SessionStarted("p-s"),))
        assert (await session.open_side(side_id="s", request_id="r")).id == "s"
        assert adapter.log == ["fork s"]


async def test_the_last_joiner_to_leave_cancels_the_open_and_no_other_does(provider: Provider) -> None:
    """Architecture §4.2."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        adapter.opening.hold()
        results: list[Any] = []
        scopes = [await open_in(nursery, session, results, side_id="s", request_id="r") for _ in range(5)]
        await trio.testing.wait_all_tasks_blocked()
        for scope in scopes[:-1]:
            scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert host.statistics().sides == {"opening": 1}
        scopes[-1].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert host.statistics().sides == {}
        assert results == []
        assert adapter.log == ["fork s", "release s"]
        adapter.opening.release()
        assert (await session.open_side(side_id="s", request_id="r")).is_open


async def test_a_cancel_in_the_instant_of_the_commit_returns_the_side_at_once(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """R14: whichever of the two tasks runs first, nobody waits for a rollback that isn't coming."""
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        outcomes = set()
        for _ in range(40):  # the order of the two is Trio's to choose
            provider.adapter.opening = type(provider.adapter.opening)()
            provider.adapter.opening.hold()
            results: list[Any] = []
            scope = await open_in(nursery, session, results)
            await provider.adapter.opening.reached.wait()
            began = trio.current_time()
            provider.adapter.opening.release()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert trio.current_time() - began == 0
            outcomes.add(len(results))
            for side in results:
                assert side.is_open
                await side.close()
            assert host.statistics().sides == {}
        assert 1 in outcomes


async def test_another_source_or_request_under_an_id_is_a_conflict(provider: Provider) -> None:
    """Architecture §4.2, before any wire traffic."""
    async with open_host(provider) as host:
        one, two = [await host.start_session(cwd=".", session_id=name) for name in ("one", "two")]
        async with one.side(side_id="s", request_id="r"):
            with pytest.raises(SideConflictError) as caught:
                await one.open_side(side_id="s", request_id="other")
            assert (caught.value.side_id, caught.value.source, caught.value.request_id) == ("s", "one", "other")
            with pytest.raises(SideConflictError):
                await two.open_side(side_id="s", request_id="r")
            with pytest.raises(SideConflictError):
                await one.open_side(side_id="two")
        assert [line for line in provider.adapter.log if line.startswith("fork")] == ["fork s"]


@pytest.mark.parametrize("field", ["side_id", "request_id"])
async def test_a_bad_id_is_refused_before_anything_else(provider: Provider, field: str) -> None:
    """Our choice."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(InvalidIdError):
            await session.open_side(**{field: "a\0"})  # type: ignore[arg-type]
        with pytest.raises(InvalidIdError):
            await host.start_session(cwd=".", session_id=" ")
        assert provider.adapter.log == []


@pytest.mark.parametrize(
    "missing", ["supported", "active_source_turn", "ephemeral", "hide_inherited_turns", "model_boundary_injected"]
)
@pytest.mark.parametrize("where", ["promised", "seen"])
async def test_each_missing_fact_fails_closed(provider: Provider, missing: str, where: str) -> None:
    """R15: attested before the open and in its result."""
    adapter = provider.adapter
    facts = {name: name != missing for name in ("supported", "active_source_turn", "ephemeral")}
    facts |= {name: name != missing for name in ("hide_inherited_turns", "model_boundary_injected")}
    setattr(adapter, where, SideCapabilities(**facts))  # type: ignore[arg-type]
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        if where == "promised":
            with pytest.raises(SideUnsupportedError, match=missing) as unsupported:
                await session.open_side(side_id="s")
            assert missing in unsupported.value.reason
            await trio.testing.wait_all_tasks_blocked()
            assert adapter.log == ["release s"]
        else:
            with pytest.raises(OpenFailedError, match=missing) as failed:
                await session.open_side(side_id="s")
            assert failed.value.phase == "result"
            await trio.testing.wait_all_tasks_blocked()
            assert adapter.log == ["fork s", "close s"]
        assert host.statistics().sides == {}


@pytest.mark.parametrize("lie", ["the parent itself", "another session", "another Side", "another source"])
async def test_a_foreign_identity_is_never_passed_to_close(provider: Provider, lie: str) -> None:
    """F20, R7: it could be the parent."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        await host.start_session(cwd=".", session_id="other")
        await session.open_side(side_id="first")
        if lie == "another source":
            adapter.forked_from = "p-else"
        else:
            lies = {"the parent itself": "p-main", "another session": "p-other", "another Side": "p-first"}
            adapter.child_id = lies[lie]
        with pytest.raises(OpenFailedError) as caught:
            await session.open_side(side_id="s")
        assert caught.value.phase == "result"
        assert not [line for line in adapter.log if line.startswith("close")]


async def test_a_failed_open_can_be_tried_again_and_says_where_it_failed(provider: Provider) -> None:
    """Architecture §4: nothing was committed; an error of the adapter that is not ours shows its type only."""
    adapter = provider.adapter
    adapter.open_error = ValueError("secret words")
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OpenFailedError, match="ValueError") as caught:
            await session.open_side(side_id="s", request_id="r")
        assert "secret" not in str(caught.value)
        await trio.testing.wait_all_tasks_blocked()
        adapter.open_error = None
        assert (await session.open_side(side_id="s", request_id="r")).is_open


async def test_a_failed_open_drains_until_the_provider_has_released_it(provider: Provider) -> None:
    """Architecture §4: the id stays draining; then it is free; nothing reaches the sink meanwhile."""
    adapter = provider.adapter
    adapter.open_error = ValueError()
    adapter.releasing.hold()
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OpenFailedError):
            await session.open_side(side_id="s", request_id="r")
        with pytest.raises(SideInProgressError) as caught:
            await session.open_side(side_id="s", request_id="r")
        assert caught.value.state == "draining"
        before = host.statistics().dropped_events
        adapter.sinks[next(ref for ref in adapter.sinks if hasattr(ref, "side"))].emit([TurnCompleted(TurnId("t"))], 1)
        assert host.statistics().dropped_events == before + 1
        adapter.releasing.release()
        await trio.testing.wait_all_tasks_blocked()
        assert host.statistics().sides == {}


async def test_a_failed_open_drains_for_its_own_bound_and_then_its_id_is_free(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """Architecture §4: draining until the late answer or 30 s; R12."""
    provider.adapter.open_error = ValueError()
    provider.adapter.releasing.hold()
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OpenFailedError):
            await session.open_side(side_id="s", request_id="r")
        await trio.sleep(RELEASE_BOUND_S - 1)
        assert host.statistics().sides == {"draining": 1}
        await trio.sleep(2)
        assert host.statistics().sides == {}
        provider.adapter.open_error = None
        assert (await session.open_side(side_id="s", request_id="r")).is_open


async def test_a_host_stop_caps_the_draining_that_began_before_it(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """Architecture, Ends: one host-wide deadline caps every shield, the older ones too."""
    provider.adapter.open_error = ValueError()
    provider.adapter.releasing.hold()
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OpenFailedError):
            await session.open_side(side_id="s", request_id="r")
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(HOST_STOP_S)


async def test_a_source_close_waits_for_the_snapshot_then_aborts_the_open(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """R5: they never interleave, and neither waits for ever."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".", session_id="main")
        adapter.opening.hold()
        results: list[Any] = []
        await open_in(nursery, session, results, side_id="s")
        await adapter.opening.reached.wait()
        began = trio.current_time()
        await session.close()
        assert trio.current_time() - began == pytest.approx(SNAPSHOT_WAIT_S)
        assert adapter.log == ["fork s", "release s", "close main"]
        (error,) = results
        assert isinstance(error, OpenFailedError)


async def test_a_source_close_within_the_bound_lets_the_open_finish_first(provider: Provider) -> None:
    """R5; architecture, Ends: the Side lives on its own lease."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".", session_id="main")
        adapter.opening.hold()
        results: list[Any] = []
        await open_in(nursery, session, results, side_id="s")
        await adapter.opening.reached.wait()
        nursery.start_soon(session.close)
        await trio.testing.wait_all_tasks_blocked()
        assert adapter.log == ["fork s"]
        adapter.opening.release()
        await trio.testing.wait_all_tasks_blocked()
        (side,) = results
        assert side.is_open
        assert adapter.log == ["fork s", "close main"]
        with pytest.raises(SideUnsupportedError, match="not live"):
            await session.open_side()


async def test_a_close_of_an_opening_side_cancels_the_open(provider: Provider) -> None:
    """Architecture §4.3; the id is closed for good."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        adapter.opening.hold()
        results: list[Any] = []
        await open_in(nursery, session, results, side_id="s", request_id="r")
        await adapter.opening.reached.wait()
        await host.controller.close_side(next(iter(host.controller.registry.sides)))
        await trio.testing.wait_all_tasks_blocked()
        (error,) = results
        assert isinstance(error, SideExpiredError)
        assert error.reason == "closed"
        with pytest.raises(SideExpiredError), trio.fail_after(5):
            await session.open_side(side_id="s", request_id="r")


async def test_a_closed_side_is_expired_for_every_operation_and_close_is_idempotent(provider: Provider) -> None:
    """R8."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="s", request_id="r")
        await side.close()
        await side.close()
        await host.controller.close_side(side.scope.ref)
        for attempt in (lambda: side.send("q"), lambda: session.open_side(side_id="s", request_id="r")):
            with pytest.raises(SideExpiredError) as caught:
                await attempt()
            assert caught.value.reason == "closed"
        with pytest.raises(SideExpiredError):
            side.events()
        with pytest.raises(SideExpiredError):
            host.controller.find_side(side.scope.ref)
        assert provider.adapter.log.count("close s") == 1


async def test_a_lost_side_tells_everyone_who_waits(provider: Provider) -> None:
    """R8, R9: the ask, the subscriber, later calls; never resumed."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="s", subscribe=True)
        outcome: list[Any] = []

        async def ask() -> None:
            try:
                await side.ask("q")
            except SideExpiredError as error:
                outcome.append(error.reason)

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        adapter.sinks[side.scope.ref].end("lost")
        await trio.testing.wait_all_tasks_blocked()
        assert outcome == ["lost"]
        kinds = [type(event).__name__ async for batch in side.events() for event in batch.events]
        assert kinds == ["SessionStarted", "TurnStarted", "SessionExpired"]
        assert host.statistics().sides == {}
        with pytest.raises(SideExpiredError):
            await session.open_side(side_id="s")


async def test_a_side_that_its_provider_ends_in_the_moment_of_its_answer_is_never_opened(provider: Provider) -> None:
    """R9: the binding that comes all the same is released, and nobody is given a Side that is over."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".", session_id="main")
        adapter.opening.hold()
        results: list[Any] = []
        await open_in(nursery, session, results, side_id="s")
        await adapter.opening.reached.wait()
        adapter.opening.release()  # its answer is there, and not yet taken
        [ref] = [ref for ref in adapter.sinks if ref != session.ref]
        adapter.sinks[ref].end("lost")
        await trio.testing.wait_all_tasks_blocked()
        (error,) = results
        assert isinstance(error, OpenFailedError)
        assert adapter.log[-2:] == ["fork s", "close s"]
        assert host.statistics().sides == {}


async def test_a_session_that_its_provider_ends_in_the_moment_of_its_answer_is_never_opened(provider: Provider) -> None:
    """R9: what comes all the same is released and not kept, and nobody is given a session that is over."""
    adapter = provider.adapter
    results: list[Any] = []

    async def start(host: Any) -> None:
        try:
            results.append(await host.start_session(cwd=".", session_id="main"))
        except Exception as error:
            results.append(error)

    async with open_host(provider) as host, trio.open_nursery() as nursery:
        adapter.starting.hold()
        nursery.start_soon(start, host)
        await adapter.starting.reached.wait()
        adapter.starting.release()
        [(ref, sink)] = adapter.sinks.items()
        sink.end("lost")
        await trio.testing.wait_all_tasks_blocked()
        (error,) = results
        assert isinstance(error, SessionExpiredError)
        assert error.reason == "lost"
        assert adapter.log == ["close main"]
        assert host.statistics().sessions == 0
        assert await host.controller.durable.read_metadata(ref) is None


async def test_a_lost_session_is_over_and_its_sides_are_told_by_their_own_loss(provider: Provider) -> None:
    """R9."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        turn = await session.send("q")
        adapter.sinks[session.ref].end("lost")
        with pytest.raises(SessionExpiredError) as caught:
            await turn.wait()
        assert caught.value.reason == "lost"
        assert await session.wait_ended() == "lost"
        with pytest.raises(SessionExpiredError):
            await session.send("again")
        with pytest.raises(SessionExpiredError):
            session.events()
        with pytest.raises(SideUnsupportedError, match="not live"):
            await session.open_side()
        await session.close()
        with pytest.raises(SessionExpiredError):
            await host.start_session(cwd=".", session_id="main")


async def test_one_turn_at_a_time(provider: Provider) -> None:
    """T10: a second one would be merged into the first by the server."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        async with session.side() as side:
            await session.send("q")
            await side.send("q")
            with pytest.raises(SideBusyError):
                await side.send("q")
            with pytest.raises(SessionBusyError):
                await session.ask("q")
            for bad in ("", " "):
                with pytest.raises(InvalidContentError):
                    await side.send(bad)


async def test_a_cancelled_ask_interrupts_its_turn(provider: Provider, autojump_clock: trio.testing.MockClock) -> None:
    """F33: the turn does not run on behind the caller's back."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        async with session.side() as side:
            with trio.move_on_after(1) as scope:
                await side.ask("q")
            assert scope.cancelled_caught
            assert adapter.log[-1] == "cancel turn-1"
            assert side.active_turn is None
            turn = await side.send("q")
            await turn.cancel()
            assert (await turn.wait()).status == "canceled"
            await turn.cancel()


async def test_ask_raises_what_became_of_the_turn(provider: Provider) -> None:
    """Our choice; the provider's words are an attribute, never in the message."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        async with session.side() as side, trio.open_nursery() as nursery:
            ends = [lambda turn: TurnFailed(turn, "secret words"), None]
            caught: list[Exception] = []

            async def ask() -> None:
                try:
                    await side.ask("q")
                except (TurnFailedError, TurnCanceledError) as error:
                    caught.append(error)

            for end in ends:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                turn = side.active_turn
                assert turn is not None
                if end is None:
                    await turn.cancel()
                else:
                    adapter.sinks[side.scope.ref].emit([end(turn.id)], 1)
                await trio.testing.wait_all_tasks_blocked()
            failed, canceled = caught
            assert isinstance(failed, TurnFailedError)
            assert failed.provider_message == "secret words"
            assert "secret" not in str(failed)
            assert isinstance(canceled, TurnCanceledError)


class Oops(Exception):
    """The user's."""


async def test_the_users_exception_leaves_as_itself(provider: Provider) -> None:
    """Architecture, Ends."""
    with pytest.raises(Oops):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".")
            async with session.side():
                raise Oops
    assert provider.adapter.log[-2].startswith("close")


async def test_a_host_stop_closes_sides_first_and_is_bounded(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """Architecture, Ends: one deadline caps every shield; reason host_stopped."""
    adapter = provider.adapter
    sides: list[SideHandle] = []
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        for name in ("s1", "s2"):
            sides.append(await session.open_side(side_id=name, subscribe=True))
        events = [side.events() for side in sides]
        adapter.closing.hold()
        began = trio.current_time()
    assert trio.current_time() - began <= 10.0
    closes = [line for line in adapter.log if line.startswith("close")]
    assert sorted(closes[:2]) == ["close s1", "close s2"]
    for subscription in events:
        last = [batch async for batch in subscription][-1].events[-1]
        assert getattr(last, "reason", None) == "host_stopped"
    with pytest.raises(HostStoppedError):
        await session.open_side()


@pytest.mark.parametrize("when", ["open", "closing"])
async def test_a_host_stop_closes_no_session_while_a_side_of_it_is_closing(provider: Provider, when: str) -> None:
    """R5, architecture §2: from the inside; also when the Side's close began before the stop."""
    adapter = provider.adapter
    leave = trio.Event()

    async def opener(task_status: trio.TaskStatus[SideHandle]) -> None:
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".", session_id="main")
            task_status.started(await session.open_side(side_id="s"))
            await leave.wait()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            side = await nursery.start(opener)
            adapter.closing.hold()
            if when == "closing":
                nursery.start_soon(side.close)
                await adapter.closing.reached.wait()
            leave.set()
            await trio.testing.wait_all_tasks_blocked()
            assert adapter.log == ["fork s", "close s"]
            adapter.closing.release()
        assert adapter.log == ["fork s", "close s", "close main"]


async def test_a_close_lets_go_of_the_subscription_that_nobody_took(provider: Provider) -> None:
    """R12: what is kept in it would be kept for as long as the handle, and overflow while the Side closes."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")
        side = await session.open_side(subscribe=True)
        assert host.statistics().subscribers == 1
        adapter.closing.hold()
        nursery.start_soon(side.close)
        await adapter.closing.reached.wait()
        assert host.statistics().subscribers == 0
        adapter.closing.release()
        await side.scope.gone.wait()
        assert [batch async for batch in side.events()] == []


async def test_a_failure_of_the_adapter_in_a_close_is_contained(provider: Provider) -> None:
    """Architecture §2: a failure inside is contained at one place."""

    async def fail(ref: object) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError

    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side()
        provider.adapter.close = fail
        await side.close()
        assert not side.is_open
        assert host.statistics().failed_closes == 1


async def test_a_side_of_a_host_that_is_cancelled_ends_as_host_stopped(provider: Provider) -> None:
    """Architecture, Ends: nobody closed it."""
    with trio.CancelScope() as scope:
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".")
            events = (await session.open_side(subscribe=True)).events()
            scope.cancel()
            await trio.sleep_forever()
    last = [batch async for batch in events][-1].events[-1]
    assert getattr(last, "reason", None) == "host_stopped"
