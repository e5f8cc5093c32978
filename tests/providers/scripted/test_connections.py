"""Connections: who shares one, who has its own, what a loss takes with it, and what will not close."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tutti_providers.scripted import (
    ALL_CAPABILITIES,
    Closing,
    ConnectionNotClosedError,
    Drop,
    Emit,
    Fail,
    Message,
    Opening,
    Recall,
    Script,
    SessionHeldError,
    SessionNotKeptError,
    Turn,
    Wait,
    scripted,
)
from tutti_providers.scripted._connection import RELEASE_TRIES_MAX
from tutti_side import open_host
from tutti_side.contract import (
    Audit,
    OpenSide,
    ProviderPorts,
    ResumeSession,
    SideCapabilities,
    SourceMetadata,
    StartSession,
)
from tutti_side.runtime import (
    OpenFailedError,
    SessionExpiredError,
    SideExpiredError,
    SideUnsupportedError,
)
from tutti_side.runtime.ports import MemoryMetadata
from tutti_side.runtime.sweeper import SWEEP_TRIES_MAX

LATE = Emit((Audit("late", "closed"),))


class Sweeper:
    """Takes over what will not close, and shows it."""

    def __init__(self) -> None:
        self.owners: list[Any] = []

    def register(self, owner: Any) -> None:
        self.owners.append(owner)


def kept(provider_session_id: str = "session-1") -> SourceMetadata:
    return SourceMetadata(provider="scripted", provider_session_id=provider_session_id, cwd="/")


def counts(provider: Any) -> Any:
    statistics = provider.adapters[0].statistics()
    return statistics.connections, statistics.dedicated_connections, statistics.threads


# Shared


async def test_sessions_and_sides_of_live_sources_share_one_connection() -> None:
    """Specification, Codex reference adapter: a live source's connection is referenced by both."""
    provider = scripted()
    async with open_host(provider) as host:
        one, two = [await host.start_session(cwd=".") for _ in range(2)]
        side = await one.open_side()
        assert counts(provider) == (1, 0, 3)
        await one.close()
        assert counts(provider) == (1, 0, 2)
        assert (await side.ask("x")).text.startswith("You said")  # lives on its own lease
        await side.close()
        await two.close()
        await trio.testing.wait_all_tasks_blocked()
        assert counts(provider) == (0, 0, 0)
        await host.start_session(cwd=".")
        assert counts(provider) == (1, 0, 1)


async def test_a_lost_connection_ends_everything_on_it_and_a_new_session_gets_a_new_one() -> None:
    """R8, R9: sessions lost, Sides expired; another connection's untouched; ids never come back."""
    provider = scripted(Script(turns=(Turn(when="die", steps=(Drop(),)), Turn(when="wait", steps=(Wait(gate="g"),)))))
    async with open_host(provider) as host:
        old = await host.start_session(cwd=".", session_id="old")
        await old.ask("history")
        await old.close()
        apart = await host.open_side("old", "apart", "r")
        one, two = [await host.start_session(cwd=".") for _ in range(2)]
        side = await one.open_side(side_id="shared", request_id="r")
        turn = await two.send("wait")
        with trio.fail_after(5):
            with pytest.raises(SideExpiredError) as caught:
                await side.ask("die")
            assert caught.value.reason == "lost"
            with pytest.raises(SessionExpiredError):
                await turn.wait()
            assert [await session.wait_ended() for session in (one, two)] == ["lost", "lost"]
            with pytest.raises(SideExpiredError):
                await host.open_side(one.ref.session, "shared", "r")
        await trio.testing.wait_all_tasks_blocked()
        assert counts(provider) == (1, 1, 1)
        assert (await apart.ask("x")).text.startswith("You said")
        three = await host.start_session(cwd=".")
        assert (await three.ask("x")).text == "You said: x"


async def test_a_loss_is_said_once_and_nothing_follows(lab: Any) -> None:
    """Contract: `end` once, nothing afterwards; liveness says lost until it is closed."""
    provider = scripted(Script(fallback=(Wait(gate="g"),)))
    async with provider.open() as adapter:
        sink, side_sink = lab.recorder(), lab.recorder()
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), sink)
        await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), side_sink)
        assert adapter.liveness(lab.side()) == "live"
        provider.drop()
        provider.drop()
        await trio.testing.wait_all_tasks_blocked()
        assert (sink.ended, side_sink.ended) == ("lost", "lost")
        assert adapter.liveness(lab.side()) == "lost"
        await adapter.close(lab.side())
        assert adapter.liveness(lab.side()) == "unknown"


async def test_events_after_a_close_reach_nobody(lab: Any) -> None:
    """F22, F25: an unsubscribed thread still talks."""
    provider = scripted(Script(closes=(Closing(when="side", late=(LATE, Wait(gate="late"), LATE)),)))
    async with provider.open() as adapter:
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
        sink = lab.recorder()
        await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), sink)
        await adapter.close(lab.side())
        provider.gate("late").set()
        await trio.testing.wait_all_tasks_blocked()
        assert (sink.events, sink.ended) == ([], None)
        assert adapter.statistics().dropped_events == 2


async def test_a_child_that_was_not_released_is_released_later(autojump_clock: MockClock) -> None:
    """F21, R12: the close ends at once for its caller; the connection's nursery tries again."""
    provider = scripted(Script(closes=(Closing(when="x", steps=(Fail(),), times=3),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="x")
        start = trio.current_time()
        await side.close()
        assert trio.current_time() == start
        assert counts(provider) == (1, 0, 2)
        assert provider.adapters[0].statistics().releasing == 1
        await trio.sleep(60)
        assert counts(provider) == (1, 0, 1)
        assert provider.adapters[0].statistics().releasing == 0
        assert provider.adapters[0].statistics().forced_releases == 0
        assert (await session.ask("x")).text == "You said: x"


async def test_what_is_said_while_a_release_is_retried_reaches_nobody(lab: Any, autojump_clock: MockClock) -> None:
    """Contract: close emits nothing afterwards, whoever finishes it."""
    closes = (Closing(when="side", steps=(Fail(),), times=1), Closing(when="side", steps=(LATE,)))
    async with scripted(Script(closes=closes)).open() as adapter:
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
        sink = lab.recorder()
        await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), sink)
        await adapter.close(lab.side())
        await trio.sleep(60)
        assert sink.events == []
        assert adapter.statistics().dropped_events == 1


async def test_a_resume_that_is_cut_after_any_step_frees_the_writer(lab: Any, autojump_clock: MockClock) -> None:
    """F30, F32, R14."""
    provider = scripted()
    async with provider.open() as adapter:
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
        await adapter.close(lab.session())
        for number in range(1, 100):
            await trio.sleep(60)
            assert provider.held == frozenset()
            assert adapter.statistics().connections == 0
            with lab.axe(number) as axe, axe.scope:
                await adapter.resume(ResumeSession(ref=lab.session(), metadata=kept()), lab.recorder())
                await adapter.close(lab.session())
            await adapter.close(lab.session())
            if not axe.fell:
                break
        assert not axe.fell
        assert number > 5


async def test_a_child_that_is_never_released_is_dropped_by_force(autojump_clock: MockClock) -> None:
    """R12: every retry is bounded, and force comes then."""
    provider = scripted(Script(closes=(Closing(when="x", steps=(Fail(),), times=RELEASE_TRIES_MAX + 1),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        await (await session.open_side(side_id="x")).close()
        await trio.sleep(600)
        assert counts(provider) == (1, 0, 1)
        assert provider.adapters[0].statistics().forced_releases == 1


async def test_a_close_that_is_cut_is_finished_by_the_connection(lab: Any, autojump_clock: MockClock) -> None:
    """Contract, cancellation of close: what is left to do is handed to the provider's nursery; R14."""
    provider = scripted(Script(fallback=(Wait(gate="g"),), closes=(Closing(when="side", steps=(Wait(seconds=1),)),)))
    async with provider.open() as adapter:
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
        for number in range(1, 100):
            sink = lab.recorder()
            await adapter.open_side(OpenSide(side=lab.side(), source=lab.session()), sink)
            with lab.axe(number) as axe, axe.scope:
                await adapter.close(lab.side())
            said = list(sink.events)
            await trio.sleep(60)
            assert adapter.statistics().threads == 1
            assert adapter.statistics().releasing == 0
            assert sink.events == said
            assert sink.ended is None
            if not axe.fell:
                break
        assert not axe.fell
        assert number > 3


async def test_a_process_that_dies_during_a_close_ends_the_close() -> None:
    """R9."""
    provider = scripted(Script(closes=(Closing(when="x", steps=(Drop(),)),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="x")
        with trio.fail_after(5):
            await side.close()
            assert await session.wait_ended() == "lost"


async def test_a_crash_of_a_connections_task_is_that_connections_loss(autojump_clock: MockClock) -> None:
    """Architecture §2: a crashing task is contained like a lost process."""
    asked = []

    def crash_when_asked_again(scope_id: str) -> bool:
        asked.append(scope_id)
        if len(asked) > 1:
            raise ValueError
        return True

    provider = scripted(Script(closes=(Closing(when=crash_when_asked_again, steps=(Fail(),)),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        await (await session.open_side()).close()
        with trio.fail_after(60):
            assert await session.wait_ended() == "lost"
        await trio.testing.wait_all_tasks_blocked()
        assert provider.adapters[0].statistics().crashed_connections == 1
        asked.clear()
        assert (await (await host.start_session(cwd=".")).ask("x")).text == "You said: x"


# A Side's own


async def test_a_side_of_a_closed_source_has_a_connection_of_its_own_and_the_whole_context() -> None:
    """Specification, Codex reference adapter: the historical path; closed with its Side."""
    provider = scripted(Script(turns=(Turn(when="recall", steps=(Recall(),)),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".", session_id="old")
        await session.ask("hello")
        await session.close()
        await trio.testing.wait_all_tasks_blocked()
        assert counts(provider) == (0, 0, 0)
        assert await host.resolve_side("old")
        side = await host.open_side("old", "side", "r")
        assert counts(provider) == (1, 1, 1)
        assert (await side.ask("recall")).messages == ("hello", "You said: hello")
        await side.close()
        assert counts(provider) == (0, 0, 0)
        assert provider.persisted == {"session-1": (Message("user", "hello"), Message("agent", "You said: hello"))}
        assert provider.held == frozenset()


async def test_sessions_are_kept_for_another_host_of_the_program() -> None:
    """Architecture §4, historical sources; resumed with what was said, and branched without being resumed."""
    provider, metadata = scripted(), MemoryMetadata()
    async with open_host(provider, metadata=metadata) as host:
        await (await host.start_session(cwd=".", session_id="old")).ask("hello")
    assert provider.held == frozenset()
    async with open_host(provider, metadata=metadata) as host:
        side = await host.open_side("old", "side", "r")
        assert "I know 2 messages" in (await side.ask("x")).text
        session = await host.resume_session("old")
        assert session.provider_session_id == "session-1"
        await session.ask("again")
        assert provider.held == {"session-1"}
        assert [message.text for message in provider.persisted["session-1"]][::2] == ["hello", "again"]


async def test_a_session_has_one_writer_and_an_unknown_one_is_refused(lab: Any) -> None:
    """F30: typed, at once; the refused caller leaves nothing."""
    provider = scripted()
    async with provider.open() as first, provider.open() as second:
        await first.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
        request = ResumeSession(ref=lab.session(), metadata=kept())
        with pytest.raises(SessionHeldError):
            await second.resume(request, lab.recorder())
        unknown = ResumeSession(ref=lab.session(), metadata=kept("unknown"))
        with pytest.raises(SessionNotKeptError):
            await second.resume(unknown, lab.recorder())
        assert second.statistics().connections == 0
        await first.close(lab.session())
        assert (await second.resume(request, lab.recorder())).provider_session_id == "session-1"


async def test_what_is_promised_for_a_kept_source_is_its_own_matter(lab: Any) -> None:
    """R15: fail closed, also for a source that is not kept here."""
    script = Script(historical_capabilities=SideCapabilities.unsupported("not from history"))
    async with open_host(scripted(script)) as host:
        session = await host.start_session(cwd=".", session_id="old")
        assert await session.side_capabilities() == ALL_CAPABILITIES
        await session.close()
        assert (await host.resolve_side("old")).reason == "not from history"
        with pytest.raises(SideUnsupportedError, match="not from history"):
            await host.open_side("old", "side", "r")
    async with scripted().open() as adapter:
        assert not await adapter.side_capabilities(lab.session(), kept("unknown"))
        request = OpenSide(side=lab.side(), source=lab.session(), history=kept("unknown"))
        with pytest.raises(SessionNotKeptError):
            await adapter.open_side(request, lab.recorder())
        assert adapter.statistics().connections == 0


async def historical(adapter: Any, lab: Any, sink: Any) -> Any:
    """Start and close a session, and open a Side of it from history."""
    await adapter.start(StartSession(ref=lab.session(), cwd="/"), lab.recorder())
    await adapter.close(lab.session())
    return await adapter.open_side(OpenSide(side=lab.side(), source=lab.session(), history=kept()), sink)


async def test_a_connection_that_will_not_close_is_the_sweepers(lab: Any) -> None:
    """Specification: a failed physical close is retried through the sweeper; F21, R12. The caller is let go."""
    sweeper = Sweeper()
    provider = scripted(Script(closes=(Closing(when="side", steps=(Fail("no"),), times=2),)))
    async with provider.open(ProviderPorts(cleanup=sweeper)) as adapter:
        sink = lab.recorder()
        await historical(adapter, lab, sink)
        await adapter.close(lab.side())
        await adapter.close(lab.side())
        [owner] = sweeper.owners
        assert owner.label == "scripted connection of side-2"
        assert adapter.statistics().unclosed_connections == 1
        assert adapter.liveness(lab.side()) == "unknown"
        with pytest.raises(ConnectionNotClosedError) as caught:
            await owner.close()
        assert caught.value.attempts == 2
        await owner.close()
        assert adapter.statistics().connections == 0
        assert (sink.events, sink.ended) == ([], None)


async def test_the_sweeper_can_force_a_connection_that_never_closes(lab: Any) -> None:
    """R12, R13."""
    sweeper = Sweeper()
    closes = (Closing(when="side", steps=(Fail(),), times=1), Closing(when="side", steps=(Wait(gate="never"),)))
    async with scripted(Script(closes=closes)).open(ProviderPorts(cleanup=sweeper)) as adapter:
        sink = lab.recorder()
        await historical(adapter, lab, sink)
        await adapter.close(lab.side())
        sweeper.owners[0].force()
        sweeper.owners[0].force()
        with trio.fail_after(5):
            await sweeper.owners[0].close()  # what is gone needs no closing
        await trio.testing.wait_all_tasks_blocked()
        assert adapter.statistics().connections == 0
        assert sink.ended is None


async def test_a_host_sweeps_what_will_not_close(autojump_clock: MockClock) -> None:
    """Specification: the bounded runtime resource sweeper, in the host's one table."""
    script = Script(
        closes=(Closing(when="twice", steps=(Fail(),), times=2), Closing(when="never", steps=(Fail(),))),
    )
    provider = scripted(script)
    async with open_host(provider) as host:
        await (await host.start_session(cwd=".", session_id="old")).close()
        for name in ("twice", "never"):
            await (await host.open_side("old", name, "r")).close()
        assert len(host.statistics().cleanup) == 2
        await trio.sleep(1)
        assert [row.label for row in host.statistics().cleanup] != []
        await trio.sleep(120)
        assert host.statistics().cleanup == ()
        assert host.statistics().forced_cleanups == 1
        assert counts(provider) == (0, 0, 0)
    tried = [call for call in provider.calls if call.operation == "close"]
    assert len(tried) == 3  # the sweeper's tries are not calls of the contract
    assert SWEEP_TRIES_MAX > 2


async def test_a_failed_historical_open_closes_its_connection(autojump_clock: MockClock) -> None:
    """R6, F31; also when that close has to be tried again."""
    script = Script(
        opens=(Opening(when="a", steps=(Fail(),), times=2),), closes=(Closing(when="a", steps=(Fail(),), times=1),)
    )
    provider = scripted(script)
    async with open_host(provider) as host:
        await (await host.start_session(cwd=".", session_id="old")).close()
        with pytest.raises(OpenFailedError):
            await host.open_side("old", "a", "r")
        await trio.testing.wait_all_tasks_blocked()
        assert [row.label for row in host.statistics().cleanup] == ["scripted connection of side-2"]
        await trio.sleep(60)
        assert counts(provider) == (0, 0, 0)
        with pytest.raises(OpenFailedError):
            await host.open_side("old", "a", "r")
        await trio.testing.wait_all_tasks_blocked()
        assert counts(provider) == (0, 0, 0)
        await (await host.open_side("old", "a", "r")).close()
        assert counts(provider) == (0, 0, 0)


async def test_a_historical_open_that_is_cut_after_any_step_leaves_no_connection(
    lab: Any, autojump_clock: MockClock
) -> None:
    """R6, R13, R14."""
    provider = scripted(Script(opens=(Opening(steps=(Wait(seconds=1),), late=(LATE,)),)))
    async with open_host(provider) as host:
        await (await host.start_session(cwd=".", session_id="old")).close()
        for number in range(1, 200):
            side = None
            with lab.axe(number) as axe, axe.scope:
                side = await host.open_side("old", f"side {number}", "r")
            if side is not None:
                await side.close()
            await trio.sleep(60)
            assert counts(provider) == (0, 0, 0)
            assert provider.adapters[0].statistics().draining == 0
            assert host.statistics().sides == {}
            if not axe.fell:
                break
        assert not axe.fell
        assert number > 10


async def test_losing_a_sides_own_connection_expires_it_alone() -> None:
    """R8: the Side, and nobody else."""
    provider = scripted(Script(turns=(Turn(when="die", steps=(Drop(),)),)))
    async with open_host(provider) as host:
        await (await host.start_session(cwd=".", session_id="old")).close()
        session = await host.start_session(cwd=".")
        side = await host.open_side("old", "side", "r")
        with trio.fail_after(5), pytest.raises(SideExpiredError, match="lost"):
            await side.ask("die")
        await trio.testing.wait_all_tasks_blocked()
        assert counts(provider) == (1, 0, 1)
        assert (await session.ask("x")).text == "You said: x"


async def test_the_end_of_the_adapter_ends_everything_and_says_so(lab: Any) -> None:
    """R13: nothing outlives the block."""
    provider = scripted(Script(fallback=(Wait(gate="g"),)))
    sink = lab.recorder()
    async with provider.open() as adapter:
        await adapter.start(StartSession(ref=lab.session(), cwd="/"), sink)
    assert sink.ended == "lost"
    assert provider.held == frozenset()
    assert adapter.statistics().connections == 0
    assert provider.adapters == ()
