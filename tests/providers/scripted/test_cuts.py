"""The scripted adapter's own calls, each cut after the k-th step of any task, for every k.

Above it nobody cleans up: what a cut leaves is what the adapter's "Cancellation:" lines say. `CUTS` names what the cuts
must have fallen into; `tests/side/test_cuts_complete.py` reads it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.scripted import ScriptedAdapter, ScriptedProvider, scripted
from tutti_providers.scripted.script import Closing, Opening, OwnTurn, Say, Script, Starting, Turn, Wait
from tutti_side.contract import (
    ExecTurn,
    OpenSide,
    ProviderLostError,
    ResumeSession,
    SourceMetadata,
    StartSession,
    TextContent,
    TurnActiveError,
)
from tutti_side.testing.cuts import Cut, cut_at_every_step

Lab = Any  # tests/providers/scripted/conftest.py

CUTS = {
    "start": ("ScriptedAdapter.start",),
    "resume": ("ScriptedAdapter.resume",),
    "exec": ("ScriptedAdapter.exec",),
    "cancel": ("ScriptedAdapter.cancel",),
    "steer": ("ScriptedAdapter.steer",),
    "close a session": ("ScriptedAdapter.close",),
    "close a Side": ("ScriptedAdapter.close",),
    "attest": ("ScriptedAdapter.side_capabilities",),
    "open a Side": ("ScriptedAdapter.open_side",),
    "open a Side and wait for its release": ("ScriptedAdapter.open_side",),
    "open a Side of a historical source": ("ScriptedAdapter.open_side",),
    "wait for what a failed open left": ("ScriptedAdapter.wait_side_released",),
    "the life of a provider": ("ScriptedProvider.open", "open_adapter", "ScriptedAdapter.start"),
    "diagnose, and wait for a gate": ("ScriptedProvider.diagnose", "ScriptedProvider.wait_reached"),
}

SETTLED_S = 100.0
"""Longer than everything that the provider still does after a cut."""

SLOWLY = Wait(seconds=1)

SCRIPT = Script(
    starts=(Starting(steps=(SLOWLY, OwnTurn((Say(("own",)),)), SLOWLY)),),
    opens=(Opening(steps=(SLOWLY, OwnTurn((Say(("own",)),)), SLOWLY)),),
    closes=(Closing(steps=(SLOWLY,)),),
    turns=(
        Turn(when="held", steps=(Say(("a",)), Wait(gate="held"))),
        Turn(before=(SLOWLY,), steps=(Say(("a",)), SLOWLY, Say(("b",))), answered_after=SLOWLY),
    ),
)
"""Every answer takes a second, so that the cut also falls while one is awaited."""


def question(text: str) -> ExecTurn:
    return ExecTurn(content=(TextContent(text),))


class Stage:
    """An open adapter with a live session, and what was kept of another."""

    def __init__(self, lab: Lab, provider: ScriptedProvider, adapter: ScriptedAdapter) -> None:
        self.lab = lab
        self.provider = provider
        self.adapter = adapter
        self.main, self.side = lab.session("main"), lab.side()
        self.sink = lab.recorder()
        self.history = SourceMetadata(provider="scripted", provider_session_id="", cwd="/")

    async def set(self) -> None:
        kept = await self.start("kept", self.lab.recorder())
        await self.adapter.close(self.lab.session("kept"))
        self.history = SourceMetadata(provider="scripted", provider_session_id=kept.provider_session_id, cwd="/")
        await self.start("main", self.sink)

    async def start(self, name: str, sink: Any) -> Any:
        return await self.adapter.start(StartSession(ref=self.lab.session(name), cwd="/"), sink)

    async def open(self, sink: Any, history: SourceMetadata | None = None) -> Any:
        source = self.main if history is None else self.lab.session("kept")
        return await self.adapter.open_side(OpenSide(side=self.side, source=source, history=history), sink)

    def assert_only_main(self) -> None:
        """One connection, one thread, nothing that drains or is released; the sessions that are held are the live."""
        seen = self.adapter.statistics()
        assert (seen.connections, seen.threads, seen.dedicated_connections) == (1, 1, 0)
        assert (seen.draining, seen.releasing, seen.unclosed_connections) == (0, 0, 0)
        assert (seen.forced_releases, seen.crashed_connections) == (0, 0)
        assert len(self.provider.held) == 1


Operation = Callable[[Stage, Cut], Awaitable[None]]


async def cut_a_creation(
    stage: Stage, cut: Cut, ref: Any, make: Callable[[Any], Awaitable[Any]], quiet: Callable[[], Awaitable[None]]
) -> None:
    """It is live when its caller was told so; otherwise nothing is left, its sink stays quiet, and it works again."""
    sink, binding = stage.lab.recorder(), None
    with cut.cancelling() as scope:
        binding = await make(sink)
    assert scope.cancelled_caught is (binding is None)
    assert stage.adapter.liveness(ref) == ("unknown" if binding is None else "live")
    said = list(sink.events)
    await quiet()
    if binding is None:
        assert sink.events == said, "an abandoned creation speaks"
        assert sink.ended is None
        stage.assert_only_main()
        await make(stage.lab.recorder())
    await stage.adapter.close(ref)


async def settle() -> None:
    await trio.sleep(SETTLED_S)


async def start(stage: Stage, cut: Cut) -> None:
    await cut_a_creation(stage, cut, stage.lab.session("new"), lambda sink: stage.start("new", sink), settle)


async def resume(stage: Stage, cut: Cut) -> None:
    request = ResumeSession(ref=stage.lab.session("kept"), metadata=stage.history)
    await cut_a_creation(stage, cut, request.ref, lambda sink: stage.adapter.resume(request, sink), settle)


async def open_a_side(stage: Stage, cut: Cut) -> None:
    await cut_a_creation(stage, cut, stage.side, stage.open, settle)


async def open_a_side_and_wait_for_its_release(stage: Stage, cut: Cut) -> None:
    await cut_a_creation(stage, cut, stage.side, stage.open, lambda: stage.adapter.wait_side_released(stage.side))


async def open_a_side_of_a_historical_source(stage: Stage, cut: Cut) -> None:
    await cut_a_creation(stage, cut, stage.side, lambda sink: stage.open(sink, stage.history), settle)


async def exec_a_turn(stage: Stage, cut: Cut) -> None:
    """Not sent, or interrupted as soon as the provider names it."""
    turn_id = None
    with cut.cancelling():
        turn_id = await stage.adapter.exec(stage.main, question("q"))
    cut_after = len(stage.sink.events)
    await settle()
    ends = [kind for kind in stage.lab.kinds(stage.sink.events) if kind in ("TurnCompleted", "TurnCanceled")]
    if turn_id is None:
        assert ends in (["TurnCompleted"], ["TurnCompleted", "TurnCanceled"]), ends
        assert "b" not in [getattr(event, "text", "") for event in stage.sink.events[cut_after:]]
    else:
        assert ends == ["TurnCompleted", "TurnCompleted"]
    await stage.adapter.exec(stage.main, question("again"))
    await settle()


async def cancel_a_turn(stage: Stage, cut: Cut) -> None:
    turn_id = await stage.adapter.exec(stage.main, question("held"))
    with cut.cancelling():
        await stage.adapter.cancel(stage.main, turn_id)
    await settle()
    try:
        await stage.adapter.exec(stage.main, question("q"))
    except TurnActiveError:
        await stage.adapter.cancel(stage.main, turn_id)
        await settle()
        await stage.adapter.exec(stage.main, question("q"))
    await settle()


async def steer_a_turn(stage: Stage, cut: Cut) -> None:
    """May have been sent; the turn goes on either way."""
    turn_id = await stage.adapter.exec(stage.main, question("held"))
    with cut.cancelling():
        await stage.adapter.steer(stage.main, turn_id, (TextContent("more"),))
    await stage.adapter.steer(stage.main, turn_id, (TextContent("and more"),))
    await stage.adapter.cancel(stage.main, turn_id)


async def close_a_session(stage: Stage, cut: Cut) -> None:
    """What is left to do is handed to the provider's nursery: it closes wherever its caller was cut."""
    sink = stage.lab.recorder()
    await stage.start("second", sink)
    await stage.adapter.exec(stage.lab.session("second"), question("held"))
    with cut.cancelling():
        await stage.adapter.close(stage.lab.session("second"))
    said = list(sink.events)
    await settle()
    assert sink.events == said


async def close_a_side(stage: Stage, cut: Cut) -> None:
    sink = stage.lab.recorder()
    await stage.open(sink)
    await stage.adapter.exec(stage.side, question("held"))
    with cut.cancelling():
        await stage.adapter.close(stage.side)
    said = list(sink.events)
    await settle()
    assert sink.events == said


async def attest(stage: Stage, cut: Cut) -> None:
    with cut.cancelling():
        await stage.adapter.side_capabilities(stage.main)
        await stage.adapter.side_capabilities(stage.lab.session("kept"), stage.history)


async def wait_released(stage: Stage, cut: Cut) -> None:
    """Harmless; the release goes on."""
    with trio.move_on_after(0.5) as scope:
        await stage.open(stage.lab.recorder())
    assert scope.cancelled_caught
    assert stage.adapter.statistics().draining == 1
    with cut.cancelling() as scope:
        await stage.adapter.wait_side_released(stage.side)
    assert scope.cancelled_caught or stage.adapter.statistics().draining == 0
    await stage.adapter.wait_side_released(stage.side)


OPERATIONS: dict[str, Operation] = {
    "start": start,
    "resume": resume,
    "exec": exec_a_turn,
    "cancel": cancel_a_turn,
    "steer": steer_a_turn,
    "close a session": close_a_session,
    "close a Side": close_a_side,
    "attest": attest,
    "open a Side": open_a_side,
    "open a Side and wait for its release": open_a_side_and_wait_for_its_release,
    "open a Side of a historical source": open_a_side_of_a_historical_source,
    "wait for what a failed open left": wait_released,
}


@asynccontextmanager
async def staged(lab: Lab) -> AsyncIterator[Stage]:
    provider = scripted(SCRIPT)
    async with provider.open() as adapter:
        stage = Stage(lab, provider, adapter)
        await stage.set()
        yield stage
    assert provider.held == frozenset()
    assert adapter.statistics().connections == 0


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_call_of_the_adapter_cut_after_any_step_leaves_what_its_docstring_says(
    lab: Lab, autojump_clock: trio.testing.MockClock, operation: str
) -> None:
    """R14, R6: rolled back, handed on or harmless; the provider is as before and works."""

    async def once(cut: Cut) -> None:
        async with staged(lab) as stage:
            await OPERATIONS[operation](stage, cut)
            await settle()
            stage.assert_only_main()
            await stage.open(lab.recorder())
            await stage.adapter.close(stage.side)
            stage.assert_only_main()

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS[operation])


async def test_a_provider_cut_at_any_step_of_its_life_leaves_nothing(
    lab: Lab, autojump_clock: trio.testing.MockClock
) -> None:
    """R13, R14: no connection, no writer, no task."""

    async def once(cut: Cut) -> None:
        provider = scripted(SCRIPT)
        adapter = None
        # A connection that the cut ended first says so to the block; that error, too, leaves as itself.
        with cut.cancelling(), suppress(ProviderLostError):
            async with provider.open() as adapter:
                stage = Stage(lab, provider, adapter)
                await stage.set()
                await stage.open(lab.recorder())
        assert provider.held == frozenset()
        assert provider.adapters == ()
        assert adapter is None or adapter.statistics().connections == 0

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["the life of a provider"])


async def test_a_diagnosis_and_a_wait_for_a_gate_are_harmless_to_cut(
    lab: Lab, autojump_clock: trio.testing.MockClock
) -> None:
    """R14: nobody waits at the gate afterwards."""

    async def once(cut: Cut) -> None:
        async with staged(lab) as stage:
            with cut.cancelling():
                await stage.provider.diagnose()
                await stage.adapter.exec(stage.main, question("held"))
                await stage.provider.wait_reached("held")
            assert stage.provider._gates._watchers == []

    report = await cut_at_every_step(once)

    assert report.inside >= set(CUTS["diagnose, and wait for a gate"])
