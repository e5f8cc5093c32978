"""Interrupting a turn of a real Codex that has only just been accepted."""

from typing import Any

import pytest
import trio

from tutti_providers.codex.testing import Answer, ModelScript, Pause, Say

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any

TASK = "Refactor the parser"
STREAMING = Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK)


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_turn_is_interrupted_even_in_the_moment_in_which_it_was_accepted(lab: Lab, how: str) -> None:
    """F34, F33, T21: until the server has said that the turn began it refuses an interrupt, and the turn runs on."""
    script = ModelScript(answers=(STREAMING,))
    async with lab.bench(script) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await (turn.cancel() if how == "cancel" else session.close())
        assert (await turn.wait()).status == "canceled"
        [ended] = [frame for frame in bench.wire.received if frame.get("method") == "turn/completed"]
        assert ended["params"]["turn"]["status"] == "interrupted"


async def test_a_turn_whose_starter_gave_up_is_interrupted_as_soon_as_it_has_a_name(lab: Lab) -> None:
    """F33: cancelling the caller of `send` in the instant after it wrote; nobody else knows of that turn."""
    script = ModelScript(answers=(STREAMING,))
    async with lab.bench(script) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.send, TASK)
            await bench.wire.wait_sent("turn/start")
            nursery.cancel_scope.cancel()
        ended = await bench.wire.wait_for(lambda frame: frame.get("method") == "turn/completed")
        assert ended["params"]["turn"]["status"] == "interrupted"
        assert (await session.ask("hello")).text == "Done."
