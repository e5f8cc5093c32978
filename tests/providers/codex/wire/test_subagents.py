"""Sub-agents on the same pipe, over the fake app-server: marked, declined, never the parent's turn, closed with it.

How a real one announces them is in `test_real_subagents`; that ``thread/started`` names a parent is the schema's word,
which no server was seen to send.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex._closing import SUB_AGENT_BEGIN_WAIT_S
from tutti_providers.codex._subagents import SUB_AGENTS_MAX
from tutti_providers.codex.testing._fake_threads import FakeThread
from tutti_side.contract import Audit, MessageDelta, StatePatch, SubAgentEvent, TurnCompleted, TurnStarted

Frame = dict[str, Any]
Listen = Callable[..., Any]

AGENT, INNER = "01a0aaaa-0000-7000-8000-00000000000a", "01a0aaaa-0000-7000-8000-00000000000b"
TURN = "01a0aaaa-0000-7000-8000-0000000000ff"


def spawned(parent: str, turn: str, *agents: str) -> Frame:
    """A parent's item that names the threads of the agents that it started."""
    item = {
        "type": "collabAgentToolCall",
        "id": "call_1",
        "tool": "spawnAgent",
        "status": "completed",
        "senderThreadId": parent,
        "receiverThreadIds": list(agents),
        "agentsStates": {},
    }
    return {"method": "item/completed", "params": {"threadId": parent, "turnId": turn, "item": item}}


def started(parent: str, agent: str) -> Frame:
    return {"method": "thread/started", "params": {"thread": {"id": agent, "parentThreadId": parent}}}


def turn_of(agent: str, *, asks: bool = True) -> list[Frame]:
    """A whole turn of a sub-agent, in which it asks for something."""
    where = {"threadId": agent, "turnId": TURN}
    request: Frame = {
        "method": "item/commandExecution/requestApproval",
        "id": f"of {agent}",
        "params": {**where, "itemId": "call_9", "command": "rm -rf /"},
    }
    return [
        {"method": "thread/status/changed", "params": {"threadId": agent, "status": {"type": "active"}}},
        {"method": "turn/started", "params": {"threadId": agent, "turn": {"id": TURN, "status": "inProgress"}}},
        {"method": "item/agentMessage/delta", "params": {**where, "itemId": "m", "delta": "of the sub-agent"}},
        *([request] if asks else []),
        {"method": "thread/status/changed", "params": {"threadId": agent, "status": {"type": "idle"}}},
        {"method": "turn/completed", "params": {"threadId": agent, "turn": {"id": TURN, "status": "completed"}}},
    ]


class Stage:
    """A session or Side in mid-turn, and a way to make the server say things in one read."""

    def __init__(self, made: Any, session: Any, holder: Any, thread_id: str, gate: str) -> None:
        self.made = made
        self.session = session
        self.holder = holder
        self.turn = holder.active_turn
        self.thread_id = thread_id
        self.gate = gate

    async def say(self, *frames: Frame) -> None:
        """Make the server say this, behind an answer of its own and in the same read."""
        waiting = list(frames)
        self.made.wire.between = lambda frame: [waiting.pop(0) for _ in range(len(waiting))]
        await self.holder.end_commands()
        await trio.testing.wait_all_tasks_blocked()
        self.made.wire.between = lambda frame: []

    async def end(self) -> None:
        self.made.server.open_gate(self.gate)
        assert (await self.turn.wait()).status == "completed"


async def stage(made: Any, session: Any, where: str) -> Stage:
    if where == "session":
        return Stage(made, session, session, session.provider_session_id, "parent")
    side = await session.open_side()
    await side.send("hold on")
    await made.server.wait_gate_reached("held")
    await trio.testing.wait_all_tasks_blocked()
    return Stage(made, session, side, side.scope.binding.provider_session_id, "held")


@pytest.mark.parametrize("how", ["an item", "its thread's start"])
@pytest.mark.parametrize("where", ["session", "side"])
async def test_what_a_sub_agent_says_is_told_in_its_parent_and_marked_and_is_no_turn_of_it(
    autojump_clock: Any, bench: Any, listen: Listen, where: str, how: str
) -> None:
    """F1, R1, R3: also when all of it comes in the read that first names it. What it asks is declined (R11)."""
    made = bench()
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        scene = await stage(made, session, where)
        heard = listen(nursery, scene.holder.events())
        name = spawned(scene.thread_id, scene.turn.id, AGENT) if how == "an item" else started(scene.thread_id, AGENT)
        await scene.say(name, *turn_of(AGENT))
        assert scene.turn.is_active
        assert scene.holder.active_turn.id == scene.turn.id
        assert scene.holder.interactions == ()
        await scene.end()
        await trio.testing.wait_all_tasks_blocked()
        told = [event for event in heard.events if isinstance(event, SubAgentEvent)]
        assert {event.agent_id for event in told} == {AGENT}
        assert [event.event for event in told] == [
            StatePatch("active"),
            TurnStarted(TURN),  # type: ignore[arg-type]
            MessageDelta(TURN, "m", "of the sub-agent"),  # type: ignore[arg-type]
            Audit("request_declined", "item/commandExecution/requestApproval"),
            StatePatch("idle"),
            TurnCompleted(TURN),  # type: ignore[arg-type]
        ]
        assert "of the sub-agent" not in scene.turn.answer.text + heard.text
        assert [event for event in heard.events if isinstance(event, TurnCompleted)] == [TurnCompleted(scene.turn.id)]
        [answer] = [frame for frame in made.wire.sent if frame.get("id") == f"of {AGENT}"]
        assert answer["result"] == {"decision": "decline"}
        assert made.connection.sub_agents == 1
        assert "unknown" not in made.connection.router.dropped
        await scene.holder.close()


async def test_what_a_sub_agent_starts_itself_is_told_in_the_same_place(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """Our choice: one level of marking, whoever started whom."""
    made = bench()
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        scene = await stage(made, session, "session")
        heard = listen(nursery, session.events())
        await scene.say(spawned(scene.thread_id, scene.turn.id, AGENT))
        await scene.say(spawned(AGENT, TURN, INNER), *turn_of(INNER, asks=False))
        told = [event for event in heard.events if isinstance(event, SubAgentEvent) and event.agent_id == INNER]
        assert len(told) == 5
        assert not any(isinstance(event.event, SubAgentEvent) for event in told)
        await session.close()


async def test_a_long_chain_of_sub_agents_that_name_each_other_early_is_followed_within_the_bound(
    autojump_clock: Any, bench: Any
) -> None:
    """R12: each one's early words name the next; no call goes as deep as that, and never more are followed at once."""
    made = bench()
    async with made.working() as (_, session):
        scene = await stage(made, session, "session")
        ids = [f"01a0aaaa-0000-7000-8000-{number:012x}" for number in range(200)]
        await scene.say(*[spawned(agent, TURN, after) for agent, after in itertools.pairwise(ids)])
        await scene.say(spawned(scene.thread_id, scene.turn.id, ids[0]))
        assert made.connection.sub_agents == len(ids)
        assert made.connection.router.route_failures == 0
        assert made.connection.router.routes == 1 + SUB_AGENTS_MAX
        await scene.end()
        await session.close()


async def test_a_thread_that_is_known_as_something_else_is_never_taken_for_a_sub_agent(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """R1: an item that names the parent, or a Side, open or closed: each stays what it is."""
    made = bench()
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        side = await session.open_side()
        scene = await stage(made, session, "session")
        heard = listen(nursery, session.events())
        [child] = made.children
        await scene.say(spawned(scene.thread_id, scene.turn.id, scene.thread_id, child))
        assert (await side.ask("what?")).text == "s0 s1 "
        await side.close()
        await scene.say(spawned(scene.thread_id, scene.turn.id, child), *turn_of(child, asks=False))
        assert not [event for event in heard.events if isinstance(event, SubAgentEvent)]
        assert made.connection.sub_agents == 0
        await scene.end()
        await session.close()


async def test_an_item_that_another_thread_sent_makes_nobody_a_sub_agent(autojump_clock: Any, bench: Any) -> None:
    """R1: the sender is the thread itself, or nothing follows from it."""
    made = bench()
    async with made.working() as (_, session):
        scene = await stage(made, session, "session")
        foreign = spawned(scene.thread_id, scene.turn.id, AGENT)
        foreign["params"]["item"]["senderThreadId"] = "another"
        await scene.say(foreign, *turn_of(AGENT))
        await scene.end()
        assert made.connection.sub_agents == 0
        assert made.connection.router.dropped["unknown"] == 6


@pytest.mark.parametrize("how", ["an item", "its thread's start"])
async def test_what_a_sub_agent_says_before_it_is_named_is_told_as_soon_as_it_is(
    autojump_clock: Any, bench: Any, listen: Listen, how: str
) -> None:
    """R3, F3, seen on 0.163: its status and its turn's start can come first, in a read of their own.

    A Side that is opened meanwhile takes nothing of it away.
    """
    made = bench()
    async with made.working() as (_, session), trio.open_nursery() as nursery:
        scene = await stage(made, session, "session")
        heard = listen(nursery, session.events())
        early, late = turn_of(AGENT, asks=False)[:2], turn_of(AGENT, asks=False)[2:]
        name = spawned(scene.thread_id, scene.turn.id, AGENT) if how == "an item" else started(scene.thread_id, AGENT)
        await scene.say(*early)
        side = await session.open_side()
        await scene.say(name, *late)
        await scene.end()
        await trio.testing.wait_all_tasks_blocked()
        told = [event.event for event in heard.events if isinstance(event, SubAgentEvent)]
        assert [type(event).__name__ for event in told] == [
            "StatePatch",
            "TurnStarted",
            "MessageDelta",
            "StatePatch",
            "TurnCompleted",
        ]
        assert (made.connection.router.pooled, made.connection.router.dropped) == (0, {})
        await side.close()
        await session.close()


@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_sub_agent_is_closed_with_its_parent(autojump_clock: Any, bench: Any, where: str) -> None:
    """R6, T6, T8, T21: the server lets it run on otherwise; interrupted, its commands ended, unsubscribed; R7."""
    made = bench()
    async with made.working() as (host, session):
        scene = await stage(made, session, where)
        turns = made.machine._requests.turns
        agent = made.machine.threads[AGENT] = FakeThread(AGENT, made.setup, {"ephemeral": True})
        running = turns.begin(agent, [{"type": "text", "text": "hold on"}])
        await scene.say(spawned(scene.thread_id, scene.turn.id, AGENT), *turn_of_running(AGENT, running.id))
        assert made.connection.router.routes == (3 if where == "side" else 2)
        await scene.holder.close()
        assert agent.turn is None
        assert not agent.subscribed
        of_agent = [frame["method"] for frame in made.wire.sent if frame.get("params", {}).get("threadId") == AGENT]
        assert of_agent == ["turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"]
        if where == "side":
            assert session.active_turn is not None
            made.assert_only(host, session)


def turn_of_running(agent: str, turn: str) -> list[Frame]:
    return [{"method": "turn/started", "params": {"threadId": agent, "turn": {"id": turn, "status": "inProgress"}}}]


async def test_a_sub_agent_whose_turn_has_not_begun_at_the_close_is_interrupted_when_it_does(
    autojump_clock: Any, bench: Any
) -> None:
    """R6: named as started, and its first turn still to come; unheard of it would run on."""
    made = bench()
    async with made.working() as (host, session), trio.open_nursery() as nursery:
        scene = await stage(made, session, "side")
        agent = made.machine.threads[AGENT] = FakeThread(AGENT, made.setup, {"ephemeral": True})
        await scene.say(spawned(scene.thread_id, scene.turn.id, AGENT))
        turns, outbox = made.machine._requests.turns, made.machine._outbox

        def begin() -> None:
            inputs = [{"type": "text", "text": "hold on"}]
            turn = turns.begin(agent, inputs)
            turns.announce(agent, turn)
            turns.play(agent, turn, inputs)

        outbox.at_gate("its turn begins", begin)
        nursery.start_soon(scene.holder.close)
        await trio.sleep(SUB_AGENT_BEGIN_WAIT_S / 2)
        made.server.open_gate("its turn begins")
        await scene.holder.close()
        assert agent.turn is None
        assert not agent.subscribed
        of_agent = [frame["method"] for frame in made.wire.sent if frame.get("params", {}).get("threadId") == AGENT]
        assert of_agent == ["turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"]
        made.assert_only(host, session)


async def test_a_sub_agent_that_can_not_be_let_go_now_is_released_in_the_background(
    autojump_clock: Any, bench: Any
) -> None:
    """R6, R12: its parent's close doesn't wait for it for ever."""
    made = bench()
    async with made.working() as (host, session):
        scene = await stage(made, session, "side")
        await scene.say(spawned(scene.thread_id, scene.turn.id, AGENT), *turn_of(AGENT))  # the server does not know it
        with trio.fail_after(60):
            await scene.holder.close()
        await trio.sleep(40)  # not a multiple of 30 s: then the server is asked for a sign of life
        made.assert_only(host, session)


async def test_only_so_many_are_followed_and_the_oldest_that_rests_goes_first(autojump_clock: Any, bench: Any) -> None:
    """R12: and when none rests, the new one stays a stranger."""
    made = bench()
    async with made.working() as (_, session):
        scene = await stage(made, session, "session")
        ids = [f"01a0bbbb-0000-7000-8000-{number:012d}" for number in range(SUB_AGENTS_MAX + 2)]
        for agent in ids:
            made.machine.threads[agent] = FakeThread(agent, made.setup, {"ephemeral": True})
        await scene.say(spawned(scene.thread_id, scene.turn.id, *ids[:SUB_AGENTS_MAX]))
        await scene.say(*turn_of_running(ids[0], TURN), spawned(scene.thread_id, scene.turn.id, ids[-2]))
        assert made.connection.router.routes == SUB_AGENTS_MAX + 1
        assert not made.machine.threads[ids[1]].subscribed
        assert made.machine.threads[ids[0]].subscribed
        for agent in [*ids[2:SUB_AGENTS_MAX], ids[-2]]:
            await scene.say(*turn_of_running(agent, TURN))
        await scene.say(spawned(scene.thread_id, scene.turn.id, ids[-1]))
        assert made.connection.router.routes == SUB_AGENTS_MAX + 1
        assert made.connection.sub_agents == SUB_AGENTS_MAX + 1
        with trio.fail_after(120):
            await session.close()
