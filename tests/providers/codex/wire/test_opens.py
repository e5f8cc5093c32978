"""Opens that are raced, given up, refused, lied to or answered late: one fork each, nothing left of a failed one."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.errors import RequestRefusedError, UnansweredError
from tutti_providers.codex.testing import AnswerLate, AnswerTwice, ForkAnswer, ForkOrder, NeverAnswer, Overloaded
from tutti_providers.codex.testing._fake_disturbances import Disturbances
from tutti_side import OpenFailedError, SideUnsupportedError
from tutti_side.contract import Event, OpenSide, ProviderLostError, ProviderProtocolError, SideRef
from tutti_side.jsonrpc import REQUEST_DEADLINE_S
from tutti_side.runtime import SideInProgressError
from tutti_side.runtime._sessions import SNAPSHOT_WAIT_S

FORK = "thread/fork"


def forks(made: Any) -> int:
    """How often a fork was written to the wire."""
    return len(made.wire.requests(FORK))


async def open_one(session: Any, outcomes: list[Any], scope: trio.CancelScope, *, name: str = "one") -> None:
    with scope:
        outcomes.append(await session.open_side(side_id=name, request_id="click"))


# one fork for each identity


async def test_a_hundred_opens_of_one_identity_are_one_fork_and_one_side(autojump_clock: Any, bench: Any) -> None:
    """R4, F17: whatever the concurrency; the first 99 to be cancelled change nothing for the last."""
    made = bench(faults=(AnswerLate(method=FORK, gate="answer"),))
    async with made.working() as (host, session), trio.open_nursery() as nursery:
        outcomes: list[Any] = []
        scopes = [trio.CancelScope() for _ in range(100)]
        for scope in scopes:
            nursery.start_soon(open_one, session, outcomes, scope)
        await trio.testing.wait_all_tasks_blocked()
        for scope in scopes[:99]:
            scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == []
        made.server.open_gate("answer")
        await trio.testing.wait_all_tasks_blocked()
        [side] = outcomes
        assert forks(made) == 1
        assert (await side.ask("what?")).text == "s0 s1 "
        await side.close()
        made.assert_only(host, session)


async def test_all_who_wait_for_one_open_get_the_same_side(autojump_clock: Any, bench: Any) -> None:
    """R4, F17: joiners share the outcome."""
    made = bench(faults=(AnswerLate(method=FORK, after_s=1),))
    async with made.working() as (host, session):
        outcomes: list[Any] = []
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(open_one, session, outcomes, trio.CancelScope())
        assert len({id(side.scope) for side in outcomes}) == 1
        assert (len(outcomes), forks(made), len(made.children)) == (100, 1, 1)
        await outcomes[0].close()
        made.assert_only(host, session)


async def test_the_last_of_a_hundred_openers_to_be_cancelled_rolls_everything_back(
    autojump_clock: Any, bench: Any
) -> None:
    """R4, R6, F18: the child that appears later is unsubscribed; then the id is free again."""
    made = bench(faults=(AnswerLate(method=FORK, gate="answer", times=1),))
    async with made.working() as (host, session), trio.open_nursery() as nursery:
        outcomes: list[Any] = []
        scopes = [trio.CancelScope() for _ in range(100)]
        for scope in scopes:
            nursery.start_soon(open_one, session, outcomes, scope)
        await trio.testing.wait_all_tasks_blocked()
        for scope in scopes:
            scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(SideInProgressError):
            await session.open_side(side_id="one", request_id="click")
        made.server.open_gate("answer")
        await trio.sleep(1)
        assert (outcomes, forks(made), len(made.children)) == ([], 1, 1)
        made.assert_only(host, session)
        async with session.side(side_id="one", request_id="click") as side:
            assert (await side.ask("what?")).text == "s0 s1 "


# answers that come late, twice or never


@pytest.mark.parametrize("after_s", [3, 10, 20, 29, 40, 100], ids=lambda s: f"{s} s late")
async def test_a_fork_answered_after_its_opener_gave_up_leaves_no_child(
    autojump_clock: Any, bench: Any, after_s: float
) -> None:
    """R6, R4, F18, T14: unsubscribed whenever it comes, also when the side id has long been given back."""
    order = ForkOrder(order=("starting", "request", "response", "started"))
    made = bench(faults=(AnswerLate(method=FORK, after_s=after_s, times=1), order), tool_servers=("docs",))
    async with made.working() as (host, session):
        with trio.move_on_after(1) as gave_up:
            await session.open_side(side_id="one", request_id="click")
        assert gave_up.cancelled_caught
        assert trio.current_time() < 10, "the opener waited for more than its bound"
        if after_s >= 10:
            with pytest.raises(SideInProgressError):
                await session.open_side(side_id="one", request_id="click")
        await trio.sleep(150)
        assert len(made.children) == 1
        made.assert_only(host, session)
        async with session.side(side_id="one", request_id="click") as side:
            assert (await side.ask("what?")).text == "s0 s1 "
        assert forks(made) == 2


@pytest.mark.parametrize("after_s", [8, 16, 24], ids=lambda s: f"{s} s late")
async def test_a_side_id_drains_until_the_late_answer(autojump_clock: Any, bench: Any, after_s: float) -> None:
    """R4, architecture §4: an open meanwhile is in progress; a second fork would make two children of one identity."""
    made = bench(faults=(AnswerLate(method=FORK, after_s=after_s, times=1),))
    async with made.working() as (_, session):
        began = trio.current_time()
        with trio.move_on_after(1):
            await session.open_side(side_id="one", request_id="click")
        await trio.sleep_until(began + after_s - 0.5)
        with pytest.raises(SideInProgressError):
            await session.open_side(side_id="one", request_id="click")
        await trio.sleep(1)
        async with session.side(side_id="one", request_id="click"):
            assert forks(made) == 2


async def test_a_fork_that_is_never_answered_fails_in_time_and_is_never_sent_again(
    autojump_clock: Any, bench: Any
) -> None:
    """R4, R9, R12, T14: it may have been executed."""
    made = bench(faults=(NeverAnswer(method=FORK, times=1),))
    async with made.working() as (host, session):
        began = trio.current_time()
        with pytest.raises(OpenFailedError) as failed:
            await session.open_side(side_id="one", request_id="click")
        assert trio.current_time() - began <= REQUEST_DEADLINE_S
        assert isinstance(failed.value.__cause__, UnansweredError)
        await trio.sleep(1_000)
        assert forks(made) == 1
        assert made.connection.router.creations == 0
        made.assert_only(host, session)
        async with session.side(side_id="one", request_id="click") as side:
            assert (await side.ask("what?")).text == "s0 s1 "


async def test_a_fork_answered_twice_is_one_child(autojump_clock: Any, bench: Any) -> None:
    """F16, R4: the second answer is counted, nothing more."""
    made = bench(faults=(AnswerTwice(method=FORK),))
    async with made.working() as (host, session):
        async with session.side() as side:
            assert (await side.ask("what?")).text == "s0 s1 "
            assert made.connection.peer.duplicate_answers == 1
        made.assert_only(host, session)


async def test_a_boundary_that_is_not_injected_fails_the_open_and_the_child_goes(
    autojump_clock: Any, bench: Any
) -> None:
    """F20, R6, R15: a child half set up is none."""
    made = bench(faults=(NeverAnswer(method="thread/inject_items", times=1),))
    async with made.working() as (host, session):
        with pytest.raises(OpenFailedError):
            await session.open_side()
        await trio.sleep(61)
        assert len(made.children) == 1
        made.assert_only(host, session)


# overload


@pytest.mark.parametrize("times", [1, 3, 5])
async def test_an_overloaded_server_gets_the_same_fork_again_until_it_takes_it(
    autojump_clock: Any, bench: Any, times: int
) -> None:
    """R4, R12: only an explicit -32001 says that it was not executed."""
    made = bench(faults=(Overloaded(method=FORK, times=times), Overloaded(method="turn/start", times=times)))
    async with made.host() as host:
        session = await made.start_working(host)
        async with session.side() as side:
            assert (await side.ask("what?")).text == "s0 s1 "
        assert (forks(made), len(made.children)) == (times + 1, 1)
        made.assert_only(host, session)


async def test_a_server_that_stays_overloaded_fails_the_open_within_its_bound(autojump_clock: Any, bench: Any) -> None:
    """R12: five retries, then the error as it is; no child, and the next open works when the load is gone."""
    made = bench(faults=(Overloaded(method=FORK, times=6),))
    async with made.working() as (host, session):
        began = trio.current_time()
        with pytest.raises(OpenFailedError) as failed:
            await session.open_side()
        assert isinstance(failed.value.__cause__, RequestRefusedError)
        assert failed.value.__cause__.code == -32001
        assert trio.current_time() - began <= REQUEST_DEADLINE_S
        assert (forks(made), made.children) == (6, [])
        await trio.testing.wait_all_tasks_blocked()
        made.assert_only(host, session)
        async with session.side() as side:
            assert (await side.ask("what?")).text == "s0 s1 "


# answers that lie

CHILD_LIES = {
    "persistent": ForkAnswer(thread={"ephemeral": False}, times=1),
    "has a file": ForkAnswer(thread={"path": "/home/user/rollout.jsonl"}, times=1),
    "forked from another": ForkAnswer(thread={"forkedFromId": "01a0ffff-0000-7000-8000-000000000001"}, times=1),
    "no lineage at all": ForkAnswer(without=("forkedFromId", "ephemeral"), times=1),
    "shows turns": ForkAnswer(thread={"turns": [{"id": "t", "status": "completed"}]}, times=1),
    "another model": ForkAnswer(result={"model": "cheap"}, times=1),
    "another provider": ForkAnswer(result={"modelProvider": "elsewhere"}, times=1),
    "another policy": ForkAnswer(result={"approvalPolicy": "never"}, times=1),
    "a model approves": ForkAnswer(result={"approvalsReviewer": "auto_review"}, times=1),
    "may write": ForkAnswer(result={"sandbox": {"type": "workspaceWrite", "writableRoots": []}}, times=1),
    "has network": ForkAnswer(result={"sandbox": {"type": "readOnly", "networkAccess": True}}, times=1),
    "elsewhere": ForkAnswer(result={"cwd": "/"}, times=1),
    "no form": ForkAnswer(result={"cwd": 7}, times=1),
}


def unsubscribed(made: Any) -> list[str]:
    return [frame["params"]["threadId"] for frame in made.wire.requests("thread/unsubscribe")]


@pytest.mark.parametrize("lie", CHILD_LIES)
async def test_a_child_that_is_not_what_was_asked_for_is_refused_and_released(
    autojump_clock: Any, bench: Any, lie: str
) -> None:
    """R6, R15, R19, T3, T20, F19: fail closed, on the answer itself; the parent goes on."""
    made = bench(faults=(CHILD_LIES[lie],))
    async with made.working() as (host, session):
        with pytest.raises(OpenFailedError) as failed:
            await session.open_side(side_id="one", request_id="click")
        assert isinstance(failed.value.__cause__, ProviderProtocolError)
        await trio.sleep(1)
        assert unsubscribed(made) == made.children
        assert made.wire.requests("thread/inject_items") == []
        made.assert_only(host, session, lies=1)
        async with session.side(side_id="one", request_id="click") as side:
            assert (await side.ask("what?")).text == "s0 s1 "
        made.server.open_gate("parent")
        assert (await session.active_turn.wait()).answer.text == "p0 p1 p2 p3 "


async def test_an_answer_that_names_the_source_or_a_known_thread_never_unsubscribes_it(
    autojump_clock: Any, bench: Any
) -> None:
    """R6, R7, T13: the parent, another session, and a Side that is open or was closed are not ours to release."""
    made = bench()
    async with made.working() as (host, session):
        other = await made.start_working(host)
        side = await session.open_side()
        closed = await session.open_side()
        closed_id = closed.scope.binding.provider_session_id
        await closed.close()
        known = [session.provider_session_id, other.provider_session_id, side.scope.binding.provider_session_id]
        for thread_id in [*known, closed_id]:
            lie = ForkAnswer(thread={"id": thread_id}, times=1)
            made.machine._plan._left.append((lie, [1]))
            with pytest.raises(OpenFailedError):
                await session.open_side()
        await trio.sleep(1)
        assert unsubscribed(made) == [closed_id]
        assert (await side.ask("what?")).text == "s0 s1 "
        turns = [parent.active_turn for parent in (session, other)]
        made.server.open_gate("parent")
        for turn in turns:
            assert (await turn.wait()).answer.text == "p0 p1 p2 p3 "


# versions


@pytest.mark.parametrize("version", ["0.100.0", "0.120.0", "0.171.0", "0.163.0-alpha.1", "9.9.9-dev", "0.0.0"])
async def test_a_version_that_is_not_proven_offers_no_side_and_sees_no_fork(
    autojump_clock: Any, bench: Any, version: str
) -> None:
    """F38, T20, R15: an old one would write a durable fork before anyone could look; the reason names the version."""
    made = bench(version=version)
    async with made.working() as (host, session):
        with pytest.raises(SideUnsupportedError) as refused:
            await session.open_side()
        assert version in refused.value.reason
        assert forks(made) == 0
        assert made.wire.requests("thread/inject_items") == []
        await trio.testing.wait_all_tasks_blocked()
        made.assert_only(host, session)
        made.server.open_gate("parent")
        assert (await session.active_turn.wait()).status == "completed"


async def test_a_source_without_a_turn_is_refused_before_the_wire(autojump_clock: Any, bench: Any) -> None:
    """T13: the server's words would be the same for a Side, and for two other things."""
    made = bench()
    async with made.host() as host:
        session = await host.start_session(cwd="/project")
        with pytest.raises(SideUnsupportedError, match="no turn yet"):
            await session.open_side()
        assert forks(made) == 0


# what the sink gets


class Sink:
    """Keeps what an adapter puts into it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ends: list[str] = []

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        self.events += events

    def end(self, reason: str) -> None:
        self.ends.append(reason)


@pytest.mark.parametrize("how", ["refused", "cancelled before the answer", "cancelled after the answer"])
async def test_a_sink_gets_nothing_more_once_its_open_has_failed(autojump_clock: Any, bench: Any, how: str) -> None:
    """R6, specification (Standard provider contract): whatever the child says later, and when the connection goes."""
    faults: dict[str, Any] = {
        "refused": CHILD_LIES["may write"],
        "cancelled before the answer": AnswerLate(method=FORK, after_s=5),
        "cancelled after the answer": AnswerLate(method="thread/inject_items", after_s=5),
    }
    made = bench(faults=(faults[how],))
    late = {"method": "turn/started", "params": {"threadId": "", "turn": {"id": "t-late", "status": "inProgress"}}}

    async with made.working() as (host, session):
        sink = Sink()
        request = OpenSide(side=SideRef(host.identity.workspace, "one"), source=session.ref)  # type: ignore[arg-type]
        with pytest.raises(ProviderProtocolError) if how == "refused" else trio.move_on_after(1):
            await made.adapter.open_side(request, sink)
        seen = len(sink.events)
        [child] = made.children
        made.wire.between = lambda frame: [late | {"params": late["params"] | {"threadId": child}}]  # type: ignore[operator]
        await made.adapter.wait_side_released(request.side)
        await trio.sleep(61)
        made.server.crash()
        await trio.sleep(1)
        assert (len(sink.events), sink.ends) == (seen, [])


async def test_a_child_that_is_lost_in_the_moment_of_its_last_answer_is_not_opened(
    autojump_clock: Any, bench: Any
) -> None:
    """R6, R9: that answer is there and not yet taken; the Side would be bound to a thread that nobody hears."""
    made = bench()
    async with made.working() as (host, session):
        sink = Sink()
        request = OpenSide(side=SideRef(host.identity.workspace, "one"), source=session.ref)  # type: ignore[arg-type]

        def lose(frame: dict[str, Any]) -> list[dict[str, Any]]:
            if "result" in frame and frame["id"] in [sent["id"] for sent in made.wire.requests("thread/inject_items")]:
                [child] = made.children
                made.adapter._connection.current.router._routes[child].connection_lost(-9)
            return []

        made.wire.between = lose
        with pytest.raises(ProviderLostError) as caught:
            await made.adapter.open_side(request, sink)
        assert caught.value.exit_status == -9
        assert sink.ends == ["lost"]
        await made.adapter.wait_side_released(request.side)
        made.assert_only(host, session)


# the source's close beside an open


async def test_a_close_of_the_source_waits_for_the_snapshot_and_the_side_lives_on(
    autojump_clock: Any, bench: Any
) -> None:
    """R5, R7, architecture §4: the source is unsubscribed after the fork; the Side has a lease of its own."""
    made = bench(faults=(AnswerLate(method=FORK, after_s=5),))
    async with made.working() as (host, session), trio.open_nursery() as nursery:
        outcomes: list[Any] = []
        nursery.start_soon(open_one, session, outcomes, trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(session.close)
        await trio.sleep(4.9)
        assert (outcomes, unsubscribed(made)) == ([], [])
        await trio.sleep(1)
        [side] = outcomes
        assert unsubscribed(made) == [session.provider_session_id]
        assert (await side.ask("what?")).text == "s0 s1 "
        await side.close()
        await trio.testing.wait_all_tasks_blocked()
        made.assert_only(host)


async def test_a_close_of_the_source_aborts_an_open_that_takes_too_long(autojump_clock: Any, bench: Any) -> None:
    """R5, R6, R12, architecture §4: after `SNAPSHOT_WAIT_S`; the child that comes later goes with the connection."""
    made = bench(faults=(AnswerLate(method=FORK, after_s=25),))
    async with made.working() as (host, session), trio.open_nursery() as nursery:
        outcomes: list[Any] = []

        async def open_in_vain() -> None:
            with pytest.raises(OpenFailedError):
                await session.open_side()
            outcomes.append("failed")

        nursery.start_soon(open_in_vain)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await session.close()
        assert outcomes == ["failed"]
        assert SNAPSHOT_WAIT_S <= trio.current_time() - began <= SNAPSHOT_WAIT_S + 1
        await trio.sleep(61)
        made.assert_only(host)


async def test_a_source_that_is_restricted_while_an_open_waits_is_forked_as_it_is_then(
    autojump_clock: Any, bench: Any
) -> None:
    """R19, T3: an open on a first turn waits for its first item, and asks for what the source may do after that."""
    made = bench()
    async with made.working() as (host, session), trio.open_nursery() as nursery:
        [live] = made.adapter._live.values()
        live.thread.first_item = trio.Event()
        outcomes: list[Any] = []
        nursery.start_soon(open_one, session, outcomes, trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        made.server.do(lambda machine: machine.disturb(Disturbances.tighten_settings, lambda _: 0, lambda _: None))
        await trio.testing.wait_all_tasks_blocked()
        live.thread.first_item.set()
        await trio.testing.wait_all_tasks_blocked()

        [asked] = made.wire.requests(FORK)
        assert asked["params"]["approvalPolicy"] == "never"
        await outcomes[0].close()
        made.assert_only(host, session)


async def test_a_session_is_resumed_after_the_server_unloaded_it_though_its_close_is_not_answered_yet(
    autojump_clock: Any, bench: Any
) -> None:
    """R5, R6: the route of the one would refuse the other, and its lease go. Source: found by the simulator."""
    made = bench(faults=(AnswerLate(method="thread/unsubscribe", after_s=3, times=1),))
    async with made.host() as host:
        session = await host.start_session(cwd="/project", session_id="s")
        await session.ask("what?")
        other = await host.start_session(cwd="/project")
        made.server.do(lambda machine: machine.disturb(Disturbances.drop_thread, lambda _: 0, lambda _: None))
        await trio.testing.wait_all_tasks_blocked()
        assert session.scope.state == "closed"

        resumed = await host.resume_session("s")
        assert (await resumed.ask("what?")).text == "s0 s1 "
        made.assert_only(host, other, resumed)


async def test_a_side_heeds_how_its_source_is_restricted_after_that_was_closed_and_resumed(
    autojump_clock: Any, bench: Any
) -> None:
    """R19: it went on with what its source might do before. Source: found by the simulator."""
    made = bench()
    async with made.host() as host:
        session = await host.start_session(cwd="/project", session_id="s")
        await session.ask("what?")
        async with session.side() as side:
            await session.close()
            resumed = await host.resume_session("s")
            made.server.do(lambda machine: machine.disturb(Disturbances.tighten_settings, lambda _: 0, lambda _: None))
            await trio.testing.wait_all_tasks_blocked()
            await side.ask("what?")

            assert made.wire.requests("turn/start")[-1]["params"]["approvalPolicy"] == "never"
        made.assert_only(host, resumed)
