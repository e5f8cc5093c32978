"""What the runtime logs: each thing that becomes of a Side, by its ids, and no text of anybody."""

import logging
import traceback
from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from tutti_side import TuttiSideError, open_host
from tutti_side.contract import (
    InteractionAnswer,
    InteractionId,
    InteractionOption,
    InteractionQuestion,
    InteractionRequested,
    InvalidContentError,
    MessageDelta,
    SideCapabilities,
    SideRef,
    TextContent,
    TurnFailed,
    TurnId,
)
from tutti_side.runtime import DurableRefusedError, InteractionInvalidError
from tutti_side.runtime._log import FIELDS
from tutti_side.runtime._side_scope import CLOSE_BOUND_S

Provider = Any  # tests/side/conftest.py: HeldProvider

CANARY = "canary-4711"


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Callable[[], list[logging.LogRecord]]:
    """All records of tutti_side so far."""
    caplog.set_level(logging.DEBUG)
    return lambda: [record for record in caplog.records if record.name.startswith("tutti_side")]


Records = Callable[[], list[logging.LogRecord]]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what is set of a record's attributes."""
    return {name: getattr(record, name) for name in FIELDS if getattr(record, name) is not None}


async def test_an_open_and_its_close_are_logged_by_their_ids(provider: Provider, records: Records) -> None:
    """Required: workspace, source, side, provider, child id, request id, phase."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        await (await session.open_side(side_id="s", request_id="r")).close()
    opened, closed = records()
    ids = {"workspace": "local", "source": "main", "side": "s", "provider": "held", "child_id": "p-s"}
    assert (opened.name, opened.levelname, opened.getMessage()) == ("tutti_side.runtime", "INFO", "a Side is open")
    assert fields(opened) == ids | {"request_id": "r", "phase": "open"}
    assert (closed.levelname, closed.getMessage()) == ("INFO", "a Side was closed")
    assert fields(closed) == ids | {"request_id": "r", "reason": "closed"}


def unsupported(adapter: Any) -> None:
    adapter.promised = SideCapabilities.unsupported(CANARY)


def failing(adapter: Any) -> None:
    adapter.open_error = ValueError(CANARY)


def lacking(adapter: Any) -> None:
    adapter.seen = SideCapabilities(supported=True)


FAILURES: dict[str, tuple[Callable[[Any], None], str, str, dict[str, str]]] = {
    "not attested": (unsupported, "INFO", "a Side is not supported", {"phase": "capabilities"}),
    "its error": (failing, "WARNING", "a Side could not be opened", {"phase": "provider", "error": "ValueError"}),
    "its result": (lacking, "WARNING", "a Side could not be opened", {"phase": "result", "child_id": "p-s"}),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failed_open_is_logged_once_with_where_it_failed(
    provider: Provider, records: Records, case: str
) -> None:
    """Required; of an error that is not ours only the type is named."""
    prepare, level, message, more = FAILURES[case]
    prepare(provider.adapter)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        with pytest.raises(TuttiSideError):
            await session.open_side(side_id="s", request_id="r")
        await trio.testing.wait_all_tasks_blocked()
        (record,) = records()
        assert (record.levelname, record.getMessage()) == (level, message)
        ids = {"workspace": "local", "source": "main", "side": "s", "provider": "held", "request_id": "r"}
        assert fields(record) == ids | more


@pytest.mark.parametrize("reason", ["lost", "overflow", "source_deleted", "host_stopped"])
async def test_an_expired_side_is_logged_with_its_reason(provider: Provider, records: Records, reason: str) -> None:
    """Required."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        side = await session.open_side(side_id="s")
        if reason in ("lost", "overflow"):
            provider.adapter.sinks[side.scope.ref].end(reason)
            await trio.testing.wait_all_tasks_blocked()
        elif reason == "source_deleted":
            await host.delete_session("main")
    ended = records()[-1]
    assert ended.getMessage() == "a Side expired"
    assert fields(ended)["reason"] == reason


async def test_a_close_that_fails_or_hangs_is_logged(
    provider: Provider, records: Records, autojump_clock: trio.testing.MockClock
) -> None:
    """R12: adapter close failed, of Sides and of sessions."""

    async def fail(ref: object) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError(CANARY)

    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        one, two = [await session.open_side(side_id=name) for name in ("one", "two")]
        adapter.closing.hold()
        began = trio.current_time()
        await one.close()
        assert trio.current_time() - began == pytest.approx(CLOSE_BOUND_S)
        adapter.close = fail
        await two.close()
        await session.close()
    failed = [record for record in records() if record.levelname == "WARNING"]
    assert [(record.getMessage(), record.reason, record.error) for record in failed] == [  # type: ignore[attr-defined]
        ("a Side did not close at its provider", "bound", None),
        ("a Side did not close at its provider", "error", "ValueError"),
        ("a session did not close at its provider", "error", "ValueError"),
    ]
    assert [fields(record).get("side") for record in failed] == ["one", "two", None]
    assert fields(failed[-1])["source"] == "main"


async def test_a_refused_durable_write_is_an_error_record(provider: Provider, records: Records) -> None:
    """Required: always a bug; the record names the Side and what was about to happen."""
    async with open_host(provider) as host:
        ref = SideRef(host.identity.workspace, "s")  # type: ignore[arg-type]
        with pytest.raises(DurableRefusedError):
            host.controller.durable.submitted(ref, TurnId("t"), None)  # type: ignore[arg-type]
    (record,) = records()
    assert record.levelname == "ERROR"
    assert fields(record) == {"workspace": "local", "side": "s", "phase": "submit"}


async def test_nobodys_text_reaches_a_record_or_an_error(
    provider: Provider, records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    """R2: prompts, model context, instructions, answers, a provider's words and errors stay out of the log."""
    adapter = provider.adapter
    errors: list[BaseException] = []

    async def keep(call: Any) -> None:
        """Note what a call raises."""
        try:
            await call()
        except Exception as error:
            errors.append(error)

    async def fail(ref: object) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError(CANARY)

    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main", host_context=CANARY)
        await keep(lambda: session.set_host_context(CANARY * 10_000))
        await keep(lambda: session.open_side(instructions=CANARY * 10_000))
        side = await session.open_side(side_id="s", request_id="r", instructions=CANARY, subscribe=True)
        ref = side.scope.ref
        sink = adapter.sinks[ref]
        for bad in ([TextContent(CANARY), CANARY], TextContent(CANARY), CANARY + "\ud800", [CANARY]):
            await keep(lambda bad=bad: side.send(bad))
        turn = await side.send(CANARY, client_submit_id="c")
        await keep(lambda: side.send(CANARY))
        sink.emit([MessageDelta(turn.id, "i", CANARY), TurnFailed(turn.id, CANARY)], 10)
        await turn.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, lambda: side.ask(CANARY))
            await trio.testing.wait_all_tasks_blocked()
            active = side.active_turn
            assert active is not None
            sink.emit([TurnFailed(active.id, CANARY)], 10)
        options = (InteractionOption("accept", CANARY),)
        adapter.ask(ref, InteractionRequested(InteractionId("i"), None, "approval", CANARY, CANARY, options))
        for answer in (InteractionAnswer(option_id="no"), InteractionAnswer(answers={"q": (CANARY,)})):
            with pytest.raises(InteractionInvalidError) as caught:
                side.respond(InteractionId("i"), answer)
            errors.append(caught.value)
        questions = (InteractionQuestion(CANARY, CANARY, is_secret=True),)
        adapter.ask(ref, InteractionRequested(InteractionId("j"), None, "question", CANARY, questions=questions))
        with pytest.raises(InteractionInvalidError) as caught:
            side.respond(InteractionId("j"), InteractionAnswer(answers={CANARY: cast("Any", CANARY)}))
        errors.append(caught.value)
        side.respond(InteractionId("j"), InteractionAnswer(answers={CANARY: (CANARY,)}))
        adapter.open_error = ValueError(CANARY)
        await keep(session.open_side)
        adapter.open_error = None
        adapter.close = fail
        await side.close()
        await keep(lambda: side.send(CANARY))
        lost = await session.open_side()
        adapter.sinks[lost.scope.ref].end("lost")
        await trio.testing.wait_all_tasks_blocked()
        await keep(lambda: lost.ask(CANARY))
        assert CANARY not in f"{host.statistics()!r} {session!r} {side!r} {side.scope!r}"
    assert sum(isinstance(error, InvalidContentError) for error in errors) == 6
    assert len(errors) == 14
    for error in errors:
        assert CANARY not in f"{error} {error!r}"
        assert isinstance(error, TuttiSideError)
    assert len(records()) >= 6
    for record in caplog.records:
        everything = [record.getMessage(), record.msg, record.args, record.__dict__, record.exc_text]
        if record.exc_info:
            everything += traceback.format_exception(*record.exc_info)
        assert CANARY not in repr(everything)


def test_a_program_that_sets_up_no_logging_sees_nothing() -> None:
    """Our choice: a library has a NullHandler, or its warnings would go to stderr by themselves."""
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("tutti_side").handlers)
