"""Every order in which a fork's answer and its child's first messages can come, between the parent's deltas."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import AnswerLate, ForkOrder, Strangers

CHILD_MESSAGES = ("starting", "status", "started", "request")
ORDERS: list[Any] = [
    (*order[:at], "response", *order[at:])
    for order in itertools.permutations(CHILD_MESSAGES)
    for at in range(len(order) + 1)
]
"""All 120: each order of the child's messages, and in each every place of the answer."""


class Babble:
    """The parent's model says one more word after every single message of the server."""

    def __init__(self, parent: Any) -> None:
        self.parent_id = parent.provider_session_id
        self.turn_id = parent.active_turn.id
        self.words = 0

    def __call__(self, frame: dict[str, Any]) -> list[dict[str, Any]]:
        where = {"threadId": self.parent_id, "turnId": self.turn_id, "itemId": "msg_more"}
        self.words += 1
        return [{"method": "item/agentMessage/delta", "params": {**where, "delta": f"w{self.words} "}}]

    @property
    def text(self) -> str:
        return "".join(f"w{number} " for number in range(1, self.words + 1))


def assert_delivered_as_written(bench: Any, *thread_ids: str) -> None:
    """Each route got all that the wire said of its thread, in its order, and nothing else (R3, F3, F4)."""
    for thread_id in thread_ids:
        assert bench.delivered[thread_id] == bench.wire.of_thread(thread_id)
    assert set(bench.delivered) == set(thread_ids)
    router = bench.connection.router
    assert router.dropped.keys() <= {"unthreaded"}
    assert (router.evictions, router.route_failures, router.creations, router.pooled) == (0, 0, 0, 0)


def answers_to_requests(wire: Any, thread_id: str) -> list[Any]:
    asked = [frame["id"] for frame in wire.of_thread(thread_id) if "id" in frame]
    return [frame.get("result") for frame in wire.sent if "method" not in frame and frame["id"] in asked]


@pytest.mark.parametrize("read_bytes", [None, 0, 7], ids=["one read", "a line a read", "torn"])
async def test_every_order_around_a_forks_answer_is_routed_completely_and_in_order(
    autojump_clock: Any, bench: Any, listen: Callable[..., Any], read_bytes: int | None
) -> None:
    """Required; R1, R3, R11, F3, F4, T11: 120 orders, the parent's deltas between all of them."""
    faults = tuple(ForkOrder(order=order, times=1) for order in ORDERS)
    made = bench(faults=faults, tool_servers=("docs",))
    async with trio.open_nursery() as nursery, made.working() as (_, session):
        parent = listen(nursery, session.events())
        babble = made.wire.between = Babble(session)
        made.wire.read_bytes = read_bytes
        for number in range(len(ORDERS)):
            async with session.side(subscribe=True) as side:
                heard = listen(nursery, side.events())
                child = made.children[number]
                await trio.testing.wait_all_tasks_blocked()
                assert answers_to_requests(made.wire, child) == []
                assert len(side.interactions) == 1
                assert made.delivered[child] == made.wire.of_thread(child)
                assert len(made.delivered[child]) == len(CHILD_MESSAGES)
            await trio.testing.wait_all_tasks_blocked()
            # Nobody answered what was asked, so the close declined it.
            assert answers_to_requests(made.wire, child) == [{"action": "decline"}]
            first, *between, last = heard.kinds
            assert (first, last) == ("SessionStarted", "SessionClosed")
            assert sorted(between) == ["InteractionRequested", "InteractionResolved", "StatePatch"]
            assert heard.sequences == [1, 2, 3, 4, 5]
        assert_delivered_as_written(made, session.provider_session_id, *made.children)
        made.server.open_gate("parent")
        await session.active_turn.wait()
        await trio.testing.wait_all_tasks_blocked()
        said = parent.text.replace("p2 ", "").replace("p3 ", "")
        assert said == babble.text
        assert parent.sequences == list(range(parent.sequences[0], parent.sequences[0] + len(parent.events)))


def forks_answered_at_gates(count: int) -> tuple[Any, ...]:
    """Each fork has an order of its own for its child's messages, and an answer that waits for a gate of its own."""
    orders: Any = (
        ("starting", "response", "status", "started", "request"),
        ("request", "started", "response", "starting"),
    )
    return tuple(
        fault
        for number in range(count)
        for fault in (
            ForkOrder(order=orders[number % 2], times=1),
            AnswerLate(method="thread/fork", gate=f"answer-{number}", times=1),
        )
    )


# Opens of one source take turns, as the server would make them; several sources answer in any order.
@pytest.mark.parametrize(
    ("sources", "answers"), [(1, (0, 1, 2)), *((3, order) for order in itertools.permutations(range(3)))]
)
async def test_three_forks_at_once_answered_in_any_order_keep_what_is_theirs(
    autojump_clock: Any, bench: Any, listen: Callable[..., Any], sources: int, answers: tuple[int, ...]
) -> None:
    """Required; R1, R3, F3, F4, T11: only the answer says which request made a child."""
    made = bench(faults=forks_answered_at_gates(3), tool_servers=("docs",))
    async with trio.open_nursery() as nursery, made.working() as (host, first):
        parents = [first] + [await made.start_working(host) for _ in range(sources - 1)]
        made.wire.between = Babble(parents[0])
        sides: dict[int, Any] = {}
        heard: dict[int, Any] = {}

        async def open_one(number: int) -> None:
            sides[number] = await parents[number % sources].open_side(subscribe=True)
            heard[number] = listen(nursery, sides[number].events())

        # One source is branched by one open at a time; its next fork is sent when the lock is free.
        for number in range(3):
            nursery.start_soon(open_one, number)
            await trio.testing.wait_all_tasks_blocked()
        for number in answers:
            made.server.open_gate(f"answer-{number}")
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()

        assert sorted(sides) == [0, 1, 2]
        children = made.children
        for number, side in sides.items():
            assert side.scope.binding.provider_session_id in children
            source = parents[number % sources].provider_session_id
            assert side.scope.binding.source_provider_session_id == source
        assert len({side.scope.binding.provider_session_id for side in sides.values()}) == 3
        for number, side in sides.items():
            assert (await side.ask("what?")).messages == ("s0 s1 ",)
            await side.close()
            await trio.testing.wait_all_tasks_blocked()
            assert (heard[number].kinds[0], heard[number].kinds.count("TurnStarted")) == ("SessionStarted", 1)
            assert heard[number].text == "s0 s1 "
            assert heard[number].sequences == list(range(1, len(heard[number].sequences) + 1))
        written = [parent.provider_session_id for parent in parents]
        for thread_id in [*written, *children]:
            delivered = made.delivered[thread_id]
            assert delivered == made.wire.of_thread(thread_id)[: len(delivered)]
        made.assert_only(host, *parents)


async def test_events_of_a_child_before_its_forks_answer_come_after_session_started(
    autojump_clock: Any, bench: Any, listen: Callable[..., Any]
) -> None:
    """R3, F3, F4, F5: a whole turn of the child, even, is kept until the answer and then numbered from 2."""
    made = bench(faults=(ForkOrder(order=("status", "response", "started")),))

    def early_turn(frame: dict[str, Any]) -> list[dict[str, Any]]:
        if frame.get("method") != "thread/status/changed":
            return []
        child = frame["params"]["threadId"]
        turn = {"id": "t-early", "status": "completed"}
        where = {"threadId": child, "turnId": "t-early", "itemId": "i"}
        return [
            {"method": "turn/started", "params": {"threadId": child, "turn": turn}},
            {"method": "item/agentMessage/delta", "params": {**where, "delta": "early"}},
            {"method": "turn/completed", "params": {"threadId": child, "turn": turn}},
        ]

    async with trio.open_nursery() as nursery, made.working() as (_, session):
        made.wire.between = early_turn
        side = await session.open_side(subscribe=True)
        made.wire.between = lambda frame: []
        heard = listen(nursery, side.events())
        assert (await side.ask("what?")).text == "s0 s1 "
        await side.close()
    assert heard.told[:4] == ["SessionStarted", "TurnStarted", "MessageDelta", "TurnCompleted"]
    assert heard.text == "earlys0 s1 "
    assert heard.sequences == list(range(1, len(heard.events) + 1))


async def test_a_stranger_reaches_nobody_and_its_request_is_declined(
    autojump_clock: Any, bench: Any, listen: Callable[..., Any]
) -> None:
    """R1, R11, F2, F26: another thread's whole turn on the same pipe, while a fork lacks its answer and after it."""
    stranger = Strangers(method="thread/fork").thread_id
    made = bench(faults=(Strangers(method="thread/fork"), Strangers(method="turn/start")))
    async with trio.open_nursery() as nursery, made.working() as (_, session):
        parent = listen(nursery, session.events())
        async with session.side(subscribe=True) as side:
            heard = listen(nursery, side.events())
            assert (await side.ask("what?")).text == "s0 s1 "
        turn = session.active_turn
        assert made.connection.router.pooled == 12  # while a turn runs, a sub-agent of it could be the stranger
        made.server.open_gate("parent")
        await turn.wait()
        seen = made.connection.router
    assert "stranger" not in heard.text + parent.text
    assert stranger not in made.delivered
    refused = [frame for frame in made.wire.sent if "stranger" in str(frame.get("id")) and "method" not in frame]
    assert [frame["result"] for frame in refused] == [{"decision": "decline"}] * 3
    assert (seen.pooled, seen.dropped["unadopted"], seen.dropped["unknown"]) == (0, 1, 14)
