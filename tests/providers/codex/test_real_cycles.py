"""A Side opened, asked and closed very often on one connection of a real Codex: nothing adds up on our side."""

import gc
import os
import pathlib
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

import tutti_providers
import tutti_side
from tutti_providers.codex.testing import Answer, ModelScript, Pause, Say

pytestmark = [pytest.mark.codex, pytest.mark.process, pytest.mark.slow]

Lab = Any

CYCLES = int(os.environ.get("TUTTI_SIDE_CYCLES", "100"))
"""How often a Side is opened, asked and closed; for a longer run set the variable, to 500 for example."""

WARM_UP = 20
"""Cycles before the first count: caches fill, and modules are loaded."""

REMEMBERED_BYTES = 2_048
"""What a Side may leave behind for good: its id, that it is over, and its thread's; both are bounded in number."""

TASK, QUESTION = "Refactor the parser", "What does the tokenizer do?"
SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK),
        Answer.of(Say(tokens=("answered",)), when=QUESTION),
    )
)

OURS = tuple(f"{pathlib.Path(package.__path__[0])}/" for package in (tutti_side, tutti_providers))
REMEMBERED = {"SideRef"}


def objects() -> Counter[str]:
    """How many objects of our own classes are alive, without what is remembered of each Side."""
    gc.collect()
    kinds = Counter(type(each) for each in gc.get_objects())
    named = {kind: str(kind.__module__) for kind in kinds}  # some classes of other tests' libraries have no text there
    ours = [kind for kind, name in named.items() if name.startswith(("tutti_side", "tutti_prov"))]
    return Counter({kind.__name__: kinds[kind] for kind in ours if ".testing" not in named[kind]}) - Counter(
        dict.fromkeys(REMEMBERED, sys.maxsize)
    )


def own_bytes() -> int:
    """What the code of our packages, test beds aside, has allocated and not given back."""
    gc.collect()
    files = tracemalloc.take_snapshot().statistics("filename")
    sizes = {statistic.traceback[0].filename: statistic.size for statistic in files}
    return sum(size for name, size in sizes.items() if name.startswith(OURS) and "/testing/" not in name)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_kb(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


async def test_sides_opened_asked_and_closed_very_often_leave_nothing_behind(
    lab: Lab, record_property: Callable[[str, object], None]
) -> None:
    """R6, R12, F18, F21: opened minus unsubscribed is nothing; objects, memory, descriptors stay as they were."""
    lab.bound_s = 900.0
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        parent = await session.send(TASK)
        await bench.model.wait_reached("parent")

        opened: list[str] = []
        closed: list[str] = []
        statuses: set[str] = set()

        async def cycle() -> None:
            async with session.side(subscribe=True) as side:
                assert (await side.ask(QUESTION)).text == "answered"
            opened.extend(result["thread"]["id"] for result in bench.wire.results("thread/fork"))
            closed.extend(request["params"]["threadId"] for request in bench.wire.requests("thread/unsubscribe"))
            statuses.update(result["status"] for result in bench.wire.results("thread/unsubscribe"))
            bench.wire.frames.clear()  # what the test bed records would add up
            bench.delivered.clear()

        for _ in range(WARM_UP):
            await cycle()
        server = bench.wire.transport.pid
        await trio.testing.wait_all_tasks_blocked()
        tracemalloc.start()
        try:
            await cycle()
            await trio.testing.wait_all_tasks_blocked()
            before = (objects(), descriptors(), own_bytes(), resident_kb(server))
            for _ in range(CYCLES):
                await cycle()
            await trio.testing.wait_all_tasks_blocked()
            after = (objects(), descriptors(), own_bytes(), resident_kb(server))
        finally:
            tracemalloc.stop()

        assert len(opened) == WARM_UP + 1 + CYCLES
        assert sorted(opened) == sorted(closed)
        assert statuses == {"unsubscribed"}
        assert before[0] == after[0]
        assert before[1] == after[1]
        per_side = (after[2] - before[2]) / CYCLES
        server_kb = (after[3] - before[3]) / CYCLES
        record_property("own_bytes_per_side", round(per_side))
        record_property("app_server_kb_per_side", round(server_kb, 1))
        print(f"{CYCLES} Sides: we keep {per_side:.0f} bytes of each, the app-server grew by {server_kb:.1f} KiB each")
        assert per_side < REMEMBERED_BYTES
        assert parent.is_active
        statistics = bench.connection
        assert (statistics.leases, statistics.router.routes, statistics.releasing) == (1, 1, 0)
        bench.model.gate("parent").set()
        assert (await parent.wait()).answer.text == "one two"
        await session.close()
