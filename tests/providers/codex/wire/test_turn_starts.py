"""Which turn a start began: none that was over before it was sent; and a start that is told twice is one start."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import AnswerLate, NeverAnswer
from tutti_providers.codex.testing.app_server_faults import FaultPlan
from tutti_side import SessionBusyError, SessionExpiredError, SideBusyError, SideExpiredError
from tutti_side.contract import TurnCanceled, TurnCompleted, TurnMergedError, TurnStarted

Frame = dict[str, Any]
Listen = Callable[..., Any]


@pytest.mark.parametrize("where", ["session", "side"])
async def test_input_that_the_server_put_into_a_turn_that_was_over_is_a_typed_error_and_that_turn_is_interrupted(
    autojump_clock: Any, bench: Any, listen: Listen, where: str
) -> None:
    """T10: it answers a start on a busy thread with the id of the turn that it steers; here we had heard its end."""
    made = bench()
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        side = await session.open_side()
        holder = side if where == "side" else session
        if where == "side":
            await side.send("hold on")
            await made.server.wait_gate_reached("held")
            await trio.testing.wait_all_tasks_blocked()
        heard = listen(nursery, holder.events())
        turn = holder.active_turn
        thread_id = made.children[0] if where == "side" else session.provider_session_id
        lie = {
            "method": "turn/completed",
            "params": {"threadId": thread_id, "turn": {"id": turn.id, "status": "completed"}},
        }
        lies = [lie]
        made.wire.between = lambda frame: [lies.pop()] if lies else []
        await session.open_side()
        assert (await turn.wait()).status == "completed"

        with pytest.raises(TurnMergedError) as raised:
            await holder.send("what?")
        assert raised.value.turn_id == turn.id
        assert not holder.scope.events.turns.is_busy
        await trio.testing.wait_all_tasks_blocked()
        [asked] = made.wire.requests("turn/interrupt")
        assert asked["params"] == {"threadId": thread_id, "turnId": turn.id}
        assert (await holder.ask("what?")).text == "s0 s1 "
        told = [event for event in heard.events if isinstance(event, TurnCompleted | TurnCanceled)]
        assert [event.turn_id == turn.id for event in told] == [True, False]
        await holder.close()


async def test_a_turn_that_ended_before_its_start_was_answered_is_ours_all_the_same(
    autojump_clock: Any, bench: Any
) -> None:
    """F5, T11: its id was unknown when the start was sent, so it was not merged into anything."""
    made = bench(faults=(AnswerLate(method="turn/start", after_s=2),))
    async with made.host() as host:
        session = await host.start_session(cwd="/project")
        assert (await session.ask("what?")).text == "s0 s1 "
        assert (await session.ask("what?")).text == "s0 s1 "
        assert made.wire.requests("turn/interrupt") == []


@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_start_that_the_server_was_too_busy_for_is_not_sent_again_once_its_thread_is_closed(
    autojump_clock: Any, bench: Any, where: str
) -> None:
    """F33, R8: the turn would run where nobody hears of it. Source: a seed of the simulator; a fixed bug."""
    made = bench()
    async with made.host() as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd="/project")
        await session.ask("what?")
        side = await session.open_side()
        holder, expired = (side, SideExpiredError) if where == "side" else (session, SessionExpiredError)
        starts = len(made.wire.requests("turn/start"))
        told: list[Exception] = []

        async def send() -> None:
            try:
                await holder.send("what?")
            except Exception as error:
                told.append(error)

        made.machine._plan = FaultPlan((NeverAnswer(method="turn/start"),))
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        [start] = made.wire.requests("turn/start")[starts:]
        late = [{"id": start["id"], "error": {"code": -32001, "message": "Server overloaded; retry later."}}]
        made.wire.between = lambda frame: [late.pop()] if late else []
        await holder.close()
        await trio.sleep(60)

        assert late == []
        assert [type(error) for error in told] == [expired]
        assert made.wire.requests("turn/start")[starts:] == [start]


async def test_of_two_who_start_a_turn_at_once_one_is_told_that_the_other_was_first_and_one_start_is_sent(
    autojump_clock: Any, bench: Any
) -> None:
    """T10: turns are serialised by us, since the server would steer."""
    made = bench(faults=(AnswerLate(method="turn/start", after_s=2),))
    async with made.host() as host:
        session = await host.start_session(cwd="/project")
        await session.ask("what?")
        side = await session.open_side()
        for holder, refusal in ((session, SessionBusyError), (side, SideBusyError)):
            starts = len(made.wire.requests("turn/start"))
            refused: list[Exception] = []

            async def ask(holder: Any = holder, refusal: Any = refusal, refused: Any = refused) -> None:
                try:
                    await holder.ask("what?")
                except refusal as error:
                    refused.append(error)

            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(ask)
            assert len(refused) == 4
            assert len(made.wire.requests("turn/start")) == starts + 1
        await side.close()


@pytest.mark.parametrize("times", [2, 5])
async def test_a_start_that_is_told_again_and_again_with_a_cancel_between_is_one_start(
    autojump_clock: Any, bench: Any, listen: Listen, times: int
) -> None:
    """F9: of the turn, and of what starts with the thread: its tool servers say so, cancelled in between, and again."""
    made = bench(tool_servers=("files",))
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        side = await session.open_side()
        heard = listen(nursery, side.events())
        [child] = made.children

        def again(frame: Frame) -> list[Frame]:
            if frame.get("method") != "turn/started" or frame["params"]["threadId"] != child:
                return []
            server = {"method": "mcpServer/startupStatus/updated"}
            states = ("starting", "cancelled", "starting", "ready")
            params = [{"threadId": child, "name": "files", "status": status, "error": None} for status in states]
            return [*({**server, "params": each} for each in params), frame] * (times - 1)

        made.wire.between = again
        assert (await side.ask("what?")).text == "s0 s1 "
        await trio.testing.wait_all_tasks_blocked()
        assert [type(event) for event in heard.events if isinstance(event, TurnStarted)] == [TurnStarted]
        told = [kind for kind in heard.told if kind.startswith(("Turn", "Message"))]
        assert told == ["TurnStarted", *["MessageDelta"] * 2, "MessageUpdated", "TurnCompleted"]
        assert made.connection.unread["repeated start"] == times - 1
        made.wire.between = lambda frame: []
        await side.close()
        made.server.open_gate("parent")
        assert (await session.active_turn.wait()).status == "completed"
