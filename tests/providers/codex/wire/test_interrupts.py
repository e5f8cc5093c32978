"""Interrupts that many ask for at once, and consumers that ask for something from inside their own event loop."""

from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import Answer, AnswerLate, ModelScript, Pause, Reply, Say, run_command
from tutti_side.contract import InteractionAnswer, InteractionRequested, TurnNotActiveError

ASKS = Answer(
    replies=(
        Reply(steps=(run_command("touch x", justification="Allow it?"),)),
        Reply(steps=(Say(tokens=("answered",)),)),
    ),
    when="may I?",
)
SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("p0 ", "p1 ")), Pause(gate="parent"), Say(tokens=("p2 ",)), when="refactor"),
        Answer.of(Say(tokens=("s0 ",)), when="what?"),
        ASKS,
    )
)


async def test_however_many_ask_for_it_one_interrupt_of_a_turn_is_on_its_way(autojump_clock: Any, bench: Any) -> None:
    """T9: 0.163 leaves a surplus one unanswered until the thread's next turn ends; a close asks for one as well."""
    made = bench(faults=(AnswerLate(method="turn/interrupt", after_s=2),))
    async with made.working() as (host, session):
        side = await session.open_side()
        turn = await side.send("hold on")
        await trio.testing.wait_all_tasks_blocked()

        async def cancel() -> None:
            try:
                await turn.cancel()
            except TurnNotActiveError:
                pytest.fail("it was active when this was asked")

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(cancel)
            nursery.start_soon(side.close)
        assert (await turn.wait()).status == "canceled"
        [asked] = made.wire.requests("turn/interrupt")
        assert asked["params"]["turnId"] == turn.id
        await trio.sleep(61)
        made.assert_only(host, session)


class Oops(Exception):
    """A consumer's own."""


@pytest.mark.parametrize("how", ["calls back", "raises", "never looks"])
async def test_who_is_asked_does_no_harm_to_the_connection_whatever_he_does(
    autojump_clock: Any, bench: Any, how: str
) -> None:
    """F27: what asks is an event among others, so no code of a user's runs in the reader."""
    made = bench(script=SCRIPT)
    async with made.working() as (_, session), session.side() as side, session.side() as other:
        turn = await side.send("may I?")
        await trio.testing.wait_all_tasks_blocked()

        async def consume() -> None:
            [asked] = side.interactions
            assert isinstance(asked, InteractionRequested)
            if how == "calls back":
                assert (await other.ask("what?")).text == "s0 "
                side.respond(asked.interaction_id, InteractionAnswer(option_id="accept"))
                assert (await turn.wait()).answer.text == "answered"
            elif how == "raises":
                raise Oops

        if how == "raises":
            with pytest.raises(Oops):
                await consume()
        else:
            await consume()
        assert (await other.ask("what?")).text == "s0 "
        assert len(side.interactions) == (0 if how == "calls back" else 1)
        made.server.open_gate("parent")
        assert (await session.active_turn.wait()).answer.text == "p0 p1 p2 "
