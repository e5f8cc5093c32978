"""The controller: which sessions and Sides live, who may open and close them, and the nursery that contains them.

What may be opened or used is decided in `_registry`, between two awaits; waiting happens in the Side's own task (see
`_side_scope`) or in the caller. How canonical sessions are opened and ended is in `_sessions`, what is counted in
`_tally`. Locks are always taken in one order (see `_lifecycle_locks`).
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio

from tutti_side.contract import (
    NO_METRICS,
    SIDE_INSTRUCTIONS,
    Adapter,
    CanonicalRef,
    EndReason,
    Metrics,
    OpenSide,
    RequestId,
    SideCapabilities,
    SideConversationAdapter,
    SideRef,
    SourceMetadata,
    check_id,
    check_instructions,
)
from tutti_side.nursery import open_service_nursery
from tutti_side.runtime._lifecycle_locks import LifecycleLocks
from tutti_side.runtime._registry import Registry
from tutti_side.runtime._session_scope import SessionScope
from tutti_side.runtime._sessions import Sessions
from tutti_side.runtime._shutdown import ABORT_WAIT_S, HOST_STOP_S, Shutdown
from tutti_side.runtime._side_scope import SideScope
from tutti_side.runtime._tally import Tally, open_outcome
from tutti_side.runtime.errors import SessionExpiredError, SessionUnknownError, SideConflictError
from tutti_side.runtime.handles import SessionHandle, SideHandle
from tutti_side.runtime.ports import DurableGate, MemoryMetadata
from tutti_side.runtime.statistics import ControllerStatistics

__all__ = ["HOST_STOP_S", "ControllerStatistics", "RuntimeController", "open_controller"]


class RuntimeController:
    """Opens, finds and closes live sessions and Sides; made by `open_controller`."""

    def __init__(
        self, nursery: trio.Nursery, adapters: Mapping[str, Adapter], durable: DurableGate, metrics: Metrics
    ) -> None:
        self.locks = LifecycleLocks()
        self.durable = durable
        self.metrics = metrics
        self.registry = Registry()
        self.shutdown = Shutdown()
        self.tally = Tally(metrics)
        self._nursery = nursery
        self._adapters = adapters
        self._sessions = Sessions(nursery, adapters, durable, self.registry, self.locks, self.shutdown, self.tally)

    def statistics(self) -> ControllerStatistics:
        """Return counts, without touching anything."""
        states: dict[str, int] = {}
        for side in self.registry.sides.values():
            states[side.lifecycle.state] = states.get(side.lifecycle.state, 0) + 1
        scopes = [session.events for session in self.registry.sessions.values()]
        scopes += [side.events for side in self.registry.sides.values()]
        return ControllerStatistics(
            sessions=len(self.registry.sessions),
            sides=states,
            interactions_open=sum(len(scope.interactions.open) for scope in scopes),
            subscribers=sum(len(scope.hub) for scope in scopes),
            buffered_events=sum(scope.buffered_events for scope in scopes),
            locks_in_use=self.locks.in_use,
            locks_waiting=self.locks.waiting,
            remembered_ends=len(self.registry.ended),
            failed_closes=self.tally.failed_closes,
            dropped_events=self.tally.dropped_events,
        )

    # Canonical sessions

    async def start_session(
        self, ref: CanonicalRef, provider: str, cwd: str, settings: object = None, host_context: str | None = None
    ) -> SessionHandle:
        """Start a canonical session at a provider.

        Raises:
          SessionConflictError: this id is a live session's, or a Side's.
          SessionExpiredError: this id was used before.
          InvalidContentError: the host context.
          HostStoppedError: the host is stopping.
          TuttiSideError: the adapter's own; nothing is left.

        Cancellation: rolled back.
        """
        check_instructions("host_context", host_context)
        return SessionHandle(self, await self._sessions.start(ref, provider, cwd, settings, host_context))

    async def resume_session(self, ref: CanonicalRef, settings: object = None) -> SessionHandle:
        """Load a canonical session that a provider has persisted and whose metadata were kept.

        Raises:
          SessionUnknownError: nothing is kept of it, or its provider is not in this host.
          SessionConflictError: it is live here, or its id has become a Side's.
          SessionExpiredError: it was deleted.
          HostStoppedError: the host is stopping.
          TuttiSideError: the adapter's own; nothing is left.

        Cancellation: rolled back.
        """
        self.registry.require_free(ref)
        if self.registry.is_deleted(ref):
            raise SessionExpiredError(ref.session, "source_deleted")
        kept = await self.read_history(ref)
        return SessionHandle(self, await self._sessions.resume(ref, kept, settings))

    async def delete_session(self, ref: CanonicalRef) -> None:
        """Close a canonical session for good: its Sides close with it, reason ``source_deleted``. Idempotent.

        Nothing is kept of it, so no later host finds it again. What its provider has persisted is the provider's.

        Raises:
          TuttiSideError: the metadata port's own; the session is closed, and the delete may be tried again.

        Cancellation: as for `close_session`; the Sides close in their own tasks.
        """
        await self._sessions.delete(ref)

    async def set_host_context(self, session: SessionScope, host_context: str | None) -> None:
        """Keep the host's latest context of a session; its next turns and every later Side get it.

        Raises:
          InvalidContentError: over `HOST_CONTEXT_BYTES_MAX`, or not text.
          SessionExpiredError: the session is over.

        Cancellation: the old or the new one is kept, and used.
        """
        check_instructions("host_context", host_context)
        await self._sessions.set_host_context(session, host_context)

    async def close_session(self, session: SessionScope, reason: EndReason = "closed") -> None:
        """Close a canonical session; its Sides live on. Idempotent.

        An open that is branching it goes first, for `SNAPSHOT_WAIT_S` at most; then it is aborted. Whoever holds the
        session's lock then still, such as a metadata port that does not answer, is not waited for any longer.

        Cancellation: the session is still open, or the provider's nursery finishes the close.
        """
        await self._sessions.close(session, reason)

    # Sides

    async def side_capabilities(self, source: CanonicalRef) -> SideCapabilities:
        """Say what a Side of this source, live or historical, would be.

        Cancellation: harmless.
        """
        try:
            adapter, history = await self.find_source(source)
        except SessionUnknownError as error:
            return SideCapabilities.unsupported(str(error))
        if not isinstance(adapter, SideConversationAdapter):
            return SideCapabilities.unsupported(f"provider {adapter.name} offers no Sides")
        return await adapter.side_capabilities(source, history)

    async def find_source(self, source: CanonicalRef) -> tuple[Adapter, SourceMetadata | None]:
        """Return a source's adapter, and what was kept of it when no connection of ours holds it.

        Raises:
          SessionUnknownError: it is neither live nor kept, or was deleted.

        Cancellation: harmless.
        """
        session = self.registry.live_source(source)
        if session is not None:
            await trio.lowlevel.checkpoint()
            return session.adapter, None
        history = await self.read_history(source)
        return self._adapters[history.provider], history

    async def read_history(self, ref: CanonicalRef) -> SourceMetadata:
        """Return what was kept of a session.

        Raises:
          SessionUnknownError: nothing, or its provider is not in this host, or it was deleted.

        Cancellation: harmless.
        """
        if self.registry.is_deleted(ref):
            raise SessionUnknownError(ref.session, "was deleted")
        kept = await self.durable.read_metadata(ref)
        if kept is None:
            raise SessionUnknownError(ref.session, "is neither open here nor known from before")
        if kept.provider not in self._adapters:
            raise SessionUnknownError(ref.session, f"belongs to provider {kept.provider!r}, which is not in this host")
        return kept

    async def open_side(
        self,
        ref: SideRef,
        source: CanonicalRef,
        request_id: RequestId,
        *,
        instructions: str = SIDE_INSTRUCTIONS,
        subscribe: bool = False,
    ) -> SideHandle:
        """Open a Side of a live or kept session, join the same open, or return the Side if it is open already.

        Args:
          ref: the Side's identity; fresh for a new Side.
          source: the session to branch; never a Side.
          request_id: the same identity and request again is the same Side.
          instructions: what the Side is told about itself.
          subscribe: attach a subscription at the commit, so that `SideHandle.events` starts at sequence 1.

        Raises:
          InvalidIdError, InvalidContentError: the ids, the instructions; before anything else.
          SideConflictError: this side id belongs to another source or request, to a canonical session, or the source
            is itself a Side.
          SideInProgressError: a failed open of this id is still draining.
          SideExpiredError: this id was closed or lost.
          HostStoppedError: the host is stopping.
          SideUnsupportedError: the provider cannot attest a Side; `reason` names what is missing.
          OpenFailedError: it failed, and everything was rolled back.

        Cancellation: before the commit the last one to wait rolls everything back, waiting `ABORT_WAIT_S` at most;
        after it the handle is returned.

        Source: specification, Standard provider contract; architecture §4.
        """
        check_id("side id", ref.side)
        check_id("request id", request_id)
        check_id("source", source.session)
        check_instructions("instructions", instructions)
        self.tally.note_open_asked()
        outcome = "cancelled"
        try:
            handle = await self._open_or_join(ref, source, request_id, instructions, subscribe=subscribe)
            outcome = "accepted"
            return handle
        except Exception as error:
            outcome = open_outcome(error)
            raise
        finally:
            self.tally.note_open_outcome(outcome)

    async def _open_or_join(
        self, ref: SideRef, source: CanonicalRef, request_id: RequestId, instructions: str, *, subscribe: bool
    ) -> SideHandle:
        side = self._claim(ref, source, request_id, instructions)
        subscription = side.events.hub.new_subscription() if subscribe else None
        if side.lifecycle.state == "open":
            if subscription is not None:
                side.events.hub.attach(subscription)
            return SideHandle(self, side, subscription)
        if subscription is not None:
            side.want_events(subscription)
        try:
            await self._wait_settled(side)
            if not side.events.is_committed:
                assert side.error is not None
                raise side.error
        except BaseException:
            if subscription is not None:
                subscription.close()  # or the Side of those who still wait would have a subscriber that nobody reads
            raise
        return SideHandle(self, side, subscription)

    def _claim(self, ref: SideRef, source: CanonicalRef, request_id: RequestId, instructions: str) -> SideScope:
        """Return the Side under this identity, reserved anew if there is none; synchronous, so it cannot be raced."""
        side = self.registry.find_or_allow(ref, source, request_id)
        if side is not None:
            return side
        self.shutdown.require_running()
        request = OpenSide(side=ref, source=source, instructions=instructions)
        side = self.registry.sides[ref] = SideScope(self, request, request_id)
        self._nursery.start_soon(side.run, name=f"side:{ref.side}")
        return side

    async def _wait_settled(self, side: SideScope) -> None:
        """Wait for the outcome of an open together with everyone else who wants it."""
        side.openers += 1
        try:
            await side.settled.wait()
        except trio.Cancelled:  # noqa: ASYNC103 - a committed Side is returned; see below
            if side.openers > 1:
                raise
            if not side.settled.is_set():
                side.abort("nobody waits for it any more")
                with self.shutdown.bounded(ABORT_WAIT_S):
                    await side.settled.wait()  # noqa: ASYNC102 - `bounded` shields
                    if not side.events.is_committed:  # the abort can come too late to stop the commit
                        await side.gone.wait()  # noqa: ASYNC102 - `bounded` shields
            if not side.events.is_committed:
                raise
            # Committed in the same instant: the caller gets the Side, and its next checkpoint is cancelled.
        finally:
            side.openers -= 1

    def require_own_submit(self, side: SideScope, client_submit_id: str | None) -> None:
        """Refuse a Side's submit under an id that a canonical submit has: the two must never be paired."""
        if self.registry.is_canonical_submit(side.ref, client_submit_id):
            self.durable.note_refused("paired submit", side.ref)
            problem = "was asked to submit under the client_submit_id of a canonical submit"
            raise SideConflictError(side.ref.side, side.source.session, side.request_id, problem)

    def find_side(self, ref: SideRef) -> SideHandle:
        """Return a handle of an open Side.

        Raises:
          SideInProgressError: it is opening or draining.
          SideExpiredError: it was closed or lost.
          SideNotFoundError: there is no such Side.
        """
        return SideHandle(self, self.registry.find_open(ref), None)

    async def close_side(self, ref: SideRef) -> None:
        """Close a Side, in whatever state it is; an unknown or ended one is closed already.

        Cancellation: the close goes on in the Side's own task.
        """
        side = self.registry.sides.get(ref)
        if side is None:
            await trio.lowlevel.checkpoint()
            return
        side.request_close()
        await side.gone.wait()

    def forget_side(self, side: SideScope, reason: EndReason | None) -> None:
        """Take a Side that is gone out of the registry; `reason` is None when it never was, and its id stays free."""
        self.registry.sides.pop(side.ref, None)
        if side.events.is_committed:
            self.tally.note_side_over(reason or "closed")
        if reason is not None:
            self.registry.remember(side.ref, reason)

    # The end

    async def stop(self) -> None:
        """Close all Sides in parallel, then all sessions; bounded by `HOST_STOP_S` from the first call on.

        Cancellation: what is left is closed by force with the provider's connection.
        """
        with trio.CancelScope(shield=True, deadline=self.shutdown.begin()):
            sides = list(self.registry.sides.values())
            for side in sides:
                side.request_close("host_stopped")
            for side in sides:
                await side.gone.wait()
            async with trio.open_nursery() as nursery:
                for session in list(self.registry.sessions.values()):
                    nursery.start_soon(self._sessions.close_locked, session, "host_stopped")
        for session in list(self.registry.sessions.values()):  # the deadline has passed: whoever waits for one is told
            session.events.close("host_stopped")
            self._sessions.forget(session)


@asynccontextmanager
async def open_controller(
    adapters: Mapping[str, Adapter], *, durable: DurableGate | None = None, metrics: Metrics = NO_METRICS
) -> AsyncIterator[RuntimeController]:
    """Open a controller over adapters that outlive it.

    Cancellation: everything in it is closed, by force after `HOST_STOP_S`.
    """
    async with open_service_nursery() as nursery:
        gate = durable or DurableGate(None, MemoryMetadata(), metrics)
        controller = RuntimeController(nursery, adapters, gate, metrics)
        try:
            yield controller
        finally:
            await controller.stop()  # noqa: ASYNC102 - shields itself, with a deadline
