"""What the adapter does with a connection that fails by a bug of ours."""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex.adapter import CodexAdapter, open_adapter
from tutti_providers.codex.schema.notifications import Head
from tutti_providers.codex.testing import AppServerMachine, FakeSetup, serve_fake
from tutti_side import open_host
from tutti_side.contract import Diagnosis, ProviderPorts
from tutti_side.jsonrpc import Message, memory_pair
from tutti_side.nursery import open_service_nursery


class CrashingCodex:
    """The adapter over fake app-servers; each connection ends with an error that a transport of ours would raise."""

    name = "codex"

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    @asynccontextmanager
    async def open(self, ports: ProviderPorts | None = None) -> AsyncIterator[CodexAdapter]:
        assert ports is not None
        async with open_adapter(self._connect, metrics=ports.metrics) as adapter:
            yield adapter

    async def diagnose(self) -> Diagnosis:
        raise NotImplementedError

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Connection]:
        ours, theirs = memory_pair()
        async with open_service_nursery() as nursery:
            nursery.start_soon(serve_fake, theirs, AppServerMachine(FakeSetup()))
            async with open_connection(ours, name=self.name) as connection:
                self.connections.append(connection)
                yield connection
        raise ExceptionGroup("a bug", [ZeroDivisionError("PROMPT"), ExceptionGroup("more", [KeyError("PROMPT")])])


class Counted:
    """Keeps the names of what is counted."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.dropped: dict[str, int] = {}

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        self.names.append((name, labels.get("provider", "")))
        if name == "dropped_frames":
            self.dropped[labels["cause"]] = value

    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...


async def test_a_connection_that_fails_by_a_bug_is_contained_and_said_without_its_words(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Architecture §2: a connection's failure ends that connection only; R2: its text reaches no log. Our choice."""
    counted = Counted()
    with trio.fail_after(60), caplog.at_level(logging.DEBUG, logger="tutti_providers.codex"):
        async with open_host(CrashingCodex(), metrics=counted) as host:
            for _ in range(2):  # the host lives on, and the next session gets a new connection
                session = await host.start_session(cwd="/")
                await session.close()
                await trio.testing.wait_all_tasks_blocked()
    assert counted.names.count(("crashed_connections", "codex")) == 2
    said = [record.getMessage() for record in caplog.records if record.name == "tutti_providers.codex"]
    assert len(said) == 2
    assert all("KeyError, ZeroDivisionError" in line and "PROMPT" not in line for line in said)
    assert [record.exc_info for record in caplog.records] == [None] * len(caplog.records)


async def test_what_a_thread_cannot_read_is_counted_with_its_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Our choice: a server whose forms have changed must be seen to, not only heard of in missing events."""
    provider, counted = CrashingCodex(), Counted()
    with trio.fail_after(60):
        async with open_host(provider, metrics=counted) as host:
            session = await host.start_session(cwd="/")
            [connection] = provider.connections
            thread_id = session.provider_session_id
            messages = []
            for method in ("turn/started", "thread/status/changed", "no/such/method"):
                line = msgspec.json.encode(
                    {"method": method, "params": {"threadId": thread_id, "turn": 0, "status": 0}}
                )
                messages.append(Message(method=method, params=Head(thread_id=thread_id), line=line))
            before = Counter(connection.statistics().unread)
            connection.router.feed(messages)
            assert Counter(connection.statistics().unread) - before == {"malformed": 2, "not modelled": 1}
            await session.close()
            await trio.testing.wait_all_tasks_blocked()
    assert counted.dropped["malformed"] == 2
    assert "not modelled" not in counted.dropped
