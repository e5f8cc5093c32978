"""A sub-agent of a real Codex speaks on the same pipe as its parent, and begins and ends turns of its own there."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tutti_providers.codex.testing import Answer, CallTool, ModelScript, Pause, Reply, Say
from tutti_side.contract import MessageDelta, SubAgentEvent, TurnCompleted, TurnStarted
from tutti_side.testing.processes import is_alive

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Listen = Callable[[trio.Nursery, Any], Any]

TASK = "Refactor the parser"
SUBTASK = "Look at the tokenizer"
SPAWN = CallTool(name="spawn_agent", namespace="multi_agent_v1", arguments=f'{{"message":"{SUBTASK}"}}')
SPAWN_V2 = CallTool(
    name="spawn_agent",
    namespace="collaboration",
    arguments=f'{{"message":"{SUBTASK}","task_name":"look","fork_turns":"none"}}',
)
"""With the feature ``multi_agent_v2``: no item is under way while it starts; one that says so comes afterwards."""
LEFT_RUNNING = CallTool(name="exec_command", arguments='{"cmd":"echo $$ > pid; exec sleep 1000","yield_time_ms":250}')
"""After its quarter of a second the command goes on in the background, and the model is told so."""


def script(spawn: CallTool) -> ModelScript:
    """When Codex tells the parent in time that its sub-agent has finished, the parent's model is asked once more."""
    return ModelScript(
        answers=(
            Answer.of(Say(tokens=("of the sub-agent",)), when=SUBTASK),
            Answer(
                replies=(
                    Reply(steps=(Say(tokens=("one ",)), spawn)),
                    Reply(steps=(Pause(gate="rest"), Say(tokens=("two",)))),
                ),
                when=TASK,
            ),
        ),
        otherwise=Reply(steps=(Say(tokens=("told of it",)),)),
    )


@pytest.mark.parametrize(
    ("spawn", "says"),
    # What a sub-agent is asked is no user's message in the second, so the model has no answer of its own for it.
    [(SPAWN, "of the sub-agent"), (SPAWN_V2, "told of it")],
    ids=["multi_agent", "multi_agent_v2"],
)
@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_sub_agents_turn_neither_speaks_in_nor_ends_the_turn_of_its_parent(
    lab: Lab, listen: Listen, where: str, spawn: CallTool, says: str
) -> None:
    """F1, F2, R1, R3: it begins and ends while the parent's turn is held in the middle; the same for a Side's own."""
    features = {"multi_agent_v2": spawn is SPAWN_V2}
    async with (
        lab.bench(script(spawn), features=features) as bench,
        bench.host() as host,
        trio.open_nursery() as nursery,
    ):
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        holder = session if where == "session" else await session.open_side()
        heard = listen(nursery, holder.events())
        turn = await holder.send(TASK)
        ours = {session.provider_session_id} | {made["thread"]["id"] for made in bench.wire.results("thread/fork")}
        await bench.model.wait_reached("rest")
        of_sub = await bench.wire.wait_for(
            lambda frame: frame.get("method") == "turn/completed" and frame["params"]["threadId"] not in ours
        )
        assert turn.is_active
        bench.model.gate("rest").set()
        result = await turn.wait()
        assert (result.status, result.answer.messages[:2]) == ("completed", ("one ", "two"))
        assert set(result.answer.messages[2:]) <= {"told of it"}
        assert set(bench.delivered) - ours == {of_sub["params"]["threadId"]}
        await holder.close()
        await session.close()
    assert heard.tokens[:2] == ["one ", "two"]
    assert "of the sub-agent" not in heard.tokens
    marked = [event for event in heard.events if isinstance(event, SubAgentEvent)]
    assert {event.agent_id for event in marked} == {of_sub["params"]["threadId"]}
    assert says in [event.event.text for event in marked if isinstance(event.event, MessageDelta)]
    of_agent = [type(event.event).__name__ for event in marked if isinstance(event.event, TurnStarted | TurnCompleted)]
    assert of_agent == ["TurnStarted", "TurnCompleted"]
    turns = [kind for kind in heard.runs if kind in ("TurnStarted", "TurnCompleted", "TurnFailed", "TurnCanceled")]
    assert turns == ["TurnStarted", "TurnCompleted"]


@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_sub_agent_and_its_commands_end_with_its_parent(lab: Lab, where: str) -> None:
    """R6, T8: the real one goes on when its parent is interrupted, cleaned and unsubscribed; so we close it."""
    works = Answer(
        replies=(
            Reply(steps=(LEFT_RUNNING,)),
            Reply(steps=(Pause(gate="sub"),)),
        ),
        when=SUBTASK,
    )
    both = ModelScript(answers=(works, *script(SPAWN).answers[1:]))
    async with lab.bench(both, sandbox_mode="danger-full-access") as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        other = await host.start_session(cwd=bench.workspace)
        holder = session if where == "session" else await session.open_side()
        await holder.send(TASK)
        await bench.model.wait_reached("rest")
        await bench.model.wait_reached("sub")
        processes = bench.wire.note_processes()
        pid = int((bench.workspace / "pid").read_text())
        assert is_alive(pid, processes[pid])
        await holder.close()
        while is_alive(pid, processes[pid]):  # noqa: ASYNC110 - another process's end; the bench bounds it
            await trio.sleep(0.01)
        [agent_id] = {request["params"]["threadId"] for request in bench.wire.requests("thread/unsubscribe")} - {
            session.provider_session_id,
            *(made["thread"]["id"] for made in bench.wire.results("thread/fork")),
        }
        statuses = [result["status"] for result in bench.wire.results("thread/unsubscribe")]
        assert statuses == ["unsubscribed"] * 2
        ends = [frame for frame in bench.wire.of_thread(agent_id) if frame["method"] == "turn/completed"]
        assert [frame["params"]["turn"]["status"] for frame in ends] == ["interrupted"]
        await other.close()
