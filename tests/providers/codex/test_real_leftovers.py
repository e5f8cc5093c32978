"""What a real Codex leaves behind where nobody asked it to: a login shell's daemons, a false abort, threads of ours."""

import os
import pathlib
import threading
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex import codex
from tutti_providers.codex._side_open import BOUNDARY
from tutti_providers.codex.testing import Answer, ModelScript, Pause, Reply, Say, run_command
from tutti_side import open_host
from tutti_side.host import JsonFileMetadata

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any

TASK = "Refactor the parser"
QUESTION = "What does the tokenizer do?"
SIDE = Answer.of(Say(tokens=("answered",)), when=QUESTION)
PARENT = Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK)
IN_A_TOOL = Answer(
    replies=(
        Reply(steps=(Say(tokens=("one ",)), run_command("read word < gate"))),
        Reply(steps=(Say(tokens=("two",)),)),
    ),
    when=TASK,
)

LOGIN = """\
(setsid sleep 9875 > /dev/null 2>&1 &)
echo $$ > {told}
"""
"""A user's start-up file that leaves a daemon, and says that it ran; that waits until somebody listens."""


async def hear_a_login_shell(told: pathlib.Path) -> None:
    """Wait until a login shell has run the file."""
    assert await trio.to_thread.run_sync(told.read_text, abandon_on_cancel=True)


async def test_what_the_login_shells_of_a_session_and_its_side_leave_behind_is_ended(lab: Lab) -> None:
    """T17: Codex starts one for each thread unless told not to, and what it leaves survives Codex itself."""
    told = lab.directory / "told"
    os.mkfifo(told)
    async with lab.bench(ModelScript(answers=(PARENT, SIDE)), features={"shell_snapshot": True}) as bench:
        for name in (".bashrc", ".bash_profile", ".profile"):
            (lab.directory / "home" / name).write_text(LOGIN.format(told=told))
        async with bench.host() as host:
            session = await host.start_session(cwd=bench.workspace)
            await hear_a_login_shell(told)
            turn = await session.send(TASK)
            await bench.wire.wait_said("one ")
            async with session.side() as side:
                await hear_a_login_shell(told)
                assert (await side.ask(QUESTION)).text == "answered"
            left = [pid for pid in bench.wire.note_processes() if is_the_daemon(pid)]
            assert len(left) >= 2
            bench.model.gate("parent").set()
            assert (await turn.wait()).answer.text == "one two"
        assert lab.left_over() == []


def is_the_daemon(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x009875\0"
    except OSError:
        return False


async def test_the_boundary_corrects_the_abort_that_a_fork_in_a_tool_call_claims(lab: Lab) -> None:
    """T2: the model reads "aborted" and "interrupted" of a command and a turn that go on; what follows says so."""
    script = ModelScript(answers=(IN_A_TOOL, SIDE))
    async with (
        lab.bench(script, approval_policy="never", sandbox_mode="danger-full-access") as bench,
        bench.host() as host,
    ):
        os.mkfifo(bench.workspace / "gate")
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await bench.wire.wait_for(
            lambda frame: (
                frame.get("method") == "item/started" and frame["params"]["item"]["type"] == "commandExecution"
            )
        )
        async with session.side() as side:
            assert (await side.ask(QUESTION)).text == "answered"
        sent = [str(item) for item in bench.model.requests[-1].items]
        [output] = [at for at, item in enumerate(sent) if "function_call_output" in item]
        [aborted] = [at for at, item in enumerate(sent) if "<turn_aborted>" in item]
        [boundary] = [at for at, item in enumerate(sent) if "<side_conversation_boundary>" in item]
        assert "aborted" in sent[output]
        assert max(output, aborted) < boundary
        for words in ('shows a tool call as "aborted"', "the main conversation was not interrupted", "goes on"):
            assert words in " ".join(BOUNDARY.split())
        await trio.to_thread.run_sync((bench.workspace / "gate").write_text, "ready\n", abandon_on_cancel=True)
        result = await turn.wait()
        assert (result.status, result.answer.messages) == ("completed", ("one ", "two"))
        assert "aborted" not in str(bench.model.requests[-1].items)


def working_threads() -> list[str]:
    """Threads that are neither the main one nor idle in Trio's cache; Trio names one after what it runs."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if not name.startswith(("MainThread", "Trio thread"))]


async def test_after_the_hosts_block_no_thread_works_for_us_any_more(lab: Lab) -> None:
    """R13: processes are started, and metadata written, in worker threads; Trio's idle cache is what is left."""
    async with lab.bench(ModelScript(answers=(PARENT, SIDE))) as bench:
        before = working_threads()
        limiter = trio.to_thread.current_default_thread_limiter()
        name, _, value = bench.marker.partition("=")
        provider = codex(environ=bench.environ, extra_environ={name: value})
        async with open_host(provider, metadata=JsonFileMetadata(lab.directory / "metadata.json")) as host:
            session = await host.start_session(cwd=bench.workspace)
            await session.send(TASK)
            await bench.wire.wait_said("one ")
            side = await session.open_side()
            assert (await side.ask(QUESTION)).text == "answered"
        assert (working_threads(), limiter.borrowed_tokens) == (before, 0)
        assert (lab.directory / "metadata.json").exists()
