"""The scripted model as its HTTP client sees it; what the real binary makes of it is in `test_real_codex`."""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import h11
import msgspec
import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import (
    Answer,
    CallTool,
    Drop,
    Fail,
    ModelScript,
    Pause,
    Reason,
    Reply,
    Say,
    ScriptedModel,
    open_scripted_model,
    run_command,
)
from tutti_providers.codex.testing.scripted_model import REQUESTS_KEPT_MAX

SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("a ", "b")), when="plain"),
        Answer.of(Say(tokens=("a ",)), Pause(gate="middle"), Say(tokens=("b",)), when="held"),
        Answer.of(Fail(status=429, code="rate_limit", message="slow down"), when="refused"),
        Answer.of(Say(tokens=("a",)), Fail(code="oops", message="it broke"), when="fails"),
        Answer.of(Say(tokens=("a",)), Drop(), when="drops"),
        Answer(when="tools", replies=(Reply(steps=(Reason(summary="hm"), run_command("ls"))), Reply(steps=()))),
        Answer.of(CallTool(name="apply_patch", arguments="*** x", custom=True), when="patch"),
    )
)


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with open_scripted_model(SCRIPT) as model:
        with trio.fail_after(20):
            yield model


class Client:
    """One connection, as h11 reads it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._wire = h11.Connection(h11.CLIENT)

    async def send(self, body: bytes, *, method: str = "POST", target: str = "/v1/responses", **headers: str) -> None:
        lines = [("host", "x"), ("content-length", str(len(body)))]
        lines += [(name.replace("_", "-"), value) for name, value in headers.items()]
        request = h11.Request(method=method, target=target, headers=lines)
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            await self._stream.send_all(self._wire.send(event) or b"")

    @property
    def is_reusable(self) -> bool:
        return self._wire.our_state is h11.IDLE

    async def next_event(self) -> Any:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(bytes(await self._stream.receive_some(65536)))
        return event

    async def answer(self) -> tuple[int, bytes]:
        """Status and whole body; the connection is then ready for another request, if the server lets it."""
        response = await self.next_event()
        return response.status_code, await self.rest()

    async def rest(self) -> bytes:
        """What is left of the body."""
        body = b""
        while isinstance(event := await self.next_event(), h11.Data):
            body += event.data
        if self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE:
            self._wire.start_next_cycle()
        return body

    async def ask(self, text: str, **headers: str) -> tuple[int, list[dict[str, Any]]]:
        await self.send(question(text), **headers)
        status, body = await self.answer()
        return status, events(body)


def question(*texts: str, after: tuple[dict[str, Any], ...] = ()) -> bytes:
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in texts]
    return msgspec.json.encode({"model": "mock", "instructions": "be kind", "input": [*items, *after], "stream": True})


def events(body: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]


Connect = Callable[[], Awaitable["Client"]]


@pytest.fixture
async def connect(model: ScriptedModel) -> AsyncIterator[Connect]:
    """Opens connections to the model, and closes them at the end."""
    async with AsyncExitStack() as stack:

        async def connect() -> Client:
            stream = await trio.open_tcp_stream("127.0.0.1", model.port)
            return Client(await stack.enter_async_context(stream))

        yield connect


async def test_a_message_streams_as_the_events_that_codex_reads(connect: Connect) -> None:
    """PROTOCOL, first facts: created, item added, deltas, item done, completed with usage."""
    status, got = await (await connect()).ask("plain")

    assert status == 200
    assert [event["type"] for event in got] == [
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_item.done",
        "response.completed",
    ]
    assert got[4]["item"]["content"][0]["text"] == "a b"
    assert got[5]["response"]["usage"]["total_tokens"] == 15


async def test_a_stream_is_held_at_its_gate_and_stays_one_message(model: ScriptedModel, connect: Connect) -> None:
    """Our choice: interleavings are made by gates, not by sleeping."""
    client = await connect()
    await client.send(question("held"))
    await model.wait_reached("middle")
    _response, created, first = [await client.next_event() for _ in range(3)]
    assert [event["type"] for event in events(created.data)] == ["response.created"]
    assert events(first.data)[-1]["delta"] == "a "

    model.gate("middle").set()
    rest = await client.rest()

    assert [event["type"] for event in events(rest)] == [
        "response.output_text.delta",
        "response.output_item.done",
        "response.completed",
    ]
    assert events(rest)[1]["item"]["content"][0]["text"] == "a b"


async def test_waiting_for_several_arrivals_at_a_gate_counts_them(model: ScriptedModel, connect: Connect) -> None:
    """Our choice: two Sides can be held in the middle at once."""
    first, second = await connect(), await connect()
    both = trio.Event()

    async def wait_both() -> None:
        await model.wait_reached("middle", 2)
        both.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_both)
        await first.send(question("held"))
        await model.wait_reached("middle")
        await trio.testing.wait_all_tasks_blocked()
        assert not both.is_set()
        await second.send(question("held"))
    assert model.gate("middle").reached == 2


async def test_a_scripted_failure_comes_as_a_status_or_as_an_event(connect: Connect) -> None:
    """Our choice: as the first step it is the HTTP status, later the stream's end."""
    status, _ = await (await connect()).ask("refused")
    _, got = await (await connect()).ask("fails")

    assert status == 429
    assert got[-1]["type"] == "response.failed"
    assert got[-1]["response"]["error"] == {"code": "oops", "message": "it broke"}


async def test_a_drop_ends_the_connection_without_ending_the_stream(connect: Connect) -> None:
    """Our choice: what a broken network does."""
    client = await connect()
    await client.send(question("drops"))
    with pytest.raises(h11.RemoteProtocolError):
        await client.answer()


async def test_tool_calls_are_functions_or_custom_tools(connect: Connect) -> None:
    """PROTOCOL 1: `exec_command` is a function, `apply_patch` a custom tool."""
    client = await connect()
    _, got = await client.ask("tools")
    done = [event["item"] for event in got if event["type"] == "response.output_item.done"]
    _, patched = await client.ask("patch")

    assert [item["type"] for item in done] == ["reasoning", "function_call"]
    assert done[1]["arguments"] == '{"cmd":"ls"}'
    assert patched[2]["item"]["type"] == "custom_tool_call"
    assert patched[2]["item"]["input"] == "*** x"


async def test_the_output_of_parallel_calls_is_one_round(model: ScriptedModel, connect: Connect) -> None:
    """Our choice: rounds choose the reply of a turn."""
    calls = ({"type": "function_call", "call_id": "1"}, {"type": "function_call", "call_id": "2"})
    outputs = ({"type": "function_call_output", "call_id": "1"}, {"type": "function_call_output", "call_id": "2"})
    client = await connect()
    await client.send(question("earlier", "tools", after=(*calls, *outputs)))
    await client.answer()
    await client.send(question("tools", after=(*calls, *outputs, *calls, *outputs)))
    await client.answer()

    assert [request.tool_rounds for request in model.requests] == [1, 2]


async def test_what_the_model_was_sent_can_be_read_without_its_secrets(model: ScriptedModel, connect: Connect) -> None:
    """Required: tests read inherited context, instructions and question from here. No secret is kept."""
    client = await connect()
    await client.ask("plain", authorization="Bearer s3cret", thread_id="t1", x_codex_turn_metadata='{"turn_id":"u1"}')
    (request,) = model.requests

    assert (request.model, request.instructions, request.last_user_text) == ("mock", "be kind", "plain")
    assert (request.thread_id, request.turn_id) == ("t1", "u1")
    assert request.messages == [("user", "plain")]
    assert "s3cret" not in repr(request)


async def test_turns_are_counted_by_thread_and_turn_id(model: ScriptedModel, connect: Connect) -> None:
    """Our choice: an answer may be meant for the n-th turn of a thread."""
    answers = tuple(Answer.of(Say(tokens=(f"turn {number}",)), turn=number) for number in (1, 2))
    model.script = ModelScript(answers=answers)
    client = await connect()
    said: list[str] = []
    for thread, turn in (("t", "1"), ("t", "1"), ("t", "2"), ("other", "9")):
        metadata = msgspec.json.encode({"turn_id": turn}).decode()
        _, got = await client.ask("x", thread_id=thread, x_codex_turn_metadata=metadata)
        said.append(got[2]["delta"])

    assert said == ["turn 1", "turn 1", "turn 2", "turn 1"]


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"model":"x"}', b'{"input":1}', b"[" * 5000, b"\xff"])
async def test_a_bad_body_is_answered_and_the_server_lives(connect: Connect, body: bytes) -> None:
    """Our choice: bad input never ends the server, and its text isn't repeated."""
    client = await connect()
    await client.send(body)
    status, answer = await client.answer()

    assert status == 400
    assert msgspec.json.decode(answer)["error"]["code"] == "invalid_request"
    assert (await (await connect()).ask("plain"))[0] == 200


async def test_other_paths_are_refused_and_the_list_of_models_is_not(connect: Connect) -> None:
    """Our choice: the binary may ask for models."""
    client = await connect()
    await client.send(b"", method="GET", target="/v1/models?client_version=1")
    listed = await client.answer()
    await client.send(b"{}", target="/v1/elsewhere")
    refused = await client.answer()

    assert listed == (200, b'{"object":"list","data":[],"models":[]}')
    assert refused[0] == 404


async def test_bytes_that_are_no_request_get_a_status_and_the_server_lives(
    model: ScriptedModel, connect: Connect
) -> None:
    """Our choice."""
    async with await trio.open_tcp_stream("127.0.0.1", model.port) as stream:
        await stream.send_all(b"\x00\x01 not http\r\n\r\n")
        assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 400")
    assert (await (await connect()).ask("plain"))[0] == 200


async def test_a_client_that_leaves_in_the_middle_is_counted_and_forgotten(
    model: ScriptedModel, connect: Connect
) -> None:
    """Our choice: an interrupt of the real binary does just that."""
    stream = await trio.open_tcp_stream("127.0.0.1", model.port)
    await Client(stream).send(question("held"))
    await model.wait_reached("middle")
    await stream.aclose()
    while model.statistics().abandoned == 0:
        await trio.testing.wait_all_tasks_blocked()

    assert (await (await connect()).ask("plain"))[0] == 200
    statistics = model.statistics()
    assert (statistics.requests, statistics.completed, statistics.abandoned) == (2, 1, 1)


async def test_only_so_many_requests_are_kept(model: ScriptedModel, connect: Connect) -> None:
    """R12."""
    client = await connect()
    for _ in range(REQUESTS_KEPT_MAX + 1):
        await client.send(question("refused"))
        await client.answer()
        client = client if client.is_reusable else await connect()

    assert len(model.requests) == REQUESTS_KEPT_MAX
    assert model.requests[0].number == 2


async def test_what_the_block_raises_leaves_as_itself() -> None:
    """ARCHITECTURE 4: only failures of our own tasks come as a group."""
    with pytest.raises(ValueError, match="mine"), trio.fail_after(20):
        async with open_scripted_model(SCRIPT):
            raise ValueError("mine")


async def test_a_client_that_leaves_while_it_is_written_to_is_forgotten_too(model: ScriptedModel) -> None:
    """A fixed bug: the stream's inner generator was left to the garbage collector, which warns."""
    model.script = ModelScript(answers=(Answer.of(Say(tokens=("x" * 20_000_000, "y"))),))
    async with await trio.open_tcp_stream("127.0.0.1", model.port) as stream:
        await Client(stream).send(question("huge"))
        await stream.receive_some(1)
        await trio.testing.wait_all_tasks_blocked()
    while model.statistics().abandoned == 0:
        await trio.testing.wait_all_tasks_blocked()
    gc.collect()
