"""Sides of a real, running Codex: the turn that runs never notices, each thread gets its own words and all of them."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import trio

from tutti_providers.codex.testing import Answer, ModelScript, Pause, Reply, Say, ToolServer, run_command
from tutti_side import SessionHandle, TurnHandle

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any
Listen = Callable[[trio.Nursery, Any], Any]

TASK = "Refactor the parser"
FIRST = tuple(f"work-{number} " for number in range(20))
REST = tuple(f"rest-{number} " for number in range(20))
SIDE = tuple(f"aside-{number} " for number in range(12))
SIDE_STARTED = ("halfway ", "through ")
QUESTION = "What does the tokenizer do?"
HELD_QUESTION = "And the lexer?"

SIDE_LIFE = [
    *("SessionStarted", "TurnStarted", "TurnCompleted"),
    *("TurnStarted", "TurnCanceled", "SessionClosed"),
]
"""What begins and ends in a Side with an answered and an interrupted question."""

SIDE_ANSWERS = (
    Answer.of(Say(tokens=SIDE), when=QUESTION),
    Answer.of(Say(tokens=SIDE_STARTED), Pause(gate="side"), Say(tokens=("never said",)), when=HELD_QUESTION),
)
STREAMING = Answer.of(Say(tokens=FIRST), Pause(gate="parent"), Say(tokens=REST), when=TASK)
IN_A_TOOL = Answer(
    replies=(
        Reply(steps=(Say(tokens=FIRST), run_command("read word < gate; echo got $word"))),
        Reply(steps=(Say(tokens=REST),)),
    ),
    when=TASK,
)
UNSANDBOXED = {"approval_policy": "never", "sandbox_mode": "danger-full-access"}
"""A sandbox needs rights that not every machine gives; what runs in it is not what is tested here."""


class StreamingParent:
    """The parent's model is in the middle of a text."""

    answer = STREAMING

    def prepare(self, bench: Bench) -> None:
        """Nothing to do."""

    async def wait_busy(self, bench: Bench) -> None:
        await bench.wire.wait_said(FIRST[-1])

    async def let_go(self, bench: Bench) -> None:
        bench.model.gate("parent").set()


class ParentInTool:
    """The parent's shell command reads from a pipe that nobody has written to."""

    answer = IN_A_TOOL

    def prepare(self, bench: Bench) -> None:
        os.mkfifo(bench.workspace / "gate")

    async def wait_busy(self, bench: Bench) -> None:
        await bench.wire.wait_for(
            lambda frame: (
                frame.get("method") == "item/started" and frame["params"]["item"]["type"] == "commandExecution"
            )
        )

    async def let_go(self, bench: Bench) -> None:
        # Opening the pipe waits for its reader, so this shows as well that the command was running all the time.
        await trio.to_thread.run_sync((bench.workspace / "gate").write_text, "ready\n", abandon_on_cancel=True)


async def use_a_side(nursery: trio.Nursery, bench: Bench, session: SessionHandle, listen: Listen) -> Any:
    """Open a Side, ask it, interrupt its second turn, close it; return what its subscriber heard."""
    async with session.side(subscribe=True) as side:
        heard = listen(nursery, side.events())
        assert (await side.ask(QUESTION)).text == "".join(SIDE)
        held = await side.send(HELD_QUESTION)
        await bench.wire.wait_said(SIDE_STARTED[-1])
        await held.cancel()
        assert (await held.wait()).status == "canceled"
    return heard


def assert_routed_as_written(bench: Bench) -> None:
    """Every route got the messages of its thread, all of them up to its end, in the order of the wire (R1, R3)."""
    for thread_id, delivered in bench.delivered.items():
        written = bench.wire.of_thread(thread_id)
        assert delivered == written[: len(delivered)]
    statistics = bench.connection.router
    assert statistics.creations == statistics.pooled == statistics.evictions == statistics.route_failures == 0
    assert not {"unknown", "unadopted", "malformed", "evicted"} & statistics.dropped.keys()


@pytest.mark.parametrize("parent", [StreamingParent(), ParentInTool()], ids=["streaming", "in a tool"])
@pytest.mark.parametrize("earlier_turns", [0, 1], ids=["first turn", "later turn"])
async def test_a_turn_is_complete_and_unchanged_with_a_side_opened_interrupted_and_closed_in_it(
    lab: Lab, listen: Listen, parent: StreamingParent | ParentInTool, earlier_turns: int
) -> None:
    """Required; R1, R3, R7, T2: fork while a turn runs, the first one of a session included."""
    script = ModelScript(answers=(parent.answer, *SIDE_ANSWERS))
    async with lab.bench(script, **UNSANDBOXED) as bench, bench.host() as host, trio.open_nursery() as nursery:
        parent.prepare(bench)
        session = await host.start_session(cwd=bench.workspace)
        for _ in range(earlier_turns):
            await session.ask("hello")
        heard = listen(nursery, session.events())
        turn = await session.send(TASK)
        await parent.wait_busy(bench)

        side_heard = await use_a_side(nursery, bench, session, listen)

        assert turn.is_active
        assert bench.connection.router.routes == 1
        await parent.let_go(bench)
        result = await turn.wait()
        assert result.status == "completed"
        assert "".join(result.answer.messages) == "".join(FIRST + REST)
        assert_routed_as_written(bench)
        await session.close()
    assert heard.tokens == [*FIRST, *REST]
    assert side_heard.tokens == [*SIDE, *SIDE_STARTED]
    assert side_heard.sequences == list(range(1, len(side_heard.sequences) + 1))
    assert [kind for kind in side_heard.runs if kind in set(SIDE_LIFE)] == SIDE_LIFE


async def test_a_side_whose_turn_runs_is_closed_in_the_order_that_the_server_needs(lab: Lab) -> None:
    """T5, T21: interrupt, the turn's end, background terminals, unsubscribe; unsubscribed earlier, the end is lost."""
    script = ModelScript(answers=(STREAMING, *SIDE_ANSWERS))
    async with lab.bench(script) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await bench.model.wait_reached("parent")
        side = await session.open_side()
        held = await side.send(HELD_QUESTION)
        await bench.wire.wait_said(SIDE_STARTED[-1])
        await side.close()
        [child] = [result["thread"]["id"] for result in bench.wire.results("thread/fork")]
        assert (await held.wait()).status == "canceled"
        after = [
            (direction, frame["method"])
            for direction, frame in bench.wire.frames
            if "method" in frame and (frame.get("params") or {}).get("threadId") == child
        ]
        order = [
            ("out", "turn/interrupt"),
            ("in", "turn/completed"),
            ("out", "thread/backgroundTerminals/clean"),
            ("out", "thread/unsubscribe"),
        ]
        assert [step for step in after if step in order] == order
        assert bench.wire.results("thread/unsubscribe") == [{"status": "unsubscribed"}]
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "".join(FIRST + REST)


async def test_two_sides_of_one_source_answer_at_once_and_each_hears_itself_only(lab: Lab, listen: Listen) -> None:
    """R1, R3: both streams and the parent's are held in their middle, and let go in another order."""
    one, two = (tuple(f"{name}-{number} " for number in range(24)) for name in ("one", "two"))
    answers = [
        Answer.of(Say(tokens=tokens[:10]), Pause(gate=gate), Say(tokens=tokens[10:]), when=gate)
        for tokens, gate in ((one, "first?"), (two, "second?"))
    ]
    async with (
        lab.bench(ModelScript(answers=(STREAMING, *answers))) as bench,
        bench.host() as host,
        trio.open_nursery() as nursery,
    ):
        session = await host.start_session(cwd=bench.workspace)
        parent = listen(nursery, session.events())
        turn = await session.send(TASK)
        await bench.model.wait_reached("parent")
        turns: dict[str, TurnHandle] = {}
        heard: dict[str, Any] = {}
        async with session.side(subscribe=True) as left, session.side(subscribe=True) as right:
            for side, gate in ((left, "first?"), (right, "second?")):
                heard[gate] = listen(nursery, side.events())
                turns[gate] = await side.send(gate)
            for gate in turns:
                await bench.model.wait_reached(gate)
            for gate, tokens in (("second?", two), ("first?", one)):
                bench.model.gate(gate).set()
                assert (await turns[gate].wait()).answer.text == "".join(tokens)
        bench.model.gate("parent").set()
        await turn.wait()
        assert_routed_as_written(bench)
        await session.close()
    for gate, tokens in (("first?", one), ("second?", two)):
        assert heard[gate].tokens == list(tokens)
        assert heard[gate].sequences == list(range(1, len(heard[gate].sequences) + 1))
    assert parent.tokens == [*FIRST, *REST]


async def test_what_comes_of_a_child_before_its_fork_is_answered_belongs_to_the_side(lab: Lab) -> None:
    """F3, F4, T11: a tool server makes the real server speak of a child; by itself seldom before the fork's answer.

    So each open is done in the server's own order, and again with its answer held back behind that notification.
    """
    script = ModelScript(answers=(STREAMING, *SIDE_ANSWERS))
    home = {"tool_servers": [ToolServer()], "settings": {"thread_unload_delay_secs": 0}}
    async with lab.bench(script, **home) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await bench.wire.wait_said(FIRST[-1])
        for _ in range(6):
            for late in (False, True):
                bench.wire.forks_answered_late = late
                async with session.side() as side:
                    child = side.scope.binding.provider_session_id
                    early = early_frames(bench.wire, child)
                    assert ("mcpServer/startupStatus/updated" in [frame["method"] for frame in early]) or not late
                    assert bench.delivered.get(child, [])[: len(early)] == early
                    assert (await side.ask(QUESTION)).text == "".join(SIDE)
        assert_routed_as_written(bench)
        assert bench.connection.router.routes == 1
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "".join(FIRST + REST)


def early_frames(wire: Any, child: str) -> list[dict[str, Any]]:
    """What the server said of a child before it answered the fork that made it."""
    early: list[dict[str, Any]] = []
    of_child = wire.of_thread(child)
    for frame in wire.received:
        if ((frame.get("result") or {}).get("thread") or {}).get("id") == child:
            return early
        if frame in of_child:
            early.append(frame)
    raise AssertionError("that fork was never answered")


async def test_a_line_of_megabytes_arrives_whole(lab: Lab) -> None:
    """T22, F11: a long delta is one line; nothing before or after it is lost."""
    token = "x" * 3_000_000
    script = ModelScript(answers=(STREAMING, Answer.of(Say(tokens=("before ", token, " after")), when=QUESTION)))
    async with lab.bench(script) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await bench.model.wait_reached("parent")
        async with session.side() as side:
            assert (await side.ask(QUESTION)).text == f"before {token} after"
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "".join(FIRST + REST)
