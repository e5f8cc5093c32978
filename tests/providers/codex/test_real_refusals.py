"""What is refused before anything is forked, and the start of a Codex that does not start."""

import pathlib
from typing import Any

import pytest

from tutti_providers.codex import PROVEN, StartFailedError
from tutti_providers.codex.testing import (
    Answer,
    FakeSetup,
    ModelScript,
    Pause,
    Say,
    write_codex_home,
    write_fake_binary,
    write_setup,
)
from tutti_providers.codex.testing.fake_process import SETUP_VARIABLE
from tutti_side import SideConflictError, SideUnsupportedError

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any

TASK = "Refactor the parser"
SCRIPT = ModelScript(answers=(Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK),))


@pytest.mark.parametrize("version", ["0.100.0", "0.162.0", "0.163.1", "0.163.0-alpha.1", "0.171.0", "0.0.0"])
async def test_an_unproven_version_is_never_asked_to_fork(lab: Lab, tmp_path: pathlib.Path, version: str) -> None:
    """R15, T20, F38: an old one would write a durable file before its answer shows it, so it is not even asked."""
    assert version not in PROVEN
    setup = write_setup(tmp_path / "setup.json", FakeSetup(script=SCRIPT, version=version))
    fake = write_fake_binary(tmp_path / "fake")
    with_setup = tmp_path / "fake-with-setup"
    with_setup.write_text(f'#!/bin/sh\n{SETUP_VARIABLE}={setup} exec {fake} "$@"\n')
    with_setup.chmod(0o755)
    async with lab.bench(SCRIPT) as bench, bench.host(with_setup) as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        with pytest.raises(SideUnsupportedError) as caught:
            await session.open_side()
        assert version in caught.value.reason
        assert bench.wire.requests("thread/fork") == []
        assert turn.is_active


async def test_a_session_without_a_turn_is_refused_with_its_own_reason_and_no_fork(lab: Lab) -> None:
    """T13: the server has one text for a nested fork, an unknown id, a wrong home and an empty source."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        with pytest.raises(SideUnsupportedError, match="no turn yet"):
            await session.open_side()
        assert bench.wire.requests("thread/fork") == []
        turn = await session.send(TASK)
        async with session.side() as side:
            assert side.is_open
        assert turn.is_active


async def test_a_side_of_a_side_is_refused_with_its_own_reason_and_no_fork(lab: Lab) -> None:
    """T13: its lineage is ours to know."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        async with session.side() as side:
            nested = type(session.ref)(session.ref.workspace, side.id)
            with pytest.raises(SideConflictError, match="would branch a Side"):
                await host.controller.open_side(
                    type(side.scope.ref)(session.ref.workspace, "nested"),
                    nested,
                    "request",
                )
            assert len(bench.wire.requests("thread/fork")) == 1
            assert side.is_open
        assert turn.is_active


async def test_a_fork_is_told_to_leave_out_what_newer_servers_refuse_to_send(lab: Lab) -> None:
    """F19: without `excludeTurns` the real server refuses an ephemeral fork; with it, nothing inherited comes back."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.send(TASK)
        async with session.side():
            [asked] = bench.wire.requests("thread/fork")
            [forked] = bench.wire.results("thread/fork")
        assert asked["params"]["ephemeral"] is asked["params"]["excludeTurns"] is True
        assert forked["thread"]["turns"] == []
        assert forked["thread"]["ephemeral"] is True
        assert forked["thread"]["path"] is None


async def test_a_codex_that_does_not_start_says_why_and_leaves_nothing(lab: Lab) -> None:
    """T19, F31: its words are on stderr alone, after the end of its stdout; they are an attribute, not the message."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        config = (bench.codex_home / "config.toml").read_text()
        write_codex_home(bench.codex_home, bench.model.base_url, approval_policy="untrusted")
        with pytest.raises(StartFailedError) as caught:
            await host.start_session(cwd=bench.workspace)
        assert caught.value.status == 1
        assert "untrusted" in "\n".join(caught.value.startup_output)
        assert "untrusted" not in str(caught.value)
        assert host.statistics().sessions == 0
        assert lab.left_over() == []
        (bench.codex_home / "config.toml").write_text(config)
        assert (await (await host.start_session(cwd=bench.workspace)).ask("hello")).text == "Done."
