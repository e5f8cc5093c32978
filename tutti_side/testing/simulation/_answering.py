"""Users who are asked something: they answer, twice, late, wrongly, two at once, or not at all."""

import random

import trio

from tutti_side.contract import InteractionAnswer, InteractionId, InteractionRequested
from tutti_side.runtime import SessionHandle, SideHandle
from tutti_side.testing.simulation._calls import Caller
from tutti_side.testing.simulation._stage import Stage

__all__ = ["answer_drawn", "decline"]

WAYS = ("one", "one", "one", "two", "again", "wrong", "late", "nobody")
"""Drawn evenly."""

LATE_S = (0.3, 4.0, 40.0)
"""How late an answer comes."""


async def answer_drawn(
    stage: Stage, handle: SessionHandle | SideHandle, owner: str, asked: InteractionRequested, caller: Caller
) -> None:
    """Answer one interaction in a drawn way."""
    way = caller.rng.choice(WAYS)
    if way == "nobody":
        stage.recorder.fault("nobody_answers")
        return
    if way == "late":
        stage.recorder.fault("late_user")
        await trio.sleep(caller.rng.choice(LATE_S))
    if way == "wrong":
        await _respond(handle, owner, asked.interaction_id, InteractionAnswer(option_id="maybe"), "maybe", caller)
    if way == "two":
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_respond, handle, owner, asked.interaction_id, *_draw(asked, caller.rng), caller)
        return
    for _ in range(2 if way == "again" else 1):
        await _respond(handle, owner, asked.interaction_id, *_draw(asked, caller.rng), caller)


async def decline(handle: SessionHandle | SideHandle, owner: str, asked: InteractionRequested, caller: Caller) -> None:
    """Answer no, in the calm; a question that takes answers only is answered."""
    if any(option.id == "decline" for option in asked.options):
        answer, detail = InteractionAnswer(option_id="decline"), "decline"
    else:
        answer, detail = _draw(asked, caller.rng)
    await _respond(handle, owner, asked.interaction_id, answer, detail, caller)


async def _respond(
    handle: SessionHandle | SideHandle,
    owner: str,
    interaction_id: InteractionId,
    answer: InteractionAnswer,
    detail: str,
    caller: Caller,
) -> None:
    async def respond() -> None:
        await trio.lowlevel.checkpoint()
        handle.respond(interaction_id, answer)

    await caller.call("respond", respond, owner=owner, detail=detail, interaction=interaction_id)


def _draw(asked: InteractionRequested, rng: random.Random) -> tuple[InteractionAnswer, str]:
    """Draw an answer that is taken: an option, or a reply to each question."""
    option = rng.choice(asked.options).id if asked.options else None
    if option not in (None, "accept") or not asked.questions:
        return InteractionAnswer(option_id=option), option or "answers"
    replies = {
        question.id: (rng.choice(question.options) if question.options else "1",) for question in asked.questions
    }
    return InteractionAnswer(option_id=option, answers=replies), option or "answers"
