"""The test bed that the demo runs the scripted provider in."""

import pathlib
from importlib import metadata
from typing import Any

import trio
from trio.testing import MockClock

from tutti_providers.scripted.testing import make_testbed
from tutti_side import open_host


async def test_the_demo_plan_plays_out_inside_the_test_bed(tmp_path: pathlib.Path, autojump_clock: MockClock) -> None:
    """Our choice: the same plan as with a real provider: the Side lies inside the parent's turn, and leaves no file."""
    bed = make_testbed(parent_tokens=9, side_tokens=3)
    plan = bed.demo
    async with bed.open(tmp_path) as place, open_host(place.provider) as host:
        session = await host.start_session(cwd=place.workspace)
        turn = await session.send(plan.parent_prompt)
        await place.provider.wait_reached(plan.parent_gate)
        assert turn.answer.text == "".join(plan.parent_tokens[: plan.parent_held_at])
        async with session.side() as side:
            assert (await side.ask(plan.side_question)).text == "".join(plan.side_tokens)
        assert turn.is_active
        place.model.gate(plan.parent_gate).set()
        with trio.fail_after(60):
            assert (await turn.wait()).answer.text == "".join(plan.parent_tokens)
        assert list(place.home.iterdir()) == list(place.workspace.iterdir()) == []
        assert (place.binary, place.no_binary, place.env) == (None, "", {})


def test_provider_and_test_bed_are_found_by_entry_point() -> None:
    """Architecture §2: which provider there is, is chosen by the command line, by entry point."""
    found: dict[str, Any] = {}
    for group in ("providers", "testbeds"):
        [point] = metadata.entry_points(group=f"tutti_side.{group}", name="scripted")
        found[group] = point.load()()
    assert [thing.name for thing in found.values()] == ["scripted", "scripted"]


async def test_its_diagnosis_is_that_it_is_there() -> None:
    """Contract: `diagnose` says what is attested."""
    bed = make_testbed()
    assert bed.name == "scripted"
    [point] = metadata.entry_points(group="tutti_side.providers", name="scripted")
    diagnosis = await point.load()().diagnose()
    assert (diagnosis.found, diagnosis.supported, diagnosis.reason) == (True, True, None)
    assert diagnosis.capabilities
