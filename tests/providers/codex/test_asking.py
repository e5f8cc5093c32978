"""The interactions of one thread: each is settled exactly once, whoever comes first."""

import itertools
from collections import Counter
from typing import Any

import msgspec
import pytest

from tutti_providers.codex._asking import PENDING_MAX, REQUEST_BYTES_MAX, ThreadInteractions
from tutti_providers.codex.schema.items import decode_item
from tutti_providers.codex.schema.notifications import Head
from tutti_side.contract import (
    Audit,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    InteractionResolved,
    InvalidAnswerError,
    ProviderLostError,
)
from tutti_side.jsonrpc import ConnectionClosedError, LocalError, Message, RequestId, RequestNotOpenError

ACCEPT = InteractionAnswer(option_id="accept")
METHOD = "item/commandExecution/requestApproval"


class Asker:
    """Answers as a peer does, and keeps what went out."""

    def __init__(self) -> None:
        self.sent: list[tuple[RequestId, Any]] = []
        self.open: set[RequestId] = set()
        self.error: Exception | None = None

    def respond(self, request_id: RequestId, result: object) -> None:
        if self.error is not None:
            raise self.error
        if request_id not in self.open:
            raise RequestNotOpenError(request_id)
        self.open.discard(request_id)
        self.sent.append((request_id, msgspec.to_builtins(result)))

    def respond_error(self, request_id: RequestId, code: int, message: str) -> None:
        self.respond(request_id, {"error": code})

    def settle_request(self, request_id: RequestId) -> None:
        self.open.discard(request_id)


class Thread:
    """Interactions over such an asker."""

    def __init__(self, *, in_side: bool = True) -> None:
        self.asker = Asker()
        self.unread: Counter[str] = Counter()
        self.interactions = ThreadInteractions(self.asker, self.unread, in_side=in_side)
        self.events: list[Any] = []

    def ask(self, request_id: RequestId, turn_id: str = "t", method: str = METHOD, **state: Any) -> Any:
        params = {"threadId": "s", "turnId": turn_id, "itemId": "i"}
        line = msgspec.json.encode({"method": method, "id": request_id, "params": params})
        self.asker.open.add(request_id)
        message: Message[Head] = Message(method=method, id=request_id, line=line)
        event = self.interactions.take(message, heard=state.get("heard", True), ended_turns=state.get("ended", {}))
        self.events.append(event)
        return event


def test_an_answer_goes_out_once() -> None:
    """R11, F28."""
    thread = Thread()
    event = thread.ask(0)
    assert isinstance(event, InteractionRequested)
    assert thread.interactions.respond(event.interaction_id, ACCEPT)
    assert not thread.interactions.respond(event.interaction_id, ACCEPT)
    assert not thread.interactions.respond(InteractionId("9"), ACCEPT)
    assert thread.asker.sent == [(0, {"decision": "accept"})]


def test_a_bad_answer_leaves_it_open() -> None:
    """R11."""
    thread = Thread()
    event = thread.ask(0)
    with pytest.raises(InvalidAnswerError):
        thread.interactions.respond(event.interaction_id, InteractionAnswer(option_id="no such"))
    assert thread.asker.sent == []
    assert thread.interactions.respond(event.interaction_id, ACCEPT)


def test_an_answer_that_cannot_be_written_leaves_it_open() -> None:
    """R11: it was taken for one that came too late, and the server went on waiting. Bad input: a lone surrogate."""
    thread = Thread()
    event = thread.ask(0)
    thread.asker.error = LocalError("what was given can't be written as JSON (UnicodeEncodeError)")
    with pytest.raises(InvalidAnswerError) as caught:
        thread.interactions.respond(event.interaction_id, ACCEPT)
    assert caught.value.field == "answers"
    thread.asker.error = None
    assert thread.interactions.respond(event.interaction_id, ACCEPT)


@pytest.mark.parametrize(("answered", "settled"), [(True, True), (True, False), (False, True)])
def test_a_request_whose_id_was_anothers_is_refused_and_not_left_waiting(answered: bool, settled: bool) -> None:
    """R11: who answers the first one late would answer the second; shown to nobody, it waited until the close."""
    thread = Thread()
    first = thread.ask(0)
    if answered:
        thread.interactions.respond(first.interaction_id, ACCEPT)
    if settled:
        thread.interactions.resolved(0)
    sent = len(thread.asker.sent)
    assert isinstance(thread.ask(0), Audit)
    assert thread.asker.sent[sent:] == [(0, {"decision": "decline"})]
    assert not thread.interactions.respond(first.interaction_id, ACCEPT)
    assert len(thread.interactions) == (0 if settled else 1)
    assert isinstance(thread.ask("0"), InteractionRequested)


def test_what_is_refused_or_has_another_form_is_counted() -> None:
    """Our choice: a server that changes its forms must be seen to."""
    thread = Thread()
    thread.ask(0)
    thread.ask(1, heard=False)
    thread.ask(2, method="item/tool/requestUserInput")
    assert thread.unread == {"malformed": 1, "refused": 2}


STEPS = ("answer", "resolved", "turn ends", "refuse all", "answer again")


@pytest.mark.parametrize("order", list(itertools.permutations(STEPS)), ids=" ".join)
def test_whatever_the_order_it_is_settled_once_and_answered_at_most_once(order: tuple[str, ...]) -> None:
    """T6, T7: `serverRequest/resolved` may come after the turn's end, or never; R11."""
    thread = Thread()
    event = thread.ask(0)
    settled: list[Any] = []
    for step in order:
        if step.startswith("answer"):
            thread.interactions.respond(event.interaction_id, ACCEPT)
        elif step == "resolved":
            settled += [thread.interactions.resolved(0)]
        elif step == "turn ends":
            settled += thread.interactions.turn_ended("t")
        else:
            settled += thread.interactions.refuse_all()
    (only,) = [found for found in settled if found is not None]
    assert isinstance(only, InteractionResolved)
    assert len(thread.asker.sent) <= 1
    accepted = thread.asker.sent == [(0, {"decision": "accept"})]
    assert only.status == ("answered" if accepted else "superseded")
    first = next(step for step in order)
    assert accepted == first.startswith("answer")
    assert len(thread.interactions) == 0
    assert not thread.asker.open


@pytest.mark.parametrize(
    "state", [{"heard": False}, {"ended": {"t": None}}, {"method": "item/tool/call"}, {"method": "unknown"}]
)
def test_what_nobody_can_answer_is_refused_at_once(state: dict[str, Any]) -> None:
    """R11, F26: declined, never accepted; a turn that is over has nobody who waits."""
    thread = Thread()
    assert isinstance(thread.ask(0, **state), Audit)
    ((request_id, answer),) = thread.asker.sent
    assert request_id == 0
    assert answer in ({"decision": "decline"}, {"error": -32000})


def test_more_than_the_bound_are_refused() -> None:
    """R12."""
    thread = Thread()
    for number in range(PENDING_MAX + 3):
        thread.ask(number)
    assert len(thread.interactions) == PENDING_MAX
    assert [answer for _, answer in thread.asker.sent] == [{"decision": "decline"}] * 3


def test_what_is_longer_than_anyone_would_read_is_refused_and_not_kept() -> None:
    """R12: bounded in bytes as well as in number."""
    thread = Thread()
    assert isinstance(thread.ask(0, "t" * (REQUEST_BYTES_MAX + 1)), Audit)
    assert thread.asker.sent == [(0, {"decision": "decline"})]
    for paths, kept in ((["a" * REQUEST_BYTES_MAX, "b"], 0), (["a", "b"], 1)):
        changes = [{"path": path, "kind": {"type": "add"}, "diff": ""} for path in paths]
        item = {"type": "fileChange", "id": "i", "status": "inProgress", "changes": changes}
        thread.interactions.item_started(decode_item(msgspec.json.encode(item)))
        assert len(thread.interactions._changes) == kept


def test_a_turns_end_settles_its_own_and_no_other() -> None:
    """Required: its exact turn."""
    thread = Thread()
    thread.ask(0, "one")
    other = thread.ask(1, "two")
    assert [event.interaction_id for event in thread.interactions.turn_ended("one")] == ["0"]  # type: ignore[union-attr]
    assert thread.asker.open == {1}
    assert thread.interactions.respond(other.interaction_id, ACCEPT)


def test_what_was_answered_is_settled_as_such_and_is_not_called_refused() -> None:
    """R11: one answer, and one word about it."""
    thread = Thread()
    event = thread.ask(0)
    assert thread.interactions.respond(event.interaction_id, ACCEPT)
    assert thread.interactions.refuse_all() == [InteractionResolved(event.interaction_id, "answered")]
    assert thread.unread == {}


def test_a_string_id_is_not_settled_for_its_number() -> None:
    """T4."""
    thread = Thread()
    thread.ask(0)
    thread.ask("0")
    settled = thread.interactions.resolved("0")
    assert isinstance(settled, InteractionResolved)
    assert settled.interaction_id == '"0"'
    assert len(thread.interactions) == 1


def test_a_lost_connection_is_said_so() -> None:
    """R9."""
    thread = Thread()
    event = thread.ask(0)
    thread.asker.error = ConnectionClosedError("eof")
    with pytest.raises(ProviderLostError):
        thread.interactions.respond(event.interaction_id, ACCEPT)
    thread.interactions.forget()
    assert len(thread.interactions) == 0
    assert thread.interactions.refuse_all() == []


def test_a_word_that_another_threads_request_needs_no_answer_takes_nothing_back() -> None:
    """R11: the server said so of an id that this thread never asked. Source: a bug that the simulator found (5598)."""
    thread = Thread()
    thread.asker.open.add("0")  # of another thread on the same connection

    assert thread.interactions.resolved("0") is None
    assert thread.asker.open == {"0"}

    thread.ask(0)
    thread.interactions.resolved(0)
    assert thread.asker.open == {"0"}


def test_what_a_given_up_turn_asked_is_refused_and_what_another_asked_is_not() -> None:
    """R11, T6: nobody knows whether the server waits for it still. Source: a bug that the simulator found."""
    thread = Thread()
    thread.ask(0, "t")
    thread.ask(1, "u")

    assert thread.interactions.refuse_turn("t") == [InteractionResolved(InteractionId("0"), "superseded")]
    assert thread.asker.sent == [(0, {"decision": "decline"})]
    assert thread.asker.open == {1}
