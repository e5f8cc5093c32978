"""Open a Side in the middle of a turn, print its events, close it. No account, no network, nothing to install.

python examples/scripted_side.py
"""

import trio

from tutti_providers.scripted import Echo, Say, Script, Turn, Wait, scripted, words
from tutti_side import Subscription, open_host
from tutti_side.contract import MessageDelta

provider = scripted(
    Script(
        turns=(
            Turn(
                when="Refactor",
                steps=(Say(words("First I read the parser. ")), Wait(gate="side is closed"), Say(words("All done."))),
            ),
            Turn(in_side=True, steps=(Echo(),)),
        )
    )
)


async def show(events: Subscription) -> None:
    with events:
        async for batch in events:
            for number, event in batch.numbered():
                text = event.text if isinstance(event, MessageDelta) else ""
                print(f"  side {number:>2}  {type(event).__name__} {text}")


async def main() -> None:
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("Refactor the parser")  # running
        await provider.wait_reached("side is closed")  # it has said something, and works on

        async with session.side(subscribe=True) as side, trio.open_nursery() as nursery:
            nursery.start_soon(show, side.events())
            answer = await side.ask("What does the tokenizer do?")
            await side.close()  # its last event ends `show`
        print("side:", answer.text)

        print("main: still at work:", turn.is_active)
        provider.gate("side is closed").set()
        print("main:", (await turn.wait()).answer.text)


if __name__ == "__main__":
    trio.run(main)
