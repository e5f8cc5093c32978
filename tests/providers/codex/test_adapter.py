"""What the adapter does with a connection that fails by a bug of ours."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex.adapter import CodexAdapter, open_adapter
from tutti_providers.codex.testing import AppServerMachine, FakeSetup, serve_fake
from tutti_side import open_host
from tutti_side.contract import Diagnosis, ProviderPorts
from tutti_side.jsonrpc import memory_pair
from tutti_side.nursery import open_service_nursery


class CrashingCodex:
    """The adapter over fake app-servers; each connection ends with an error that a transport of ours would raise."""

    name = "codex"

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
                yield connection
        raise ExceptionGroup("a bug", [ZeroDivisionError("PROMPT"), ExceptionGroup("more", [KeyError("PROMPT")])])


class Counted:
    """Keeps the names of what is counted."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        self.names.append((name, labels.get("provider", "")))

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
