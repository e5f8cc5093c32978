"""What the server asks ↔ the contract's interactions, without a wire."""

from typing import Any

import msgspec
import pytest

from tutti_providers.codex._interactions import Pending, interaction_id_of, pending_of
from tutti_providers.codex.schema.server_requests import SERVER_REQUESTS
from tutti_side.contract import InteractionAnswer, InvalidAnswerError

IDS = {"threadId": "side", "turnId": "turn", "itemId": "item"}
LEGACY = {"conversationId": "side", "callId": "call"}


def pending(method: str, params: dict[str, Any], *, in_side: bool = True, **changes: tuple[str, ...]) -> Pending | None:
    line = msgspec.json.encode({"method": method, "id": 0, "params": params})
    return pending_of(method, line, 0, in_side=in_side, changes=changes)


def must(method: str, params: dict[str, Any], *, in_side: bool = True, **changes: tuple[str, ...]) -> Pending:
    found = pending(method, params, in_side=in_side, **changes)
    assert found is not None
    return found


def encoded(found: Pending, **answer: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(found.encode(InteractionAnswer(**answer))))


APPROVALS: dict[str, dict[str, Any]] = {
    "item/commandExecution/requestApproval": {**IDS, "command": "touch x", "reason": "why"},
    "item/fileChange/requestApproval": {**IDS, "reason": None},
    "execCommandApproval": {**LEGACY, "command": ["touch", "x"], "cwd": "/", "reason": "why"},
    "applyPatchApproval": {**LEGACY, "fileChanges": {}},
}


@pytest.mark.parametrize("method", APPROVALS)
def test_each_approval_offers_the_same_four_answers_in_its_methods_own_form(method: str) -> None:
    """Required: one interaction model; T18: no amendment, which would write rules into Codex' home, is among them."""
    found = must(method, APPROVALS[method])
    assert found.requested.kind == "approval"
    assert [option.id for option in found.requested.options] == ["accept", "accept_for_session", "decline", "cancel"]
    answers = [encoded(found, option_id=option.id)["decision"] for option in found.requested.options]
    if "/" in method:
        assert answers == ["accept", "acceptForSession", "decline", "cancel"]
    else:
        denied = {"denied": {"rejection": "declined by the user"}}
        assert answers == ["approved", "approved_for_session", denied, "abort"]


@pytest.mark.parametrize("option_id", [None, "", "yes", "acceptWithExecpolicyAmendment", "acceptForSession"])
def test_an_answer_that_was_not_offered_is_refused(option_id: str | None) -> None:
    """R11, T18: it still waits; nothing was sent."""
    found = must("item/commandExecution/requestApproval", APPROVALS["item/commandExecution/requestApproval"])
    with pytest.raises(InvalidAnswerError) as caught:
        encoded(found, option_id=option_id)
    assert caught.value.field == "option_id"


def test_a_file_change_is_joined_with_its_item() -> None:
    """PROTOCOL: the request for approval carries no paths."""
    method = "item/fileChange/requestApproval"
    assert must(method, APPROVALS[method], item=("a.py", "b.py")).requested.title == "change a.py, b.py"
    assert must(method, APPROVALS[method]).requested.title == "change files"


def test_more_permissions_are_never_offered_in_a_side() -> None:
    """R19: a Side is never less restricted than its source."""
    asked = {"fileSystem": {"write": ["/"]}}
    params = {**IDS, "permissions": asked, "cwd": "/", "startedAtMs": 0}
    assert pending("item/permissions/requestApproval", params, in_side=True) is None
    found = must("item/permissions/requestApproval", params, in_side=False)
    assert encoded(found, option_id="accept") == {"permissions": asked}
    assert encoded(found, option_id="accept_for_session") == {"permissions": asked, "scope": "session"}
    assert encoded(found, option_id="decline") == {"permissions": {}}


QUESTIONS = [
    {"id": "color", "header": "Color", "question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]},
    {"id": "word", "header": "", "question": "Say it", "isOther": True, "isSecret": True},
]


def test_questions_are_answered_by_their_ids() -> None:
    """The schema that the binary prints: `requestUserInput`."""
    found = must("item/tool/requestUserInput", {**IDS, "questions": QUESTIONS, "isBlocking": True})
    first, second = found.requested.questions
    assert (first.options, first.takes_free_text, second.takes_free_text, second.is_secret) == (
        ("Red", "Blue"),
        False,
        True,
        True,
    )
    answers = {"color": ("Blue",), "word": ("anything",)}
    assert encoded(found, answers=answers) == {
        "answers": {"color": {"answers": ["Blue"]}, "word": {"answers": ["anything"]}}
    }


@pytest.mark.parametrize(
    "answers",
    [{}, {"color": ("Blue",)}, {"color": ("Green",), "word": ("x",)}, {"color": ("Red",), "word": ("x",), "z": ("y",)}],
)
def test_answers_that_are_missing_unknown_or_not_offered_are_refused(answers: dict[str, tuple[str, ...]]) -> None:
    """Bad input: a typed error naming the field, before any wire traffic; what was typed is not in it."""
    found = must("item/tool/requestUserInput", {**IDS, "questions": QUESTIONS, "isBlocking": True})
    with pytest.raises(InvalidAnswerError) as caught:
        encoded(found, answers=answers)
    assert caught.value.field.startswith("answers[")
    assert "Green" not in str(caught.value)


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "age": {"type": "integer"},
        "sure": {"type": "boolean"},
        "size": {"type": "number"},
        "kind": {"type": "string", "enum": ["a", "b"]},
    },
}


def test_a_form_is_answered_in_the_types_of_its_schema() -> None:
    """The schema that the binary prints: an MCP elicitation; `turnId` may be null."""
    params = {"threadId": "side", "turnId": None, "serverName": "el", "mode": "form", "message": "Who?"}
    found = must("mcpServer/elicitation/request", {**params, "requestedSchema": SCHEMA})
    assert found.requested.turn_id is None
    answers = {"name": ("Bob",), "age": ("7",), "sure": ("True",), "size": ("1.5",), "kind": ("b",)}
    assert encoded(found, option_id="accept", answers=answers) == {
        "action": "accept",
        "content": {"name": "Bob", "age": 7, "sure": True, "size": 1.5, "kind": "b"},
    }
    assert encoded(found, option_id="decline") == {"action": "decline"}
    assert encoded(found, option_id="cancel") == {"action": "cancel"}
    for field, bad in (("age", "x"), ("sure", "maybe"), ("size", ""), ("size", "nan"), ("size", "-inf"), ("kind", "c")):
        with pytest.raises(InvalidAnswerError) as caught:
            encoded(found, option_id="accept", answers={**answers, field: (bad,)})
        assert caught.value.field == f"answers['{field}']"


@pytest.mark.parametrize("schema", [None, [], "x", {"properties": []}, {"properties": {"a": 3}}])
def test_a_form_whose_schema_says_nothing_is_an_approval(schema: object) -> None:
    """R9: whatever a tool server sends."""
    params = {"threadId": "side", "serverName": "el", "mode": "form", "message": "Who?", "requestedSchema": schema}
    assert must("mcpServer/elicitation/request", params).requested.kind == "approval"


ELICITATION = "mcpServer/elicitation/request"


def test_a_page_to_visit_is_shown_with_its_address() -> None:
    """Required: the address is all there is to answer by, and was not told; there is nothing to fill in."""
    params = {"threadId": "side", "serverName": "el", "mode": "url", "message": "Sign in", "elicitationId": "e"}
    found = must(ELICITATION, {**params, "url": "https://el.example/in"})
    assert (found.requested.kind, found.requested.detail) == ("approval", "Sign in\nhttps://el.example/in")
    assert encoded(found, option_id="accept") == {"action": "accept"}


@pytest.mark.parametrize("mode", ["openai/form", "openaiForm", "later"])
def test_a_form_of_a_kind_that_is_not_read_is_not_accepted_unseen(mode: str) -> None:
    """R11: nobody would know what they agree to, and an empty form would go back."""
    params = {"threadId": "side", "serverName": "el", "mode": mode, "message": "Who?", "requestedSchema": SCHEMA}
    assert pending(ELICITATION, params) is None


@pytest.mark.parametrize("method", ["item/tool/call", "account/chatgptAuthTokens/refresh", "unknown/method"])
def test_what_no_user_answers_is_no_interaction(method: str) -> None:
    """Required: dynamic tool calls and token refresh get a clear error, not a user's answer."""
    params = {**IDS, "callId": "c", "tool": "t", "reason": "expired"}
    assert pending(method, params) is None


@pytest.mark.parametrize("method", sorted(SERVER_REQUESTS))
def test_a_request_of_another_form_raises_and_is_refused_by_its_caller(method: str) -> None:
    """R9, R11: never accepted."""
    with pytest.raises(msgspec.ValidationError):
        pending(method, {"threadId": 7, "conversationId": 7, "reason": 7})


def test_ids_stay_apart() -> None:
    """T4: 0 is an id, and "0" another."""
    assert len({interaction_id_of(request_id) for request_id in (0, "0", "", '"0"', -1)}) == 5
