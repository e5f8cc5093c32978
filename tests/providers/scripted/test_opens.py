"""How an open goes, and how it goes wrong: early events, refusals, lies, late answers, and a cut at every step."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tutti_providers.scripted import (
    ALL_CAPABILITIES,
    Drop,
    Echo,
    Emit,
    Fail,
    Opening,
    OwnTurn,
    Say,
    Script,
    ScriptedFailureError,
    Starting,
    Turn,
    Wait,
    scripted,
)
from tutti_side import open_host
from tutti_side.contract import (
    Audit,
    OpenSide,
    ProviderLostError,
    SideCapabilities,
    StartSession,
    StatePatch,
    TurnCompleted,
    TurnId,
    TurnStarted,
)
from tutti_side.runtime import OpenFailedError, SideExpiredError, SideUnsupportedError

STEPS_MAX = 200
"""An open takes some twenty steps of all tasks together; more than this is a loop."""

LATE = Emit((Audit("late", "child"),))


def assert_only_the_session_is_left(host: Any, provider: Any) -> None:
    """R6: no route, no child, no registration."""
    [adapter] = provider.adapters
    statistics = adapter.statistics()
    assert (statistics.connections, statistics.threads, statistics.draining) == (1, 1, 0)
    assert host.statistics().sides == {}
    assert host.statistics().locks_in_use == 0


async def test_early_events_of_a_child_come_after_its_start_and_in_order() -> None:
    """F3, F4: events between the fork and its answer, a whole turn among them; sequence 1 is the start."""
    steps = (Emit((StatePatch("active"),)), OwnTurn((Say(("early",)),)), Emit((StatePatch("idle"),)))
    async with open_host(scripted(Script(opens=(Opening(steps=steps),)))) as host:
        session = await host.start_session(cwd=".")
        with session.events() as parent:
            side = await session.open_side(subscribe=True)
            events = side.events()
            answer = await side.ask("later")
            await side.close()
            seen = [pair async for batch in events for pair in batch.numbered()]
            await session.close()
            parents = [event async for batch in parent for event in batch.events]
    assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
    early, later = TurnId("side-2.turn-1"), TurnId("side-2.turn-2")
    assert [type(event).__name__ for _, event in seen[:7]] == [
        "SessionStarted",
        "StatePatch",
        "TurnStarted",
        "MessageDelta",
        "MessageUpdated",
        "TurnCompleted",
        "StatePatch",
    ]
    assert (seen[2][1], seen[5][1]) == (TurnStarted(early), TurnCompleted(early))
    assert answer.turn_id == later
    assert [type(event).__name__ for event in parents] == ["SessionClosed"]


async def test_an_early_turn_that_waits_goes_on_after_the_open() -> None:
    """F5: an early turn is the Side's active turn, and its end frees it."""
    provider = scripted(Script(opens=(Opening(steps=(OwnTurn((Say(("a",)), Wait(gate="g"), Say(("b",)))),)),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        async with session.side() as side:
            turn = side.active_turn
            assert turn is not None
            provider.gate("g").set()
            assert (await turn.wait()).answer.messages == ("a", "b")
            assert (await side.ask("x")).text.startswith("You said")


@pytest.mark.parametrize("fact", [name for name in SideCapabilities.__struct_fields__ if name != "reason"])
async def test_each_capability_is_needed_before_and_in_the_result(fact: str) -> None:
    """R15: not attested is not offered, whichever of the five it is; nothing is left."""
    lacking = msgspec.structs.replace(ALL_CAPABILITIES, **{fact: False}, reason="the script says no")
    provider = scripted(Script(capabilities=lacking))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(SideUnsupportedError, match="the script says no") as caught:
            await session.open_side()
        assert fact in caught.value.reason
        assert "open_side" not in [call.operation for call in provider.calls]
    provider = scripted(Script(opens=(Opening(seen=lacking, times=1),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OpenFailedError, match=fact):
            await session.open_side()
        await trio.testing.wait_all_tasks_blocked()
        assert_only_the_session_is_left(host, provider)


async def test_a_failed_open_says_nothing_afterwards_and_can_be_tried_again() -> None:
    """F20; contract: `open_side` owns its failure, late events included."""
    opening = Opening(
        steps=(OwnTurn((Say(("a",)), Wait(gate="g"))), Emit((StatePatch("active"),)), Fail("secret words")),
        late=(LATE, Wait(gate="late"), LATE),
        times=1,
    )
    provider = scripted(Script(opens=(opening,)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OpenFailedError) as caught:
            await session.open_side(side_id="x", request_id="r")
        assert isinstance(caught.value.__cause__, ScriptedFailureError)
        assert "secret" not in str(caught.value)
        provider.gate("late").set()
        await trio.testing.wait_all_tasks_blocked()
        assert_only_the_session_is_left(host, provider)
        assert provider.adapters[0].statistics().dropped_events >= 2
        async with session.side(side_id="x", request_id="r", subscribe=True) as side:
            events = side.events()
            await side.close()
            seen = [type(event).__name__ async for batch in events for event in batch.events]
        assert seen == ["SessionStarted", "SessionClosed"]


async def test_late_events_of_a_failed_open_never_reach_its_sink(lab: Any) -> None:
    """Contract: once it has raised, the sink receives nothing more for that identity."""
    opening = Opening(steps=(Emit((StatePatch("active"),)), Fail()), late=(LATE, Wait(gate="late"), LATE))
    provider = scripted(Script(opens=(opening,)))
    async with provider.open() as adapter:
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
        sink = lab.recorder()
        with pytest.raises(ScriptedFailureError):
            await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), sink)
        assert sink.events == [StatePatch("active")]
        provider.gate("late").set()
        await trio.testing.wait_all_tasks_blocked()
        assert (sink.events, sink.ended) == ([StatePatch("active")], None)
        assert adapter.statistics().dropped_events == 2


@pytest.mark.parametrize(
    "lie",
    [
        Opening(provider_session_id="session-1", times=1),
        Opening(source_provider_session_id="somebody-else", times=1),
    ],
    ids=["the child is the parent", "another source was branched"],
)
async def test_a_lie_about_identity_is_not_believed_and_the_child_is_released(lie: Opening) -> None:
    """R7: a foreign identity is never closed; what was made under the Side's name is released."""
    provider = scripted(Script(opens=(lie,)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OpenFailedError, match="not a new branch"):
            await session.open_side()
        await trio.testing.wait_all_tasks_blocked()
        assert_only_the_session_is_left(host, provider)
        assert (await session.ask("x")).text == "You said: x"


async def test_a_process_that_dies_while_it_opens_fails_the_open() -> None:
    """R9: typed, at once; the source is lost with it."""
    provider = scripted(Script(opens=(Opening(steps=(OwnTurn((Wait(gate="g"),)), Drop())),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with trio.fail_after(5), pytest.raises((OpenFailedError, SideExpiredError)):
            await session.open_side()
        assert await session.wait_ended() == "lost"
        await trio.testing.wait_all_tasks_blocked()
        assert provider.adapters[0].statistics().connections == 0
        assert host.statistics().sides == {}


async def test_an_open_that_is_given_up_is_released_when_its_answer_comes(lab: Any) -> None:
    """F18, R6: the caller is let go at once; the child is released when the provider has answered, and is quiet."""
    script = Script(opens=(Opening(steps=(Emit((StatePatch("active"),)), Wait(gate="answer"), LATE)),))
    provider = scripted(script)
    async with provider.open() as adapter:
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
        sink = lab.recorder()
        with trio.fail_after(5), trio.move_on_after(0.01):
            await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), sink)
        assert sink.events == [StatePatch("active")]
        assert (adapter.statistics().threads, adapter.statistics().draining) == (2, 1)
        with trio.move_on_after(0.01) as scope:
            await adapter.wait_side_released(lab.side())
        assert scope.cancelled_caught
        provider.gate("answer").set()
        with trio.fail_after(5):
            await adapter.wait_side_released(lab.side())
        assert (adapter.statistics().threads, adapter.statistics().draining) == (1, 0)
        assert sink.events == [StatePatch("active")]


RACES = 24
"""Trio runs what is ready at once in random order; so many races see both orders."""


async def test_an_open_that_is_given_up_in_the_instant_of_its_answer_leaves_no_child(lab: Any) -> None:
    """R14: whichever of the two comes first, nothing stays without an owner."""
    for number in range(RACES):
        provider = scripted(Script(opens=(Opening(steps=(Wait(gate="answer"),)),)))
        async with provider.open() as adapter, trio.open_nursery() as nursery:
            await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
            opened: list[object] = []
            scope = trio.CancelScope()

            async def open_side(adapter: Any = adapter, opened: list[object] = opened, scope: Any = scope) -> None:
                with scope:
                    request = OpenSide(side=lab.side(), source=lab.session())
                    opened.append(await adapter.open_side(request, lab.recorder()))

            nursery.start_soon(open_side)
            await provider.wait_reached("answer")
            for act in (provider.gate("answer").set, scope.cancel)[:: 1 if number % 2 else -1]:
                act()
            await trio.testing.wait_all_tasks_blocked()
            assert adapter.statistics().threads == 1 + len(opened)
            if opened:
                await adapter.close(lab.side())


@pytest.mark.parametrize("operation", ["start", "open_side"])
async def test_a_loss_in_the_instant_of_the_answer_is_an_error(lab: Any, operation: str) -> None:
    """R9, R14: what is lost before its caller runs again is never returned as open."""
    for _ in range(RACES):
        held = (Wait(gate="answer"),)
        script = Script(starts=(Starting(when="late", steps=held),), opens=(Opening(steps=held),))
        provider = scripted(script)
        async with provider.open() as adapter:
            await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())

            async def begin(adapter: Any = adapter) -> None:
                with pytest.raises(ProviderLostError):
                    if operation == "start":
                        await adapter.start(StartSession(ref=lab.session("late"), cwd="/"), lab.recorder())
                    else:
                        await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), lab.recorder())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(begin)
                await provider.wait_reached("answer")
                provider.gate("answer").set()
                await trio.lowlevel.checkpoint()
                provider.drop()


async def test_an_early_turn_of_a_failed_open_is_ended_and_says_nothing(lab: Any) -> None:
    """F20: half a child does no harm later; nothing is said once the open has failed, in whatever order tasks run."""
    for _ in range(RACES):
        opening = Opening(steps=(OwnTurn((Wait(gate="g"), Drop())), Fail()))
        provider = scripted(Script(opens=(opening,)))
        async with provider.open() as adapter:
            await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
            sink = lab.recorder()
            with pytest.raises(ScriptedFailureError):
                await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), sink)
            provider.gate("g").set()
            await trio.testing.wait_all_tasks_blocked()
            assert lab.kinds(sink.events) == ["TurnStarted"]
            assert adapter.liveness(lab.session()) == "live"


async def test_an_unknown_side_has_nothing_to_release(lab: Any) -> None:
    """Contract: at once if nothing was."""
    async with scripted().open() as adapter:
        with trio.fail_after(5):
            await adapter.wait_side_released(lab.side())


async def test_an_open_that_is_cut_after_any_step_of_any_task_leaves_nothing(
    lab: Any, autojump_clock: MockClock
) -> None:
    """R6, R14, F18: whatever it was doing; the source goes on, and the next Side works."""
    steps = (
        Wait(seconds=1),
        Emit((StatePatch("active"),)),
        OwnTurn((Say(("a",)), Wait(seconds=1), Say(("b",)))),
        Wait(seconds=2),
    )
    provider = scripted(Script(opens=(Opening(steps=steps, late=(LATE,)),), fallback=(Echo(), Wait(seconds=0.5))))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        outcomes = []
        for number in range(1, STEPS_MAX):
            turn = await session.send("work")
            side = None
            with lab.axe(number) as axe, axe.scope:
                side = await session.open_side()
            if side is not None:
                await side.close()
            await trio.sleep(60)
            assert_only_the_session_is_left(host, provider)
            assert (await turn.wait()).status == "completed"
            outcomes.append(side is not None)
            if not axe.fell:
                break
        assert not axe.fell
        # Cut before the commit, nothing; from the commit on, a Side.
        assert outcomes == sorted(outcomes)
        assert outcomes.count(False) > 10


async def test_a_start_that_fails_or_is_cut_leaves_nothing(lab: Any, autojump_clock: MockClock) -> None:
    """R6, R14, F31: neither session, nor connection, nor writer."""
    provider = scripted(
        Script(starts=(Starting(steps=(Fail(),), times=1), Starting(steps=(Wait(seconds=1), OwnTurn(())))))
    )
    async with open_host(provider) as host:
        with pytest.raises(ScriptedFailureError):
            await host.start_session(cwd=".")
        await trio.testing.wait_all_tasks_blocked()
        assert provider.adapters[0].statistics().connections == 0
        assert provider.persisted == {}
        for number in range(1, STEPS_MAX):
            session = None
            with lab.axe(number) as axe, axe.scope:
                session = await host.start_session(cwd=".")
            if session is not None:
                await session.close()
            await trio.sleep(60)
            assert provider.adapters[0].statistics().connections == 0
            assert provider.held == frozenset()
            if not axe.fell:
                break
        assert not axe.fell
        assert number > 10


async def test_own_turns_belong_to_the_session_they_were_begun_in(lab: Any) -> None:
    """F2: a turn that the provider begins by itself, in a canonical session as well."""
    async with scripted(Script(starts=(Starting(steps=(OwnTurn((Say(("hi",)),)),)),))).open() as adapter:
        sink = lab.recorder()
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), sink)
        assert [type(event) for event in (sink.events[0], sink.events[-1])] == [TurnStarted, TurnCompleted]


async def test_a_side_of_a_source_that_is_not_there_is_refused(lab: Any) -> None:
    """Contract: fail closed, before anything is made."""
    async with scripted().open() as adapter:
        assert not await adapter.side_capabilities(lab.session())
        with pytest.raises(ProviderLostError):
            await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), lab.recorder())
        assert adapter.statistics().connections == 0


async def test_turns_can_be_chosen_for_sides_alone() -> None:
    """Our choice."""
    script = Script(turns=(Turn(in_side=True, steps=(Say(("side",)),)), Turn(in_side=False, steps=(Say(("main",)),))))
    async with open_host(scripted(script)) as host:
        session = await host.start_session(cwd=".")
        assert (await session.ask("x")).text == "main"
        async with session.side() as side:
            assert (await side.ask("x")).text == "side"
