"""The fake app-server as a Trio task: one writer, virtual time, an end that the peer sees."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import (
    Answer,
    AppServerMachine,
    CrashOn,
    FakeAppServer,
    FakeSetup,
    GarbageBefore,
    ModelScript,
    Pause,
    Say,
    StopReading,
    serve_fake,
)
from tutti_providers.codex.testing._fake_disturbances import Disturbances
from tutti_side.jsonrpc.transports.memory import MemoryTransport, memory_pair

SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=("a", "b", "c"), delay_s=10.0), when="slow"),
        Answer.of(Pause(gate="held"), when="hold"),
    )
)


class Client:
    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self._rest = b""

    async def send(self, *messages: dict[str, Any]) -> None:
        await self.transport.send_all(b"".join(msgspec.json.encode(message) + b"\n" for message in messages))

    async def open_thread(self) -> str:
        await self.send(
            {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "me"}}},
            {"id": 2, "method": "thread/start", "params": {}},
        )
        thread_id: str = (await self.wait(id=2))["result"]["thread"]["id"]
        return thread_id

    async def start_turn(self, text: str) -> None:
        params = {"threadId": await self.open_thread(), "input": [{"type": "text", "text": text}]}
        await self.send({"id": 3, "method": "turn/start", "params": params})

    async def wait(self, **fields: Any) -> dict[str, Any]:
        """The next message with these fields; others are dropped."""
        while True:
            while b"\n" not in self._rest:
                data = await self.transport.receive_some(65536)
                if not data:
                    raise EOFError
                self._rest += data
            line, _, self._rest = self._rest.partition(b"\n")
            message: dict[str, Any] = msgspec.json.decode(line)
            if fields.items() <= message.items():
                return message


@asynccontextmanager
async def fake(*faults: Any) -> AsyncIterator[tuple[Client, FakeAppServer]]:
    ours, theirs = memory_pair()
    server = FakeAppServer(AppServerMachine(FakeSetup(script=SCRIPT, faults=faults)))
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, theirs)  # noqa: ASYNC113  (the pipe holds what comes before it starts)
            yield Client(ours), server
            await ours.aclose()


async def test_time_is_virtual(autojump_clock: trio.testing.MockClock) -> None:
    """Our choice: tokens at their pace, on whatever clock runs."""
    async with fake() as (client, _):
        await client.start_turn("slow")
        await client.wait(method="turn/started")
        began = trio.current_time()
        await client.wait(method="turn/completed")
        assert trio.current_time() - began == 30.0


async def test_a_gate_is_waited_for_and_opened_from_outside(autojump_clock: trio.testing.MockClock) -> None:
    """Our choice: the fake's own task sends what waited, so there is one writer."""
    async with fake() as (client, server):
        await client.start_turn("hold")
        await server.wait_gate_reached("held")
        await server.wait_received("turn/start")
        server.open_gate("held")
        turn = (await client.wait(method="turn/completed"))["params"]["turn"]
        assert turn["status"] == "completed"


async def test_a_line_in_pieces_is_put_together(autojump_clock: trio.testing.MockClock) -> None:
    """A pipe cuts anywhere, also inside a character."""
    async with fake() as (client, _):
        line = msgspec.json.encode({"id": "ü", "method": "initialize", "params": {"clientInfo": {"name": "me"}}})
        for position in range(len(line)):
            await client.transport.send_all(line[position : position + 1])
        await client.transport.send_all(b"\n")
        assert "result" in await client.wait(id="ü")


async def test_the_client_going_away_ends_the_server(autojump_clock: trio.testing.MockClock) -> None:
    """PROTOCOL 7: status 0."""
    async with fake() as (client, server):
        await client.open_thread()
    assert server.exit_status == 0


@pytest.mark.parametrize(("order", "status"), [("crash", -9), ("fault", 101)])
async def test_a_crash_is_the_end_of_the_stream_with_a_status(
    order: str, status: int, autojump_clock: trio.testing.MockClock
) -> None:
    """F14, R9: as a killed process looks to its peer."""
    async with fake(CrashOn(method="thread/fork")) as (client, server):
        await client.open_thread()
        if order == "crash":
            server.crash()
        else:
            await client.send({"id": 9, "method": "thread/fork", "params": {}})
        with pytest.raises(EOFError):
            await client.wait(id="never")
        assert (await client.transport.wait_exit()).status == status
    assert server.exit_status == status


async def test_a_cancelled_server_looks_killed(autojump_clock: trio.testing.MockClock) -> None:
    """Our choice: the transport is closed whatever ends the task."""
    ours, theirs = memory_pair()
    client = Client(ours)
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_fake, theirs, AppServerMachine(FakeSetup()))
            await client.open_thread()
            nursery.cancel_scope.cancel()
        with pytest.raises(EOFError):
            await client.wait(id="never")
        assert (await ours.wait_exit()).status == -9


async def test_a_server_that_stops_reading_still_sends(autojump_clock: trio.testing.MockClock) -> None:
    """R9: the writer to it fills its pipe and waits; what was on its way still comes."""
    async with fake(StopReading(method="turn/start")) as (client, server):
        await client.start_turn("slow")
        with trio.move_on_after(5) as scope:
            while True:
                await client.send({"method": "noise", "params": {"x": "x" * 60_000}})
        assert scope.cancelled_caught
        await client.wait(method="turn/completed")
        server.crash()


async def test_garbage_goes_out_as_it_is(autojump_clock: trio.testing.MockClock) -> None:
    """F12."""
    async with fake(GarbageBefore(method="initialize", data=b"\xff banner\n")) as (client, _):
        await client.send({"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "me"}}})
        assert (await client.transport.receive_some(100)).startswith(b"\xff banner\n")


async def test_a_client_that_does_not_read_holds_only_the_server(autojump_clock: trio.testing.MockClock) -> None:
    """Our choice: the fake waits like a process on a full pipe, and ends when the pipe breaks."""
    async with fake() as (client, server):
        with trio.move_on_after(5) as scope:
            while True:
                await client.send({"id": 1, "method": "bogus" * 2000, "params": {}})
        assert scope.cancelled_caught
    assert server.exit_status == 0


async def test_a_server_that_reads_no_more_for_a_time_reads_all_of_it_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """R9: what waited in the pipe is handled late, not lost; what came in the same read as well."""
    async with fake(StopReading(method="thread/loaded/list", for_s=40.0, times=1)) as (client, _):
        await client.open_thread()
        began = trio.current_time()
        await client.send(*({"id": 10 + n, "method": "thread/loaded/list", "params": {}} for n in range(3)))
        await client.send({"id": 20, "method": "thread/loaded/list", "params": {}})
        await client.wait(id=10)
        assert trio.current_time() == began
        await client.wait(id=20)
        assert trio.current_time() == began + 40


@pytest.mark.parametrize("how", ["alone", "resumed", "killed"])
async def test_a_frozen_server_stands_still_until_its_time_is_over_or_it_is_woken_or_killed(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    """R9: as a stopped process. Nothing is written, also not what was due meanwhile."""
    async with fake() as (client, server):
        await client.start_turn("slow")
        await client.wait(method="turn/started")
        began = trio.current_time()
        server.freeze(100)
        if how != "alone":
            await trio.sleep(15)
            server.resume() if how == "resumed" else server.crash()
        if how == "killed":
            with pytest.raises(EOFError):
                await client.wait(method="turn/completed")
        else:
            await client.wait(method="item/agentMessage/delta")
        assert trio.current_time() - began == (100 if how == "alone" else 15)


async def test_a_server_does_something_of_itself_when_it_is_told_to(autojump_clock: trio.testing.MockClock) -> None:
    """Our choice: the fake's own task sends what follows, so there is one writer."""
    async with fake() as (client, server):
        thread = await client.open_thread()
        server.do(lambda machine: machine.disturb(Disturbances.drop_thread, lambda count: 0, lambda child: None))
        assert (await client.wait(method="thread/closed"))["params"] == {"threadId": thread}
