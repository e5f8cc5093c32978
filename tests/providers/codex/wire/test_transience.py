"""What a Side never says to the server, and what nobody is told of it afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex._connection import SILENCE_S
from tutti_providers.codex.testing import AnswerLate, FakeSetup, ForkAnswer, NeverAnswer
from tutti_side import OpenFailedError, SideConflictError, SideExpiredError, SideUnsupportedError, open_host
from tutti_side.contract import CanonicalRef, SideRef, SourceMetadata
from tutti_side.runtime import MemoryMetadata

Frame = dict[str, Any]
Listen = Callable[..., Any]

OURS = {
    *("initialize", "initialized"),
    *("thread/start", "thread/fork", "thread/inject_items"),
    *("turn/start", "turn/interrupt"),
    *("thread/backgroundTerminals/clean", "thread/unsubscribe"),
    *("thread/loaded/list", "thread/read"),
}
"""All that is ever sent of a session and its Sides: nothing that deletes, archives, resumes, or reads a history.

The last two are how a silent server is asked for a sign of life, and for the status of a thread whose turn runs.
"""


def methods(made: Any) -> set[str]:
    """What was asked of all servers so far."""
    return {frame["method"] for wire in made.wires for frame in wire.sent if "method" in frame}


async def test_no_life_of_a_side_sends_a_delete_a_resume_or_a_request_for_history(
    autojump_clock: Any, bench: Any
) -> None:
    """SC-codex-delete, SC-codex-resume, F23, F25: used, interrupted, failed, given up, lost, and open at the end."""
    faults = (
        ForkAnswer(thread={"ephemeral": False}, times=1),
        AnswerLate(method="thread/fork", after_s=5, times=3),
        NeverAnswer(method="thread/inject_items", times=1),
    )
    made = bench(faults=faults)
    made.later_setup = FakeSetup(script=made.setup.script)
    async with made.working() as (host, session):
        with pytest.raises(OpenFailedError):
            await session.open_side(side_id="a lie")
        with pytest.raises(OpenFailedError):
            await session.open_side(side_id="never whole")
        with trio.move_on_after(1):
            await session.open_side(side_id="given up")
        await trio.sleep(120)
        async with session.side(side_id="used", request_id="r") as side:
            assert (await side.ask("what?")).text == "s0 s1 "
            await (await side.send("hold on")).cancel()
        for side_id in ("used", "lost"):
            if side_id == "lost":
                lost = await session.open_side(side_id="lost", request_id="r")
                made.server.crash()
                assert await session.wait_ended() == "lost"
                with pytest.raises(SideExpiredError):
                    await lost.ask("what?")
            with pytest.raises(SideExpiredError):
                await host.open_side(session.ref.session, side_id, "r")
        again = await made.start_working(host)
        await again.open_side()
    assert methods(made) == OURS
    assert len(made.servers) == 2


async def test_what_a_closed_side_completes_late_reaches_nobody_and_loads_nothing(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """F25, F22: its turn's end, its words and its unloading come after the unsubscribe; the parent's is whole."""
    made = bench()
    async with trio.open_nursery() as nursery, made.working() as (_, session):
        parent = listen(nursery, session.events())
        side = await session.open_side(subscribe=True)
        of_side = listen(nursery, side.events())
        child = side.scope.binding.provider_session_id
        turn = {"id": (await side.send("hold on")).id, "status": "completed"}
        where = {"threadId": child, "turnId": turn["id"], "itemId": "late"}
        late: list[Frame] = [
            {"method": "item/agentMessage/delta", "params": {**where, "delta": "too late"}},
            {"method": "turn/completed", "params": {"threadId": child, "turn": turn}},
            {"method": "thread/status/changed", "params": {"threadId": child, "status": {"type": "notLoaded"}}},
            {"method": "thread/closed", "params": {"threadId": child}},
        ]

        def after_the_unsubscribe(frame: Frame) -> list[Frame]:
            asked = [request["id"] for request in made.wire.requests("thread/unsubscribe")]
            return late if frame.get("id") in asked and "method" not in frame else []

        made.wire.between = after_the_unsubscribe
        made.wire.read_bytes = 0  # a line a read: the first of them meets a thread that is being let go, the last none
        await side.close()
        await trio.testing.wait_all_tasks_blocked()
        assert made.wire.of_thread(child)[-len(late) :] == late
        dropped = made.connection.router.dropped["closed"]
        sent = len(made.wire.sent)
        await trio.sleep(SILENCE_S / 2)
        assert dropped >= 1
        assert len(made.wire.sent) == sent
        made.server.open_gate("parent")
        assert (await session.active_turn.wait()).answer.text == "p0 p1 p2 p3 "
    assert "too late" not in parent.text + of_side.text
    assert of_side.kinds[-1] == "SessionClosed"
    assert methods(made) <= OURS


async def test_each_source_that_the_server_would_refuse_alike_has_a_reason_of_its_own_and_is_not_sent(
    autojump_clock: Any, bench: Any
) -> None:
    """T13: nested, unknown, of a home that no connection of ours has, and empty: told apart here, before any fork."""
    made = bench()
    kept = MemoryMetadata()
    with trio.fail_after(1_000):
        async with open_host(made, metadata=kept) as host:
            session = await made.start_working(host)
            workspace = host.identity.workspace
            elsewhere = SourceMetadata(provider="codex", provider_session_id="t", cwd="/", runtime={"codex_home": "/x"})
            await kept.write(CanonicalRef(workspace, "elsewhere"), elsewhere)  # type: ignore[arg-type]
            await host.start_session(cwd="/project", session_id="empty")
            async with session.side(side_id="s") as side:
                sent = len(made.wire.requests("thread/fork"))
                reasons: dict[str, str] = {}
                with pytest.raises(SideConflictError) as nested:
                    nested_in = CanonicalRef(workspace, side.id)
                    await host.controller.open_side(SideRef(workspace, "n"), nested_in, "r")  # type: ignore[arg-type]
                reasons["nested"] = str(nested.value)
                with pytest.raises(OpenFailedError) as unknown:
                    await host.open_side("never known", "of nothing", "r")
                assert unknown.value.phase == "source"
                reasons["unknown"] = str(unknown.value)
                for source in ("elsewhere", "empty"):
                    with pytest.raises(SideUnsupportedError) as refused:
                        await host.open_side(source, f"of {source}", "r")
                    reasons[source] = refused.value.reason
                assert len(made.wire.requests("thread/fork")) == sent == 1
    assert len(set(reasons.values())) == 4
    assert "branch a Side" in reasons["nested"]
    assert "neither open here nor known" in reasons["unknown"]
    assert "not live" in reasons["elsewhere"]
    assert "no turn yet" in reasons["empty"]


class Stuck(MemoryMetadata):
    """A store that takes nothing while it is stuck."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.free = trio.Event(), trio.Event()
        self.free.set()

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        self.reached.set()
        await self.free.wait()
        await super().write(ref, metadata)


async def test_the_reader_goes_on_while_the_store_is_stuck_and_a_question_waits_for_its_user(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """R10, F27: behind them wait the answers that everyone needs; no time passes for the others, not even virtual."""
    made, store = bench(), Stuck()
    asked = {"threadId": "", "turnId": "", "itemId": "i", "command": "touch x", "cwd": "/project"}
    with trio.fail_after(1_000):
        async with trio.open_nursery() as nursery, open_host(made, metadata=store) as host:
            session = await made.start_working(host)
            store.reached, store.free = trio.Event(), trio.Event()
            nursery.start_soon(lambda: host.start_session(cwd="/project", session_id="waits"))
            await store.reached.wait()

            where = {"threadId": session.provider_session_id, "turnId": session.active_turn.id}
            question = {"method": "item/commandExecution/requestApproval", "id": 900, "params": {**asked, **where}}
            said: list[bool] = []
            made.wire.between = lambda frame: [] if said else [said.append(True) or question]  # type: ignore[func-returns-value]
            began = trio.current_time()
            parent = listen(nursery, session.events())
            async with session.side(subscribe=True) as side:
                heard = listen(nursery, side.events())
                assert (await side.ask("what?")).text == "s0 s1 "
            made.server.open_gate("parent")
            assert (await session.active_turn.wait()).answer.text == "p0 p1 p2 p3 "
            assert trio.current_time() == began
            assert "InteractionRequested" in parent.kinds
            assert heard.text == "s0 s1 "
            assert host.statistics().sessions == 2
            store.free.set()
            await trio.testing.wait_all_tasks_blocked()
