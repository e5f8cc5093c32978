"""A place for the demo to run the scripted provider in: what the entry point `tutti_side.testbeds` names.

It looks like the test bed of a provider with a binary and a home, so that one demo shows them all: there is no binary,
the home is a directory that stays empty, and the gate of the script stands where the model's would be.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tutti_providers.scripted.provider import ScriptedProvider, scripted
from tutti_providers.scripted.script import Say, Script, Turn, Wait
from tutti_side.testing.demo_plan import DemoPlan, plan_demo

__all__ = ["ScriptedTestbed", "Testbed", "demo_script", "make_testbed"]


class Testbed(msgspec.Struct, frozen=True, kw_only=True):
    """One scripted provider and the directories that a demo looks at."""

    __test__ = False  # not a test class, whatever pytest makes of its name

    provider: ScriptedProvider
    """Plays the demo's script; for `open_host`."""
    home: Path
    """An empty directory: whatever is found in it afterwards was written by mistake."""
    workspace: Path
    """An empty directory for sessions to work in."""
    env: Mapping[str, str] = {}
    binary: None = None
    """There is none, and none is needed."""
    no_binary: str = ""

    @property
    def model(self) -> ScriptedProvider:
        """What has the gates."""
        return self.provider


class ScriptedTestbed:
    """Opens test beds; made by `make_testbed`."""

    name = "scripted"

    def __init__(self, demo: DemoPlan) -> None:
        self.demo = demo

    @asynccontextmanager
    async def open(self, directory: Path, script: Script | None = None) -> AsyncIterator[Testbed]:
        """Make a provider, and its directories below `directory`, which the caller removes.

        Args:
          directory: gets ``home`` and ``workspace``.
          script: what the provider plays; the demo's script when not given.

        Cancellation: nothing waits here.
        """
        home, workspace = directory / "home", directory / "workspace"
        for path in (home, workspace):
            path.mkdir(parents=True, exist_ok=True)
        yield Testbed(provider=scripted(script or demo_script(self.demo)), home=home, workspace=workspace)


def make_testbed(*, parent_tokens: int = 60, side_tokens: int = 12) -> ScriptedTestbed:
    """Make the scripted test bed: the entry point ``scripted`` of ``tutti_side.testbeds``.

    Args:
      parent_tokens: how long the demo's parent turn is.
      side_tokens: how long the Side's answer is.
    """
    return ScriptedTestbed(plan_demo(parent_tokens, side_tokens))


def demo_script(demo: DemoPlan, *, delay_s: float = 0.04) -> Script:
    """Return the script of the demo: two paced streams, the parent's held before its last third.

    Args:
      demo: the texts.
      delay_s: seconds before each token.
    """
    free, held = demo.parent_tokens[: demo.parent_held_at], demo.parent_tokens[demo.parent_held_at :]
    return Script(
        turns=(
            Turn(when=demo.side_question, in_side=True, steps=(Say(demo.side_tokens, delay_s=delay_s),)),
            Turn(
                when=demo.parent_prompt,
                in_side=False,
                steps=(
                    Say(free, item="answer", delay_s=delay_s, is_completed=False),
                    Wait(gate=demo.parent_gate),
                    Say(held, item="answer", delay_s=delay_s),
                ),
            ),
        )
    )
