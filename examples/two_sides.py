"""Two Sides of one session at once: one fails, the other goes on, and the session never notices.

python examples/two_sides.py
"""

import trio

from tutti_providers.scripted import Fail, Say, Script, Turn, Wait, scripted, words
from tutti_side import SideHandle, TurnFailedError, open_host

provider = scripted(
    Script(
        turns=(
            Turn(when="Refactor", steps=(Say(words("On it.")), Wait(gate="sides are done"), Say(words("All done.")))),
            Turn(when="tests", steps=(Say(words("The tests ")), Fail("the model is overloaded"))),
            Turn(when="tokenizer", steps=(Wait(seconds=0.1), Say(words("It cuts the text into words.")))),
        )
    )
)


async def ask(side: SideHandle, question: str) -> None:
    try:
        answer = await side.ask(question)
    except TurnFailedError as error:
        print(f"{side.id}: failed: {error.provider_message}")
    else:
        print(f"{side.id}: {answer.text}")


async def main() -> None:
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("Refactor the parser")
        async with session.side(side_id="left") as left, session.side(side_id="right") as right:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, left, "Do the tests pass?")
                nursery.start_soon(ask, right, "What does the tokenizer do?")
            print("left is still open for questions:", left.is_open)
        provider.gate("sides are done").set()
        print("main:", (await turn.wait()).answer.text)


if __name__ == "__main__":
    trio.run(main)
