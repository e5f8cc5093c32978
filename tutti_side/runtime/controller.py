"""The controller: which sessions and Sides live, who may open and close them, and the nursery that contains them.

What may be opened or used is decided in `_registry`, between two awaits; waiting happens in the Side's own task (see
`_side_scope`) or in the caller. Locks are always taken in one order (see `_lifecycle_locks`).
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

import msgspec
import trio

from tutti_side.contract import (
    NO_METRICS,
    SIDE_INSTRUCTIONS,
    Adapter,
    CanonicalRef,
    EndReason,
    Metrics,
    OpenSide,
    ProviderLostError,
    RequestId,
    ResumeSession,
    SideCapabilities,
    SideConversationAdapter,
    SideRef,
    SourceMetadata,
    StartSession,
    check_id,
    check_instructions,
)
from tutti_side.nursery import open_service_nursery
from tutti_side.runtime._lifecycle_locks import LifecycleLocks
from tutti_side.runtime._log import log
from tutti_side.runtime._registry import Registry
from tutti_side.runtime._scope import EventScope
from tutti_side.runtime._session_scope import SessionScope
from tutti_side.runtime._shutdown import HOST_STOP_S, Shutdown
from tutti_side.runtime._side_scope import SideScope
from tutti_side.runtime.errors import (
    HostStoppedError,
    SessionExpiredError,
    SessionUnknownError,
    SideConflictError,
    SideExpiredError,
    SideInProgressError,
    SideUnsupportedError,
)
from tutti_side.runtime.handles import SessionHandle, SideHandle
from tutti_side.runtime.ports import DurableGate, MemoryMetadata
from tutti_side.runtime.statistics import ControllerStatistics

__all__ = ["HOST_STOP_S", "ControllerStatistics", "RuntimeController", "open_controller"]

T = TypeVar("T")

SNAPSHOT_WAIT_S = 20.0
"""A close of the source waits so long for an open that is taking its snapshot; then it aborts the open."""

ABORT_WAIT_S = 5.0
"""An opener that is cancelled waits so long for its rollback."""

METADATA_WAIT_S = 2.0
"""After a write of metadata that was cut short, so long is waited to undo it, or to learn what is kept."""


class RuntimeController:
    """Opens, finds and closes live sessions and Sides; made by `open_controller`."""

    def __init__(
        self, nursery: trio.Nursery, adapters: Mapping[str, Adapter], durable: DurableGate, metrics: Metrics
    ) -> None:
        self.locks = LifecycleLocks()
        self.durable = durable
        self.metrics = metrics
        self.failed_closes = 0
        self.registry = Registry()
        self.shutdown = Shutdown()
        self._nursery = nursery
        self._adapters = adapters
        self._dropped_events = 0
        self._live_sides = 0

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
            failed_closes=self.failed_closes,
            dropped_events=self._dropped_events,
        )

    # What sessions and Sides report

    def note_dropped(self, count: int) -> None:
        """Count events that reached nobody."""
        self._dropped_events += count

    def note_discarded(self, count: int) -> None:
        """Count events of a Side that reached nobody."""
        self.note_dropped(count)
        self.metrics.count("side_events", count, fate="discarded")

    def note_open(self, provider: str, buffered: int, took_s: float) -> None:
        """Count a Side that was committed: how long that took, and what had waited for it."""
        self._live_sides += 1
        self.metrics.gauge("live_sides", self._live_sides)
        self.metrics.count("side_events", buffered, fate="buffered")
        self.metrics.observe("side_open_phase", took_s, phase="total", provider=provider)

    def note_failed_close(self, provider: str | None) -> None:
        """Count a close that did not work at the provider."""
        self.failed_closes += 1
        self.metrics.count("failed_closes", provider=provider or "")

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
        self.registry.require_fresh(ref)
        adapter = self._adapters[provider]

        async def start(sink: EventScope) -> SourceMetadata:
            binding = await adapter.start(StartSession(ref=ref, cwd=cwd, settings=settings), sink)
            return SourceMetadata(
                provider=provider,
                provider_session_id=binding.provider_session_id,
                cwd=cwd,
                runtime=binding.runtime,
                host_context=host_context,
            )

        return await self._open_session(ref, adapter, start, is_new=True)

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
        adapter = self._adapters[kept.provider]

        async def resume(sink: EventScope) -> SourceMetadata:
            binding = await adapter.resume(ResumeSession(ref=ref, metadata=kept, settings=settings), sink)
            return msgspec.structs.replace(
                kept, provider_session_id=binding.provider_session_id, runtime=binding.runtime
            )

        return await self._open_session(ref, adapter, resume, is_new=False)

    async def _begin_session(
        self, begin: Callable[[EventScope], Awaitable[SourceMetadata]], sink: EventScope
    ) -> SourceMetadata:
        """Let the adapter start or resume a session; one that the host's stop overtook is told so."""
        try:
            return await begin(sink)
        except ProviderLostError as error:
            if self.shutdown.has_begun:
                raise HostStoppedError from error
            raise

    async def _open_session(
        self,
        ref: CanonicalRef,
        adapter: Adapter,
        begin: Callable[[EventScope], Awaitable[SourceMetadata]],
        *,
        is_new: bool,
    ) -> SessionHandle:
        self.shutdown.require_running()
        self.registry.require_free(ref)
        session = SessionScope(ref, adapter, self._lose_session, self.durable.report, self.note_dropped)
        self.registry.sessions[ref] = session
        begun = False
        try:
            async with self.locks.hold(ref):
                metadata = await self._begin_session(begin, session.events)
                begun = True
                await self.durable.write_metadata(ref, metadata)
                if session.events.ended is not None:
                    raise session.expired()
                session.provider_session_id = metadata.provider_session_id
                session.metadata = metadata
                session.state = "open"
                self.registry.ended.pop(ref, None)
                session.events.commit(metadata.provider_session_id, ())
        except BaseException:
            if begun:
                await self._close_adapter(session, self.shutdown.bounded(ABORT_WAIT_S))  # noqa: ASYNC102 - shields itself
                if is_new:
                    await self._after_cut_write(session, self.durable.forget_metadata(ref))  # noqa: ASYNC102 - as above
            self.registry.sessions.pop(ref, None)
            session.state = "closed"
            session.events.close("closed")
            raise
        return SessionHandle(self, session)

    async def delete_session(self, ref: CanonicalRef) -> None:
        """Close a canonical session for good: its Sides close with it, reason ``source_deleted``. Idempotent.

        Nothing is kept of it, so no later host finds it again. What its provider has persisted is the provider's.

        Raises:
          TuttiSideError: the metadata port's own; the session is closed, and the delete may be tried again.

        Cancellation: as for `close_session`; the Sides close in their own tasks.
        """
        self._close_sides_of(ref)  # at first, since one that is opening holds the session's lock
        session = self.registry.sessions.get(ref)
        if session is not None:
            await self.close_session(session, "source_deleted")
        self.registry.remember(ref, "source_deleted")
        for side in self._close_sides_of(ref):
            await side.gone.wait()
        await self.durable.forget_metadata(ref)

    def _close_sides_of(self, ref: CanonicalRef) -> list[SideScope]:
        sides = [side for side in self.registry.sides.values() if side.source == ref]
        for side in sides:
            side.request_close("source_deleted")
        return sides

    async def set_host_context(self, session: SessionScope, host_context: str | None) -> None:
        """Keep the host's latest context of a session; its next turns and every later Side get it.

        Raises:
          InvalidContentError: over `HOST_CONTEXT_BYTES_MAX`, or not text.
          SessionExpiredError: the session is over.

        Cancellation: the old or the new one is kept, and used.
        """
        check_instructions("host_context", host_context)
        async with self.locks.hold(session.ref):
            if not session.is_live or session.metadata is None:
                raise session.expired()
            metadata = msgspec.structs.replace(session.metadata, host_context=host_context)
            try:
                await self.durable.write_metadata(session.ref, metadata)
            except BaseException:  # the old or the new one is kept; that one is also used
                kept = await self._after_cut_write(session, self.durable.read_metadata(session.ref))  # noqa: ASYNC102 - shields itself
                session.metadata = kept or session.metadata
                raise
            session.metadata = metadata

    async def _after_cut_write(self, session: SessionScope, call: Awaitable[T]) -> T | None:
        """Make a call of the metadata port all the same; None when it failed or took too long, which is logged."""
        problem: Exception | None = None
        with self.shutdown.bounded(METADATA_WAIT_S):
            try:
                return await call
            except Exception as error:  # contained: the caller is told why it came to this
                problem = error
        log(logging.WARNING, "the metadata of a session may be stale", session.ref, phase="metadata", error=problem)
        return None

    async def close_session(self, session: SessionScope, reason: EndReason = "closed") -> None:
        """Close a canonical session; its Sides live on. Idempotent.

        An open that is branching it goes first, for `SNAPSHOT_WAIT_S` at most; then it is aborted. Whoever holds the
        session's lock then still, such as a metadata port that does not answer, is not waited for any longer.

        Cancellation: the session is still open, or the provider's nursery finishes the close.
        """
        with trio.move_on_after(SNAPSHOT_WAIT_S) as waited:
            await self._close_session_locked(session, reason)
        if not waited.cancelled_caught:
            return
        for side in self.registry.sides.values():
            if side.source == session.ref:
                side.abort("its source is closing")
        with trio.move_on_after(ABORT_WAIT_S) as waited:
            await self._close_session_locked(session, reason)
        if waited.cancelled_caught:
            await self._close_session_now(session, reason)

    async def _close_session_locked(self, session: SessionScope, reason: EndReason = "closed") -> None:
        async with self.locks.hold(session.ref):
            await self._close_session_now(session, reason)

    async def _close_session_now(self, session: SessionScope, reason: EndReason) -> None:
        if session.state != "open":
            return
        session.state = "closing"
        await self._close_adapter(session, self.shutdown.bounded(SNAPSHOT_WAIT_S))
        session.events.close(reason)
        self._forget_session(session)

    def _lose_session(self, session: SessionScope) -> None:
        """Follow a session that its adapter lost; what the adapter still holds of it is released in the background."""
        was_open = session.state == "open"
        self._forget_session(session)
        if was_open and not self.shutdown.has_begun:
            bound = self.shutdown.bounded(SNAPSHOT_WAIT_S, shield=False)
            self._nursery.start_soon(self._close_adapter, session, bound, name=f"lost:{session.ref.session}")

    async def _close_adapter(self, session: SessionScope, bound: AbstractContextManager[trio.CancelScope]) -> None:
        """Close a session at its provider; a failure, or the bound's end, is contained, counted and logged."""
        try:
            with bound as scope:
                await session.adapter.close(session.ref)
            if scope.cancelled_caught:
                self._note_failed_session_close(session, None)
        except Exception as error:  # contained: the adapter's nursery keeps what it could not release
            self._note_failed_session_close(session, error)

    def _note_failed_session_close(self, session: SessionScope, error: Exception | None) -> None:
        self.note_failed_close(session.adapter.name)
        log(
            logging.WARNING,
            "a session did not close at its provider",
            session.ref,
            provider=session.adapter.name,
            child_id=session.provider_session_id,
            phase="close",
            reason="bound" if error is None else "error",
            error=error,
        )

    def _forget_session(self, session: SessionScope) -> None:
        """Take a session that is over out of the registry: it was closed, or its adapter lost it. Idempotent."""
        if self.registry.sessions.get(session.ref) is session and session.state != "starting":
            del self.registry.sessions[session.ref]
            self.registry.remember(session.ref, session.events.ended or "closed")
            session.state = "closed"
        session.ended.set()

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
        self.metrics.count("side_opens", outcome="attempted")
        outcome = "cancelled"
        try:
            handle = await self._open_or_join(ref, source, request_id, instructions, subscribe=subscribe)
            outcome = "accepted"
            return handle
        except Exception as error:
            outcome = open_outcome(error)
            raise
        finally:
            self.metrics.count("side_opens", outcome=outcome)

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
            self._live_sides -= 1
            self.metrics.gauge("live_sides", self._live_sides)
            self.metrics.count("side_ends", reason=reason or "closed")
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
                    nursery.start_soon(self._close_session_locked, session, "host_stopped")
        for session in list(self.registry.sessions.values()):  # the deadline has passed: whoever waits for one is told
            session.events.close("host_stopped")
            self._forget_session(session)


def open_outcome(error: Exception) -> str:
    """Return what an open that raised counts as: one of these for each call, beside ``attempted``.

    ``refused``: another open, a close, or the host's stop was in its way, or the id belongs to something else.
    """
    if isinstance(error, SideUnsupportedError):
        return "unsupported"
    if isinstance(error, SideExpiredError):
        return "expired"
    if isinstance(error, SideConflictError | SideInProgressError | HostStoppedError):
        return "refused"
    return "failed"


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
