"""Places to run the scripted provider in: for the demo, and for the conformance kit.

`make_testbed` is what the entry point `tutti_side.testbeds` names. It looks like the test bed of a provider with a
binary and a home, so that one demo shows them all: there is no binary, the home is a directory that stays empty, and
the gate of the script stands where the model's would be. `ScriptedKitBed` is the conformance kit's bed.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tutti_providers.scripted.provider import ScriptedProvider, scripted
from tutti_providers.scripted.script import Ask, Emit, Fail, Opening, Say, Script, Turn, Wait
from tutti_side.contract import ExecTurn, InteractionQuestion, Provider, StatePatch
from tutti_side.testing.adapter_suite import ASK, FAIL, HELD_TEXTS, HOLD, QUERY, SAID, SAY
from tutti_side.testing.demo_plan import DemoPlan, plan_demo

__all__ = ["ScriptedKitBed", "ScriptedTestbed", "Testbed", "demo_script", "make_testbed"]


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


QUESTIONS = (InteractionQuestion("which", "Which?", options=("one", "another")), InteractionQuestion("why", "Why?"))
"""What a turn of the kit asks."""


class ScriptedKitBed:
    """The scripted provider for the conformance kit. Implements `tutti_side.testing.adapter_suite.AdapterBed`.

    Args:
      workspace: the directory that sessions work in.
    """

    settings = None

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._refuses = self._holds = False
        self.scripted = scripted(self._script())
        self.provider: Provider = self.scripted

    def _script(self) -> Script:
        said = Say((SAID,))
        busy = Emit((StatePatch("active"),))
        return Script(
            turns=(
                Turn(when=SAY, steps=(said,)),
                Turn(
                    when=HOLD,
                    steps=(
                        Say(HELD_TEXTS[:1], item="held", is_completed=False),
                        Wait(gate="held"),
                        Say(HELD_TEXTS[1:], item="held"),
                    ),
                ),
                Turn(when=FAIL, steps=(Fail("the kit says so"),)),
                Turn(when=ASK, steps=(Ask(title="May I?", then=(said,)),)),
                Turn(when=QUERY, steps=(Ask(title="Which?", kind="question", questions=QUESTIONS, then=(said,)),)),
            ),
            opens=(
                Opening(when=lambda _: self._refuses, steps=(Fail("the kit says so"),), late=(busy,)),
                Opening(when=lambda _: self._holds, steps=(busy, Wait(gate="opens"), busy), late=(busy,)),
            ),
        )

    async def wait_held(self, times: int = 1) -> None:
        """See `AdapterBed`."""
        await self.scripted.wait_reached("held", times)

    def let_go(self) -> None:
        """See `AdapterBed`."""
        self.scripted.gate("held").set()

    def told_model(self) -> str:
        """See `AdapterBed`. The scripted agent is told the transcript of the thread, the newest text at its end."""
        call = next(call for call in reversed(self.scripted.calls) if isinstance(call.request, ExecTurn))
        live = [adapter._live.get(call.ref) for adapter in self.scripted.adapters]
        return str([one.thread.transcript.messages() for one in live if one is not None])

    def kept(self) -> str:
        """See `AdapterBed`."""
        return str(dict(self.scripted.persisted))

    def loaded(self) -> int:
        """See `AdapterBed`."""
        return sum(adapter.statistics().threads for adapter in self.scripted.adapters)

    def refuse_opens(self, *, refused: bool = True) -> None:
        """See `AdapterBed`."""
        self._refuses = refused

    def hold_opens(self) -> None:
        """See `AdapterBed`."""
        self._holds = True

    async def wait_open_held(self) -> None:
        """See `AdapterBed`."""
        await self.scripted.wait_reached("opens")

    def release_opens(self) -> None:
        """See `AdapterBed`."""
        self._holds = False
        self.scripted.gate("opens").set()

    def drop(self) -> None:
        """See `AdapterBed`."""
        self.scripted.drop()
