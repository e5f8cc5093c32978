"""`open_side` on a real Codex, cut after every step of any task: no child stays, however late it appears."""

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import Answer, ModelScript, Pause, Say
from tutti_side import SideHandle

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any
Bench = Any

TASK = "Refactor the parser"
QUESTION = "What does the tokenizer do?"
SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("one ",)), Pause(gate="parent"), Say(tokens=("two",)), when=TASK),
        Answer.of(Say(tokens=("answered",)), when=QUESTION),
    )
)

STEPS_MAX = 400
"""An open takes some twenty steps of all tasks together; more than this is a loop."""

PHASES = {
    "before the fork",
    "thread/fork is not answered",
    "thread/fork is answered",
    "thread/inject_items is not answered",
}
"""Where the axe has to have fallen at least once."""

SWEEPS_MAX = 8
"""The server's pace moves the steps, so that one sweep can miss a phase that is one step long."""


class Axe(trio.abc.Instrument):
    """Cancels a scope after the k-th step that any task takes while it is raised, and notes what the wire had then."""

    def __init__(self, scope: trio.CancelScope, steps: int, bench: Bench) -> None:
        self._scope = scope
        self._left = steps
        self._bench = bench
        self.fell_at = ""

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self.fell_at = phase(self._bench)
            self._scope.cancel(reason="the axe")


def phase(bench: Bench) -> str:
    """How far the latest open got on the wire."""
    frames = bench.wire.frames
    asked = [frame["id"] for _, frame in frames if frame.get("method") in ("thread/fork", "thread/inject_items")]
    names = [frame["method"] for _, frame in frames if frame.get("method") in ("thread/fork", "thread/inject_items")]
    answered = {frame["id"] for direction, frame in frames if direction == "in" and "method" not in frame}
    if not names or bench.forks_before == names.count("thread/fork"):
        return "before the fork"
    if asked[-1] not in answered:
        return f"{names[-1]} is not answered"
    return f"{names[-1]} is answered"


async def open_cut(bench: Bench, session: Any, steps: int) -> tuple[SideHandle | None, str, bool]:
    """Open a Side and cut it; return the Side if there is one, where the axe fell, and whether it fell at all."""
    bench.forks_before = len(bench.wire.requests("thread/fork"))
    side = None
    with trio.CancelScope() as scope:
        axe = Axe(scope, steps, bench)
        trio.lowlevel.add_instrument(axe)
        try:
            side = await session.open_side()
        finally:
            trio.lowlevel.remove_instrument(axe)
    return side, axe.fell_at, scope.cancel_called


async def test_no_child_stays_of_an_open_that_is_cut_after_any_step_of_any_task(lab: Lab) -> None:
    """R6, R14, F18: also one whose fork is answered when its opener has gone; at the end each is asked for by id."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await bench.wire.wait_said("one ")
        fell: set[str] = set()
        for _ in range(SWEEPS_MAX):
            for steps in range(1, STEPS_MAX):
                side, where, cut = await open_cut(bench, session, steps)
                if side is not None:
                    assert (await side.ask(QUESTION)).text == "answered"
                    await side.close()
                assert_nothing_is_left(bench, host)
                if not cut:
                    break
                fell.add(where)
            assert not cut
            if fell >= PHASES:
                break
        assert fell >= PHASES
        await assert_every_child_is_unsubscribed(bench)
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "one two"


def assert_nothing_is_left(bench: Bench, host: Any) -> None:
    """When the call returns, nothing is left of it here: that is its promise, so nobody waits."""
    assert host.statistics().sides == {}
    assert host.statistics().locks_in_use == 0
    connection, router = bench.connection, bench.connection.router
    assert (connection.leases, connection.releasing, connection.unreleased) == (1, 0, 0)
    assert (router.routes, router.creations, router.pooled) == (1, 0, 0)


async def assert_every_child_is_unsubscribed(bench: Bench) -> None:
    """Ask the server itself, child by child."""
    children = [result["thread"]["id"] for result in bench.wire.results("thread/fork")]
    assert len(children) == len(bench.wire.requests("thread/fork"))
    assert len(children) > 4
    peer = bench.adapters[0]._connection.current.peer
    for child in children:
        answer = await peer.request("thread/unsubscribe", {"threadId": child})
        assert msgspec.json.decode(answer)["status"] in ("notSubscribed", "notLoaded")


async def test_an_opener_that_gives_up_on_a_server_that_stands_still_leaves_nothing_once_it_goes_on(lab: Lab) -> None:
    """R6, F18: the fork's answer is late by any measure: the process is stopped while it is asked."""
    async with lab.bench(SCRIPT) as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        turn = await session.send(TASK)
        await bench.wire.wait_said("one ")
        with bench.wire.stopped():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.open_side)
                await bench.wire.wait_sent("thread/fork")
                # Returns after its bound, with the answer still owed.
                nursery.cancel_scope.cancel()
            assert host.statistics().sides == {"draining": 1}
            assert bench.connection.router.creations == 1
        await bench.wire.wait_for(lambda frame: (frame.get("result") or {}).get("status") == "unsubscribed")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert host.statistics().sides == {}
        assert bench.connection.router.creations == 0
        assert bench.connection.leases == 1
        bench.model.gate("parent").set()
        assert (await turn.wait()).answer.text == "one two"
