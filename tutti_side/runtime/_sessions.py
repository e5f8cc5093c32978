"""The canonical sessions of a controller: started, loaded, closed, lost and deleted.

A session that opens or closes holds its lifecycle lock. What its adapter still has of it when that goes wrong is closed
there too, within a bound; what was kept of it is undone.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec
import trio

from tutti_side.contract import (
    Adapter,
    CanonicalRef,
    EndReason,
    ProviderLostError,
    ResumeSession,
    SourceMetadata,
    StartSession,
)
from tutti_side.runtime._lifecycle_locks import LifecycleLocks
from tutti_side.runtime._log import log
from tutti_side.runtime._registry import Registry
from tutti_side.runtime._scope import EventScope
from tutti_side.runtime._session_scope import SessionScope
from tutti_side.runtime._shutdown import ABORT_WAIT_S, Shutdown
from tutti_side.runtime._side_scope import SideScope
from tutti_side.runtime._tally import Tally
from tutti_side.runtime.errors import HostStoppedError
from tutti_side.runtime.ports import DurableGate

__all__ = ["SNAPSHOT_WAIT_S", "Sessions"]

T = TypeVar("T")

SNAPSHOT_WAIT_S = 20.0
"""A close of the source waits so long for an open that is taking its snapshot; then it aborts the open."""

METADATA_WAIT_S = 2.0
"""After a write of metadata that was cut short, so long is waited to undo it, or to learn what is kept."""


class Sessions:
    """Opens and ends canonical sessions; made by the controller only.

    Args:
      nursery: the controller's; releases what was lost.
      adapters: by provider; they outlive the sessions.
      durable: keeps metadata, and reports what sessions say.
      registry: where the live ones are, and the Sides that a delete closes.
      locks: one key for each session and Side.
      shutdown: caps every bound.
      tally: counts what fails.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        adapters: Mapping[str, Adapter],
        durable: DurableGate,
        registry: Registry,
        locks: LifecycleLocks,
        shutdown: Shutdown,
        tally: Tally,
    ) -> None:
        self._nursery = nursery
        self._adapters = adapters
        self._durable = durable
        self._registry = registry
        self._locks = locks
        self._shutdown = shutdown
        self._tally = tally

    # To open one

    async def start(
        self, ref: CanonicalRef, provider: str, cwd: str, settings: object, host_context: str | None
    ) -> SessionScope:
        """Start one at a provider; see `RuntimeController.start_session`."""
        self._registry.require_fresh(ref)
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

        return await self._open(ref, adapter, start, is_new=True)

    async def resume(self, ref: CanonicalRef, kept: SourceMetadata, settings: object) -> SessionScope:
        """Load one of which this was kept; see `RuntimeController.resume_session`."""
        adapter = self._adapters[kept.provider]

        async def resume(sink: EventScope) -> SourceMetadata:
            binding = await adapter.resume(ResumeSession(ref=ref, metadata=kept, settings=settings), sink)
            return msgspec.structs.replace(
                kept, provider_session_id=binding.provider_session_id, runtime=binding.runtime
            )

        return await self._open(ref, adapter, resume, is_new=False)

    async def _open(
        self,
        ref: CanonicalRef,
        adapter: Adapter,
        begin: Callable[[EventScope], Awaitable[SourceMetadata]],
        *,
        is_new: bool,
    ) -> SessionScope:
        self._shutdown.require_running()
        self._registry.require_free(ref)
        session = SessionScope(ref, adapter, self._lose, self._durable.report, self._tally.note_dropped)
        self._registry.sessions[ref] = session
        begun = False
        try:
            async with self._locks.hold(ref):
                metadata = await self._begin(begin, session.events)
                begun = True
                await self._durable.write_metadata(ref, metadata)
                if session.events.ended is not None:
                    raise session.expired()
                session.provider_session_id = metadata.provider_session_id
                session.metadata = metadata
                session.state = "open"
                self._registry.ended.pop(ref, None)
                session.events.commit(metadata.provider_session_id, ())
        except BaseException:
            if begun:
                await self._close_adapter(session, self._shutdown.bounded(ABORT_WAIT_S))  # noqa: ASYNC102 - shields itself
                if is_new:
                    await self._after_cut_write(session, self._durable.forget_metadata(ref))  # noqa: ASYNC102 - as above
            self._registry.sessions.pop(ref, None)
            session.state = "closed"
            session.events.close("closed")
            raise
        return session

    async def _begin(
        self, begin: Callable[[EventScope], Awaitable[SourceMetadata]], sink: EventScope
    ) -> SourceMetadata:
        """Let the adapter start or resume a session; one that the host's stop overtook is told so."""
        try:
            return await begin(sink)
        except ProviderLostError as error:
            if self._shutdown.has_begun:
                raise HostStoppedError from error
            raise

    # What is kept of one

    async def set_host_context(self, session: SessionScope, host_context: str | None) -> None:
        """Keep the host's latest context of one; see `RuntimeController.set_host_context`."""
        async with self._locks.hold(session.ref):
            if not session.is_live or session.metadata is None:
                raise session.expired()
            metadata = msgspec.structs.replace(session.metadata, host_context=host_context)
            try:
                await self._durable.write_metadata(session.ref, metadata)
            except BaseException:  # the old or the new one is kept; that one is also used
                kept = await self._after_cut_write(session, self._durable.read_metadata(session.ref))  # noqa: ASYNC102 - shields itself
                session.metadata = kept or session.metadata
                raise
            session.metadata = metadata

    async def _after_cut_write(self, session: SessionScope, call: Awaitable[T]) -> T | None:
        """Make a call of the metadata port all the same; None when it failed or took too long, which is logged."""
        problem: Exception | None = None
        with self._shutdown.bounded(METADATA_WAIT_S):
            try:
                return await call
            except Exception as error:  # contained: the caller is told why it came to this
                problem = error
        log(logging.WARNING, "the metadata of a session may be stale", session.ref, phase="metadata", error=problem)
        return None

    # To end one

    async def close(self, session: SessionScope, reason: EndReason) -> None:
        """Close one; its Sides live on. See `RuntimeController.close_session`."""
        with trio.move_on_after(SNAPSHOT_WAIT_S) as waited:
            await self.close_locked(session, reason)
        if not waited.cancelled_caught:
            return
        for side in self._registry.sides.values():
            if side.source == session.ref:
                side.abort("its source is closing")
        with trio.move_on_after(ABORT_WAIT_S) as waited:
            await self.close_locked(session, reason)
        if waited.cancelled_caught:
            await self._close_now(session, reason)

    async def close_locked(self, session: SessionScope, reason: EndReason) -> None:
        """Close one as soon as its lock is free, however long that takes.

        Cancellation: still open, or the provider's nursery finishes the close.
        """
        async with self._locks.hold(session.ref):
            await self._close_now(session, reason)

    async def _close_now(self, session: SessionScope, reason: EndReason) -> None:
        if session.state != "open":
            return
        session.state = "closing"
        await self._close_adapter(session, self._shutdown.bounded(SNAPSHOT_WAIT_S))
        session.events.close(reason)
        self.forget(session)

    async def delete(self, ref: CanonicalRef) -> None:
        """Close one for good, and its Sides; see `RuntimeController.delete_session`."""
        self._close_sides_of(ref)  # at first, since one that is opening holds the session's lock
        session = self._registry.sessions.get(ref)
        if session is not None:
            await self.close(session, "source_deleted")
        self._registry.remember(ref, "source_deleted")
        for side in self._close_sides_of(ref):
            await side.gone.wait()
        await self._durable.forget_metadata(ref)

    def _close_sides_of(self, ref: CanonicalRef) -> list[SideScope]:
        sides = [side for side in self._registry.sides.values() if side.source == ref]
        for side in sides:
            side.request_close("source_deleted")
        return sides

    def _lose(self, session: SessionScope) -> None:
        """Follow a session that its adapter lost; what the adapter still holds of it is released in the background."""
        was_open = session.state == "open"
        self.forget(session)
        if was_open and not self._shutdown.has_begun:
            bound = self._shutdown.bounded(SNAPSHOT_WAIT_S, shield=False)
            self._nursery.start_soon(self._close_adapter, session, bound, name=f"lost:{session.ref.session}")

    def forget(self, session: SessionScope) -> None:
        """Take a session that is over out of the registry: it was closed, or its adapter lost it. Idempotent."""
        if self._registry.sessions.get(session.ref) is session and session.state != "starting":
            del self._registry.sessions[session.ref]
            self._registry.remember(session.ref, session.events.ended or "closed")
            session.state = "closed"
        session.ended.set()

    async def _close_adapter(self, session: SessionScope, bound: AbstractContextManager[trio.CancelScope]) -> None:
        """Close a session at its provider; a failure, or the bound's end, is contained, counted and logged."""
        try:
            with bound as scope:
                await session.adapter.close(session.ref)
            if scope.cancelled_caught:
                self._note_failed_close(session, None)
        except Exception as error:  # contained: the adapter's nursery keeps what it could not release
            self._note_failed_close(session, error)

    def _note_failed_close(self, session: SessionScope, error: Exception | None) -> None:
        self._tally.note_failed_close(session.adapter.name)
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
