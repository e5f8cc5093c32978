"""More input for a turn that runs, the end of its commands, and its mode, over the fake app-server."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.errors import RequestRefusedError, UnansweredError
from tutti_providers.codex.testing import AnswerLate, NeverAnswer
from tutti_providers.codex.testing._fake_requests import Outcome, Refused
from tutti_side.contract import ProviderProtocolError, TurnNotActiveError

Frame = dict[str, Any]


async def hold(made: Any, session: Any, where: str) -> tuple[Any, Any, str, str]:
    """A holder with a turn that is halted: the holder, the turn, its thread and its gate."""
    if where == "session":
        return session, session.active_turn, session.provider_session_id, "parent"
    side = await session.open_side()
    turn = await side.send("hold on")
    await made.server.wait_gate_reached("held")
    await trio.testing.wait_all_tasks_blocked()
    return side, turn, side.scope.binding.provider_session_id, "held"


@pytest.mark.parametrize("where", ["session", "side"])
async def test_more_input_names_the_turn_that_was_meant_and_is_answered_in_it(
    autojump_clock: Any, bench: Any, where: str
) -> None:
    """Specification: steer; the server holds it against the active turn's id."""
    made = bench()
    async with made.working() as (_, session):
        holder, turn, thread_id, _ = await hold(made, session, where)
        await turn.steer("what?")
        [sent] = made.wire.requests("turn/steer")
        assert sent["params"] == {
            "threadId": thread_id,
            "expectedTurnId": turn.id,
            "input": [{"type": "text", "text": "what?"}],
        }
        result = await turn.wait()
        assert (result.status, result.answer.text) == ("completed", "s0 s1 ")
        assert holder.active_turn is None
        assert (await holder.ask("what?")).text == "s0 s1 "


@pytest.mark.parametrize("where", ["session", "side"])
async def test_input_for_a_turn_that_is_over_is_a_typed_error_and_no_later_turn_gets_it(
    autojump_clock: Any, bench: Any, where: str
) -> None:
    """F8: never another turn's id, whoever knows first that it is over: we, or the server."""
    made = bench()
    async with made.working() as (_, session):
        holder, turn, _, gate = await hold(made, session, where)
        swallowed = SwallowedEnds(made)
        made.server.open_gate(gate)
        await trio.testing.wait_all_tasks_blocked()
        assert turn.is_active  # its end is held back on its way
        with pytest.raises(TurnNotActiveError):
            await turn.steer("what?")
        assert len(made.wire.requests("turn/steer")) == 1
        swallowed.stop()
        with trio.fail_after(60):
            assert (await turn.wait()).status in ("completed", "failed")
        with pytest.raises(TurnNotActiveError):
            await turn.steer("what?")
        assert len(made.wire.requests("turn/steer")) == 1
        assert (await holder.ask("what?")).text == "s0 s1 "


class SwallowedEnds:
    """No end of a turn reaches the threads that live now."""

    def __init__(self, made: Any) -> None:
        self._threads = [live.thread for live in made.adapter._live.values()]
        for thread in self._threads:
            thread.deliver = functools.partial(self._deliver, thread.deliver)

    @staticmethod
    def _deliver(deliver: Callable[[list[Any]], None], batch: list[Any]) -> None:
        deliver([message for message in batch if message.method != "turn/completed"])

    def stop(self) -> None:
        for thread in self._threads:
            del thread.deliver


async def test_a_turn_of_a_kind_that_takes_no_input_says_so_and_goes_on(autojump_clock: Any, bench: Any) -> None:
    """A refusal that is not about the turn's id proves nothing about the turn. Source: the schema (compaction)."""
    made = bench()
    async with made.working() as (_, session):
        turn = session.active_turn

        def refuse(params: Frame) -> Any:
            raise Refused("cannot steer a compact turn")

        made.machine._requests.handlers["turn/steer"] = refuse
        with pytest.raises(RequestRefusedError):
            await turn.steer("what?")
        await trio.sleep(20)
        assert turn.is_active
        assert made.connection.doubted_turns == 0


async def test_input_that_another_turn_took_is_not_called_taken(autojump_clock: Any, bench: Any) -> None:
    """R9: the answer names a turn, and it must be the one that was meant."""
    made = bench()
    async with made.working() as (_, session):
        turn = session.active_turn

        made.machine._requests.handlers["turn/steer"] = lambda params: Outcome(result={"turnId": "another"})
        with pytest.raises(ProviderProtocolError):
            await turn.steer("what?")


async def test_input_in_the_moment_in_which_a_turn_was_accepted_waits_until_it_began(
    autojump_clock: Any, bench: Any
) -> None:
    """F34, for input. Source: our choice."""
    made = bench()
    async with made.host() as host:
        session = await host.start_session(cwd="/project")
        turn = await session.send("refactor")
        await turn.steer("what?")
        assert (await turn.wait()).answer.text == "s0 s1 "


async def test_an_unanswered_steer_ends_within_its_bound(autojump_clock: Any, bench: Any) -> None:
    """T14, R12."""
    made = bench(faults=(NeverAnswer(method="turn/steer"),))
    async with made.working() as (_, session):
        turn = session.active_turn
        with trio.fail_after(120), pytest.raises(UnansweredError):
            await turn.steer("what?")
        assert turn.is_active


# what a turn leaves running


@pytest.mark.parametrize("where", ["session", "side"])
async def test_commands_are_ended_on_request_for_that_thread_alone(autojump_clock: Any, bench: Any, where: str) -> None:
    """T8: an interrupt leaves them running; the turn that runs is not touched."""
    made = bench()
    async with made.working() as (_, session):
        holder, turn, thread_id, gate = await hold(made, session, where)
        await holder.end_commands()
        await holder.end_commands()
        cleaned = [frame["params"] for frame in made.wire.requests("thread/backgroundTerminals/clean")]
        assert cleaned == [{"threadId": thread_id}] * 2
        made.server.open_gate(gate)
        assert (await turn.wait()).status == "completed"


# in which mode


def modes(made: Any) -> list[str | None]:
    """What each turn said of its mode."""
    said = [frame["params"].get("collaborationMode") for frame in made.wire.requests("turn/start")]
    return [None if each is None else each["mode"] for each in said]


async def test_a_session_says_no_mode_until_a_turn_is_asked_for_in_one_and_then_each_says_its_own(
    autojump_clock: Any, bench: Any
) -> None:
    """The server keeps plan mode until it is told of another: a mode for one turn must be taken back by the next."""
    made = bench()
    async with made.host() as host:
        session = await host.start_session(cwd="/project")
        for mode in (None, "plan", None, None, "default", "plan", "plan", None):
            await session.ask("what?", mode=mode)
        assert modes(made) == [None, "plan", "default", "default", "default", "plan", "plan", "default"]
        [plan, *_] = [frame["params"] for frame in made.wire.requests("turn/start")][1:]
        assert plan["collaborationMode"]["settings"]["developer_instructions"] is None  # the server's own words for it


async def test_a_side_can_be_asked_in_plan_mode_and_keeps_its_instructions_there(
    autojump_clock: Any, bench: Any
) -> None:
    """Specification: Side turns keep their instructions. R19: a Side of a source in a plan turn is in that mode too."""
    made = bench(faults=(AnswerLate(method="thread/unsubscribe", after_s=0.1),))
    async with made.host() as host:
        session = await host.start_session(cwd="/project")
        await session.ask("what?")
        async with session.side(instructions="be brief") as side:
            for mode in ("plan", None):
                await side.ask("what?", mode=mode)
        planned = await session.send("refactor", mode="plan")
        await made.server.wait_gate_reached("parent")
        await trio.testing.wait_all_tasks_blocked()
        async with session.side() as side:
            await side.ask("what?")
            await side.ask("what?", mode="default")
        made.server.open_gate("parent")
        await planned.wait()
        async with session.side() as side:
            await side.ask("what?")
        assert modes(made) == [None, "plan", "default", "plan", "plan", "default", "default"]
        texts = [
            frame["params"]["collaborationMode"]["settings"]["developer_instructions"]
            for frame in made.wire.requests("turn/start")[1:3]
        ]
        assert "plan mode" in texts[0]
        assert texts[0].endswith("\n\nbe brief")
        assert texts[1] == "be brief"
