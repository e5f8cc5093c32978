"""A place to run the real Codex with no account and no network: what the entry point `tutti_side.testbeds` names."""

import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tutti_providers.codex._launch import find_binary
from tutti_providers.codex.errors import CodexError
from tutti_side.testing.demo_plan import DemoPlan, plan_demo
from tutti_side.testing.simulation.records import Record, World

from .codex_home import testing_env, write_codex_home
from .model_script import Answer, ModelScript, Pause, Say
from .scripted_model import ScriptedModel, open_scripted_model
from .simulated import SimulatedCodex

__all__ = ["CodexTestbed", "Testbed", "demo_script", "make_testbed"]


class Testbed(msgspec.Struct, frozen=True, kw_only=True):
    """A scripted model that runs, and what the binary needs to find it."""

    __test__ = False  # not a test class, whatever pytest makes of its name

    model: ScriptedModel
    codex_home: Path
    env: dict[str, str]
    """The binary's whole environment."""
    workspace: Path
    """An empty directory for threads to work in."""
    binary: Path | None
    """The real binary; None when there is none."""
    no_binary: str
    """Why there is none and how to get one, in a sentence; empty when there is."""


class CodexTestbed:
    """Opens test beds; made by `make_testbed`."""

    name = "codex"

    def __init__(self, demo: DemoPlan) -> None:
        self.demo = demo

    @asynccontextmanager
    async def open(self, directory: Path, script: ModelScript | None = None) -> AsyncIterator[Testbed]:
        """Serve a scripted model and write a home for the binary below `directory`.

        Args:
          directory: gets ``codex``, ``home`` and ``workspace``; the caller removes it.
          script: what the model says; the demo's script when not given.

        Cancellation: the model is closed.
        """
        async with open_scripted_model(script or demo_script(self.demo)) as model:
            codex_home = write_codex_home(directory / "codex", model.base_url)
            workspace = directory / "workspace"
            workspace.mkdir(parents=True, exist_ok=True)
            binary, no_binary = _find_binary()
            yield Testbed(
                model=model,
                codex_home=codex_home,
                env=testing_env(directory / "home", codex_home),
                workspace=workspace,
                binary=binary,
                no_binary=no_binary,
            )

    def simulate(
        self, rng: random.Random, world: World, record: Callable[[Record], None], note: Callable[[str], None]
    ) -> SimulatedCodex:
        """Make Codex for one simulated run; see `tutti_side.testing.simulation.bed`."""
        return SimulatedCodex(rng, world, record, note)


def make_testbed(*, parent_tokens: int = 60, side_tokens: int = 12) -> CodexTestbed:
    """Make Codex' test bed: the entry point ``codex`` of ``tutti_side.testbeds``.

    Args:
      parent_tokens: how long the demo's parent turn is.
      side_tokens: how long the Side's answer is.
    """
    return CodexTestbed(plan_demo(parent_tokens, side_tokens))


def demo_script(demo: DemoPlan, *, delay_s: float = 0.04) -> ModelScript:
    """The script of the demo: two paced streams, the parent's held before its last third.

    Args:
      demo: the texts.
      delay_s: seconds before each token.
    """
    free, held = demo.parent_tokens[: demo.parent_held_at], demo.parent_tokens[demo.parent_held_at :]
    return ModelScript(
        answers=(
            Answer.of(Say(tokens=demo.side_tokens, delay_s=delay_s), when=demo.side_question),
            Answer.of(
                Say(tokens=free, delay_s=delay_s),
                Pause(gate=demo.parent_gate),
                Say(tokens=held, delay_s=delay_s),
                when=demo.parent_prompt,
            ),
        )
    )


def _find_binary() -> tuple[Path | None, str]:
    try:
        return find_binary(None, os.environ).path, ""
    except CodexError as error:
        return None, str(error)
