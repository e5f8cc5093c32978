"""The host's operations by id: each checks scope, source and request again, and refuses bad input before any call."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import (
    AgentHost,
    HostIdentity,
    OpenFailedError,
    SessionExpiredError,
    SideConflictError,
    SideExpiredError,
    TuttiSideError,
    open_host,
)
from tutti_side.contract import (
    CONTENT_BYTES_MAX,
    HOST_CONTEXT_BYTES_MAX,
    ID_BYTES_MAX,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    InvalidContentError,
    InvalidIdError,
    MessageDelta,
    SessionClosed,
    TextContent,
    TurnCompleted,
    TurnNotActiveError,
    WorkspaceId,
)
from tutti_side.runtime import (
    InteractionAlreadyAnsweredError,
    InteractionInvalidError,
    MemoryMetadata,
    SessionUnknownError,
    SideInProgressError,
    SideNotFoundError,
)

Provider = Any  # tests/side/conftest.py: HeldProvider

ANSWER = InteractionAnswer()


async def side_events(host: AgentHost, source: str, side: str, request: str) -> None:
    await trio.lowlevel.checkpoint()
    host.side_events(source, side, request).close()


OPERATIONS: dict[str, Callable[[AgentHost, str, str, str], Awaitable[Any]]] = {
    "open": lambda host, source, side, request: host.open_side(source, side, request),
    "send": lambda host, source, side, request: host.send_side(source, side, request, "q"),
    "cancel": lambda host, source, side, request: host.cancel_side(source, side, request, "turn-1"),
    "respond": lambda host, source, side, request: host.respond_side(source, side, request, "i", ANSWER),
    "close": lambda host, source, side, request: host.close_side(source, side, request),
    "events": side_events,
}
"""Each operation on one Side, as ``(host, source, side, request)``."""

ON_AN_OPEN_SIDE = [name for name in OPERATIONS if name not in ("open", "close")]


async def test_a_side_is_used_by_id_as_by_its_handle(provider: Provider) -> None:
    """Specification: the host owns the Side lifecycle: resolve, open, send, cancel, respond, close."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        await host.start_session(cwd=".", session_id="main")
        assert await host.resolve_side("main")
        handle = await host.open_side("main", "s", "r", instructions="be brief")
        ref = handle.scope.ref
        events = host.side_events("main", "s", "r")
        turn = await host.send_side("main", "s", "r", "q", client_submit_id="c")
        adapter.ask(ref, InteractionRequested(InteractionId("i"), turn.id, "question", "?"))
        await host.respond_side("main", "s", "r", "i", ANSWER)
        with pytest.raises(InteractionAlreadyAnsweredError):
            await host.respond_side("main", "s", "r", "i", ANSWER)
        await host.cancel_side("main", "s", "r", turn.id)
        assert (await turn.wait()).status == "canceled"
        await host.close_side("main", "s", "r")
        assert adapter.log == ["fork s", "exec s", "respond i", "cancel turn-1", "close s"]
        (asked,) = [request for _, request in adapter.turns_asked]
        assert (asked.client_submit_id, asked.content) == ("c", (TextContent("q"),))
        kinds = [type(event).__name__ async for batch in events for event in batch.events]
        assert kinds == ["TurnStarted", "InteractionRequested", "TurnCanceled", "SessionClosed"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("wrong", ["source", "request"])
async def test_each_operation_checks_source_and_request_again(provider: Provider, operation: str, wrong: str) -> None:
    """Required: an id alone opens nothing; the Side is not touched."""
    async with open_host(provider) as host:
        for name in ("main", "other"):
            await host.start_session(cwd=".", session_id=name)
        await host.open_side("main", "s", "r")
        log = list(provider.adapter.log)
        source, request = ("other", "r") if wrong == "source" else ("main", "other")
        with pytest.raises(SideConflictError) as caught:
            await OPERATIONS[operation](host, source, "s", request)
        assert (caught.value.side_id, caught.value.source, caught.value.request_id) == ("s", source, request)
        assert provider.adapter.log == log
        assert host.controller.find_side(next(iter(host.controller.registry.sides))).is_open


@pytest.mark.parametrize("operation", ON_AN_OPEN_SIDE)
async def test_each_operation_on_a_side_says_what_became_of_it(provider: Provider, operation: str) -> None:
    """Architecture §4: unknown, opening, open, closing and expired are told apart; R8."""
    call = OPERATIONS[operation]
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        await host.start_session(cwd=".", session_id="main")
        with pytest.raises(SideNotFoundError):
            await call(host, "main", "s", "r")
        adapter.opening.hold()
        nursery.start_soon(host.open_side, "main", "s", "r")
        await adapter.opening.reached.wait()
        with pytest.raises(SideInProgressError) as opening:
            await call(host, "main", "s", "r")
        assert opening.value.state == "opening"
        adapter.opening.release()
        await trio.testing.wait_all_tasks_blocked()
        adapter.closing.hold()
        nursery.start_soon(host.close_side, "main", "s", "r")
        await adapter.closing.reached.wait()
        for _ in range(2):  # closing, then closed
            with pytest.raises(SideExpiredError) as expired:
                await call(host, "main", "s", "r")
            assert expired.value.reason == "closed"
            adapter.closing.release()
            await trio.testing.wait_all_tasks_blocked()
        assert adapter.log == ["fork s", "close s"]


async def test_the_same_ids_in_another_workspace_are_another_side(provider: Provider) -> None:
    """Required: scope is workspace and id."""
    elsewhere = HostIdentity(workspace=WorkspaceId("elsewhere"), device="d", user="u")
    async with open_host(provider) as host, open_host(type(provider)(), identity=elsewhere) as other:
        await host.start_session(cwd=".", session_id="main")
        await host.open_side("main", "s", "r")
        with pytest.raises(SideNotFoundError):
            await other.send_side("main", "s", "r", "q")
        await other.close_side("main", "s", "r")
        assert (await host.open_side("main", "s", "r")).is_open


async def test_open_is_idempotent_and_so_is_close(provider: Provider) -> None:
    """F17; specification: the controller owns idempotency of open, send and close."""
    async with open_host(provider) as host:
        await host.start_session(cwd=".", session_id="main")
        one, two = [await host.open_side("main", "s", "r") for _ in range(2)]
        assert one.scope is two.scope
        for _ in range(3):
            await host.close_side("main", "s", "r")
        await host.close_side("main", "never", "r")
        assert provider.adapter.log == ["fork s", "close s"]


async def test_cancel_interrupts_exactly_this_turn_or_nothing(provider: Provider) -> None:
    """F8: the turn that is named, never the one that happens to run."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        await host.start_session(cwd=".", session_id="main")
        side = await host.open_side("main", "s", "r")
        with pytest.raises(TurnNotActiveError):
            await host.cancel_side("main", "s", "r", "turn-1")
        first = await host.send_side("main", "s", "r", "q")
        adapter.sinks[side.scope.ref].emit([TurnCompleted(first.id)], 1)
        adapter.active.clear()
        second = await host.send_side("main", "s", "r", "q")
        with pytest.raises(TurnNotActiveError) as caught:
            await host.cancel_side("main", "s", "r", first.id)
        assert caught.value.turn_id == first.id
        assert second.is_active
        assert not [line for line in adapter.log if line.startswith("cancel")]


async def test_unknown_interactions_are_refused(provider: Provider) -> None:
    """Required."""
    async with open_host(provider) as host:
        await host.start_session(cwd=".", session_id="main")
        await host.open_side("main", "s", "r")
        with pytest.raises(InteractionInvalidError) as caught:
            await host.respond_side("main", "s", "r", "i", ANSWER)
        assert caught.value.field == "interaction_id"


async def test_a_subscription_by_id_starts_at_now(provider: Provider) -> None:
    """R1, R3: numbers go on where the Side is."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        await host.start_session(cwd=".", session_id="main")
        side = await host.open_side("main", "s", "r", subscribe=True)
        turn = await side.send("q")
        events = host.side_events("main", "s", "r")
        adapter.sinks[side.scope.ref].emit([MessageDelta(turn.id, "i", "x")], 1)
        batch = await anext(events)
        assert (batch.first_sequence, batch.events) == (3, (MessageDelta(turn.id, "i", "x"),))
        await side.close()
        rest = [event async for batch in events for event in batch.events]
        assert rest == [SessionClosed()]


BAD_IDS = {
    "empty": "",
    "blank": " \t ",
    "over-long": "x" * (ID_BYTES_MAX + 1),
    "over-long in bytes": "ä" * (ID_BYTES_MAX // 2 + 1),
    "NUL": "a\0b",
    "escape": "a\x1bb",
    "newline": "a\nb",
    "C1 control": "a\x85b",
    "delete": "a\x7fb",
    "lone surrogate": "a\ud800",
    "bytes": b"id",
    "a number": 7,
}

Call = Callable[[AgentHost, Any], Awaitable[Any]]


def with_bad(operation: str, place: int) -> Call:
    """Return a call of an operation with a bad id in place of source, side or request."""

    def call(host: AgentHost, bad: Any) -> Awaitable[Any]:
        ids = ["main", "s", "r"]
        ids[place] = bad
        return OPERATIONS[operation](host, ids[0], ids[1], ids[2])

    return call


PLACES: dict[str, tuple[str, Call]] = {
    "start session": ("session id", lambda host, bad: host.start_session(cwd=".", session_id=bad)),
    "resume session": ("session id", lambda host, bad: host.resume_session(bad)),
    "delete session": ("session id", lambda host, bad: host.delete_session(bad)),
    "resolve source": ("session id", lambda host, bad: host.resolve_side(bad)),
    **{
        f"{operation} {field}": (field, with_bad(operation, place))
        for operation in OPERATIONS
        for place, field in enumerate(("session id", "side id", "request id"))
    },
    "cancel turn": ("turn id", lambda host, bad: host.cancel_side("main", "s", "r", bad)),
    "respond interaction": ("interaction id", lambda host, bad: host.respond_side("main", "s", "r", bad, ANSWER)),
    "send submit": ("client_submit_id", lambda host, bad: host.send_side("main", "s", "r", "q", client_submit_id=bad)),
}


@pytest.mark.parametrize("bad", BAD_IDS)
@pytest.mark.parametrize("place", PLACES)
async def test_a_bad_id_is_refused_by_its_name_before_any_call(provider: Provider, place: str, bad: str) -> None:
    """Required: blank, over-long, NUL, control characters, in each id of each operation."""
    field, call = PLACES[place]
    async with open_host(provider) as host:
        await host.start_session(cwd=".", session_id="main")
        await host.open_side("main", "s", "r")
        log, started = list(provider.adapter.log), list(provider.adapter.started)
        with pytest.raises(InvalidIdError) as caught:
            await call(host, BAD_IDS[bad])
        assert caught.value.field == field
        assert (provider.adapter.log, provider.adapter.started) == (log, started)


@pytest.mark.parametrize("field", ["workspace", "device", "user"])
async def test_a_bad_identity_opens_no_host(provider: Provider, field: str) -> None:
    """Required."""
    parts = {"workspace": "w", "device": "d", "user": "u"} | {field: "\0"}
    with pytest.raises(InvalidIdError) as caught:
        async with open_host(provider, identity=HostIdentity(**parts)):  # type: ignore[arg-type]
            pytest.fail("it was opened")
    assert caught.value.field == f"identity.{field}"


BAD_CONTENT: dict[str, tuple[Any, str]] = {
    "empty": ("", "content"),
    "blank": (" \n", "content"),
    "no blocks": ([], "content"),
    "only blank blocks": ([TextContent(""), TextContent(" ")], "content"),
    "wrong block type": ([TextContent("q"), "q"], "content[1]"),
    "no text in a block": ([TextContent(7)], "content[0].text"),  # type: ignore[arg-type]
    "not a list": (TextContent("q"), "content"),
    "nothing": (None, "content"),
    "bytes": (b"q", "content[0]"),
    "over the limit": ("x" * (CONTENT_BYTES_MAX + 1), "content"),
    "over the limit in blocks": ([TextContent("x" * CONTENT_BYTES_MAX), TextContent("x")], "content"),
    "lone surrogate": ("\ud800", "content.text"),
}


@pytest.mark.parametrize("case", BAD_CONTENT)
async def test_bad_content_is_refused_by_its_field_before_any_call(provider: Provider, case: str) -> None:
    """Required: empty, wrong block type, over the size limit."""
    content, field = BAD_CONTENT[case]
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        side = await host.open_side("main", "s", "r")
        for call in (lambda: host.send_side("main", "s", "r", content), lambda: side.ask(content)):
            with pytest.raises(InvalidContentError) as caught:
                await call()
            assert caught.value.field == field
        with pytest.raises(InvalidContentError):
            await session.send(content)
        assert provider.adapter.turns_asked == []
        assert (await side.send("q")).is_active


BAD_DIRECTORIES = {
    "none": None,
    "a number": 5,
    "blank": " ",
    "NUL": "a\0b",
    "not UTF-8": b"\xff",
    "lone surrogate": "\ud800",
    "endless": "x" * 5_000,
}


@pytest.mark.parametrize("case", BAD_DIRECTORIES)
async def test_a_directory_that_is_none_is_refused_before_any_call(provider: Provider, case: str) -> None:
    """Our choice: a blank one was taken for this process' own, a NUL began a session in which nothing could run."""
    bad: Any = BAD_DIRECTORIES[case]
    async with open_host(provider) as host:
        with pytest.raises(InvalidContentError) as caught:
            await host.start_session(cwd=bad)
        assert caught.value.field == "cwd"
        assert provider.adapter.started == []


BAD_CONTEXTS = {"too large": "ä" * (HOST_CONTEXT_BYTES_MAX // 2 + 1), "lone surrogate": "\ud800", "bytes": b"x"}


@pytest.mark.parametrize("case", BAD_CONTEXTS)
async def test_a_bad_context_or_instructions_are_refused_before_any_call(provider: Provider, case: str) -> None:
    """Required: 32 KiB each, since they are sent with every turn."""
    bad: Any = BAD_CONTEXTS[case]
    async with open_host(provider) as host:
        with pytest.raises(InvalidContentError) as caught:
            await host.start_session(cwd=".", host_context=bad)
        assert caught.value.field == "host_context"
        assert provider.adapter.started == []
        session = await host.start_session(cwd=".", session_id="main", host_context="x" * HOST_CONTEXT_BYTES_MAX)
        with pytest.raises(InvalidContentError):
            await session.set_host_context(bad)
        with pytest.raises(InvalidContentError) as caught:
            await host.open_side("main", "s", "r", instructions=bad)
        assert caught.value.field == "instructions"
        assert provider.adapter.log == []
        assert (await host.open_side("main", "s", "r", instructions="y" * HOST_CONTEXT_BYTES_MAX)).is_open


HOLDS = ["attesting", "opening", "closing", "releasing"]


@pytest.mark.parametrize("release", ["open first", "close first"])
@pytest.mark.parametrize("held", [(), *[(one,) for one in HOLDS], ("opening", "releasing"), ("attesting", "releasing")])
@pytest.mark.parametrize("first", ["open", "close"])
async def test_open_against_close_leaves_no_ghost(
    provider: Provider, autojump_clock: trio.testing.MockClock, first: str, held: tuple[str, ...], release: str
) -> None:
    """R6, R8: both held in mid-flight, whichever began first and whichever is let go first; then nothing is left."""
    adapter = provider.adapter
    outcomes: dict[str, Any] = {}

    async def run(name: str, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            outcomes[name] = await call()
        except TuttiSideError as error:
            outcomes[name] = error

    async with open_host(provider) as host, trio.open_nursery() as nursery:
        await host.start_session(cwd=".", session_id="main")
        for name in held:
            getattr(adapter, name).hold()
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "open": lambda: host.open_side("main", "s", "r"),
            "close": lambda: host.close_side("main", "s", "r"),
        }
        for name in [first, *(set(calls) - {first})]:
            nursery.start_soon(run, name, calls[name])
            await trio.testing.wait_all_tasks_blocked()
        order = list(held) if release == "open first" else list(reversed(held))
        for name in order:
            getattr(adapter, name).release()
            await trio.testing.wait_all_tasks_blocked()
        assert outcomes["close"] is None
        states = host.statistics().sides
        if first == "open":
            assert states == {}
            with pytest.raises(SideExpiredError):
                await host.send_side("main", "s", "r", "q")
        else:  # the close came before there was anything
            assert states == {"open": 1}
            assert outcomes["open"].is_open
            await host.close_side("main", "s", "r")
            assert host.statistics().sides == {}
        assert adapter.log.count("fork s") <= 1
        assert adapter.log.count("close s") + adapter.log.count("release s") == 1
        assert (host.statistics().locks_in_use, host.statistics().subscribers) == (0, 0)


async def test_a_delete_closes_the_sides_of_its_session_and_no_other(provider: Provider) -> None:
    """Architecture, Ends: reason source_deleted, in every state; the session never comes back."""
    adapter = provider.adapter
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        for name in ("main", "other"):
            await host.start_session(cwd=".", session_id=name)
        side = await host.open_side("main", "s", "r", subscribe=True)
        other = await host.open_side("other", "o", "r")
        turn = await side.send("q")
        adapter.opening.hold()
        caught: list[Exception] = []

        async def open_late() -> None:
            try:
                await host.open_side("main", "late", "r")
            except SideExpiredError as error:
                caught.append(error)

        nursery.start_soon(open_late)
        await adapter.opening.reached.wait()
        with trio.fail_after(5):
            await host.delete_session("main")
            await host.delete_session("main")
        with pytest.raises(SideExpiredError) as ended:
            await turn.wait()
        assert ended.value.reason == "source_deleted"
        await trio.testing.wait_all_tasks_blocked()
        assert [getattr(error, "reason", None) for error in caught] == ["source_deleted"]
        assert other.is_open
        with pytest.raises(TuttiSideError, match="source_deleted"):
            await host.start_session(cwd=".", session_id="main")
        with pytest.raises(TuttiSideError, match="source_deleted"):
            await host.resume_session("main")
        assert not await host.resolve_side("main")


async def test_a_deleted_source_waits_for_its_sides_also_when_it_was_never_live(provider: Provider) -> None:
    """Architecture, Ends: a Side of a historical source is a Side of it."""
    provider.adapter.offers_history = True
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        await session.close()
        side = await host.open_side("main", "s", "r")
        await host.delete_session("main")
        assert not side.is_open
        with pytest.raises(SideExpiredError) as caught:
            await side.send("q")
        assert caught.value.reason == "source_deleted"


@pytest.mark.parametrize("was_here", [True, False], ids=["closed here", "kept by an earlier host"])
async def test_a_session_that_is_deleted_while_it_is_not_live_is_over_for_good(
    provider: Provider, was_here: bool
) -> None:
    """R8: also when what is kept of it can't be forgotten; nothing branches, loads or starts it again."""
    kept = MemoryMetadata()
    provider.adapter.offers_history = True

    async def forget(ref: object) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError

    async with open_host(provider, metadata=kept) as host:
        session = await host.start_session(cwd=".", session_id="main")
        if was_here:
            await session.close()
            kept.forget = forget  # type: ignore[method-assign]
            await delete_in_vain(host)
    if not was_here:
        kept.forget = forget  # type: ignore[method-assign]
        async with open_host(provider, metadata=kept) as host:
            await delete_in_vain(host)


async def delete_in_vain(host: AgentHost) -> None:
    """Delete ``main``, which the metadata port does not forget."""
    with pytest.raises(OSError):
        await host.delete_session("main")
    assert not await host.resolve_side("main")
    with pytest.raises(OpenFailedError, match="was deleted"):
        await host.open_side("main", "s", "r")
    for again in (host.resume_session("main"), host.start_session(cwd=".", session_id="main")):
        with pytest.raises(SessionExpiredError) as caught:
            await again
        assert caught.value.reason == "source_deleted"


async def test_a_cancelled_delete_of_a_held_close_leaves_the_close_going(provider: Provider) -> None:
    """R14: the Sides close in their own tasks."""
    provider.adapter.closing.hold()
    async with open_host(provider) as host, trio.open_nursery() as nursery:
        await host.start_session(cwd=".", session_id="main")
        await host.open_side("main", "s", "r")
        scope = trio.CancelScope()

        async def delete() -> None:
            with scope, contextlib.suppress(TuttiSideError):
                await host.delete_session("main")

        nursery.start_soon(delete)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        provider.adapter.closing.release()
        await trio.testing.wait_all_tasks_blocked()
        assert host.statistics().sides == {}


async def test_a_deleted_session_is_not_found_by_a_later_host(provider: Provider) -> None:
    """Architecture, Ends: source deleted by its user; its metadata go with it."""
    kept = MemoryMetadata()
    async with open_host(provider, metadata=kept) as host:
        await host.start_session(cwd=".", session_id="gone")
        await host.start_session(cwd=".", session_id="stays")
        await host.delete_session("gone")
        await host.delete_session("gone")
    async with open_host(provider, metadata=kept) as host:
        with pytest.raises(SessionUnknownError):
            await host.resume_session("gone")
        assert (await host.resume_session("stays")).ref.session == "stays"
