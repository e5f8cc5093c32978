"""The choice of a reply is a pure function of the question."""

import msgspec
import pytest

from tutti_providers.codex.testing import Answer, ModelScript, Pause, Reply, Say, apply_patch, ask_user, run_command
from tutti_providers.codex.testing.model_script import SCRIPT_STEPS_MAX


def says(text: str) -> Reply:
    return Reply(steps=(Say(tokens=(text,)),))


def test_the_first_answer_whose_words_are_in_the_question_is_chosen() -> None:
    """Our choice."""
    script = ModelScript(
        answers=(Answer(when="tokenizer", replies=(says("1"),)), Answer(when="token", replies=(says("2"),)))
    )

    assert script.reply_for("What does the tokenizer do?") == says("1")
    assert script.reply_for("a token") == says("2")
    assert script.reply_for("something else") == script.otherwise


def test_each_round_of_tool_output_gets_the_next_reply_and_the_last_repeats() -> None:
    """Our choice: a turn is a row of samplings."""
    script = ModelScript(answers=(Answer(replies=(says("0"), says("1"))),))

    assert [script.reply_for("x", tool_rounds=number) for number in range(3)] == [says("0"), says("1"), says("1")]


def test_an_answer_can_be_meant_for_one_turn_of_a_thread() -> None:
    """Our choice: by order, where the texts don't tell."""
    script = ModelScript(answers=(Answer(turn=2, replies=(says("second"),)),), otherwise=says("other"))

    assert [script.reply_for("x", turn=number) for number in (1, 2, 3)] == [
        says("other"),
        says("second"),
        says("other"),
    ]


def test_a_script_survives_being_sent_to_another_process() -> None:
    """Our choice: scripts are data, the fake in a process gets them as JSON."""
    steps = (Say(tokens=("a",), delay_s=0.5), Pause(gate="g"), run_command("ls", justification="why"), apply_patch("x"))
    script = ModelScript(answers=(Answer.of(*steps, ask_user([{"id": "q"}]), when="w", turn=3),))

    assert msgspec.json.decode(msgspec.json.encode(script), type=ModelScript) == script


def test_a_command_asks_to_leave_the_sandbox_only_with_a_justification() -> None:
    """PROTOCOL 1: `exec_command` prompts with `sandbox_permissions` and `justification`."""
    assert msgspec.json.decode(run_command("ls").arguments) == {"cmd": "ls"}
    assert msgspec.json.decode(run_command("ls", justification="why").arguments) == {
        "cmd": "ls",
        "sandbox_permissions": "require_escalated",
        "justification": "why",
    }


def test_a_reply_without_a_bound_is_refused() -> None:
    """R12."""
    Reply(steps=(Say(tokens=("x",) * SCRIPT_STEPS_MAX),))
    with pytest.raises(ValueError, match="at most"):
        Reply(steps=(Say(tokens=("x",) * SCRIPT_STEPS_MAX), Say(tokens=("x",))))
