"""What the model is really sent for a Side of a real Codex, and where nothing of a Side may stand."""

from typing import Any

import pytest

from tutti_providers.codex._side_open import BOUNDARY
from tutti_providers.codex.testing import Answer, ModelRequest, ModelScript, Pause, Reply, Say, run_command

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any

TASK = "Refactor the parser"
EARLIER = "Read the parser first"
EARLIER_ANSWER = "It has nine rules."
QUESTIONS = ("What does the tokenizer do?", "And the lexer?")
SIDE_ANSWERS = ("Splits the text.", "The same thing.")
INSTRUCTIONS = "You stand beside the main work; answer in one line."
PARTIAL = "I begin with the grammar. "
SECRETS = (*QUESTIONS, *SIDE_ANSWERS, INSTRUCTIONS, BOUNDARY)

SCRIPT = ModelScript(
    answers=(
        *(
            Answer.of(Say(tokens=(text,)), when=question)
            for question, text in zip(QUESTIONS, SIDE_ANSWERS, strict=True)
        ),
        Answer(
            replies=(
                Reply(steps=(Say(tokens=(PARTIAL,)), Pause(gate="parent"), run_command("true"))),
                Reply(steps=(Say(tokens=("Done.",)),)),
            ),
            when=TASK,
        ),
        Answer.of(Say(tokens=(EARLIER_ANSWER,)), when=EARLIER),
    )
)


def place(request: ModelRequest, role: str, text: str) -> int:
    """Where the one message of that role stands that holds the text."""
    [index] = [number for number, (of, said) in enumerate(request.messages) if of == role and text in said]
    return index


async def run_sides(bench: Any) -> tuple[str, list[ModelRequest]]:
    """Ask two questions in a Side of a turn that runs, let the turn end, and start another; return its thread id."""
    async with bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask(EARLIER)
        turn = await session.send(TASK)
        await bench.wire.wait_said(PARTIAL)
        async with session.side(instructions=INSTRUCTIONS) as side:
            for question, answer in zip(QUESTIONS, SIDE_ANSWERS, strict=True):
                assert (await side.ask(question)).text == answer
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "Done."
        await session.ask(EARLIER)
        return session.provider_session_id, bench.model.requests


async def test_the_model_is_sent_the_context_then_our_instructions_then_the_boundary_then_the_question(
    lab: Lab,
) -> None:
    """Required; T1, T2: read from the model's side, since what the fork is told never gets there by itself."""
    async with lab.bench(SCRIPT) as bench:
        parent, requests = await run_sides(bench)
    of_side = [request for request in requests if request.thread_id != parent]
    assert len({request.thread_id for request in of_side}) == 1
    first, second = of_side
    mode = f"<collaboration_mode>{INSTRUCTIONS}</collaboration_mode>"
    order = [
        place(first, "user", EARLIER),
        place(first, "assistant", EARLIER_ANSWER),
        place(first, "user", TASK),
        place(first, "user", "<turn_aborted>"),
        next(number for number, message in enumerate(first.messages) if message == ("developer", INSTRUCTIONS)),
        place(first, "user", BOUNDARY),
        place(first, "developer", mode),
        place(first, "user", QUESTIONS[0]),
    ]
    assert order == sorted(order)
    assert order[-1] == len(first.messages) - 1
    assert PARTIAL not in str(first.items)
    assert second.items[: len(first.items)] == first.items
    assert [text for _, text in second.messages[len(first.messages) :]] == [SIDE_ANSWERS[0], QUESTIONS[1]]


async def test_the_parents_later_requests_hold_nothing_of_the_side(lab: Lab) -> None:
    """R2, R7: neither the next sampling of the same turn nor the next turn; and no sign of an interruption."""
    async with lab.bench(SCRIPT) as bench:
        parent, requests = await run_sides(bench)
    later = [request for request in requests if request.thread_id == parent][2:]
    assert len(later) == 2
    for request in later:
        assert PARTIAL in str(request.items)
        assert "<turn_aborted>" not in str(request.items)
        for secret in SECRETS:
            assert secret not in [text for _, text in request.messages]
            assert secret not in "".join(text for _, text in request.messages)


async def test_a_side_is_in_no_session_file_of_codex(lab: Lab) -> None:
    """R2, T20: the branch is ephemeral on disk too; the parent's own words show that the files were read."""
    async with lab.bench(SCRIPT) as bench:
        await run_sides(bench)
        files = bench.texts_below("sessions")
    assert len(list((bench.codex_home / "sessions").rglob("*.jsonl"))) == 1
    for text in (TASK, EARLIER_ANSWER, PARTIAL):
        assert text in files
    for secret in (*QUESTIONS, *SIDE_ANSWERS, INSTRUCTIONS, BOUNDARY.splitlines()[1]):
        assert secret not in files
    assert not (bench.codex_home / "history.jsonl").exists()
