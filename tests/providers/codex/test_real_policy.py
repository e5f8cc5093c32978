"""A Side of a real Codex is its source's equal, never looser: where its words go, and what it may do."""

from typing import Any

import pytest
import trio.testing

from tutti_providers.codex import CodexSettings
from tutti_providers.codex.testing import (
    Answer,
    ModelProvider,
    ModelScript,
    Pause,
    Reply,
    Say,
    open_scripted_model,
    run_command,
)
from tutti_side.contract import InteractionAnswer

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any

TASK = "Refactor the parser"
QUESTION = "What does the tokenizer do?"
PARENT = Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK)
LOOSE = {"approval_policy": "never", "sandbox_mode": "danger-full-access"}
"""The user's configuration in these tests; the sources are stricter."""


def side_runs(command: str, *, justification: str | None = None) -> Answer:
    """The Side's model runs a command, then answers."""
    call = run_command(command, justification=justification)
    return Answer(replies=(Reply(steps=(call,)), Reply(steps=(Say(tokens=("answered",)),))), when=QUESTION)


async def ask_beside(bench: Any, model: Any, settings: CodexSettings | None) -> None:
    """Ask a Side of a turn that runs, and let the turn end."""
    async with bench.host() as host:
        session = await host.start_session(cwd=bench.workspace, settings=settings)
        turn = await session.send(TASK)
        await bench.wire.wait_said("one ")
        async with session.side() as side:
            assert (await side.ask(QUESTION)).text == "answered"
        model.gate("parent").set()
        assert (await turn.wait()).answer.text == "one two"


async def test_a_side_goes_to_its_sources_provider_with_its_model_and_effort_and_to_no_other(lab: Lab) -> None:
    """T3, R19: a fork by itself would send the whole context to the configuration's provider."""
    script = ModelScript(answers=(PARENT, Answer.of(Say(tokens=("answered",)), when=QUESTION)))
    async with (
        open_scripted_model(script) as other,
        lab.bench(
            script,
            other_providers=[ModelProvider(name="other", base_url=other.base_url)],
            settings={"approvals_reviewer": "auto_review"},
            **LOOSE,
        ) as bench,
    ):
        strict = CodexSettings(
            model="gpt-5.5", model_provider="other", effort="high", sandbox="read-only", approval_policy="on-request"
        )
        await ask_beside(bench, other, strict)
        assert bench.model.requests == []
        seen = [(request.model, request.reasoning_effort) for request in other.requests]
        assert seen == [("gpt-5.5", "high")] * 2
        assert len({request.thread_id for request in other.requests}) == 2

        [source] = bench.wire.results("thread/start")
        [forked] = bench.wire.results("thread/fork")
        assert source["approvalsReviewer"] == "auto_review"  # or the next line would show nothing
        assert forked["approvalsReviewer"] == "user"
        assert forked["approvalPolicy"] == source["approvalPolicy"] == "on-request"
        assert forked["sandbox"] == source["sandbox"] == {"type": "readOnly", "networkAccess": False}
        turn = bench.wire.requests("turn/start")[-1]["params"]
        assert turn["threadId"] == forked["thread"]["id"]
        assert turn["approvalsReviewer"] == "user"
        assert turn["approvalPolicy"] == "on-request"
        assert (turn["model"], turn["effort"]) == ("gpt-5.5", "high")
        assert turn["sandboxPolicy"] == source["sandbox"]


async def test_a_side_gets_the_whole_sandbox_policy_of_its_source_not_the_words_of_the_configuration(lab: Lab) -> None:
    """T3, R19: a fork's `workspace-write` would take roots and network access from the configuration."""
    script = ModelScript(answers=(PARENT, Answer.of(Say(tokens=("answered",)), when=QUESTION)))
    loose = '[sandbox_workspace_write]\nnetwork_access = true\nwritable_roots = ["/"]'
    async with lab.bench(script, sandbox_mode="workspace-write", extra_toml=loose) as bench:
        own = {"network_access": False, "writable_roots": []}
        settings = CodexSettings(sandbox="workspace-write", config={"sandbox_workspace_write": own})
        await ask_beside(bench, bench.model, settings)
        [source] = bench.wire.results("thread/start")
        assert source["sandbox"]["type"] == "workspaceWrite"
        assert source["sandbox"]["networkAccess"] is False
        assert source["sandbox"]["writableRoots"] == []
        assert bench.wire.requests("turn/start")[-1]["params"]["sandboxPolicy"] == source["sandbox"]


@pytest.mark.parametrize(("sandbox", "runs"), [("read-only", False), ("danger-full-access", True)])
async def test_a_sides_command_writes_only_where_its_sources_could(lab: Lab, sandbox: Any, runs: bool) -> None:
    """R19: seen in the file system, under a configuration that allows everything."""
    script = ModelScript(answers=(PARENT, side_runs("echo x > made-by-side")))
    async with lab.bench(script, **LOOSE) as bench:
        await ask_beside(bench, bench.model, CodexSettings(sandbox=sandbox))
        assert (bench.workspace / "made-by-side").exists() is runs
        outputs = [item for item in bench.model.requests[-1].items if str(item["type"]).endswith("_output")]
        assert len(outputs) == 1


def asked_and_answered(wire: Any) -> tuple[list[Any], list[Any]]:
    """The server's requests, and what we sent in answer."""
    asked = [frame for frame in wire.received if "method" in frame and "id" in frame]
    return asked, [frame for frame in wire.sent if "method" not in frame]


@pytest.mark.parametrize("how", ["answered", "closed"])
async def test_what_a_side_asks_to_be_allowed_is_declined_by_its_user_or_by_its_close(lab: Lab, how: str) -> None:
    """R11, R19, T4, T6, T18, F26: nothing is accepted by silence; the first request's id is 0, echoed as it is."""
    script = ModelScript(answers=(PARENT, side_runs("touch made-by-side", justification="Allow it?")))
    async with lab.bench(script, approval_policy="on-request", sandbox_mode="read-only") as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await bench.wire.wait_said("one ")
        async with session.side() as side:
            question = await side.send(QUESTION)
            await bench.wire.wait_for(lambda frame: "method" in frame and "id" in frame)
            await trio.testing.wait_all_tasks_blocked()
            [interaction] = side.interactions
            assert session.interactions == ()
            assert not any("Amendment" in option.id for option in interaction.options)
            if how == "answered":
                side.respond(interaction.interaction_id, InteractionAnswer(option_id="decline"))
                assert (await question.wait()).answer.text == "answered"
                assert "rejected by user" in str(bench.model.requests[-1].items)
        asked, answered = asked_and_answered(bench.wire)
        [child] = [result["thread"]["id"] for result in bench.wire.results("thread/fork")]
        assert [(frame["id"], frame["method"], frame["params"]["threadId"]) for frame in asked] == [
            (0, "item/commandExecution/requestApproval", child)
        ]
        assert answered == [{"id": 0, "result": {"decision": "decline"}}]
        assert not (bench.workspace / "made-by-side").exists()
        assert not (bench.codex_home / "rules").exists()
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "one two"
