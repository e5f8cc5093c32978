"""How each request of the server is refused: in its own form, and never by accepting."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_providers.codex._asking import refuse
from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex._declines import REFUSED_CODE, not_offered, refusal
from tutti_providers.codex.schema.server_requests import SERVER_REQUESTS
from tutti_providers.codex.testing import AppServerMachine, FakeAppServer
from tutti_side.jsonrpc import memory_pair

FORMS: dict[str, Any] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}, "scope": "turn"},
    "item/tool/requestUserInput": {"answers": {}},
    "mcpServer/elicitation/request": {"action": "decline"},
    "applyPatchApproval": {"decision": {"denied": {"rejection": "nobody answered"}}},
    "execCommandApproval": {"decision": {"denied": {"rejection": "nobody answered"}}},
    "item/tool/call": None,
    "account/chatgptAuthTokens/refresh": None,
    "something/new": None,
}
"""Method to the result that refuses it; None: only an error does."""


def test_every_request_that_we_know_has_its_refusal() -> None:
    """R11: a new one can't be forgotten."""
    assert set(SERVER_REQUESTS) == FORMS.keys() - {"something/new"}


@pytest.mark.parametrize("method", FORMS)
def test_a_request_is_refused_in_its_own_form(method: str) -> None:
    """R11, F26: the forms are the binary's."""
    answer = refusal(method)
    form = FORMS[method]
    if form is None:
        assert answer is None
    else:
        written = msgspec.json.decode(msgspec.json.encode(answer))
        assert {key: written[key] for key in form if key in written} | {"scope": "turn"} == form | {"scope": "turn"}
        assert "accept" not in str(written)


@pytest.mark.parametrize(
    ("method", "word"),
    [
        ("item/tool/call", "no tools"),
        ("account/chatgptAuthTokens/refresh", "no tokens"),
        ("new/method", "such requests"),
    ],
)
def test_what_has_no_form_of_refusal_is_told_what_is_not_offered(method: str, word: str) -> None:
    """Specification: dynamic tool calls and token refresh get a clear error."""
    assert refusal(method) is None
    assert word in not_offered(method)


@pytest.fixture
async def wired() -> AsyncGenerator[tuple[Connection, FakeAppServer, Any]]:
    """A connection, its fake, and the fake's end of the wire."""
    near, far = memory_pair()
    server = FakeAppServer(AppServerMachine())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, far)  # noqa: ASYNC113 - what is sent before it runs waits for it
        async with open_connection(near, name="codex") as connection:
            yield connection, server, far
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("request_id", [0, 1, "0", "", -5])
@pytest.mark.parametrize("method", FORMS)
async def test_a_request_that_nobody_owns_is_answered_once_under_its_own_id(
    wired: Any, method: str, request_id: int | str
) -> None:
    """R11, T4, F10: 0 is an id, "0" another; a request whose id a request of ours also has is no answer to it."""
    _, server, far = wired
    message = {"method": method, "id": request_id, "params": {"threadId": "stranger"}}
    await far.send_all(msgspec.json.encode(message) + b"\n")
    await trio.testing.wait_all_tasks_blocked()
    [answer] = [sent for sent in server.machine.received if "method" not in sent]
    assert (answer["id"], type(answer["id"])) == (request_id, type(request_id))
    if FORMS[method] is None:
        assert answer["error"]["code"] == REFUSED_CODE
        assert answer["error"]["message"] == not_offered(method)
    else:
        assert "error" not in answer
        assert "accept" not in str(answer["result"])


async def test_a_refusal_after_the_end_or_after_an_answer_goes_nowhere_and_harms_nothing(wired: Any) -> None:
    """R11: one answer to each request; after the end there is nobody to tell."""
    connection, server, far = wired
    message = {"method": "applyPatchApproval", "id": 3, "params": {"conversationId": "stranger"}}
    await far.send_all(msgspec.json.encode(message) + b"\n")
    await trio.testing.wait_all_tasks_blocked()
    refuse(connection.peer, 3, "applyPatchApproval")
    await trio.testing.wait_all_tasks_blocked()
    assert len([sent for sent in server.machine.received if "method" not in sent]) == 1
    server.crash()
    await connection.ended.wait()
    refuse(connection.peer, 3, "applyPatchApproval")
