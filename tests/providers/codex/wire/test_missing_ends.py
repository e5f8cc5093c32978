"""A turn that ends without a word: whoever waits for it is told, once, as well as the server can say when asked."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex._connection import LIFE_SIGN_DEADLINE_S, SILENCE_S
from tutti_providers.codex._settling import DOUBT_S, PAUSE_S, TRIES_MAX
from tutti_providers.codex.testing import Answer, DropTurnCompleted, ModelScript, NeverAnswer, Overloaded, Say
from tutti_side import TurnFailedError
from tutti_side.contract import ProviderLostError, TurnCanceled, TurnCompleted, TurnFailed, TurnId

Listen = Callable[..., Any]
Frame = dict[str, Any]

SETTLED_S = DOUBT_S + TRIES_MAX * (2 * 5.0 + PAUSE_S * 2**TRIES_MAX)
"""More than an end may be in doubt."""

OVERLOAD_TRIES_MAX = 6
"""More than the peer sends a request again that was refused for overload."""

ENDS = (TurnCompleted, TurnFailed, TurnCanceled)


def ends(heard: Any, turn_id: TurnId) -> list[Any]:
    return [event for event in heard.events if isinstance(event, ENDS) and event.turn_id == turn_id]


def turn_of(turn_id: str, status: str) -> Frame:
    return {"id": turn_id, "status": status}


def provider_id(holder: Any) -> str:
    found: str = holder.provider_session_id if hasattr(holder, "ref") else holder.scope.binding.provider_session_id
    return found


def _thread_of(made: Any, holder: Any) -> Any:
    return made.adapter._live[holder.scope.ref].thread


@pytest.mark.parametrize("with_status", [False, True], ids=["its thread rests", "nothing is said"])
async def test_a_sessions_turn_whose_end_is_never_told_ends_as_the_server_says_when_asked(
    autojump_clock: Any, bench: Any, listen: Listen, with_status: bool
) -> None:
    """R9; the outcome stands in the thread's list of turns. Source: our choice."""
    made = bench(faults=(DropTurnCompleted(times=1, with_status=with_status),))
    async with made.host() as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd="/project")
        heard = listen(nursery, session.events())
        began = trio.current_time()
        turn = await session.send("what?")
        result = await turn.wait()
        assert (result.status, result.answer.text, result.reason) == ("completed", "s0 s1 ", None)
        assert trio.current_time() - began <= SETTLED_S + with_status * (2 * SILENCE_S + LIFE_SIGN_DEADLINE_S)
        await trio.testing.wait_all_tasks_blocked()
        [listed] = made.wire.requests("thread/turns/list")
        assert listed["params"]["itemsView"] == "notLoaded"
        assert ends(heard, turn.id) == [TurnCompleted(turn.id)]
        assert made.connection.unread["missing end"] == 1
        assert (await session.ask("what?")).text == "s0 s1 "
        await trio.sleep(100)
        made.assert_only(host, session)
        assert made.connection.doubted_turns == 0
        assert len(made.wire.requests("thread/turns/list")) == 1
        await session.close()


@pytest.mark.parametrize("with_status", [False, True], ids=["its thread rests", "nothing is said"])
async def test_a_sides_turn_whose_end_is_never_told_has_failed_for_want_of_it(
    autojump_clock: Any, bench: Any, listen: Listen, with_status: bool
) -> None:
    """R9, R7: an ephemeral thread lists no turns, and its status says only that none runs. Source: our choice."""
    made = bench(faults=(DropTurnCompleted(times=1, with_status=with_status),))
    async with made.working() as (host, session), trio.open_nursery() as nursery:
        parents = session.active_turn
        side = await session.open_side()
        heard = listen(nursery, side.events())
        with pytest.raises(TurnFailedError) as raised:
            await side.ask("what?")
        assert (raised.value.reason, raised.value.provider_message) == ("terminal_event_missing", "")
        await trio.testing.wait_all_tasks_blocked()
        assert heard.text == "s0 s1 "
        turn_id = raised.value.turn_id
        assert ends(heard, turn_id) == [TurnFailed(turn_id, "", reason="terminal_event_missing")]
        assert made.wire.requests("thread/turns/list") == []
        assert (await side.ask("what?")).text == "s0 s1 "
        await side.close()
        assert parents.is_active
        made.server.open_gate("parent")
        assert (await parents.wait()).status == "completed"
        await trio.sleep(1)
        made.assert_only(host, session)


@pytest.mark.parametrize(
    "fault",
    [
        DropTurnCompleted(times=1, forgets=True),
        NeverAnswer(method="thread/turns/list"),
        NeverAnswer(method="thread/read"),
        Overloaded(method="thread/read"),
    ],
    ids=["the list lacks it", "no list", "no status", "overloaded"],
)
async def test_a_turn_of_which_nobody_can_say_how_it_ended_fails_within_a_bound(
    autojump_clock: Any, bench: Any, listen: Listen, fault: Any
) -> None:
    """R9, R12: asked a few times, then no more. Source: our choice."""
    made = bench(faults=(fault, DropTurnCompleted(times=1)))
    async with made.host() as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd="/project")
        heard = listen(nursery, session.events())
        turn = await session.send("what?")
        with trio.fail_after(SETTLED_S):
            result = await turn.wait()
        assert (result.status, result.reason, result.answer.text) == ("failed", "terminal_event_missing", "s0 s1 ")
        await trio.testing.wait_all_tasks_blocked()
        assert ends(heard, turn.id) == [TurnFailed(turn.id, "", reason="terminal_event_missing")]
        await session.close()
    assert len(made.wire.requests("thread/read")) <= TRIES_MAX * OVERLOAD_TRIES_MAX


async def test_an_end_that_comes_after_all_is_not_told_twice(autojump_clock: Any, bench: Any, listen: Listen) -> None:
    """Specification: one terminal event a turn, also when the provider's own is much too late."""
    made = bench(faults=(DropTurnCompleted(times=1),))
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        side = await session.open_side()
        heard = listen(nursery, side.events())
        turn = await side.send("what?")
        await turn.wait()
        [child] = made.children

        def end_late(frame: Frame) -> list[Frame]:
            return [{"method": "turn/completed", "params": {"threadId": child, "turn": turn_of(turn.id, "completed")}}]

        made.wire.between = end_late
        made.server.open_gate("parent")
        assert (await session.active_turn.wait()).status == "completed"
        made.wire.between = lambda frame: []
        assert len(ends(heard, turn.id)) == 1
        assert made.connection.unread["repeated end"] > 0
        await side.close()


async def test_a_turn_that_was_given_up_and_begins_after_all_is_interrupted_and_not_heard(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """R3, R6: nothing follows a turn's end, and what nobody hears must not run on. Source: our choice."""
    made = bench(faults=(DropTurnCompleted(times=1),))
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        side = await session.open_side()
        heard = listen(nursery, side.events())
        turn = await side.send("what?")
        assert (await turn.wait()).reason == "terminal_event_missing"
        await trio.testing.wait_all_tasks_blocked()
        assert made.wire.requests("turn/interrupt") == []  # the server has said that none runs
        [child] = made.children
        ids = {"threadId": child, "turnId": turn.id}
        item = {"type": "agentMessage", "id": "late", "text": "late"}
        said: list[Frame] = [
            {"method": "turn/started", "params": {"threadId": child, "turn": turn_of(turn.id, "inProgress")}},
            {"method": "item/agentMessage/delta", "params": {**ids, "itemId": "late", "delta": "late"}},
            {"method": "item/completed", "params": {**ids, "item": item}},
        ]

        def begin_late(frame: Frame) -> list[Frame]:
            late, said[:] = said[:], []
            return late

        made.wire.between = begin_late
        await session.open_side()
        await trio.testing.wait_all_tasks_blocked()
        [asked] = made.wire.requests("turn/interrupt")
        assert asked["params"] == ids
        of_it = [event for event in heard.events if getattr(event, "turn_id", None) == turn.id]
        assert isinstance(of_it[-1], TurnFailed)
        assert made.connection.unread["given-up turn"] == 2
        assert (await side.ask("what?")).text == "s0 s1 "
        await side.close()


async def test_a_turn_that_is_given_up_since_nobody_answers_is_interrupted(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """R6: perhaps it runs. Source: our choice."""
    made = bench(faults=(NeverAnswer(method="thread/read"),))
    async with made.working() as (_, session):
        side = await session.open_side()
        turn = await side.send("hold on")
        await made.server.wait_gate_reached("held")
        await trio.testing.wait_all_tasks_blocked()
        _thread_of(made, side).doubt()
        with trio.fail_after(SETTLED_S):
            assert (await turn.wait()).reason == "terminal_event_missing"
        await trio.testing.wait_all_tasks_blocked()
        [asked] = made.wire.requests("turn/interrupt")
        assert asked["params"]["turnId"] == turn.id
        assert made.machine.threads[provider_id(side)].turn is None


@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_turn_that_runs_is_not_ended_by_a_thread_that_seems_to_rest(
    autojump_clock: Any, bench: Any, where: str
) -> None:
    """A status that lies, or comes late, only leads to a question. Source: our choice."""
    made = bench()
    async with made.working() as (_, session):
        side = await session.open_side()
        if where == "side":
            await side.send("hold on")
            await made.server.wait_gate_reached("held")
        holder, gate = (session, "parent") if where == "session" else (side, "held")
        await trio.testing.wait_all_tasks_blocked()
        params = {"threadId": provider_id(holder), "status": {"type": "idle"}}
        said: list[Frame] = [{"method": "thread/status/changed", "params": params}]
        made.wire.between = lambda frame: [said.pop()] if said else []
        await session.open_side()
        turn = holder.active_turn
        await trio.sleep(SETTLED_S)
        assert turn.is_active
        assert [frame["params"]["threadId"] for frame in made.wire.requests("thread/read")][:1] == [provider_id(holder)]
        made.server.open_gate(gate)
        assert (await turn.wait()).status == "completed"


async def test_nothing_is_asked_of_a_turn_while_its_thread_speaks(autojump_clock: Any, bench: Any) -> None:
    """Source: our choice: what speaks lives."""
    slow = ModelScript(answers=(Answer.of(Say(tokens=("x ",) * 10, delay_s=DOUBT_S * 0.8), when="slow"),))
    made = bench(script=slow)
    async with made.host() as host:
        session = await host.start_session(cwd="/project")
        turn = await session.send("slow")
        await trio.sleep(1)
        _thread_of(made, session).doubt()
        await trio.sleep(DOUBT_S * 7)
        assert made.wire.requests("thread/read") == []
        assert (await turn.wait()).answer.text == "x " * 10
        await trio.testing.wait_all_tasks_blocked()
        assert made.wire.requests("thread/read") == []


async def test_an_interrupt_whose_turns_end_is_never_told_ends_it_all_the_same(autojump_clock: Any, bench: Any) -> None:
    """F34: the answer to an interrupt is no proof; the list of turns says that it was interrupted."""
    made = bench(faults=(DropTurnCompleted(times=1, with_status=True),))
    async with made.working() as (_, session):
        turn = session.active_turn
        await turn.cancel()
        assert turn.is_active
        with trio.fail_after(SETTLED_S):
            assert (await turn.wait()).status == "canceled"
        assert len(made.wire.requests("turn/interrupt")) == 1


# whose turn is it?


@pytest.mark.parametrize("where", ["session", "side"])
async def test_when_the_server_says_that_another_turn_is_active_no_interrupt_is_sent_for_that_one(
    autojump_clock: Any, bench: Any, where: str
) -> None:
    """F8: the interrupt names the turn that was meant, once; what the refusal names is never interrupted instead."""
    made = bench(faults=(DropTurnCompleted(times=1, with_status=True),))
    async with made.working() as (_, session):
        side = await session.open_side()
        holder = side if where == "side" else session
        if where == "side":
            await side.send("hold on")
            await made.server.wait_gate_reached("held")
            await trio.testing.wait_all_tasks_blocked()
        turn = holder.active_turn
        # The server goes on to a turn of its own, and never says that ours is over.
        fake = made.machine.threads[provider_id(holder)]
        turns = made.machine._requests.turns
        turns.interrupt(fake, fake.turn)
        turns.finish(fake, fake.turn, "interrupted")
        other = turns.begin(fake, [{"type": "text", "text": "hold on"}])
        await turn.cancel()
        [asked] = made.wire.requests("turn/interrupt")
        assert asked["params"]["turnId"] == turn.id != other.id
        with trio.fail_after(SETTLED_S):
            result = await turn.wait()
        expected = ("canceled", None) if where == "session" else ("failed", "terminal_event_missing")
        assert (result.status, result.reason) == expected
        assert len(made.wire.requests("turn/interrupt")) == 1
        assert fake.turn is other
        assert holder.active_turn is None


async def test_a_session_that_is_loaded_with_a_turn_of_before_still_running_has_it_interrupted_and_not_heard(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """R3, R6: the interrupt of its close came to nothing; the server would put the next question into that turn."""
    made = bench(faults=(NeverAnswer(method="turn/interrupt", times=1),))
    async with made.host() as host, trio.open_nursery() as nursery:
        keeper = await host.start_session(cwd="/project")  # keeps the process
        session = await host.start_session(cwd="/project", session_id="main")
        assert (await session.ask("what?")).text == "s0 s1 "
        turn = await session.send("hold on")
        await made.server.wait_gate_reached("held")
        await session.close()
        thread = made.machine.threads[session.provider_session_id]
        assert thread.turn.id == turn.id
        again = await host.resume_session("main")
        heard = listen(nursery, again.events())
        assert [asked["params"]["turnId"] for asked in made.wire.requests("turn/interrupt")] == [turn.id] * 2
        assert thread.turn is None
        assert (await again.ask("what?")).text == "s0 s1 "
        await again.close()
        await trio.testing.wait_all_tasks_blocked()
        assert [event for event in heard.events if getattr(event, "turn_id", None) == turn.id] == []
        await keeper.close()


async def test_a_session_whose_server_ends_while_it_is_asked_for_a_turn_of_before_is_not_loaded(
    autojump_clock: Any, bench: Any
) -> None:
    """R6, R9: what became of that question is told to nobody, so the loss is, and nothing of the session is kept."""
    made = bench(faults=(NeverAnswer(method="turn/interrupt", times=1), NeverAnswer(method="thread/turns/list")))
    async with made.host() as host, trio.open_nursery() as nursery:
        keeper = await host.start_session(cwd="/project")  # keeps the process
        session = await host.start_session(cwd="/project", session_id="main")
        assert (await session.ask("what?")).text == "s0 s1 "
        await session.send("hold on")
        await made.server.wait_gate_reached("held")
        await session.close()

        async def crash() -> None:
            await made.server.wait_received("thread/turns/list")
            made.server.crash()

        nursery.start_soon(crash)
        with pytest.raises(ProviderLostError):
            await host.resume_session("main")
        await keeper.wait_ended()
        await trio.testing.wait_all_tasks_blocked()
        assert made.adapter._live == {}
        made.assert_only(host)


async def test_a_turn_of_before_that_begins_while_its_session_is_loaded_has_an_end_there(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """R3, a fixed fault: its begin was told, its end was dropped, and the session was busy for ever."""
    made = bench(faults=(NeverAnswer(method="turn/interrupt", times=1),))
    async with made.host() as host, trio.open_nursery() as nursery:
        keeper = await host.start_session(cwd="/project")
        session = await host.start_session(cwd="/project", session_id="main")
        assert (await session.ask("what?")).text == "s0 s1 "
        turn = await session.send("hold on")
        await made.server.wait_gate_reached("held")
        await session.close()
        params = {"threadId": session.provider_session_id, "turn": turn_of(turn.id, "inProgress")}
        said: list[Frame] = [{"method": "turn/started", "params": params}]

        def begin_early(frame: Frame) -> list[Frame]:
            is_asked = len(made.wire.requests("thread/resume")) == 1
            return [said.pop()] if is_asked and said else []

        made.wire.between = begin_early
        again = await host.resume_session("main")
        heard = listen(nursery, again.events())
        assert said == []
        await trio.sleep(1)
        assert ends(heard, turn.id) in ([TurnCanceled(turn.id)], [])
        assert again.active_turn is None
        assert (await again.ask("what?")).text == "s0 s1 "
        await again.close()
        await keeper.close()
