"""What a case stands on: a host over the author's bed, a parent that has spoken once, and ears on parent and Sides."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from tutti_side.contract import (
    CanonicalRef,
    InteractionRequested,
    SideId,
    SideRef,
    SourceMetadata,
)
from tutti_side.host import AgentHost, open_host
from tutti_side.nursery import open_service_nursery
from tutti_side.runtime import (
    MemoryMetadata,
    OpenFailedError,
    RecordingReporter,
    SessionHandle,
    SideHandle,
    Subscription,
    TurnHandle,
)
from tutti_side.testing.adapter_suite._hearing import WAITERS, Heard, Waiters, refused
from tutti_side.testing.adapter_suite._left_behind import Before
from tutti_side.testing.adapter_suite._seam import Seam, SeamedAdapter, SeamedProvider
from tutti_side.testing.adapter_suite.bed import HELD_TEXTS, HOLD, SAID, SAY, AdapterBed

__all__ = ["Stage", "open_stage"]


class RecordingMetadata(MemoryMetadata):
    """Keeps metadata, and all that was ever written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[CanonicalRef, SourceMetadata]] = []

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        """Keep it, and remember that."""
        self.written.append((ref, metadata))
        await super().write(ref, metadata)


class Stage:
    """One host, one parent, and whatever Sides the case opens."""

    def __init__(
        self,
        bed: AdapterBed,
        seam: Seam,
        host: AgentHost,
        nursery: trio.Nursery,
        reporter: RecordingReporter,
        metadata: RecordingMetadata,
    ) -> None:
        self.bed = bed
        self.seam = seam
        self.host = host
        self.reporter = reporter
        self.metadata = metadata
        self._nursery = nursery
        self._parent: tuple[SessionHandle, Heard] | None = None

    # The parent

    @property
    def parent(self) -> SessionHandle:
        """The canonical session; it has answered one question."""
        assert self._parent is not None
        return self._parent[0]

    @property
    def heard(self) -> Heard:
        """What a subscriber of the parent was told since then."""
        assert self._parent is not None
        return self._parent[1]

    @property
    def adapter(self) -> SeamedAdapter:
        """The adapter of this host, behind its seam."""
        return self.seam.adapters[0]

    async def start_parent(self, host: AgentHost | None = None) -> tuple[SessionHandle, Heard]:
        """Start a session that has answered one question, and listen to it."""
        session = await (host or self.host).start_session(cwd=self.bed.workspace, settings=self.bed.settings)
        answer = await session.ask(SAY)
        assert answer.text == SAID, "the bed's agent does not answer SAY as it should"
        heard = self.listen(session.events())
        if self._parent is None:
            self._parent = (session, heard)
        return session, heard

    async def hold_parent(self) -> TurnHandle:
        """Send the parent a turn, and return it when it waits in its middle."""
        turn = await self.parent.send(HOLD)
        await self.bed.wait_held()
        return turn

    async def finish(self, turn: TurnHandle) -> None:
        """Let the parent's turn go on: it ends as if nothing had been beside it, and nothing else is in its stream."""
        assert turn.is_active, "the parent's turn ended while it was held"
        self.bed.let_go()
        result = await turn.wait()
        assert (result.status, result.answer.text) == ("completed", "".join(HELD_TEXTS))
        assert self.heard.ends == []

    async def is_well(self, session: SessionHandle | SideHandle) -> None:
        """See a session or Side answer."""
        assert (await session.ask(SAY)).text == SAID

    # Sides

    def listen(self, subscription: Subscription) -> Heard:
        """Listen in a task of the stage."""
        heard = Heard()
        self._nursery.start_soon(heard.listen, subscription)
        return heard

    async def open_side(self, side_id: str | None = None, request_id: str | None = None) -> tuple[SideHandle, Heard]:
        """Open a Side of the parent, and listen from its first event on."""
        side = await self.parent.open_side(side_id=side_id, request_id=request_id, subscribe=True)
        return side, self.listen(side.events())

    async def wait_asked(self, owner: SideHandle | SessionHandle, text: str, heard: Heard) -> InteractionRequested:
        """Send a turn that asks its user, and return what it asks."""
        before = len(heard.of(InteractionRequested))
        await owner.send(text)
        return await heard.wait_for(InteractionRequested, before + 1)

    async def fail_to_open(self, side_id: str, request_id: str = "kit-request") -> OpenFailedError:
        """See an open fail, wait until nothing is left of it, and return the error."""
        with refused(OpenFailedError) as caught:
            await self.parent.open_side(side_id=side_id, request_id=request_id)
        await self.wait_gone(side_id)
        return caught.error

    async def cancel_an_open(self, side_id: str) -> None:
        """Cancel an open whose answer the bed holds; return when the adapter has given it up."""
        opening = trio.CancelScope()

        async def open_it() -> None:
            with opening:
                await self.parent.open_side(side_id=side_id)

        self._nursery.start_soon(open_it)
        await self.bed.wait_open_held()
        opening.cancel()
        await self.seam.sink(self.side_ref(side_id)).quiet.wait()

    async def wait_gone(self, side_id: str) -> None:
        """Wait until a Side that was closed, or never was, is no longer held by anyone."""
        scope = self.host.controller.registry.sides.get(self.side_ref(side_id))
        if scope is not None:
            await scope.gone.wait()

    def side_ref(self, side_id: str) -> SideRef:
        """Return the ref of a Side of this host."""
        return SideRef(self.host.identity.workspace, SideId(side_id))

    # Around a case

    def waiters(self, wanted: Callable[[], Awaitable[object]]) -> Waiters:
        """Let several tasks wait for the same end."""
        waiters = Waiters()
        for _ in range(WAITERS):
            self._nursery.start_soon(waiters.wait, wanted)
        return waiters

    @asynccontextmanager
    async def another_host(self) -> AsyncIterator[AgentHost]:
        """Open a second host over the same provider, for a case that ends one."""
        async with open_host(SeamedProvider(self.bed.provider, self.seam)) as host:
            yield host

    def start_soon(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Do something in a task of the stage."""
        self._nursery.start_soon(work, *arguments)


@asynccontextmanager
async def open_stage(bed: AdapterBed) -> AsyncIterator[Stage]:
    """Open a host over a bed, start the parent, and at the end hold every adapter against what none may do."""
    seam, reporter, metadata, before = Seam(), RecordingReporter(), RecordingMetadata(), Before()
    async with open_service_nursery() as nursery:
        provider = SeamedProvider(bed.provider, seam)
        async with open_host(provider, metadata=metadata, reporter=reporter) as host:
            stage = Stage(bed, seam, host, nursery, reporter, metadata)
            await stage.start_parent()
            yield stage
            assert host.statistics().refused_durable_writes == 0
            before.note_processes()
        assert seam.violations() == []
        await before.check()
