"""What a real Codex answers when it is asked about a turn: the ground on which a missing end is settled."""

from typing import Any

import pytest

from tutti_providers.codex._settling import TURNS_LOOKED_AT, settle_turn
from tutti_providers.codex.schema.requests import ReadParams, ReadResult, TurnsListParams, TurnsPage
from tutti_providers.codex.testing import Answer, ModelScript, Pause, Say
from tutti_side.contract import TurnId

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any

TASK = "Refactor the parser"
STREAMING = Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK)
SCRIPT = ModelScript(answers=(STREAMING,))


def live_of(bench: Any, holder: Any) -> Any:
    return bench.adapters[-1]._live[holder.scope.ref]


async def test_a_session_lists_its_turns_and_how_each_ended_and_a_side_only_has_a_status(lab: Lab) -> None:
    """Specification: canonical through the thread's turns, a Side through its status."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        first = await session.send("hello")
        await first.wait()
        second = await session.send(TASK)
        await bench.model.wait_reached("parent")
        live = live_of(bench, session)
        thread_id = session.provider_session_id

        async def listed() -> dict[str, str]:
            params = TurnsListParams(
                thread_id=thread_id, limit=TURNS_LOOKED_AT, sort_direction="desc", items_view="notLoaded"
            )
            page = await live.connection.request(params, TurnsPage)
            return {turn.id: turn.status for turn in page.data}

        async def status_of(thread_id: str) -> str:
            read = await live.connection.request(ReadParams(thread_id=thread_id), ReadResult)
            status: str = read.thread.status.type
            return status

        assert await listed() == {first.id: "completed", second.id: "inProgress"}
        assert await status_of(thread_id) == "active"
        side = await session.open_side()
        side_id = live_of(bench, side).thread.thread_id
        assert await status_of(side_id) == "idle"
        held = await side.send(TASK)
        assert await status_of(side_id) == "active"
        await held.cancel()
        await held.wait()
        assert await status_of(side_id) == "idle"
        await second.cancel()
        await second.wait()
        assert await listed() == {first.id: "completed", second.id: "interrupted"}
        await side.close()


@pytest.mark.parametrize("where", ["session", "side"])
async def test_a_turn_that_runs_is_trusted_when_it_was_doubted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The real server's own answers end the doubt. Source: our choice."""
    monkeypatch.setattr("tutti_providers.codex._settling.DOUBT_S", 0.05)
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        holder = session if where == "session" else await session.open_side()
        turn = await holder.send(TASK)
        await bench.wire.wait_said("one ")
        live = live_of(bench, holder)
        await settle_turn(live.connection, live.thread, turn.id)
        assert turn.is_active
        assert bench.wire.requests("thread/read")
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "one two"


async def test_a_turn_whose_end_was_not_heard_is_settled_by_the_real_list(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R9: the end is swallowed on its way, and the list tells it."""
    monkeypatch.setattr("tutti_providers.codex._settling.DOUBT_S", 0.2)
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        turn = await session.send(TASK)
        thread = live_of(bench, session).thread
        deliver = thread.deliver
        monkeypatch.setattr(
            thread, "deliver", lambda batch: deliver([each for each in batch if each.method != "turn/completed"])
        )
        bench.model.gate("parent").set()
        result = await turn.wait()
        assert (result.status, result.answer.text, result.reason) == ("completed", "one two", None)
        assert thread.unread["missing end"] == 1
        assert thread.has_ended(TurnId(turn.id))
        monkeypatch.undo()
        assert (await session.ask("hello again")).text == "Done."
