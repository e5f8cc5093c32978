"""A real process says the canary on stderr, in its answers and in its errors; it stays out of log and errors."""

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tutti_providers.codex import codex
from tutti_providers.codex.testing import (
    Answer,
    CrashOn,
    FakeSetup,
    ModelScript,
    Say,
    write_fake_binary,
    write_setup,
)
from tutti_providers.codex.testing.fake_process import SETUP_VARIABLE
from tutti_side import AgentHost, TuttiSideError, open_host

pytestmark = pytest.mark.process

CANARY = "canary-4712"
BOUND_S = 60
"""Nothing hangs longer, on a busy machine too."""

LOUD = f"""\
#!{sys.executable}
import os, sys
sys.stderr.write("{CANARY} " + os.environ["SECRET"] + "\\n" * 3)
sys.stderr.flush()
os.execv(sys.argv[0] + ".fake", [sys.argv[0] + ".fake", *sys.argv[1:]])
"""
"""Says it on stderr, and becomes the fake app-server."""

DYING = LOUD.replace("os.execv", "sys.exit(3)\nos.execv")


@asynccontextmanager
async def host_over(path: Path, program: str, setup: FakeSetup) -> AsyncIterator[AgentHost]:
    """Open a host over that program."""
    binary = trio.Path(path / "codex")
    await binary.write_text(program, "utf-8")
    await binary.chmod(0o755)
    write_fake_binary(path / "codex.fake")
    environ = {SETUP_VARIABLE: str(write_setup(path / "setup.json", setup)), "SECRET": CANARY}
    with trio.fail_after(BOUND_S):
        async with open_host(codex(binary=str(binary), extra_environ=environ, codex_home=path)) as host:
            yield host


SCRIPT = ModelScript(answers=tuple(Answer.of(Say(tokens=(CANARY, CANARY))) for _ in range(4)))

CASES: dict[str, tuple[str, FakeSetup]] = {
    "all goes well": (LOUD, FakeSetup(script=SCRIPT)),
    "it dies in the fork": (LOUD, FakeSetup(script=SCRIPT, faults=(CrashOn(method="thread/fork"),))),
    "it dies at the start": (DYING, FakeSetup(script=SCRIPT)),
}


def chain_of(error: BaseException | None) -> list[BaseException]:
    """Return an error with its causes."""
    return [] if error is None else [error, *chain_of(error.__cause__)]


@pytest.mark.parametrize("case", CASES)
async def test_stderr_environment_and_model_text_stay_out_of_log_and_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """R2: never prompt text, model context, credentials or environment values."""
    caplog.set_level(logging.DEBUG, "tutti_side")
    program, setup = CASES[case]
    errors: list[Exception] = []
    said: Any = None
    async with host_over(tmp_path, program, setup) as host:
        try:
            session = await host.start_session(cwd=tmp_path, host_context=CANARY)
            said = await session.ask(CANARY)
            async with session.side(instructions=CANARY) as side:
                await side.ask(CANARY)
        except TuttiSideError as error:
            errors.append(error)
        assert CANARY not in repr(host.statistics())
    assert (said is not None and CANARY in said.text) == (case != "it dies at the start")
    assert bool(errors) == (case != "all goes well")
    chain = [link for failed in errors for link in chain_of(failed)]
    for link in chain:
        assert CANARY not in f"{link} {link!r}"
    if case == "it dies at the start":  # it did say it, and whoever started the program can have it shown
        assert CANARY in repr([getattr(link, "startup_output", ()) for link in chain])
    records = [record for record in caplog.records if record.name.startswith("tutti_side")]
    assert bool(records) == (case != "it dies at the start")
    for record in records:
        assert CANARY not in f"{record.getMessage()} {record.__dict__}"
