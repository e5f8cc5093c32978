"""Every file of examples/ runs to its end and says something."""

import ast
import os
import pathlib
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
import trio

from tutti_providers.codex.testing import Answer, ModelScript, Pause, Say

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXAMPLE_DEADLINE_S = 60
"""How long an example may take; the slowest starts the real binary."""


def drives_codex(path: pathlib.Path) -> bool:
    """Return whether the example imports the Codex provider."""
    imported = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [".".join([*base, alias.name]) for alias in node.names]
    return any(f"{name}.".startswith("tutti_providers.codex.") for name in imported)


async def run_example(path: pathlib.Path, cwd: pathlib.Path, env: dict[str, str]) -> None:
    """Run an example as a user would, and see it end well."""
    with trio.fail_after(EXAMPLE_DEADLINE_S):
        run = await trio.run_process(
            [sys.executable, "-W", "error", str(path)],
            cwd=cwd,
            env={**env, "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )

    assert run.returncode == 0, run.stderr.decode(errors="replace")
    assert run.stdout.strip()


@pytest.mark.process
@pytest.mark.parametrize("path", [path for path in EXAMPLES if not drives_codex(path)], ids=lambda path: path.name)
async def test_an_example_runs(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Source: our choice."""
    await run_example(path, tmp_path, dict(os.environ))


@pytest.mark.process
@pytest.mark.codex
@pytest.mark.parametrize("path", [path for path in EXAMPLES if drives_codex(path)], ids=lambda path: path.name)
async def test_an_example_that_drives_codex_has_a_turn_and_a_side_under_way_at_once(
    path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The real binary asks a scripted model that ends no answer before two are in their middle. Source: our choice."""
    [point] = metadata.entry_points(group="tutti_side.testbeds", name="codex")
    testbed: Any = point.load()()
    script = ModelScript(answers=(Answer.of(Say(tokens=("One ",)), Pause(gate="middle"), Say(tokens=("two.",))),))

    async with testbed.open(tmp_path / "bed", script) as bed, trio.open_nursery() as nursery:
        nursery.start_soon(run_example, path, tmp_path, bed.env)
        with trio.fail_after(EXAMPLE_DEADLINE_S):
            await bed.model.wait_reached("middle", times=2)
        bed.model.gate("middle").set()
