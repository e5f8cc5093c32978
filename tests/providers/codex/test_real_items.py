"""Each kind of thing that a real Codex can be made to do in a turn, as its user hears of it; in a Side as in a session.

A tool that reports its progress, a tool of the client's own, a sub-agent, a rerouted model and a deprecation are not
among them: those are read by the schema alone (test_items).
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import (
    Answer,
    CallTool,
    Drop,
    Fail,
    ModelScript,
    Pause,
    Reply,
    Say,
    SearchWeb,
    Think,
    ToolServer,
    apply_patch,
    run_command,
)
from tutti_side import TurnFailedError
from tutti_side.contract import (
    ChangedFile,
    ErrorRaised,
    PlanStep,
    PlanUpdated,
    ReasoningDelta,
    ReasoningUpdated,
    TokenCount,
    ToolOutput,
    ToolStarted,
    ToolUpdated,
    TurnFailed,
    TurnId,
    Unknown,
    UsageUpdated,
    WarningRaised,
)

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Listen = Callable[[trio.Nursery, Any], Any]

MODEL = {"model": "gpt-5.5", "approval_policy": "never", "sandbox_mode": "danger-full-access"}
"""A model that Codex knows, so that it has all tools; and nobody is asked."""

PATCH = """\
*** Begin Patch
*** Add File: new.txt
+hello
*** Update File: old.txt
@@
-one
+two
*** End Patch
"""
TODO = {
    "explanation": "because",
    "plan": [{"step": "read", "status": "completed"}, {"step": "write", "status": "in_progress"}],
}


def calls(step: Any, when: str) -> Answer:
    """A turn that does something, and says that it is done."""
    return Answer(replies=(Reply(steps=(step,)), Reply(steps=(Say(tokens=("done",)),))), when=when)


async def hear(lab: Lab, listen: Listen, script: ModelScript, *questions: str, **home: Any) -> list[list[Any]]:
    """Ask them one by one in a session, and each in a Side of it; return what both heard of it, without turn ids."""
    heard: list[list[Any]] = []
    async with lab.bench(script, **{**MODEL, **home}) as bench, bench.host() as host:
        (bench.workspace / "old.txt").write_text("one\n", "utf-8")
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        async with trio.open_nursery() as nursery:
            parent = listen(nursery, session.events())
            for question in questions:
                await session.ask(question)
            (bench.workspace / "old.txt").write_text("one\n", "utf-8")
            (bench.workspace / "new.txt").unlink(missing_ok=True)
            async with session.side() as side:
                own = listen(nursery, side.events())
                for question in questions:
                    await side.ask(question)
                await trio.testing.wait_all_tasks_blocked()
            heard = [parent.events, own.events]
            nursery.cancel_scope.cancel()
        unread = bench.connection.unread
        assert {cause: unread.get(cause, 0) for cause in ("malformed", "not modelled")} == {
            "malformed": 0,
            "not modelled": 0,
        }
    return heard


def allow_retries(bench: Any) -> None:
    """Let Codex try a broken stream once more."""
    config = bench.codex_home / "config.toml"
    text = config.read_text("utf-8")
    assert "stream_max_retries = 0" in text
    config.write_text(text.replace("stream_max_retries = 0", "stream_max_retries = 1"), "utf-8")


def work(events: list[Any], *kinds: Any) -> list[Any]:
    """Those events of these kinds, as if all were of one turn and one item."""
    return [type(event)(TurnId(""), "", *_rest(event)) for event in events if isinstance(event, kinds)]


def _rest(event: Any) -> list[Any]:
    return [getattr(event, name) for name in event.__struct_fields__[2:]]


async def test_a_command_is_shown_with_what_it_printed_and_how_it_ended(lab: Lab, listen: Listen) -> None:
    """Required: commands with output. The first of it may be told with the whole alone (seen on 0.163)."""
    script = ModelScript(answers=(calls(run_command("echo one; sleep 0.4; echo two; exit 3"), "run it"),))
    for events in await hear(lab, listen, script, "run it"):
        began, *pieces, over = work(events, ToolStarted, ToolOutput, ToolUpdated)
        line = "/bin/bash -lc 'echo one; sleep 0.4; echo two; exit 3'"
        assert began == ToolStarted(TurnId(""), "", "command", line, began.detail)
        assert began.detail.endswith("/workspace")
        assert "one\ntwo\n".endswith("".join(piece.text for piece in pieces))
        assert pieces
        assert over == ToolUpdated(TurnId(""), "", "command", line, "failed", began.detail, "one\ntwo\n", 3)


async def test_a_patch_is_shown_file_by_file(lab: Lab, listen: Listen) -> None:
    """Required: file changes."""
    script = ModelScript(answers=(calls(apply_patch(PATCH), "patch it"),))
    for events in await hear(lab, listen, script, "patch it"):
        began, over = work(events, ToolStarted, ToolOutput, ToolUpdated)
        assert [(change.path.rpartition("/")[2], change.change, change.diff) for change in over.changes] == [
            ("new.txt", "add", "hello\n"),
            ("old.txt", "update", "@@ -1 +1 @@\n-one\n+two\n"),
        ]
        assert over == ToolUpdated(TurnId(""), "", "file_change", over.title, "completed", changes=over.changes)
        assert began == ToolStarted(TurnId(""), "", "file_change", over.title, changes=over.changes)
        assert all(isinstance(change, ChangedFile) for change in began.changes)


async def test_a_tool_servers_call_is_shown_with_its_arguments_and_result(lab: Lab, listen: Listen) -> None:
    """Required: tool calls. A search of the model's provider, and a look at an image, are tools as well."""
    echo = CallTool(name="echo", namespace="mcp__docs", arguments='{"text":"x"}')
    script = ModelScript(
        answers=(
            calls(echo, "call it"),
            Answer.of(SearchWeb(query="cats"), Say(tokens=("found",)), when="search it"),
        )
    )
    for events in await hear(lab, listen, script, "call it", "search it", tool_servers=(ToolServer(),)):
        assert work(events, ToolStarted, ToolUpdated) == [
            ToolStarted(TurnId(""), "", "tool", "docs.echo", '{"text":"x"}'),
            ToolUpdated(TurnId(""), "", "tool", "docs.echo", "completed", '{"text":"x"}', "x"),
            ToolStarted(TurnId(""), "", "web_search", "cats"),
            ToolUpdated(TurnId(""), "", "web_search", "cats", "completed"),
        ]


async def test_reasoning_is_streamed_and_then_told_whole(lab: Lab, listen: Listen) -> None:
    """Required: reasoning, as a summary and in the model's own words."""
    think = Think(parts=(("first ", "this"), ("then that",)), text=("raw ", "words"))
    script = ModelScript(answers=(Answer.of(think, Say(tokens=("so",)), when="think"),))
    for events in await hear(lab, listen, script, "think", settings={"show_raw_agent_reasoning": True}):
        *pieces, whole = work(events, ReasoningDelta, ReasoningUpdated)
        assert whole == ReasoningUpdated(TurnId(""), "", "first this\n\nthen that", "raw words")
        assert "".join(piece.text for piece in pieces if piece.is_summary) == whole.summary
        assert [piece.text for piece in pieces if not piece.is_summary] == ["raw ", "words"]


async def test_a_to_do_list_is_told_whole_whenever_it_changes(lab: Lab, listen: Listen) -> None:
    """Required: plans; `update_plan` is off by default since 0.163 or before."""
    script = ModelScript(answers=(calls(CallTool(name="update_plan", arguments=json.dumps(TODO)), "plan it"),))
    enabled = "[tools.update_plan]\nenabled = true\n"
    for events in await hear(lab, listen, script, "plan it", extra_toml=enabled):
        [plan] = [event for event in events if isinstance(event, PlanUpdated)]
        assert plan.text == "because"
        assert plan.steps == (PlanStep("read", "completed"), PlanStep("write", "in_progress"))


async def test_tokens_are_counted_over_the_whole_thread_and_for_its_last_request(lab: Lab, listen: Listen) -> None:
    """Required: token usage. The scripted model says the same of each response."""
    one = TokenCount(15, 10, 0, 5, 0)
    for events in await hear(lab, listen, ModelScript(answers=()), "again"):
        [*_, usage] = [event for event in events if isinstance(event, UsageUpdated)]
        assert usage.last == one
        assert usage.total.total > one.total
        assert usage.context_window is not None


async def test_a_warning_of_a_thread_is_told_in_that_thread(lab: Lab, listen: Listen) -> None:
    """Required: warnings. Codex warns of a model that it doesn't know before each turn."""
    for events in await hear(lab, listen, ModelScript(answers=()), "again", model="mock-model"):
        warnings = [event.message for event in events if isinstance(event, WarningRaised)]
        assert warnings
        assert all("`mock-model` not found" in warning for warning in warnings)
        assert not any(isinstance(event, Unknown) for event in events)


async def test_an_error_says_whether_codex_tries_again(lab: Lab, listen: Listen) -> None:
    """Required: errors with `willRetry`. After the last try the turn fails, and both are told, in this order."""
    script = ModelScript(answers=(Answer.of(Fail(status=500), when="fail"),))
    async with lab.bench(script, **MODEL) as bench:
        allow_retries(bench)
        async with bench.host() as host, trio.open_nursery() as nursery:
            session = await host.start_session(cwd=bench.workspace)
            heard = listen(nursery, session.events())
            with pytest.raises(TurnFailedError):
                await session.ask("fail")
            await trio.testing.wait_all_tasks_blocked()
            ends: list[Any] = [event for event in heard.events if isinstance(event, ErrorRaised | TurnFailed)]
            nursery.cancel_scope.cancel()
    again, last, failed = ends
    assert (again.will_retry, again.cause) == (True, "responseStreamDisconnected")
    assert again.detail
    assert (last.will_retry, last.cause) == (False, "internalServerError")
    assert isinstance(failed, TurnFailed)
    assert failed.message == last.message
    assert failed.turn_id == last.turn_id == again.turn_id


async def test_a_stream_that_breaks_off_is_tried_again_and_the_turn_ends_well(lab: Lab, listen: Listen) -> None:
    """Required: an error that is tried again is no end."""
    broken = Answer.of(Say(tokens=("half",)), Pause(gate="held"), Drop(), when="break off")
    async with lab.bench(ModelScript(answers=(broken,)), **MODEL) as bench:
        allow_retries(bench)
        async with bench.host() as host, trio.open_nursery() as nursery:
            session = await host.start_session(cwd=bench.workspace)
            heard = listen(nursery, session.events())
            turn = await session.send("break off")
            await bench.model.wait_reached("held")
            bench.model.script = ModelScript(answers=(), otherwise=Reply(steps=(Say(tokens=("whole",)),)))
            bench.model.gate("held").set()
            answer = (await turn.wait()).answer
            await trio.testing.wait_all_tasks_blocked()
            errors: list[Any] = [event for event in heard.events if isinstance(event, ErrorRaised | TurnFailed)]
            nursery.cancel_scope.cancel()
    assert answer.text.endswith("whole")
    assert [error.will_retry for error in errors] == [True]
