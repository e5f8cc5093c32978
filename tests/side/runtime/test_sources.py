"""What a Side inherits: the host's context in order and bounded, and a source that no connection of ours holds."""

from typing import Any

import pytest
import trio
import trio.testing

from tutti_side import OpenFailedError, SessionConflictError, SessionExpiredError, SideUnsupportedError, open_host
from tutti_side.contract import (
    HOST_CONTEXT_BYTES_MAX,
    SIDE_INSTRUCTIONS,
    CanonicalRef,
    SessionId,
    SideCapabilities,
    SourceMetadata,
    WorkspaceId,
)
from tutti_side.runtime import MemoryMetadata, SessionUnknownError
from tutti_side.runtime._sessions import SNAPSHOT_WAIT_S
from tutti_side.runtime._shutdown import ABORT_WAIT_S

Provider = Any  # tests/side/conftest.py: HeldProvider

MAIN = CanonicalRef(WorkspaceId("local"), SessionId("main"))


async def test_a_side_is_told_the_host_context_and_then_its_instructions(provider: Provider) -> None:
    """SC-codex-context: composed with the source's latest host context, in this order."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", host_context="first")
        await session.set_host_context("latest")
        await session.open_side(instructions="be brief")
        await session.set_host_context(None)
        await session.open_side()
        told = [request.instructions for request in provider.adapter.opened]
        assert told == ["latest\n\nbe brief", SIDE_INSTRUCTIONS]


async def test_each_part_has_its_own_bound(provider: Provider) -> None:
    """Required: 32 KiB each; both together are sent."""
    context, instructions = "c" * HOST_CONTEXT_BYTES_MAX, "i" * HOST_CONTEXT_BYTES_MAX
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", host_context=context)
        await session.open_side(instructions=instructions)
        (request,) = provider.adapter.opened
        assert request.instructions == f"{context}\n\n{instructions}"


async def test_an_open_side_keeps_the_context_that_it_was_opened_with(provider: Provider) -> None:
    """Required: every *later* Side gets the latest."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", host_context="old")
        side = await session.open_side()
        await session.set_host_context("new")
        await side.send("q")
        ((ref, request),) = provider.adapter.turns_asked
        assert (ref, request.host_context) == (side.scope.ref, None)
        assert provider.adapter.opened[0].instructions.startswith("old\n\n")


async def test_canonical_turns_carry_the_latest_context(provider: Provider) -> None:
    """Required: sent to the session's own turns."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        for context in (None, "one", "two"):
            if context is not None:
                await session.set_host_context(context)
            turn = await session.send("q")
            await turn.cancel()
        assert [request.host_context for _, request in adapter.turns_asked] == [None, "one", "two"]


async def test_the_context_is_kept_with_the_metadata_and_survives_the_host(provider: Provider) -> None:
    """Required: the latest is kept with the source's metadata."""
    kept = MemoryMetadata()
    provider.adapter.offers_history = True
    async with open_host(provider, metadata=kept) as host:
        session = await host.start_session(cwd="/w", session_id="main", host_context="first")
        assert await kept.read(MAIN) == SourceMetadata(
            provider="held", provider_session_id="p-main", cwd="/w", runtime={"home": "/h"}, host_context="first"
        )
        await session.set_host_context("latest")
    later = type(provider)()
    later.adapter.offers_history = True
    async with open_host(later, metadata=kept) as host:
        await host.open_side("main", "s", "r", instructions="i")
        (request,) = later.adapter.opened
        assert request.instructions == "latest\n\ni"
        assert request.history == await kept.read(MAIN)
        session = await host.resume_session("main")
        assert later.adapter.resumed[0].metadata == request.history
        await session.send("q")
        assert later.adapter.turns_asked[-1][1].host_context == "latest"


async def test_a_context_that_cannot_be_kept_is_not_used(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Required: what is kept and what is sent are the same."""
    kept = MemoryMetadata()
    async with open_host(provider, metadata=kept) as host:
        session = await host.start_session(cwd=".", host_context="old")

        async def fail(*_: object) -> None:
            await trio.lowlevel.checkpoint()
            raise OSError

        monkeypatch.setattr(kept, "write", fail)
        with pytest.raises(OSError):
            await session.set_host_context("new")
        await session.send("q")
        assert provider.adapter.turns_asked[0][1].host_context == "old"


async def test_a_session_whose_metadata_cannot_be_kept_is_not_started(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: nothing is left at the provider, and the id is free."""
    kept = MemoryMetadata()
    async with open_host(provider, metadata=kept) as host:

        async def fail(*_: object) -> None:
            await trio.lowlevel.checkpoint()
            raise OSError

        with monkeypatch.context() as patch, pytest.raises(OSError):
            patch.setattr(kept, "write", fail)
            await host.start_session(cwd=".", session_id="main")
        assert provider.adapter.log == ["close main"]
        assert host.statistics().sessions == 0
        assert (await host.start_session(cwd=".", session_id="main")).ref == MAIN


async def test_a_session_that_could_not_be_loaded_keeps_what_was_kept_of_it(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6, R14: what a failed load undoes is the load; a later one finds the session again."""
    kept = MemoryMetadata()
    async with open_host(provider, metadata=kept) as host:
        await (await host.start_session(cwd=".", session_id="main", host_context="c")).close()
        before = await kept.read(MAIN)

        async def fail(*_: object) -> None:
            await trio.lowlevel.checkpoint()
            raise OSError

        with monkeypatch.context() as patch, pytest.raises(OSError):
            patch.setattr(kept, "write", fail)
            await host.resume_session("main")
        assert provider.adapter.log == ["close main"] * 2
        assert await kept.read(MAIN) == before
        assert (await host.resume_session("main")).scope.host_context == "c"


async def test_a_closed_session_can_be_branched_from_what_was_kept(provider: Provider) -> None:
    """SC-contract-metadata: a source that is idle, with no connection of ours; R15: attested from the metadata."""
    adapter = provider.adapter
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main", host_context="c")
        await session.close()
        assert not await host.resolve_side("main")
        with pytest.raises(SideUnsupportedError, match="not live"):
            await host.open_side("main", "s", "r")
        adapter.offers_history = True
        assert await host.resolve_side("main")
        side = await host.open_side("main", "s", "r")
        assert side.is_open
        assert adapter.opened[0].history is not None
        assert adapter.resumed == []


async def test_a_live_session_is_branched_live_whatever_is_kept(provider: Provider) -> None:
    """Architecture §1: only its connection holds the running turn."""
    provider.adapter.offers_history = True
    async with open_host(provider) as host:
        await host.start_session(cwd=".", session_id="main")
        await host.open_side("main", "s", "r")
        assert provider.adapter.opened[0].history is None


@pytest.mark.parametrize("case", ["never known", "of another provider", "deleted"])
async def test_a_source_that_cannot_be_found_is_refused_before_any_fork(provider: Provider, case: str) -> None:
    """Architecture §4.4: found locally, before any fork; R15."""
    kept = MemoryMetadata()
    provider.adapter.offers_history = True
    if case == "of another provider":
        await kept.write(MAIN, SourceMetadata(provider="other", provider_session_id="p", cwd="/"))
    async with open_host(provider, metadata=kept) as host:
        if case == "deleted":
            await host.start_session(cwd=".", session_id="main")
            await host.delete_session("main")
        assert not await host.resolve_side("main")
        with pytest.raises(OpenFailedError) as caught:
            await host.open_side("main", "s", "r")
        assert caught.value.phase == "source"
        with pytest.raises((SessionUnknownError, SessionExpiredError)):
            await host.resume_session("main")
        assert not [line for line in provider.adapter.log if line.startswith("fork")]


async def test_a_historical_source_is_never_taken_for_its_own_branch(provider: Provider) -> None:
    """R7: the provider returned the source itself; that is not ours to close."""
    adapter = provider.adapter
    adapter.offers_history = True
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        await session.close()
        adapter.child_id = "p-main"
        with pytest.raises(OpenFailedError) as caught:
            await host.open_side("main", "s", "r")
        assert caught.value.phase == "result"
        await trio.testing.wait_all_tasks_blocked()
        assert adapter.log == ["close main", "fork s", "release s"]


async def test_a_live_session_is_not_resumed_and_a_closed_one_is(provider: Provider) -> None:
    """Our choice: one owner at a time; a resumed session is the same session again."""
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        with pytest.raises(SessionConflictError):
            await host.resume_session("main")
        await session.close()
        again = await host.resume_session("main")
        assert (again.ref, again.provider_session_id) == (MAIN, "p-main")
        assert (await again.send("q")).is_active
        with pytest.raises(SessionExpiredError):
            await session.send("q")


async def test_capabilities_of_a_historical_source_come_from_its_metadata(provider: Provider) -> None:
    """SC-contract-capabilities, R15: what the adapter attests is passed on with its reason."""
    provider.adapter.promised = SideCapabilities.unsupported("version 0.1 is not proven")
    provider.adapter.offers_history = True
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="main")
        assert (await session.side_capabilities()).reason == "version 0.1 is not proven"
        await session.close()
        assert (await host.resolve_side("main")).reason == "version 0.1 is not proven"


class StuckMetadata(MemoryMetadata):
    """Takes no second write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        self.writes += 1
        if self.writes > 1:
            await trio.sleep_forever()
        await super().write(ref, metadata)


async def test_a_close_does_not_wait_for_ever_for_a_metadata_port_that_does_not_answer(
    provider: Provider, autojump_clock: trio.testing.MockClock
) -> None:
    """R12: whoever holds the session's lock delays its close by a bound only, and is told of the end. Our choice."""
    async with open_host(provider, metadata=StuckMetadata()) as host, trio.open_nursery() as nursery:
        session = await host.start_session(cwd=".", session_id="main")
        nursery.start_soon(session.set_host_context, "never written")
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        with trio.fail_after(1_000):
            await session.close()
        assert trio.current_time() - began == pytest.approx(SNAPSHOT_WAIT_S + ABORT_WAIT_S)
        assert provider.adapter.log[-1] == "close main"
        assert await session.wait_ended() == "closed"
        nursery.cancel_scope.cancel()
    assert host.statistics().sessions == 0
