"""A thread on its way: its answer in time, late, wrong, refused or never, with what came before it."""

import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_providers.codex import _creation, _pool
from tutti_providers.codex._connection import CLEANUP_DEADLINE_S, Connection, open_connection
from tutti_providers.codex._creation import ThreadCreation
from tutti_providers.codex._settings import check_resumed, check_started
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.errors import RequestRefusedError
from tutti_providers.codex.schema.requests import ResumeParams, StartParams
from tutti_side.contract import Event, ProviderLostError, ProviderProtocolError
from tutti_side.jsonrpc import MemoryTransport, TransportBrokenError, memory_pair

NEW = "thread-new"

OPENED: dict[str, Any] = {
    "thread": {"id": NEW, "path": "/rollout.jsonl"},
    "model": "m",
    "modelProvider": "p",
    "cwd": "/",
    "approvalPolicy": "never",
    "approvalsReviewer": "user",
    "sandbox": {"type": "readOnly"},
}


class Sink:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ends: list[str] = []

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        self.events += events

    def end(self, reason: str) -> None:
        self.ends.append(reason)


class Server:
    """The far end, by hand. It answers ``initialize`` and unsubscribes by itself."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self.received: list[dict[str, Any]] = []
        self.deaf_to_unsubscribes = False
        self._rest = b""

    async def run(self) -> None:
        with suppress(TransportBrokenError):
            await self._serve()

    async def _serve(self) -> None:
        while data := await self.transport.receive_some(65536):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                message = msgspec.json.decode(line)
                self.received.append(message)
                if message.get("method") == "initialize":
                    await self.say({"id": message["id"], "result": {"userAgent": "tutti-side/0.163.0 (x)"}})
                elif message.get("method") == "thread/unsubscribe" and not self.deaf_to_unsubscribes:
                    await self.say({"id": message["id"], "result": {"status": "unsubscribed"}})

    async def say(self, *messages: dict[str, Any]) -> None:
        """Write all of it at once."""
        await self.transport.send_all(b"".join(msgspec.json.encode(message) + b"\n" for message in messages))

    def answer(self, result: Any) -> dict[str, Any]:
        """The answer to the start."""
        [request] = [message for message in self.received if message.get("method") == "thread/start"]
        return {"id": request["id"], "result": result}

    def methods(self) -> list[str]:
        """What was asked for about `NEW`, in order."""
        return [m["method"] for m in self.received if m.get("params", {}).get("threadId") == NEW]

    @property
    def unsubscribed(self) -> list[str]:
        return [m["params"]["threadId"] for m in self.received if m.get("method") == "thread/unsubscribe"]


class Lab:
    def __init__(self, connection: Connection, server: Server) -> None:
        self.connection = connection
        self.server = server
        self.sink = Sink()
        self.thread = CodexThread(self.sink, connection.peer)
        self.creation = ThreadCreation(connection, self.thread, check_started)
        self.outcome: Any = None

    async def run(self) -> None:
        """Run the creation as the adapter does: whatever fails is abandoned."""
        try:
            self.outcome = await self.creation.run(StartParams(cwd="/"))
        except Exception as error:
            self.outcome = error
            self.creation.abandon()
        except trio.Cancelled:
            self.creation.abandon()
            raise

    @property
    def router(self) -> Any:
        return self.connection.statistics().router


def turn(thread_id: str = NEW) -> dict[str, Any]:
    return {"method": "turn/started", "params": {"threadId": thread_id, "turn": {"id": "t", "status": "inProgress"}}}


@asynccontextmanager
async def open_lab() -> AsyncGenerator[tuple[Lab, trio.Nursery, trio.CancelScope]]:
    """A creation whose request is on the wire, the nursery around it, and the scope that it runs in."""
    near, far = memory_pair()
    server = Server(far)
    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run)  # noqa: ASYNC113 - what is sent before it runs waits for it
            async with open_connection(near, name="codex") as connection:
                lab, scope = Lab(connection, server), trio.CancelScope()

                async def run() -> None:
                    with scope:
                        await lab.run()

                nursery.start_soon(run)
                await trio.testing.wait_all_tasks_blocked()
                yield lab, nursery, scope
            nursery.cancel_scope.cancel()


def assert_gone(lab: Lab, *unsubscribed: str) -> None:
    assert (lab.router.routes, lab.router.creations, lab.router.pooled) == (0, 0, 0)
    assert lab.server.unsubscribed == list(unsubscribed)
    assert lab.sink.events == []


async def test_a_thread_has_its_route_and_its_early_messages_before_anything_after_the_answer(
    autojump_clock: Any,
) -> None:
    """R3, F3, F4, T11: all in one read, so no task of ours could run in between."""
    async with open_lab() as (lab, _, _):
        await lab.server.say(turn(), lab.server.answer(OPENED), {**turn(), "method": "turn/completed"})
        await trio.testing.wait_all_tasks_blocked()
        assert [type(event).__name__ for event in lab.sink.events] == ["TurnStarted", "TurnFailed"]
        assert lab.outcome.thread.id == lab.thread.thread_id == NEW
        assert (lab.router.routes, lab.router.creations, lab.router.pooled) == (1, 0, 0)


@pytest.mark.parametrize(
    ("result", "released"),
    [
        ({**OPENED, "thread": {"id": NEW, "ephemeral": True}}, (NEW,)),
        ({**OPENED, "thread": {"id": ""}}, ()),
        ({**OPENED, "cwd": 7}, (NEW,)),
        ({"thread": {"id": NEW}}, (NEW,)),
        ({"thread": {}}, ()),
        ([], ()),
        (None, ()),
    ],
    ids=["not durable", "no id", "a field of another type", "fields missing", "no thread", "a list", "null"],
)
async def test_an_answer_that_is_not_usable_fails_and_what_it_names_is_released(
    autojump_clock: Any, result: Any, released: tuple[str, ...]
) -> None:
    """R6, R9: also when hardly more than the id can be read."""
    async with open_lab() as (lab, _, _):
        await lab.server.say(turn(), lab.server.answer(result))
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(lab.outcome, ProviderProtocolError)
        assert_gone(lab, *released)


async def test_an_answer_that_names_a_known_thread_releases_nothing(autojump_clock: Any) -> None:
    """R6, R7: it could be the parent."""
    async with open_lab() as (lab, _, _):
        lab.connection.router.retire(NEW)
        await lab.server.say(lab.server.answer(OPENED))
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(lab.outcome, ProviderProtocolError)
        assert_gone(lab)


async def test_a_thread_that_said_too_much_before_its_answer_is_released(autojump_clock: Any) -> None:
    """R12, architecture §3: overflow; it would begin with a hole."""
    async with open_lab() as (lab, _, _):
        lab.connection.router._pool = _pool.ProvisionalPool(messages_max=3)
        await lab.server.say(*[turn()] * 4, lab.server.answer(OPENED))
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(lab.outcome, ProviderProtocolError)
        assert "overflow" in str(lab.outcome)
        assert_gone(lab, NEW)


async def test_a_refusal_ends_the_creation_and_what_was_kept_for_it(autojump_clock: Any) -> None:
    """R11, F4: dropped on failure, requests declined."""
    async with open_lab() as (lab, _, _):
        request = {"method": "applyPatchApproval", "id": 0, "params": {"conversationId": NEW}}
        answer = lab.server.answer(None)
        await lab.server.say(turn(), request, {"id": answer["id"], "error": {"code": -32600, "message": "no"}})
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(lab.outcome, RequestRefusedError)
        assert_gone(lab)
        assert lab.router.dropped == {"unadopted": 2}
        assert [m["id"] for m in lab.server.received if "method" not in m] == [0]


async def test_the_words_of_a_refusal_stand_in_an_attribute_and_in_no_traceback(autojump_clock: Any) -> None:
    """They can quote what was sent; a traceback that a program logs shows every cause. Source: our choice, R2."""
    async with open_lab() as (lab, _, _):
        error = {"code": -32600, "message": "no such field: PROMPT"}
        await lab.server.say({"id": lab.server.answer(None)["id"], "error": error})
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert lab.outcome.server_message == "no such field: PROMPT"
        assert "PROMPT" not in "".join(traceback.format_exception(lab.outcome))


@pytest.mark.parametrize("after_s", [0, 10, 29, 45, 100])
async def test_a_late_answer_releases_what_it_made_whenever_it_comes(autojump_clock: Any, after_s: float) -> None:
    """R6, F18: the code of the timely answer; its early messages reach nobody."""
    async with open_lab() as (lab, _, scope):
        await lab.server.say(turn())
        scope.cancel()
        await trio.sleep(after_s)
        await lab.server.say(lab.server.answer(OPENED), turn())
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert lab.outcome is None
        assert_gone(lab, NEW)
        assert lab.connection.router.knows(NEW)


async def test_a_thread_that_was_adopted_and_then_abandoned_is_released_once(autojump_clock: Any) -> None:
    """R6: by an open that failed after its fork."""
    async with open_lab() as (lab, _, _):
        await lab.server.say(lab.server.answer(OPENED))
        await trio.testing.wait_all_tasks_blocked()
        lab.creation.abandon()
        lab.creation.abandon()
        await lab.server.say(turn())
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert_gone(lab, NEW)


async def test_the_end_of_the_connection_settles_the_creation(autojump_clock: Any) -> None:
    """R9, F14: there is nothing left to release."""
    async with open_lab() as (lab, _, _):
        await lab.server.transport.aclose()
        await lab.creation.wait_released()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(lab.outcome, ProviderLostError)
        assert_gone(lab)


async def test_a_creation_that_never_began_is_settled_by_its_abandon(autojump_clock: Any) -> None:
    """R6: an open that was cancelled before its fork leaves nobody waiting for an answer."""
    async with open_lab() as (lab, _, scope):
        scope.cancel()
        idle = ThreadCreation(lab.connection, CodexThread(Sink(), lab.connection.peer), check_started)
        idle.abandon()
        await idle.wait_released()


class Load:
    """A thread that is loaded again, as the adapter does it."""

    def __init__(self, lab: Lab) -> None:
        self.params = ResumeParams(thread_id=NEW, cwd="/", exclude_turns=True)
        self.sink = Sink()
        self.thread = CodexThread(self.sink, lab.connection.peer)
        self.creation = ThreadCreation(lab.connection, self.thread, check_resumed(self.params))
        self.scope = trio.CancelScope()
        self.outcome: Any = None
        self._server = lab.server

    async def run(self) -> None:
        with self.scope:
            try:
                self.outcome = await self.creation.run(self.params)
            except Exception as error:
                self.outcome = error
                self.creation.abandon()
            except trio.Cancelled:
                self.creation.abandon()
                raise

    async def answer(self, **outcome: Any) -> None:
        """Answer the latest request that loads a thread."""
        requests = [message for message in self._server.received if message.get("method") == "thread/resume"]
        await self._server.say({"id": requests[-1]["id"], **outcome})
        await trio.testing.wait_all_tasks_blocked()


async def test_a_thread_that_is_loaded_again_is_unsubscribed_by_no_retry_of_before(autojump_clock: Any) -> None:
    """R6, R14: its close was not answered; the attempt on the wire has its deadline, and no other follows."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        lab.server.deaf_to_unsubscribes = True
        lab.connection.releases.begin(NEW)
        await trio.testing.wait_all_tasks_blocked()
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.testing.wait_all_tasks_blocked()
        assert lab.server.methods() == ["thread/unsubscribe"]
        await trio.sleep(CLEANUP_DEADLINE_S + 0.1)
        assert lab.server.methods() == ["thread/unsubscribe", "thread/resume"]
        await load.answer(result=OPENED)
        assert load.outcome.thread.id == NEW
        await trio.sleep(100)
        assert lab.server.methods() == ["thread/unsubscribe", "thread/resume"]
        assert lab.connection.releases.rows() == ()


async def test_a_load_that_is_cancelled_while_it_waits_lets_the_unsubscribe_go_on(autojump_clock: Any) -> None:
    """R6, R14: nobody else would do it."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        lab.server.deaf_to_unsubscribes = True
        release = lab.connection.releases.begin(NEW)
        await trio.testing.wait_all_tasks_blocked()
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.testing.wait_all_tasks_blocked()
        load.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        lab.server.deaf_to_unsubscribes = False
        await release.done.wait()
        assert lab.server.methods() == ["thread/unsubscribe"] * 2


async def test_a_load_that_fails_begins_the_unsubscribe_anew_that_it_ended(autojump_clock: Any) -> None:
    """R6: the thread can still be subscribed from before."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        lab.server.deaf_to_unsubscribes = True
        lab.connection.releases.begin(NEW)
        await trio.testing.wait_all_tasks_blocked()
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.sleep(CLEANUP_DEADLINE_S + 0.1)
        lab.server.deaf_to_unsubscribes = False
        await load.answer(error={"code": -32600, "message": "no"})
        assert isinstance(load.outcome, RequestRefusedError)
        await load.creation.wait_released()
        assert lab.server.methods() == ["thread/unsubscribe", "thread/resume", "thread/unsubscribe"]


async def test_a_load_waits_for_the_release_of_an_earlier_one_that_was_given_up(autojump_clock: Any) -> None:
    """R6, R14: its late answer is released, which must not strike the thread that is loaded meanwhile."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        first, second = Load(lab), Load(lab)
        nursery.start_soon(first.run)
        await trio.testing.wait_all_tasks_blocked()
        first.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(second.run)
        await trio.sleep(3)
        assert lab.server.methods() == ["thread/resume"]
        await first.answer(result=OPENED)
        assert lab.server.methods() == ["thread/resume", "thread/unsubscribe", "thread/resume"]
        await second.answer(result=OPENED)
        assert second.outcome.thread.id == NEW
        await trio.sleep(100)
        assert lab.server.methods() == ["thread/resume", "thread/unsubscribe", "thread/resume"]


CLOSING = {"code": -32600, "message": f"thread {NEW} is closing; retry thread/resume after the thread is closed"}
"""The words of 0.163."""


async def test_a_thread_that_the_server_is_just_closing_is_asked_for_again(autojump_clock: Any) -> None:
    """Seen on 0.163: a session that is loaded again right after its close was refused about one time in three."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        load = Load(lab)
        nursery.start_soon(load.run)
        for number in (1, 2, 3):
            await trio.sleep(1)
            assert lab.server.methods() == ["thread/resume"] * number
            await load.answer(**({"error": CLOSING} if number < 3 else {"result": OPENED}))
        assert load.outcome.thread.id == NEW
        await trio.sleep(100)
        assert lab.server.methods() == ["thread/resume"] * 3
        assert lab.connection.statistics().router.creations == 0


async def test_a_thread_that_is_closing_for_ever_is_asked_for_so_often_and_no_more(autojump_clock: Any) -> None:
    """R12: then the server's own refusal is what the caller gets; any other refusal is that at once."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        load = Load(lab)
        nursery.start_soon(load.run)
        for number in range(_creation.CLOSING_TRIES_MAX):
            assert load.outcome is None
            await trio.sleep(2)
            assert lab.server.methods() == ["thread/resume"] * (number + 1)
            await load.answer(error=CLOSING)
        assert isinstance(load.outcome, RequestRefusedError)
        again = Load(lab)
        nursery.start_soon(again.run)
        await trio.testing.wait_all_tasks_blocked()
        await again.answer(error={"code": -32600, "message": "no"})
        assert isinstance(again.outcome, RequestRefusedError)
        await trio.sleep(100)
        assert lab.server.methods() == ["thread/resume"] * (_creation.CLOSING_TRIES_MAX + 1)
        assert lab.connection.statistics().router.creations == 0


@pytest.mark.parametrize("answered", [True, False])
async def test_a_load_that_is_cancelled_between_two_tries_leaves_nothing(autojump_clock: Any, answered: bool) -> None:
    """R6, R14: in the pause nothing is on the wire; in the second try the late answer is released."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.testing.wait_all_tasks_blocked()
        await load.answer(error=CLOSING)
        if answered:
            await trio.sleep(1)
        load.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        if answered:
            await load.answer(result=OPENED)
        await load.creation.wait_released()
        await trio.sleep(100)
        assert lab.server.methods() == ["thread/resume"] * (2 if answered else 1) + ["thread/unsubscribe"] * answered
        assert lab.connection.statistics().router.creations == 0


@pytest.mark.parametrize("is_abandoned", [False, True])
@pytest.mark.parametrize("when", ["in flight", "between two tries"])
async def test_an_answer_that_names_a_thread_which_another_is_loading_takes_nothing_from_it(
    autojump_clock: Any, is_abandoned: bool, when: str
) -> None:
    """R7: it is taken for no new thread, and the thread being loaded is not released with it."""
    async with open_lab() as (lab, nursery, scope):
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.testing.wait_all_tasks_blocked()
        if when == "between two tries":
            await load.answer(error=CLOSING)
        if is_abandoned:
            scope.cancel()
        await lab.server.say(lab.server.answer(OPENED))
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(lab.outcome, ProviderProtocolError) != is_abandoned
        await trio.sleep(1)
        await load.answer(result=OPENED)
        assert load.outcome.thread.id == NEW
        await trio.sleep(100)
        assert lab.server.unsubscribed == []
        statistics = lab.connection.statistics().router
        assert (statistics.routes, statistics.creations) == (1, 0)


async def test_a_thread_that_failed_to_load_may_be_named_by_another_answer(autojump_clock: Any) -> None:
    """R7: nobody holds it any more."""
    async with open_lab() as (lab, nursery, _):
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.testing.wait_all_tasks_blocked()
        await load.answer(error={"code": -32600, "message": "no"})
        assert isinstance(load.outcome, RequestRefusedError)
        await lab.server.say(lab.server.answer(OPENED))
        await trio.testing.wait_all_tasks_blocked()
        assert lab.outcome.thread.id == NEW


READ = {"thread": {"id": NEW, "status": {"type": "idle"}}}
NOT_LOADED = {"code": -32600, "message": f"thread not loaded: {NEW}"}
"""The words of 0.163 and 0.171."""


@pytest.mark.parametrize(
    ("answers", "is_lost", "asked"),
    [
        ([{"result": READ}], False, 1),
        ([{"result": {"thread": {"id": NEW, "status": {"type": "notLoaded"}}}}], True, 1),
        ([{"error": NOT_LOADED}], True, 1),
        ([{"error": {"code": 1, "message": "no"}}], False, 1),
        ([None, {"result": []}, {"error": NOT_LOADED}], True, 3),
        ([None, None, None], False, 3),
    ],
    ids=["loaded", "not loaded", "refused as not loaded", "refused", "no answer at first", "no answer"],
)
async def test_a_thread_that_was_perhaps_unloaded_while_it_was_loaded_is_asked_for(
    autojump_clock: Any, answers: list[dict[str, Any] | None], is_lost: bool, asked: int
) -> None:
    """R9: it was closed here before, so the word can be of that time. A session that is not held would never end."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        lab.connection.router.retire(NEW)
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.testing.wait_all_tasks_blocked()
        await lab.server.say({"method": "thread/closed", "params": {"threadId": NEW}})
        await load.answer(result=OPENED)
        for answer in answers:
            await trio.sleep(0.1)
            *_, read = [message for message in lab.server.received if message.get("method") == "thread/read"]
            if answer is None:
                await trio.sleep(CLEANUP_DEADLINE_S)
            else:
                await lab.server.say({"id": read["id"], **answer})
            await trio.sleep(5)
        assert load.sink.ends == ["lost"] * is_lost
        await trio.sleep(100)
        assert lab.server.methods().count("thread/read") == asked


@pytest.mark.parametrize("is_answered", [False, True])
async def test_an_unsubscribe_that_a_load_was_to_make_needless_is_begun_anew_when_that_is_never_answered(
    autojump_clock: Any, is_answered: bool
) -> None:
    """R6: nobody loads it, and it was never let go. An answer that comes after all is released as well."""
    async with open_lab() as (lab, nursery, scope):
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        lab.server.deaf_to_unsubscribes = True
        lab.connection.releases.begin(NEW)
        load = Load(lab)
        nursery.start_soon(load.run)
        await trio.sleep(CLEANUP_DEADLINE_S + 1)
        assert lab.server.methods() == ["thread/unsubscribe", "thread/resume"]
        load.scope.cancel()
        lab.server.deaf_to_unsubscribes = False
        await trio.sleep(_creation.ANSWER_WAIT_S + 1)
        assert lab.server.methods() == ["thread/unsubscribe", "thread/resume", "thread/unsubscribe"]
        if is_answered:
            await load.answer(result=OPENED)
        await trio.sleep(100)
        assert lab.server.methods()[3:] == ["thread/unsubscribe"] * is_answered
        assert (lab.router.routes, lab.router.creations) == (0, 0)
