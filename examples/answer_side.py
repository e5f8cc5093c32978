"""Answer what an agent asks in a Side: an approval, then a question. The scripted provider plays the agent.

    python examples/answer_side.py

`side.interactions` says what is open, `side.respond` answers it, once. What nobody answers is
declined when the Side closes.
"""

import trio

from tutti_providers.scripted import Ask, Say, Script, Turn, scripted
from tutti_side import InteractionAnswer, InteractionRequested, SideHandle, Subscription, open_host
from tutti_side.contract import InteractionQuestion

SCRIPT = Script(
    turns=(
        Turn(
            when="Which parser do we use?",
            steps=(
                Ask(title="grep -rn parser .", answers={"accept": (Say(("I looked. ",)),)}),
                Ask(
                    title="Which one?",
                    kind="question",
                    questions=(InteractionQuestion(id="which", text="Old or new?", options=("old", "new")),),
                ),
                Say(("The new one.",)),
            ),
        ),
    )
)


async def answer(side: SideHandle, events: Subscription) -> None:
    """Allow commands that only look, and answer each question with its last option."""
    async for batch in events:
        for event in batch.events:
            if not isinstance(event, InteractionRequested):
                continue
            print(f"the agent asks: {event.title}")
            if event.kind == "approval":
                option = "accept" if event.title.startswith("grep ") else "decline"
                side.respond(event.interaction_id, InteractionAnswer(option_id=option))
            else:
                answers = {question.id: (question.options[-1],) for question in event.questions}
                side.respond(event.interaction_id, InteractionAnswer(answers=answers))


async def main() -> None:
    async with open_host(scripted(SCRIPT)) as host:
        session = await host.start_session(cwd=".")
        await session.ask("Hello")
        async with session.side(subscribe=True) as side, trio.open_nursery() as nursery:
            nursery.start_soon(answer, side, side.events())
            print("side:", (await side.ask("Which parser do we use?")).messages)
            await side.close()  # its last event ends `answer`


if __name__ == "__main__":
    trio.run(main)
