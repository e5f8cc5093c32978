"""What an agent does besides talking: one union, no turn's answer, and counted like everything else."""

import msgspec
import pytest
import trio

from tutti_providers.scripted import Emit, Opening, Say, Script, Turn, scripted
from tutti_side import open_host
from tutti_side.contract import (
    ADAPTER_EVENTS,
    ChangedFile,
    ErrorRaised,
    Event,
    MessageDelta,
    MessageUpdated,
    PlanDelta,
    PlanStep,
    PlanUpdated,
    ReasoningDelta,
    ReasoningUpdated,
    TokenCount,
    ToolOutput,
    ToolStarted,
    ToolUpdated,
    TurnId,
    TurnStarted,
    Unknown,
    UsageUpdated,
    WarningRaised,
)
from tutti_side.contract.work import WORK_EVENTS
from tutti_side.runtime import SideExpiredError, Subscription
from tutti_side.runtime._gate import GATE_BYTES_MAX
from tutti_side.runtime._turns import TurnTable

T = TurnId("t")
FILES = (ChangedFile("/a", "update", "@@", "/b"),)
COUNT = TokenCount(3, 2, 1, 1, 1)
EACH: list[Event] = [
    ReasoningDelta(T, "i", "hm"),
    ReasoningUpdated(T, "i", "hm", "hmm"),
    ToolStarted(T, "i", "command", "make", "/w"),
    ToolOutput(T, "i", "ok"),
    ToolUpdated(T, "i", "file_change", "/a", "completed", changes=FILES),
    PlanDelta(T, "i", "1."),
    PlanUpdated(T, "why", (PlanStep("one", "pending"),)),
    UsageUpdated(T, COUNT, COUNT, 100),
    WarningRaised("beware"),
    ErrorRaised(T, "again", will_retry=True),
    Unknown("x/new", T),
]


def test_every_kind_is_here() -> None:
    """Our choice: the lists below hold for all of them."""
    assert tuple(type(event) for event in EACH) == WORK_EVENTS
    assert set(WORK_EVENTS) < set(ADAPTER_EVENTS)


@pytest.mark.parametrize("event", EACH, ids=lambda event: type(event).__name__)
def test_an_event_can_be_written_and_read_again(event: Event) -> None:
    """Specification: events leave a service as a discriminated union."""
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


@pytest.mark.parametrize("event", EACH, ids=lambda event: type(event).__name__)
def test_it_is_no_part_of_a_turns_answer_and_ends_no_turn(event: Event) -> None:
    """Our choice: an answer is what the agent said; an error that will be tried again is no end."""
    table = TurnTable()
    table.begin()
    record = table.bind(T)
    table.apply([TurnStarted(T), MessageDelta(T, "i", "a"), event, MessageDelta(T, "i", "b"), event])
    assert record.messages() == ("ab",)
    assert table.active is record
    table.apply([MessageUpdated(T, "i", "whole"), event])
    assert record.messages() == ("whole",)
    assert table.late_events == 0


async def heard_by(subscription: Subscription) -> list[Event]:
    """Everything until the end."""
    return [event async for batch in subscription for event in batch.events]


async def test_a_sides_work_reaches_its_subscribers_alone() -> None:
    """R1: what a Side does is heard by nobody of its source, and the other way round."""
    theirs = WarningRaised("of the source")
    script = Script(
        turns=(
            Turn(in_side=True, steps=(Emit(tuple(EACH)), Say(("side",)))),
            Turn(in_side=False, steps=(Emit((theirs,)), Say(("source",)))),
        )
    )
    async with open_host(scripted(script)) as host:
        session = await host.start_session(cwd=".")
        parent = session.events()
        with trio.fail_after(5):
            async with session.side() as side:
                own = side.events()
                assert (await side.ask("q")).text == "side"
                assert (await session.ask("q")).text == "source"
            await session.close()
            of_side, of_source = await heard_by(own), await heard_by(parent)
    assert [event for event in of_side if isinstance(event, WORK_EVENTS)] == EACH
    assert [event for event in of_source if isinstance(event, WORK_EVENTS)] == [theirs]


async def test_what_a_tool_prints_before_the_commit_is_bounded_in_bytes() -> None:
    """R12: the gate counts every text of an event, not the agent's words only."""
    half = "x" * (GATE_BYTES_MAX // 2 + 1)
    for event in (
        ToolOutput(T, "i", half),
        ToolUpdated(T, "i", "file_change", "", "completed", changes=(ChangedFile("/a", "add", half),)),
    ):
        steps = (Emit((event,)), Emit((event,)))
        async with open_host(scripted(Script(opens=(Opening(steps=steps),)))) as host:
            session = await host.start_session(cwd=".")
            await session.ask("hi")
            with trio.fail_after(5), pytest.raises(SideExpiredError, match="overflow"):
                async with session.side():
                    pass
