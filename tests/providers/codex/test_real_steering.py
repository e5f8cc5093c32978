"""More input for a running turn of a real Codex, the end of its commands, and plan mode."""

import contextlib
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import Answer, CallTool, ModelScript, Pause, Reply, Say, ask_user
from tutti_side.contract import InteractionAnswer, TurnNotActiveError
from tutti_side.testing.processes import is_alive

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any

TASK, MORE, PLAN, RUN = "Refactor the parser", "And mind the tokenizer", "Make a plan", "Run it"
OPTIONS = [{"label": "Blue", "description": "like the sky"}, {"label": "Red", "description": "like wine"}]
QUESTION = {"id": "color", "header": "Color", "question": "Which color?", "options": OPTIONS}
LEFT_RUNNING = CallTool(name="exec_command", arguments='{"cmd":"echo $$ > pid; exec sleep 1000","yield_time_ms":250}')
"""After its quarter of a second the command goes on in the background, and the model is told so."""
SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("steered",)), when=MORE),
        Answer.of(Say(tokens=("one ",)), Pause(gate="held"), Say(tokens=("two",)), when=TASK),
        Answer(replies=(Reply(steps=(ask_user([QUESTION]),)), Reply(steps=(Say(tokens=("planned",)),))), when=PLAN),
        Answer(
            replies=(Reply(steps=(LEFT_RUNNING,)), Reply(steps=(Pause(gate="run"),))),
            when=RUN,
        ),
    )
)


@contextlib.asynccontextmanager
async def holding(host: Any, bench: Any, where: str) -> Any:
    """A session with a turn behind it, or a Side of it."""
    session = await host.start_session(cwd=bench.workspace)
    await session.ask("hello")
    holder = session if where == "session" else await session.open_side()
    yield holder
    await holder.close()


@pytest.mark.parametrize("where", ["session", "side"])
@pytest.mark.parametrize("when", ["just accepted", "streaming"])
async def test_more_input_reaches_the_model_in_the_same_turn(lab: Lab, where: str, when: str) -> None:
    """Specification: steer. One turn begins and ends, and the model is asked again with what was added."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host, holding(host, bench, where) as holder:
        turn = await holder.send(TASK)
        if when == "streaming":
            await bench.wire.wait_said("one ")
        await turn.steer(MORE)
        bench.model.gate("held").set()
        result = await turn.wait()
        assert (result.status, result.answer.text) == ("completed", "steered")
        asked = [request.last_user_text for request in bench.model.requests]
        assert MORE in asked[-1]
        thread_id = bench.wire.requests("turn/steer")[0]["params"]["threadId"]
        turns = [frame for frame in bench.wire.of_thread(thread_id) if frame["method"].startswith("turn/")]
        ours = [frame["method"] for frame in turns if frame["params"].get("turn", {}).get("id") == turn.id]
        assert ours == ["turn/started", "turn/completed"]
        with pytest.raises(TurnNotActiveError):
            await turn.steer(MORE)
        assert len(bench.wire.requests("turn/steer")) == 1


@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_real_server_refuses_input_for_a_turn_that_is_not_active_in_the_words_that_we_know(
    lab: Lab, where: str
) -> None:
    """F8: by these words an interrupt and a steer are told that their turn is over. Source: measured on 0.163."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host, holding(host, bench, where) as holder:
        thread = bench.adapters[-1]._live[holder.scope.ref].thread
        turn = await holder.send("hello")
        await turn.wait()
        for active in (False, True):
            if active:
                running = await holder.send(TASK)
                await bench.wire.wait_said("one ")
            thread.turns.active, kept = turn.id, thread.turns.active
            with pytest.raises(TurnNotActiveError) as raised:
                await bench.adapters[-1].steer(holder.scope.ref, turn.id, ())
            thread.turns.active = kept
            refused: Any = raised.value.__cause__
            words = "expected active turn id" if active else "no active turn"
            assert refused.server_message.startswith(words)
        bench.model.gate("held").set()
        assert (await running.wait()).status == "completed"


@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_command_that_an_interrupt_left_running_is_ended_on_request(lab: Lab, where: str) -> None:
    """T8: the interrupt ends the turn only; the thread lives on, and takes the next turn."""
    async with (
        lab.bench(SCRIPT, sandbox_mode="danger-full-access") as bench,
        bench.host() as host,
        holding(host, bench, where) as holder,
    ):
        turn = await holder.send(RUN)
        await bench.model.wait_reached("run")
        processes = bench.wire.note_processes()
        pid = int((bench.workspace / "pid").read_text())
        assert pid in processes
        await turn.cancel()
        assert (await turn.wait()).status == "canceled"
        assert is_alive(pid, processes[pid])
        await holder.end_commands()
        while is_alive(pid, processes[pid]):  # noqa: ASYNC110 - another process's end; the bench bounds it
            await trio.sleep(0.01)
        assert (await holder.ask("hello")).text == "Done."


@pytest.mark.parametrize("where", ["session", "side"])
async def test_in_plan_mode_the_model_may_ask_its_user_and_in_the_next_turn_not_any_more(lab: Lab, where: str) -> None:
    """Specification: plan mode. The server offers the tool in that mode only, and keeps a mode until told otherwise."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host, holding(host, bench, where) as holder:
        turn = await holder.send(PLAN, mode="plan")
        await bench.wire.wait_for(lambda frame: frame.get("method") == "item/tool/requestUserInput")
        await trio.testing.wait_all_tasks_blocked()
        [asked] = holder.interactions
        holder.respond(asked.interaction_id, InteractionAnswer(answers={"color": ("Blue",)}))
        assert (await turn.wait()).answer.text == "planned"
        assert (await holder.ask(PLAN)).text == "planned"
        assert holder.interactions == ()
        questions = [frame for frame in bench.wire.received if frame.get("method") == "item/tool/requestUserInput"]
        assert len(questions) == 1
        assert "unavailable in Default mode" in str(bench.model.requests[-1].items)
