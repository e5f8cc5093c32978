"""Ask a working Codex something, without stopping it: the whole of it on one screen.

Needs a Codex that is set up (`codex login`, or a model provider in its config). Run it in a directory of your own:

    python examples/live_side.py "Refactor the parser" "What does the tokenizer do?"
"""

import sys

import trio

from tutti_providers.codex import codex
from tutti_side import open_host


async def main(task: str, question: str) -> None:
    async with open_host(codex()) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send(task)  # running
        async with session.side() as side:
            answer = await side.ask(question)
            print("side:", answer.text)
        result = await turn.wait()
        print("main:", result.answer.text)


if __name__ == "__main__":
    task, question = sys.argv[1:] or ["Refactor the parser", "What does the tokenizer do?"]
    trio.run(main, task, question)
