"""Which message goes to which route: exact, early, late, unknown, closed, without a thread, malformed."""

from typing import Any

import msgspec
import pytest

from tutti_providers.codex import _pool, _router
from tutti_providers.codex._router import PoolOverflowError, Router
from tutti_providers.codex.schema.notifications import Head
from tutti_side.jsonrpc import CODEX, ConnectionClosedError, Message, PeerExit
from tutti_side.jsonrpc.codec import Codec


def read(*messages: dict[str, Any]) -> list[Message[Head]]:
    """What the peer makes of these lines."""
    return list(Codec(Head, CODEX).decode_lines([msgspec.json.encode(message) for message in messages]))


def said(thread_id: str | None, number: int = 0) -> dict[str, Any]:
    return {"method": "thread/status/changed", "params": {"threadId": thread_id, "number": number}}


def asked(thread_id: str, request_id: int | str) -> dict[str, Any]:
    return {
        "method": "item/commandExecution/requestApproval",
        "id": request_id,
        "params": {"threadId": thread_id, "turnId": "t", "itemId": "i"},
    }


class Recorder:
    """A route that keeps what it is given."""

    def __init__(self) -> None:
        self.batch: list[Message[Head]] = []
        self.batches: list[list[dict[str, Any]]] = []
        self.crashes: list[Exception] = []
        self.lost: list[int | None] = []
        self.failure: Exception | None = None
        self.is_busy = False
        self.doubts = 0
        self.agents: list[str] = []

    def deliver(self, messages: list[Message[Head]]) -> None:
        self.batches.append([msgspec.json.decode(message.line) for message in messages])
        if self.failure is not None:
            raise self.failure

    def crash(self, error: Exception) -> None:
        self.crashes.append(error)

    def doubt(self) -> None:
        self.doubts += 1

    def adopt(self, agent_id: str) -> None:
        self.agents.append(agent_id)

    def connection_lost(self, exit_status: int | None) -> None:
        self.lost.append(exit_status)

    @property
    def got(self) -> list[dict[str, Any]]:
        return [message for batch in self.batches for message in batch]


class Lab:
    """A router, and the ids of the requests that it declined."""

    def __init__(self) -> None:
        self.declined: list[int | str | None] = []
        self.router = Router(lambda message: self.declined.append(message.id))

    def route(self, thread_id: str) -> Recorder:
        route = Recorder()
        self.router.begin_creation()
        self.router.register(thread_id, route)
        self.router.end_creation()
        return route

    def feed(self, *messages: dict[str, Any]) -> None:
        self.router.feed(read(*messages))

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.router.statistics().dropped)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_each_thread_gets_its_own_messages_as_one_batch_a_read_in_wire_order(lab: Lab) -> None:
    """R1, R3."""
    one, two = lab.route("one"), lab.route("two")
    lab.feed(said("one", 1), said("two", 1), asked("one", 7), said("two", 2), said("one", 2))
    lab.feed(said("two", 3))
    assert one.batches == [[said("one", 1), asked("one", 7), said("one", 2)]]
    assert two.batches == [[said("two", 1), said("two", 2)], [said("two", 3)]]
    assert (lab.dropped, lab.declined) == ({}, [])


def test_a_thread_is_found_in_each_place_where_the_protocol_names_it(lab: Lab) -> None:
    """F3: ``threadId``, ``thread.id`` of ``thread/started``, ``conversationId`` of the legacy approvals."""
    route = lab.route("one")
    messages: list[dict[str, Any]] = [
        {"method": "thread/started", "params": {"thread": {"id": "one"}}},
        {"method": "execCommandApproval", "id": 0, "params": {"conversationId": "one", "callId": "c"}},
    ]
    lab.feed(*messages)
    assert route.got == messages


def test_what_comes_before_the_answer_is_kept_and_delivered_at_the_adoption(lab: Lab) -> None:
    """F3, F4, T11: requests included; then live messages follow."""
    route = Recorder()
    lab.router.begin_creation()
    lab.feed(said("child", 1), asked("child", 0))
    lab.feed(said("child", 2))
    assert lab.router.statistics().pooled == 3
    lab.router.register("child", route)
    lab.router.end_creation()
    lab.feed(said("child", 3))
    assert route.batches == [[said("child", 1), asked("child", 0), said("child", 2)], [said("child", 3)]]
    assert (lab.dropped, lab.declined, lab.router.statistics().pooled) == ({}, [], 0)


def test_an_unknown_thread_is_dropped_and_its_request_declined_when_nothing_is_being_created(lab: Lab) -> None:
    """R1, R11, F2: there is no fallback to anyone."""
    route = lab.route("one")
    lab.feed(said("stranger"), asked("stranger", 0), asked("stranger", "0"))
    assert route.got == []
    assert (lab.dropped, lab.declined) == ({"unknown": 3}, [0, "0"])


def test_what_an_unknown_thread_says_while_a_turn_runs_is_kept_until_it_is_named(lab: Lab) -> None:
    """R3, R11, seen on 0.163: a sub-agent's first words can come before its name. What asks is declined at once."""
    parent, agent = lab.route("parent"), Recorder()
    parent.is_busy = True
    lab.feed(said("agent", 1), asked("agent", 5))
    lab.feed(said("agent", 2))
    assert (lab.declined, lab.router.statistics().pooled) == ([5], 2)
    lab.router.register("agent", agent)
    lab.feed(said("agent", 3))
    assert agent.got == [said("agent", 1), said("agent", 2), said("agent", 3)]
    assert (lab.dropped, lab.router.statistics().pooled) == ({"unknown": 1}, 0)


@pytest.mark.parametrize("how", ["it ends", "its thread is closed"])
def test_what_nobody_named_is_dropped_when_no_turn_runs_any_more(lab: Lab, how: str) -> None:
    """R12."""
    parent, other = lab.route("parent"), lab.route("other")
    parent.is_busy = other.is_busy = True
    lab.feed(said("stranger"))
    lab.feed(said("stranger"))
    lab.router.forget_strangers()
    assert lab.router.statistics().pooled == 2
    other.is_busy = False
    if how == "its thread is closed":
        lab.router.retire("parent")
    else:
        parent.is_busy = False
        lab.router.forget_strangers()
    assert (lab.dropped, lab.router.statistics().pooled) == ({"unknown": 2}, 0)


def test_a_stranger_in_the_read_in_which_the_last_turn_ends_is_not_kept(lab: Lab) -> None:
    """R12: also when that turn was a sub-agent's, which was named in this very read."""
    parent, agent = lab.route("parent"), Recorder()
    agent.is_busy = True
    lab.router.register("other", agent)

    def adopt(agent_id: str) -> None:
        agent.is_busy = False

    parent.adopt = adopt  # type: ignore[method-assign]
    lab.feed({"method": "thread/started", "params": {"thread": {"id": "a", "parentThreadId": "parent"}}}, said("b"))
    assert (lab.dropped, lab.router.statistics().pooled) == ({"unknown": 2}, 0)


def test_a_creation_that_ends_takes_nothing_away_from_a_sub_agent_that_is_not_named_yet(lab: Lab) -> None:
    """R3, R11: nothing but requests, which wait for an answer and may be of the thread that was not created."""
    parent, agent = lab.route("parent"), Recorder()
    parent.is_busy = True
    lab.feed(said("agent", 1))
    lab.router.begin_creation()
    lab.feed(said("agent", 2), asked("agent", 4), said("agent", 3))
    assert lab.declined == []
    lab.router.end_creation()
    assert (lab.declined, lab.dropped) == ([4], {"unadopted": 1})
    lab.router.register("agent", agent)
    assert agent.got == [said("agent", 1), said("agent", 2), said("agent", 3)]


def test_what_was_said_of_a_thread_before_it_was_loaded_is_not_of_its_load(lab: Lab) -> None:
    """R3, R8: such a word of its end would end what is being loaded. A try that came to nothing counts as before."""
    parent, loaded = lab.route("parent"), Recorder()
    parent.is_busy = True
    lab.router.begin_load("loaded")
    lab.feed(said("loaded", 1), closed("loaded"))
    lab.router.begin_creation("loaded")
    lab.feed(said("loaded", 2), closed("loaded"))
    lab.router.end_creation()
    lab.feed(said("loaded", 3), closed("loaded"))
    lab.router.begin_creation("loaded")
    lab.feed(said("loaded", 4))
    lab.router.begin_load("loaded")
    lab.router.begin_creation("loaded")
    assert lab.router.register("loaded", loaded) is False
    assert (loaded.got, lab.dropped) == ([said("loaded", 4)], {"unknown": 6})


def test_a_strangers_flood_leaves_room_for_the_thread_that_is_asked_for_next(lab: Lab) -> None:
    """R12: only a share of the pool is theirs while none is being created."""
    lab.route("parent").is_busy = True
    lab.feed(*[said(f"stranger-{number}") for number in range(_pool.POOL_MESSAGES_MAX)])
    assert lab.router.statistics().pooled == _pool.POOL_MESSAGES_MAX // _pool.STRANGERS_SHARE
    lab.router.begin_creation()
    child = Recorder()
    lab.feed(*[said("child", number) for number in range(1_000)])
    lab.router.register("child", child)
    assert len(child.got) == 1_000


def test_a_sub_agent_of_which_too_much_came_early_is_heard_from_there_on(lab: Lab) -> None:
    """R12: nobody waits for it to be whole, and it has to be closed with its parent."""
    lab.router._pool = _pool.ProvisionalPool(messages_max=2 * _pool.STRANGERS_SHARE)
    lab.route("parent").is_busy = True
    agent = Recorder()
    lab.feed(*[said("agent", number) for number in range(3)])
    assert lab.dropped == {"evicted": 3}
    lab.router.register("agent", agent, whole=False)
    lab.feed(said("agent", 3))
    assert agent.got == [said("agent", 3)]


def test_a_thread_that_is_retired_in_the_middle_of_its_own_read_is_a_closed_one(lab: Lab) -> None:
    """R8: what of it came in that read is not kept for anybody."""
    lab.route("parent").is_busy = True

    class Retiring(Recorder):
        def deliver(self, messages: list[Message[Head]]) -> None:
            lab.router.retire("late")

    lab.router.register("retiring", Retiring())
    lab.feed(said("retiring"), said("late"))
    assert (lab.dropped, lab.router.statistics().pooled) == ({"closed": 1}, 0)


def test_strangers_that_were_evicted_are_in_the_way_of_no_creation(lab: Lab) -> None:
    """R12: none of them can be the thread that is asked for only now."""
    lab.router._pool = _pool.ProvisionalPool(messages_max=_pool.STRANGERS_SHARE)
    lab.route("parent").is_busy = True
    lab.feed(said("one"), said("one"))
    assert lab.dropped == {"evicted": 2}
    lab.router.begin_creation()
    lab.feed(said("one"))
    assert lab.router.statistics().pooled == 1


def test_what_nobody_adopted_is_dropped_when_the_last_creation_has_its_outcome(lab: Lab) -> None:
    """R11, R12: not before; another one may be the one."""
    lab.router.begin_creation()
    lab.router.begin_creation()
    lab.feed(said("child"), asked("child", 3))
    lab.router.end_creation()
    assert lab.router.statistics().pooled == 2
    assert lab.declined == []
    lab.router.end_creation()
    assert (lab.dropped, lab.declined) == ({"unadopted": 2}, [3])
    assert (lab.router.statistics().pooled, lab.router.statistics().creations) == (0, 0)


def test_a_retired_thread_is_never_pooled_again_and_its_late_messages_are_dropped(lab: Lab) -> None:
    """R8, R11, F22, F25, T5: also while something is being created."""
    route = lab.route("one")
    lab.router.retire("one")
    lab.router.retire("one")
    lab.router.begin_creation()
    lab.feed(said("one"), asked("one", 4), {"method": "thread/closed", "params": {"threadId": "one"}})
    assert route.got == []
    assert (lab.dropped, lab.declined) == ({"closed": 3}, [4])
    assert lab.router.knows("one")
    assert lab.router.statistics().routes == 0


def test_retiring_a_thread_that_was_only_pooled_drops_what_was_kept_of_it(lab: Lab) -> None:
    """R6, R11: the child of an open that was given up."""
    lab.router.begin_creation()
    lab.feed(said("child"), asked("child", 5), said("other"))
    lab.router.retire("child")
    assert (lab.dropped, lab.declined) == ({"closed": 2}, [5])
    assert lab.router.statistics().pooled == 1


def test_only_so_many_closed_threads_are_remembered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: the oldest is forgotten, and is unknown then."""
    monkeypatch.setattr(_router, "CLOSED_THREADS_MAX", 3)
    for number in range(5):
        lab.router.retire(f"thread-{number}")
    assert [lab.router.knows(f"thread-{number}") for number in range(5)] == [False, False, True, True, True]


def test_a_resumed_thread_is_no_closed_one_any_more(lab: Lab) -> None:
    """Our choice: its early messages are kept like those of a new one."""
    lab.router.retire("one")
    lab.router.begin_creation("one")
    lab.feed(said("one"))
    route = Recorder()
    lab.router.register("one", route)
    assert route.got == [said("one")]


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ({"method": "account/rateLimits/updated", "params": {"rateLimits": {}}}, "unthreaded"),
        ({"method": "configWarning", "params": {}}, "unthreaded"),
        ({"method": "remoteControl/status/changed"}, "malformed"),
        ({"method": "thread/status/changed", "params": {"threadId": 7}}, "malformed"),
        ({"method": "thread/status/changed", "params": {"threadId": None}}, "unthreaded"),
        ({"method": "thread/status/changed", "params": {"threadId": ""}}, "unthreaded"),
    ],
    ids=["no thread", "no parameters", "no params at all", "a number", "null", "empty"],
)
def test_a_message_without_a_thread_reaches_nobody(lab: Lab, message: dict[str, Any], cause: str) -> None:
    """R1: while something is being created as well."""
    route = lab.route("one")
    lab.router.begin_creation()
    lab.feed(message, {**message, "id": 9})
    assert route.got == []
    assert (lab.dropped, lab.declined) == ({cause: 2}, [9])
    assert lab.router.statistics().pooled == 0


def test_a_route_that_raises_is_told_and_leaves_the_others_alone(lab: Lab) -> None:
    """Architecture §3: contained; the reader goes on."""
    bad, good = lab.route("bad"), lab.route("good")
    bad.failure = ValueError("a bug")
    lab.feed(said("bad", 1), said("good", 1))
    lab.feed(said("good", 2))
    assert good.got == [said("good", 1), said("good", 2)]
    assert bad.crashes == [bad.failure]
    assert lab.router.statistics().route_failures == 1


def test_a_route_that_raises_at_its_adoption_is_told_as_well(lab: Lab) -> None:
    """Architecture §3: the fork's own answer is not harmed."""
    route = Recorder()
    route.failure = ValueError("a bug")
    lab.router.begin_creation()
    lab.feed(said("child"))
    lab.router.register("child", route)
    assert route.crashes == [route.failure]


def test_a_thread_whose_early_messages_were_evicted_is_not_registered(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12, architecture §3: it would begin with a hole; what was evicted is declined at once."""
    lab.router._pool = _pool.ProvisionalPool(messages_max=2)
    lab.router.begin_creation()
    lab.feed(said("child", 1), asked("child", 6), said("other"))
    assert (lab.dropped, lab.declined) == ({"evicted": 2}, [6])
    with pytest.raises(PoolOverflowError):
        lab.router.register("child", Recorder())
    assert not lab.router.knows("child")
    assert lab.router.statistics().evictions == 1


def test_the_end_of_the_connection_reaches_every_route_once(lab: Lab) -> None:
    """R8, R9, F14."""
    routes = [lab.route("one"), lab.route("two")]
    ended: list[bool] = []
    lab.router.on_lost = lambda: ended.append(True)
    lab.router.begin_creation()
    lab.feed(said("child"))
    lab.router.connection_lost(ConnectionClosedError("eof", PeerExit(status=-9)))
    assert [route.lost for route in routes] == [[-9], [-9]]
    assert ended == [True]
    statistics = lab.router.statistics()
    assert (statistics.routes, statistics.pooled) == (0, 0)


def test_the_router_is_busy_while_a_route_is() -> None:
    """R9: only a connection with an active turn is watched for signs of life."""
    router = Router(lambda message: None)
    idle, busy = Recorder(), Recorder()
    router.register("idle", idle)
    router.register("busy", busy)
    seen = [router.is_busy]
    busy.is_busy = True
    seen.append(router.is_busy)
    router.retire("busy")
    seen.append(router.is_busy)
    assert seen == [False, True, False]


def closed(thread_id: str) -> dict[str, Any]:
    return {"method": "thread/closed", "params": {"threadId": thread_id}}


def test_a_thread_that_is_being_loaded_is_known_to_all_but_its_loader_and_no_sub_agent(lab: Lab) -> None:
    """R3, R7: what comes early of it is kept for the load, though it names a thread of ours as its parent."""
    parent, loaded = lab.route("parent"), Recorder()
    lab.router.begin_load("loaded")
    assert lab.router.knows("loaded")
    assert not lab.router.knows("loaded", loaded_by_asker="loaded")
    lab.router.begin_creation("loaded")
    early = {"method": "thread/started", "params": {"thread": {"id": "loaded", "parentThreadId": "parent"}}}
    lab.feed(early)
    assert (parent.agents, lab.router.statistics().pooled) == ([], 1)
    lab.router.register("loaded", loaded)
    lab.router.end_creation()
    lab.router.end_load("loaded")
    assert loaded.got == [early]
    lab.router.retire("loaded")
    lab.router.begin_load("strange")
    lab.router.end_load("strange")
    assert not lab.router.knows("strange")


@pytest.mark.parametrize(("was_closed_here", "kept"), [(True, [3]), (False, [1, 2, 3])])
def test_what_came_before_the_word_that_a_thread_was_unloaded_is_not_that_of_its_next_load(
    lab: Lab, was_closed_here: bool, kept: list[int]
) -> None:
    """R8, R11, seen on 0.163: it came before the load's answer, and ended what that gave; requests are declined.

    Of a thread that was not loaded here before it is the end of what is being loaded: a session of it would never end.
    """
    route = Recorder()
    if was_closed_here:
        lab.router.retire("one")
    lab.router.begin_creation("one")
    lab.router.begin_creation("one")
    lab.router.end_creation()
    lab.feed(said("one", 1), closed("one"), asked("one", 7), said("one", 2), closed("one"), said("one", 3))
    assert lab.router.register("one", route) == was_closed_here
    lab.router.end_creation()
    assert [message["params"]["number"] for message in route.got if message["method"] == said("one")["method"]] == kept
    assert (lab.declined, lab.dropped) == (([7], {"closed": 5}) if was_closed_here else ([], {}))
    lab.feed(closed("one"))
    assert route.got[-1] == closed("one")
