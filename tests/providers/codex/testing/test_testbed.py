"""The test bed that the entry point names, and its demo on the real binary."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest
import trio

from tutti_providers.codex.testing import Answer, ModelScript, Say, demo_script, make_testbed


def test_the_entry_point_leads_to_the_test_bed() -> None:
    """Required: `tutti_side.testbeds`."""
    (entry,) = entry_points(group="tutti_side.testbeds", name="codex")

    assert entry.load() is make_testbed


def test_the_demos_texts_tell_parent_and_side_apart() -> None:
    """Required: parent tokens complete and in order, Side tokens only in the Side."""
    demo = make_testbed(parent_tokens=9, side_tokens=2).demo
    script = demo_script(demo)

    assert demo.parent_tokens[:2] == ("parent-0 ", "parent-1 ")
    assert demo.side_tokens == ("side-0 ", "side-1 ")
    assert demo.parent_held_at == 6
    parent = script.reply_for(demo.parent_prompt).steps
    assert [step.tokens for step in parent if isinstance(step, Say)] == [demo.parent_tokens[:6], demo.parent_tokens[6:]]
    assert [step.tokens for step in script.reply_for(demo.side_question).steps if isinstance(step, Say)] == [
        demo.side_tokens
    ]


async def test_an_open_bed_has_a_model_a_home_and_an_environment(tmp_path: Path) -> None:
    """Required."""
    script = ModelScript(answers=(Answer.of(Say(tokens=("x",))),))
    with trio.fail_after(20):
        async with make_testbed().open(tmp_path, script) as bed:
            assert bed.model.script is script
            assert bed.model.base_url in (bed.codex_home / "config.toml").read_text("utf-8")
            assert bed.env["CODEX_HOME"] == str(bed.codex_home)
            assert list(bed.workspace.iterdir()) == []


async def test_a_bed_without_a_binary_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Required: without a binary, a sentence."""
    monkeypatch.setenv("CODEX_BIN", str(tmp_path / "missing"))
    with trio.fail_after(20):
        async with make_testbed().open(tmp_path) as bed:
            assert bed.binary is None
            assert "missing" in bed.no_binary


@pytest.mark.codex
async def test_a_bed_finds_the_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Required: the wheel's, when nothing else is named."""
    monkeypatch.delenv("CODEX_BIN", raising=False)
    with trio.fail_after(20):
        async with make_testbed().open(tmp_path) as bed:
            assert bed.binary is not None
            assert bed.no_binary == ""
