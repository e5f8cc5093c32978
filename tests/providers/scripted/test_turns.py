"""Every step a turn is made of, played through a host."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tutti_providers.scripted import (
    Ask,
    Echo,
    Emit,
    Fail,
    Recall,
    Say,
    Script,
    ScriptedFailureError,
    Turn,
    Wait,
    scripted,
)
from tutti_providers.scripted._closing import TURN_END_WAIT_S
from tutti_providers.scripted._gates import Gates
from tutti_providers.scripted.script import Step
from tutti_side import open_host
from tutti_side.contract import (
    ADAPTER_EVENTS,
    Audit,
    AvailableCommand,
    ChangedFile,
    CommandSnapshot,
    ConfigOption,
    ConfigOptions,
    ErrorRaised,
    ExecTurn,
    InvalidSettingsError,
    MessageDelta,
    MessageUpdated,
    OpenSide,
    PlanDelta,
    PlanStep,
    PlanUpdated,
    ProviderLostError,
    ReasoningDelta,
    ReasoningUpdated,
    SessionUpdated,
    StartSession,
    StatePatch,
    SubAgentEvent,
    TextContent,
    TokenCount,
    ToolOutput,
    ToolStarted,
    ToolUpdated,
    TurnActiveError,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
    TurnNotActiveError,
    TurnStarted,
    Unknown,
    UsageUpdated,
    WarningRaised,
)
from tutti_side.runtime import SessionBusyError, SessionExpiredError, TurnCanceledError, TurnFailedError


def exec_turn(text: str = "hi") -> ExecTurn:
    return ExecTurn(content=(TextContent(text),))


@pytest.fixture
def opened(lab: Any) -> Any:
    """Open an adapter of a script with one started session: ``async with opened(script) as (adapter, ref, sink)``."""

    @asynccontextmanager
    async def open_started(script: Any) -> Any:
        ref, sink = lab.session(), lab.recorder()
        async with scripted(script).open() as adapter:
            await adapter.start(StartSession(ref=ref, cwd="/"), sink)
            yield adapter, ref, sink

    return open_started


async def play(opened: Any, *steps: Step) -> Any:
    """Play a turn of these steps to its end, and return its events."""
    async with opened(Script(fallback=steps)) as (adapter, ref, sink):
        await adapter.exec(ref, exec_turn())
        await trio.testing.wait_all_tasks_blocked()
        return sink.events


async def test_a_host_over_the_default_script_answers_something_sensible() -> None:
    """Our choice: ``open_host(scripted())`` works out of the box, and a Side says that it knows the context."""
    async with open_host(scripted()) as host:
        session = await host.start_session(cwd=".")
        assert (await session.ask("hello there")).text == "You said: hello there"
        async with session.side() as side:
            answer = await side.ask("and here")
        assert answer.text == "You said: and here (I know 2 messages of the main conversation.)"


async def test_deltas_come_piece_by_piece_and_then_the_whole(opened: Any) -> None:
    """Contract: `MessageUpdated` replaces what the deltas made; one named item goes on where it stopped."""
    steps = (Say(("a", "b"), item="x"), Say(("c",), item="x"), Say(("d",), is_completed=False))
    events = await play(opened, *steps)
    turn = TurnId("session-1.turn-1")
    named, unnamed = f"{turn}.x", f"{turn}.message-2"
    assert events == [
        TurnStarted(turn),
        MessageDelta(turn, named, "a"),
        MessageDelta(turn, named, "b"),
        MessageUpdated(turn, named, "ab"),
        MessageDelta(turn, named, "c"),
        MessageUpdated(turn, named, "abc"),
        MessageDelta(turn, unnamed, "d"),
        TurnCompleted(turn),
    ]


async def test_deltas_can_leave_together_and_paced(opened: Any, autojump_clock: MockClock) -> None:
    """Our choice: no real time passes but where a step says so."""
    async with opened(Script(fallback=(Say(("a", "b", "c"), per_emission=2, delay_s=5),))) as (adapter, ref, sink):
        emissions = []
        take = sink.emit

        def note(events: Any, size_bytes: int) -> None:
            emissions.append((trio.current_time(), len(events)))
            take(events, size_bytes)

        sink.emit = note
        start = trio.current_time()
        await adapter.exec(ref, exec_turn())
        await trio.sleep(60)
        assert [(at - start, count) for at, count in emissions] == [(0, 1), (5, 2), (10, 1), (10, 1), (10, 1)]


T = TurnId("session-1.turn-1")
FILES = (ChangedFile("a.py", "update", "@@"),)
WORK = (
    ReasoningDelta(T, "r", "hm"),
    ReasoningUpdated(T, "r", "hm", "hmm"),
    ToolStarted(T, "t", "command", "make", "/"),
    ToolOutput(T, "t", "ok"),
    ToolUpdated(T, "t", "file_change", "a.py", "completed", changes=FILES),
    PlanDelta(T, "p", "first"),
    PlanUpdated(T, "why", (PlanStep("one", "pending"),)),
    UsageUpdated(T, TokenCount(3, 2, 0, 1), TokenCount(3, 2, 0, 1), 100),
    WarningRaised("beware"),
    ErrorRaised(T, "again", True),
    Unknown("x/new"),
)


async def test_every_kind_of_event_that_an_adapter_may_emit_has_a_producer_here(opened: Any) -> None:
    """Required: a kind without a producer isn't in the union."""
    others = (
        StatePatch("active", ("approval",)),
        CommandSnapshot((AvailableCommand("review", "Review it"),)),
        ConfigOptions((ConfigOption("model", "a", ("a", "b")),)),
        SessionUpdated("/", "m", "p"),
        Audit("request_declined", "tool"),
        SubAgentEvent("agent-1", TurnStarted(TurnId("a turn of its own"))),
        *WORK,
    )
    script = Script(
        turns=(
            Turn(when="fail", steps=(Fail("no"),)),
            Turn(when="wait", steps=(Wait(gate="never"),)),
            Turn(steps=(Emit(others), Say(("x",)), Ask(title="?", is_waiting=False))),
        )
    )
    async with opened(script) as (adapter, ref, sink):
        for text in ("all", "fail"):
            await adapter.exec(ref, exec_turn(text))
            await trio.testing.wait_all_tasks_blocked()
        await adapter.cancel(ref, await adapter.exec(ref, exec_turn("wait")))
        await trio.testing.wait_all_tasks_blocked()
        assert {type(event) for event in sink.events} == set(ADAPTER_EVENTS)
        assert sink.events[1 : 1 + len(others)] == list(others)


async def test_a_failed_turn_says_why_and_plays_nothing_more(opened: Any) -> None:
    """Contract: one of completed, failed and canceled, exactly once."""
    events = await play(opened, Say(("a",)), Fail("overloaded"), Say(("b",)))
    assert events[-1] == TurnFailed(TurnId("session-1.turn-1"), "overloaded")
    assert [event.text for event in events if isinstance(event, MessageDelta)] == ["a"]
    async with open_host(scripted(Script(fallback=(Fail("overloaded"),)))) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(TurnFailedError) as caught:
            await session.ask("x")
        assert caught.value.provider_message == "overloaded"


async def test_a_gate_holds_a_turn_until_it_is_opened(autojump_clock: MockClock) -> None:
    """Our choice: tests hold a turn without any clock."""
    provider = scripted(Script(fallback=(Say(("a",)), Wait(gate="g"), Wait(seconds=3), Say(("b",)))))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("x")
        with trio.fail_after(5):
            await provider.wait_reached("g")
        assert turn.is_active
        assert turn.answer.text == "a"
        with trio.move_on_after(1):
            await provider.wait_reached("g", times=2)
            raise AssertionError("reached once only")
        provider.gate("g").set()
        assert (await turn.wait()).answer.messages == ("a", "b")
        await session.ask("again")
        with trio.fail_after(5):
            await provider.wait_reached("g", times=2)


async def test_a_side_recalls_what_was_said_before_it_was_opened_and_nothing_later() -> None:
    """Specification: a Side branches the live context, an active turn included; siblings see nothing of each other."""
    provider = scripted(
        Script(
            turns=(
                Turn(when="work", steps=(Say(("half ",), item="i"), Wait(gate="g"), Say(("whole",), item="i"))),
                Turn(when="recall", steps=(Recall(),)),
                Turn(steps=(Echo(),)),
            )
        )
    )
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        await session.ask("hello")
        turn = await session.send("work")
        await provider.wait_reached("g")
        async with session.side() as first, session.side() as second:
            await first.ask("only here")
            provider.gate("g").set()
            assert (await turn.wait()).answer.text == "half whole"
            inherited = ("hello", "You said: hello", "work", "half ")
            assert (await second.ask("recall")).messages == inherited
            assert (await first.ask("recall")).messages == inherited
        assert (await session.ask("recall")).messages == ()
        said = {message.text for messages in provider.persisted.values() for message in messages}
        assert "only here" not in said
        assert "half whole" in said


async def test_the_same_script_and_calls_make_the_same_events(opened: Any) -> None:
    """Required: deterministic."""
    steps = (Say(("a", "b")), Ask(title="?", is_waiting=False), Emit((StatePatch("idle"),)), Echo())
    assert await play(opened, *steps) == await play(opened, *steps)


# Interrupting, refusing, being slow


async def test_an_interrupt_ends_exactly_that_turn(opened: Any) -> None:
    """Contract: that turn or nothing; its end is one event."""
    async with opened(Script(fallback=(Say(("a",)), Wait(gate="g")))) as (adapter, ref, sink):
        turn = await adapter.exec(ref, exec_turn())
        with pytest.raises(TurnNotActiveError):
            await adapter.cancel(ref, TurnId("other"))
        assert not any(isinstance(event, TurnCanceled) for event in sink.events)
        await adapter.cancel(ref, turn)
        await trio.testing.wait_all_tasks_blocked()
        assert sink.events[-1] == TurnCanceled(turn)
        with pytest.raises(TurnNotActiveError):
            await adapter.cancel(ref, turn)
        assert [event for event in sink.events if isinstance(event, TurnCanceled)] == [TurnCanceled(turn)]


async def test_an_interrupted_turn_is_a_canceled_answer() -> None:
    """Runtime: `TurnCanceledError` for who asked."""
    provider = scripted(Script(fallback=(Wait(gate="g"),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")

        async def ask() -> None:
            with pytest.raises(TurnCanceledError):
                await session.ask("x")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await provider.wait_reached("g")
            assert session.active_turn is not None
            await session.active_turn.cancel()


async def test_one_turn_at_a_time(opened: Any) -> None:
    """Contract: `TurnActiveError`, also while a turn is only starting."""
    script = Script(turns=(Turn(steps=(), before=(Wait(gate="b"),), times=1), Turn(steps=(Wait(gate="g"),))))
    async with opened(script) as (adapter, ref, _), trio.open_nursery() as nursery:
        nursery.start_soon(adapter.exec, ref, exec_turn())
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TurnActiveError):
            await adapter.exec(ref, exec_turn())
        nursery.cancel_scope.cancel()
    async with opened(Script(fallback=(Wait(gate="g"),))) as (adapter, ref, _):
        await adapter.exec(ref, exec_turn())
        with pytest.raises(TurnActiveError):
            await adapter.exec(ref, exec_turn())


async def test_a_refused_turn_begins_nothing_and_the_next_is_free(opened: Any) -> None:
    """Our choice: `Turn.before`; the script's words are an attribute, never in the message."""
    script = Script(turns=(Turn(steps=(Echo(),), before=(Fail("secret words"),), times=1),))
    async with opened(script) as (adapter, ref, sink):
        with pytest.raises(ScriptedFailureError) as caught:
            await adapter.exec(ref, exec_turn())
        assert caught.value.provider_message == "secret words"
        assert "secret" not in str(caught.value)
        assert sink.events == []
        await adapter.exec(ref, exec_turn())
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(sink.events[-1], TurnCompleted)


async def test_a_turn_that_is_given_up_before_it_began_never_begins(opened: Any) -> None:
    """Contract, cancellation of exec: not sent."""
    async with opened(Script(turns=(Turn(steps=(), before=(Wait(gate="b"),), times=1),))) as (adapter, ref, sink):
        with trio.move_on_after(0):
            await adapter.exec(ref, exec_turn())
        await trio.testing.wait_all_tasks_blocked()
        assert sink.events == []
        await adapter.exec(ref, exec_turn())


async def test_a_turn_that_is_given_up_before_its_answer_is_interrupted(opened: Any) -> None:
    """F33; contract, cancellation of exec: interrupted as soon as the provider names it."""
    script = Script(turns=(Turn(steps=(Wait(gate="g"),), answered_after=Wait(gate="late")),))
    async with opened(script) as (adapter, ref, sink):
        with trio.move_on_after(0.01) as scope:
            await adapter.exec(ref, exec_turn())
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        assert [type(event) for event in sink.events] == [TurnStarted, TurnCanceled]


async def test_a_turn_can_be_over_before_its_call_is_answered() -> None:
    """F5: the early end is not lost, and the handle has it."""
    script = Script(turns=(Turn(steps=(Echo(),), answered_after=Wait(gate="late")),))
    provider = scripted(script)
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".")

        async def ask() -> None:
            assert (await session.ask("x")).text == "You said: x"

        nursery.start_soon(ask)
        await provider.wait_reached("late")
        await trio.testing.wait_all_tasks_blocked()
        provider.gate("late").set()


async def test_a_stubborn_turn_goes_on_until_the_close_kills_it(opened: Any, autojump_clock: MockClock) -> None:
    """R12: the wait for the turn's end is bounded, and what happens then is force."""
    script = Script(turns=(Turn(steps=(Say(("x",) * 60, delay_s=1),), is_stubborn=True),))
    async with opened(script) as (adapter, ref, sink):
        turn = await adapter.exec(ref, exec_turn())
        await trio.sleep(1.5)
        await adapter.cancel(ref, turn)
        await trio.sleep(2)
        said = len(sink.events)
        start = trio.current_time()
        await adapter.close(ref)
        assert trio.current_time() - start == TURN_END_WAIT_S
        assert sink.events[-1] == TurnCanceled(turn)
        assert said < len(sink.events) < said + 10


async def test_a_close_ends_the_turn_first_and_nothing_follows(opened: Any) -> None:
    """Contract: close emits nothing afterwards; F25."""
    async with opened(Script(fallback=(Say(("a",)), Wait(gate="g"), Say(("late",))))) as (adapter, ref, sink):
        turn = await adapter.exec(ref, exec_turn())
        await trio.testing.wait_all_tasks_blocked()
        await adapter.close(ref)
        seen = list(sink.events)
        assert seen[-1] == TurnCanceled(turn)
        adapter._gates.gate("g").set()
        await adapter.close(ref)
        await trio.testing.wait_all_tasks_blocked()
        assert sink.events == seen
        assert adapter.liveness(ref) == "unknown"
        with pytest.raises(ProviderLostError):
            await adapter.exec(ref, exec_turn())


async def test_a_turn_that_was_starting_when_its_session_closed_never_begins(opened: Any, lab: Any) -> None:
    """R9: the call ends, typed; nothing is said."""
    script = Script(turns=(Turn(steps=(Echo(),), before=(Wait(gate="b"),)),))
    async with opened(script) as (adapter, ref, sink):
        other = lab.session("other")
        await adapter.start(StartSession(ref=other, cwd="/"), lab.recorder())  # keeps the connection

        async def start() -> None:
            with pytest.raises(ProviderLostError):
                await adapter.exec(ref, exec_turn())

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(start)
                await trio.testing.wait_all_tasks_blocked()
                await adapter.close(ref)
                adapter._gates.gate("b").set()
        await trio.testing.wait_all_tasks_blocked()
        assert sink.events == []
        assert adapter.liveness(other) == "live"


async def test_nothing_that_grows_with_each_turn_is_kept_but_the_bounded_transcript(opened: Any) -> None:
    """R12."""
    async with opened(Script()) as (adapter, ref, _):
        for _ in range(3):
            await adapter.exec(ref, exec_turn())
            await trio.testing.wait_all_tasks_blocked()
        transcript = adapter._kept.read("session-1")
        assert len(transcript.messages()) == 6
        assert transcript._by_item == {}


async def test_a_gate_counts_how_often_it_was_reached() -> None:
    """Our choice: a test waits for the third of three turns, not for the next of any."""
    gates = Gates()
    reached = trio.Event()

    async def wait() -> None:
        await gates.wait_reached("g", 3)
        reached.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for times in (1, 2, 3):
            await trio.testing.wait_all_tasks_blocked()
            assert not reached.is_set()
            nursery.start_soon(gates.pass_through, "g")
            await trio.testing.wait_all_tasks_blocked()
            assert reached.is_set() is (times == 3)
        gates.gate("g").set()
        with trio.fail_after(5):
            await gates.wait_reached("g", 2)


async def test_a_busy_or_closed_session_is_refused_by_name() -> None:
    """Architecture §4: the runtime's error names."""
    provider = scripted(Script(fallback=(Wait(gate="g"),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        await session.send("x")
        with pytest.raises(SessionBusyError):
            await session.send("y")
        await session.close()
        with pytest.raises(SessionExpiredError):
            await session.send("z")


async def test_settings_are_refused() -> None:
    """Contract: `InvalidSettingsError`; nothing is started."""
    provider = scripted()
    async with open_host(provider) as host:
        with pytest.raises(InvalidSettingsError):
            await host.start_session(cwd=".", settings=object())
        assert provider.adapters[0].statistics().connections == 0


async def test_what_reached_the_provider_can_be_read_and_its_texts_are_not_in_a_repr() -> None:
    """Our choice: tests count forks and read instructions here."""
    provider = scripted()
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", host_context="secret context")
        await session.ask("secret question")
        async with session.side(instructions="secret instructions") as side:
            await side.ask("x")
    assert [call.operation for call in provider.calls] == ["start", "exec", "open_side", "exec", "close", "close"]
    sent, opening = provider.calls[1].request, provider.calls[2].request
    assert isinstance(sent, ExecTurn)
    assert isinstance(opening, OpenSide)
    assert sent.host_context == "secret context"
    assert opening.instructions == "secret context\n\nsecret instructions"
    assert "secret" not in repr(list(provider.calls))
