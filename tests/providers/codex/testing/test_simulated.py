"""The bed of a simulation: the real adapter over fakes, with the weather in our hand."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from tutti_providers.codex.testing import SimulatedCodex
from tutti_side import AgentHost, open_host
from tutti_side.testing.simulation.records import (
    Asked,
    BranchAnswered,
    BranchAsked,
    ConnectionEnded,
    ConnectionOpened,
    Read,
    Record,
    WentOver,
    World,
)

WORLD = World(
    answers={"<p0/0>": ("p0/0.0 ", "p0/0.1 "), "<p0/1>": ("p0/1.0 ",)}, approvals={"<p0/1>": ("command", "elicitation")}
)


class Bench:
    """A bed and all that it told."""

    def __init__(self, seed: int = 0) -> None:
        self.records: list[Record] = []
        self.notes: list[str] = []
        self.bed = SimulatedCodex(random.Random(seed), WORLD, self.records.append, self.notes.append)

    @asynccontextmanager
    async def host(self) -> AsyncIterator[AgentHost]:
        with trio.fail_after(1_000):
            async with open_host(self.bed.provider) as host:
                yield host

    def told(self, *types: type[Record]) -> list[Record]:
        return [record for record in self.records if isinstance(record, types)]


async def test_a_side_leaves_its_facts_and_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    """R6: counts while it lives; no leftovers once it is closed."""
    bench = Bench()
    async with bench.host() as host:
        session = await host.start_session(cwd="/")
        assert (await session.ask("<p0/0>")).text == "p0/0.0 p0/0.1 "
        side = await session.open_side()
        live = frozenset({session.provider_session_id})
        asked, answered = bench.told(BranchAsked, BranchAnswered)
        assert isinstance(asked, BranchAsked)
        assert isinstance(answered, BranchAnswered)
        assert (asked.source, asked.restricted) == (session.provider_session_id, True)
        assert bench.bed.connection_of(answered.child) == bench.bed.connection_of(session.provider_session_id) == 0
        assert bench.bed.counts()["routes"] == 2
        assert any(phrase.startswith("R6 thread still subscribed") for phrase in bench.bed.leftovers(live))
        await side.close()
        assert bench.bed.leftovers(live) == []
    assert bench.bed.leftovers(frozenset()) == []
    assert [type(record) for record in bench.told(ConnectionOpened, ConnectionEnded)] == [
        ConnectionOpened,
        ConnectionEnded,
    ]


async def test_all_that_went_over_was_read_at_the_same_moment(autojump_clock: trio.testing.MockClock) -> None:
    """R10: in the calm, byte for byte."""
    bench = Bench()
    async with bench.host() as host:
        await (await host.start_session(cwd="/")).ask("<p0/0>")
        sums = {
            kind: {
                at_s: sum(r.bytes for r in bench.records if isinstance(r, kind) and r.at_s == at_s)
                for at_s in {r.at_s for r in bench.records if isinstance(r, kind)}
            }
            for kind in (WentOver, Read)
        }

    assert sums[WentOver] == sums[Read]


async def test_turns_ask_what_the_world_says(autojump_clock: trio.testing.MockClock) -> None:
    """The specification of the simulation: approvals and questions, two at once."""
    bench = Bench()
    async with bench.host() as host:
        session = await host.start_session(cwd="/")
        await session.send("<p0/1>")
        await trio.sleep(1)

    kinds = [record.kind for record in bench.told(Asked) if isinstance(record, Asked)]
    assert sorted(kinds) == ["command", "elicitation"]


async def test_a_session_outlives_its_app_server(autojump_clock: trio.testing.MockClock) -> None:
    """The specification of the simulation: one host after another over one disk."""
    bench = Bench()
    async with bench.host() as host:
        session = await host.start_session(cwd="/", session_id="s")
        await session.ask("<p0/0>")
        thread = session.provider_session_id
        await session.close()
        resumed = await host.resume_session("s")

        assert resumed.provider_session_id == thread
        assert bench.bed.connection_of(thread) == 1
        assert (await resumed.ask("<p0/0>")).text == "p0/0.0 p0/0.1 "


async def test_equal_seeds_tell_the_same_and_others_do_not(autojump_clock: trio.testing.MockClock) -> None:
    """Our choice: a failure that can't be repeated can't be understood."""
    notes = []
    for seed in (1, 1, 2):
        bench = Bench(seed)
        async with bench.host() as host:
            await (await host.start_session(cwd="/")).ask("<p0/0>")
        notes.append(bench.notes)

    assert notes[0] == notes[1] != notes[2]
