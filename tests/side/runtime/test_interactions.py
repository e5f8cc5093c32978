"""What a provider asks: every kind, answered once, by nobody late, declined in the end."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from tutti_side import SessionExpiredError, SideExpiredError, SideHandle, open_host
from tutti_side.contract import (
    ANSWER_BYTES_MAX,
    InteractionAnswer,
    InteractionId,
    InteractionKind,
    InteractionOption,
    InteractionQuestion,
    InteractionRequested,
    InteractionResolved,
    ProviderLostError,
)
from tutti_side.runtime import (
    InteractionAlreadyAnsweredError,
    InteractionError,
    InteractionInvalidError,
    InteractionNotLiveError,
    _interactions,
)
from tutti_side.runtime._interactions import InteractionTable

Provider = Any  # tests/side/conftest.py: HeldProvider

OPTIONS = (InteractionOption("accept", "Yes"), InteractionOption("decline", "No"))
QUESTIONS = (InteractionQuestion("q1", "Which?"), InteractionQuestion("q2", "Why?"))
I = InteractionId("i")  # noqa: E741 - the one interaction of most tests
ACCEPT = InteractionAnswer(option_id="accept")

KINDS: dict[InteractionKind, tuple[InteractionRequested, InteractionAnswer]] = {
    "approval": (InteractionRequested(I, None, "approval", "run it?", options=OPTIONS), ACCEPT),
    "plan": (InteractionRequested(I, None, "plan", "go on?", options=OPTIONS), InteractionAnswer(option_id="decline")),
    "question": (
        InteractionRequested(I, None, "question", "tell me", questions=QUESTIONS),
        InteractionAnswer(answers={"q1": ("a",), "q2": ("b", "c")}),
    ),
}


async def open_one(host: Any) -> SideHandle:
    session = await host.start_session(cwd=".", session_id="main")
    side: SideHandle = await session.open_side(side_id="s", request_id="r")
    return side


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_is_shown_and_answered_once(provider: Provider, kind: InteractionKind) -> None:
    """R11, SC-contract-interactive: one model for all kinds; the answer reaches the adapter as it was given."""
    adapter = provider.adapter
    request, answer = KINDS[kind]
    async with open_host(provider) as host:
        side = await open_one(host)
        events = side.events()
        adapter.ask(side.scope.ref, request)
        assert list(side.interactions) == [request]
        assert (await anext(events)).events == (request,)
        side.respond(I, answer)
        assert list(side.interactions) == []
        assert adapter.answers == [(I, answer)]
        with pytest.raises(InteractionAlreadyAnsweredError) as caught:
            side.respond(I, answer)
        assert caught.value.interaction_id == I
        adapter.sinks[side.scope.ref].emit([InteractionResolved(I, "answered")], 1)
        with pytest.raises(InteractionAlreadyAnsweredError):
            side.respond(I, answer)
        assert adapter.answers == [(I, answer)]


async def test_an_answer_that_it_does_not_take_leaves_it_open(provider: Provider) -> None:
    """Required: the field is named, nothing is sent, and a good answer still counts."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        side = await open_one(host)
        adapter.ask(side.scope.ref, KINDS["approval"][0])
        for bad, field in (
            (InteractionAnswer(option_id="always"), "option_id"),
            (InteractionAnswer(), "option_id"),
            (InteractionAnswer(option_id="accept", answers={"q": ("a",)}), "answers"),
        ):
            with pytest.raises(InteractionInvalidError) as caught:
                side.respond(I, bad)
            assert caught.value.field == field
        assert len(side.interactions) == 1
        side.respond(I, ACCEPT)
        assert len(adapter.answers) == 1


BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "no answer at all": ("accept", "answer"),
    "an option that is no string": (InteractionAnswer(option_id=cast("Any", 1)), "option_id"),
    "pairs": (InteractionAnswer(answers=cast("Any", [("q1", ("a",))])), "answers"),
    "an id that is no string": (InteractionAnswer(answers=cast("Any", {1: ("a",)})), "answers"),
    "a bare string": (InteractionAnswer(answers=cast("Any", {"q1": "a", "q2": ("b",)})), "answers['q1']"),
    "nothing": (InteractionAnswer(answers=cast("Any", {"q1": None})), "answers['q1']"),
    "numbers": (InteractionAnswer(answers=cast("Any", {"q1": (1,)})), "answers['q1']"),
    "a lone surrogate": (InteractionAnswer(answers={"q1": ("\ud800",)}), "answers['q1']"),
    "a book": (InteractionAnswer(answers={"q1": ("a" * (ANSWER_BYTES_MAX + 1),)}), "answers"),
}


@pytest.mark.parametrize("bad", BAD_ANSWERS)
async def test_an_answer_of_another_shape_is_refused_before_the_provider_sees_it(provider: Provider, bad: str) -> None:
    """R11: callers are not all typed; on 0.163 a bare string went out unreadable, and counted as a refusal."""
    answer, field = BAD_ANSWERS[bad]
    adapter = provider.adapter
    async with open_host(provider) as host:
        side = await open_one(host)
        request, good = KINDS["question"]
        adapter.ask(side.scope.ref, request)
        with pytest.raises(InteractionInvalidError) as caught:
            side.respond(I, answer)
        assert caught.value.field == field
        assert str(caught.value).count(field.partition("[")[0]) == 1
        assert "q1" not in str(caught.value)
        assert (side.interactions, adapter.answers) == ((request,), [])
        side.respond(I, InteractionAnswer(answers=cast("Any", {"q1": ["a"], "q2": ("b", "c")})))
        assert adapter.answers == [(I, good)]


async def test_what_the_provider_took_back_is_not_live(provider: Provider) -> None:
    """F28: an answer after the request was resolved puts nothing on the wire; one in the same instant neither."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        side = await open_one(host)
        ref = side.scope.ref
        adapter.ask(ref, KINDS["approval"][0])
        adapter.take_back(ref, I)
        with pytest.raises(InteractionNotLiveError):
            side.respond(I, ACCEPT)
        second = InteractionRequested(InteractionId("j"), None, "approval", "?", options=OPTIONS)
        adapter.ask(ref, second)
        adapter.asked.clear()  # the provider knows already, its event is still to come
        for _ in range(2):
            with pytest.raises(InteractionNotLiveError):
                side.respond(InteractionId("j"), ACCEPT)
        assert side.interactions == ()
        assert adapter.answers == []


ENDS: dict[str, tuple[Callable[[Any, SideHandle], Any], str]] = {
    "closed": (lambda host, side: side.close(), "closed"),
    "lost": (lambda host, side: side.scope.events.end("lost"), "lost"),
    "deleted": (lambda host, side: host.delete_session("main"), "source_deleted"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_after_the_end_of_the_side_nothing_is_answered(provider: Provider, end: str) -> None:
    """R8, R11: what nobody can answer any more is the adapter's to decline."""
    call, reason = ENDS[end]
    async with open_host(provider) as host:
        side = await open_one(host)
        provider.adapter.ask(side.scope.ref, KINDS["approval"][0])
        done = call(host, side)
        if done is not None:
            await done
        with pytest.raises(SideExpiredError) as caught:
            side.respond(I, ACCEPT)
        assert caught.value.reason == reason
        assert (side.interactions, provider.adapter.answers) == ((), [])


async def test_a_side_and_its_source_never_answer_for_each_other(provider: Provider) -> None:
    """F29: the same id in both is two interactions."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        side = await open_one(host)
        source = next(iter(host.controller.registry.sessions.values()))
        adapter.ask(source.ref, KINDS["approval"][0])
        assert side.interactions == ()
        with pytest.raises(InteractionInvalidError) as caught:
            side.respond(I, ACCEPT)
        assert caught.value.field == "interaction_id"
        adapter.ask(side.scope.ref, KINDS["plan"][0])
        side.respond(I, ACCEPT)
        assert [key[0] for key in adapter.asked] == [source.ref]
        assert len(source.events.interactions.open) == 1


async def test_a_thousand_responders_at_once_are_one_answer(provider: Provider) -> None:
    """R11, F28: exactly one; the others are told so."""
    adapter = provider.adapter
    outcomes: list[str] = []
    async with open_host(provider) as host:
        side = await open_one(host)
        adapter.ask(side.scope.ref, KINDS["approval"][0])
        go = trio.Event()

        async def respond(number: int) -> None:
            await go.wait()
            try:
                if number % 2:
                    side.respond(I, ACCEPT)
                else:
                    await host.respond_side("main", "s", "r", "i", ACCEPT)
                outcomes.append("sent")
            except InteractionAlreadyAnsweredError:
                outcomes.append("already")

        async with trio.open_nursery() as nursery:
            for number in range(1_000):
                nursery.start_soon(respond, number)
            await trio.testing.wait_all_tasks_blocked()
            go.set()
        assert len(adapter.answers) == 1
        assert sorted(outcomes) == ["already"] * 999 + ["sent"]


async def test_an_interaction_before_the_commit_can_be_answered_after_it(provider: Provider) -> None:
    """F3: it is buffered like everything else, not lost."""
    adapter = provider.adapter
    adapter.early = [KINDS["approval"][0]]
    async with open_host(provider) as host:
        side = await open_one(host)
        adapter.asked[side.scope.ref, I] = adapter.early[0]
        assert side.interactions == tuple(adapter.early)
        side.respond(I, ACCEPT)
        assert len(adapter.answers) == 1


async def test_a_lost_connection_is_an_expired_side(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: the adapter's error by the runtime's name."""
    async with open_host(provider) as host:
        side = await open_one(host)
        provider.adapter.ask(side.scope.ref, KINDS["approval"][0])

        def lost(*_: object) -> bool:
            raise ProviderLostError

        monkeypatch.setattr(provider.adapter, "respond", lost)
        with pytest.raises(SideExpiredError):
            side.respond(I, ACCEPT)


async def test_a_provider_that_takes_no_answers_says_so(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-contract-interactive: an additional protocol, which not every adapter has."""
    provider.adapter = type("Mute", (type(provider.adapter),), {"respond": None})()
    async with open_host(provider) as host:
        side = await open_one(host)
        provider.adapter.ask(side.scope.ref, KINDS["approval"][0])
        with pytest.raises(InteractionInvalidError) as caught:
            side.respond(I, ACCEPT)
        assert caught.value.field == "provider"


async def test_a_closed_session_takes_no_answers(provider: Provider) -> None:
    """R8: canonical sessions are answered by the same rules."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        adapter.ask(session.ref, KINDS["approval"][0])
        session.respond(I, ACCEPT)
        with pytest.raises(InteractionAlreadyAnsweredError):
            session.respond(I, ACCEPT)
        await session.close()
        with pytest.raises(SessionExpiredError):
            session.respond(I, ACCEPT)
        assert len(adapter.answers) == 1


def requested(number: int) -> InteractionRequested:
    return InteractionRequested(InteractionId(str(number)), None, "approval", "?")


def test_the_table_is_bounded_in_what_is_open_and_in_what_is_remembered() -> None:
    """R12."""
    table = InteractionTable()
    table.apply([requested(number) for number in range(_interactions.OPEN_MAX + 5)])
    assert len(table.open) == _interactions.OPEN_MAX
    table.lose()
    assert table.open == ()
    for number in range(10_000, 10_000 + _interactions.ENDED_MAX):
        table.apply([requested(number), InteractionResolved(InteractionId(str(number)), "answered")])
    assert table.outcome(InteractionId("0")) == "unknown"
    assert table.outcome(InteractionId("10000")) == "answered"


def test_an_interaction_that_ended_is_not_opened_again() -> None:
    """R11: a repeated or late request under the same id gets no second answer."""
    table = InteractionTable()
    table.apply([requested(1), InteractionResolved(InteractionId("1"), "superseded"), requested(1)])
    assert table.open == ()
    assert table.outcome(InteractionId("1")) == "superseded"
    table.apply([InteractionResolved(InteractionId("2"), "answered")])
    assert table.outcome(InteractionId("2")) == "unknown"


def test_every_error_about_an_interaction_names_it() -> None:
    """Our choice: one base for all three."""
    errors = [InteractionInvalidError(I, "f", "p"), InteractionNotLiveError(I), InteractionAlreadyAnsweredError(I)]
    for error in errors:
        assert isinstance(error, InteractionError)
        assert error.interaction_id == "i"
