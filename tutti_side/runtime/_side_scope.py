"""One Side: one task with one nursery's worth of life, from reservation to close.

`SideScope.run` is started in the controller's nursery and never raises: whatever goes wrong inside ends this Side only.
It takes the lifecycle locks itself, so an opener that gives up leaves nothing half held. The opener and everyone who
joined wait for `settled`; a closer waits for `gone`.
"""

import logging
from typing import TYPE_CHECKING

import msgspec
import trio

from tutti_side.contract import (
    Adapter,
    CanonicalRef,
    EndReason,
    OpenSide,
    RequestId,
    SideBinding,
    SideConversationAdapter,
    SideRef,
)
from tutti_side.errors import TuttiSideError
from tutti_side.runtime._log import log
from tutti_side.runtime._scope import EventScope
from tutti_side.runtime._side_state import SideLifecycle
from tutti_side.runtime.errors import (
    OpenFailedError,
    SessionUnknownError,
    SideError,
    SideExpiredError,
    SideUnsupportedError,
)
from tutti_side.runtime.event_hub import Subscription

if TYPE_CHECKING:
    from tutti_side.runtime.controller import RuntimeController

__all__ = ["CLOSE_BOUND_S", "RELEASE_BOUND_S", "SideScope"]

CLOSE_BOUND_S = 15.0
"""A close may take so long at the provider (decline, interrupt, wait for the turn's end, clean, unsubscribe); after
that the adapter's close is cancelled, which hands the rest to the provider's own nursery."""

RELEASE_BOUND_S = 30.0
"""A Side whose open failed stays ``draining`` so long at most, waiting for the provider's late answer."""


class SideScope:
    """A Side from its reservation on; made by the controller only."""

    def __init__(self, controller: "RuntimeController", request: OpenSide, request_id: RequestId) -> None:
        self.ref: SideRef = request.side
        self.source: CanonicalRef = request.source
        self.request_id = request_id
        self.source_provider_session_id = ""
        self.events = EventScope(ends_when_all_lag=True, on_end=self._on_end, on_drop=controller.tally.note_discarded)
        self.lifecycle = SideLifecycle()
        self.settled = trio.Event()
        self.gone = trio.Event()
        self.openers = 0
        self.error: SideError | None = None
        self.binding: SideBinding | None = None
        self._adapter: Adapter | None = None
        self._controller = controller
        self._request = request
        self._subscriptions: list[Subscription] = []
        self._opening = trio.CancelScope()
        self._stop = trio.Event()
        self._end_reason: EndReason = "closed"
        self._reserved_at = trio.current_time()

    def __repr__(self) -> str:
        return f"<SideScope {self.ref.side} {self.lifecycle.state}>"

    @property
    def adapter(self) -> Adapter:
        """Its source's adapter; known once the source was found."""
        assert self._adapter is not None
        return self._adapter

    @property
    def is_open(self) -> bool:
        """True while it takes questions."""
        return self.lifecycle.state == "open" and self.events.ended is None

    def require_open(self) -> None:
        """Raise `SideExpiredError` when it takes no questions."""
        if not self.is_open:
            raise self.expired()

    @property
    def is_given_up(self) -> bool:
        """True when its open was cancelled for want of anyone who waits: it is about to drain."""
        waits = self.lifecycle.state in ("reserved", "opening")
        return waits and self._opening.cancel_called and not self._stop.is_set()

    @property
    def is_ending(self) -> bool:
        """True once its close was asked for or its provider lost it, also when its task has not run since."""
        return self._stop.is_set()

    # What others may do to it; all synchronous and idempotent.

    def want_events(self, subscription: Subscription) -> None:
        """Attach a subscription at the commit, so that it sees sequence 1."""
        self._subscriptions.append(subscription)

    def abort(self, reason: str) -> None:
        """Cancel the open, if it is not committed yet."""
        self._opening.cancel(reason=reason)

    def request_close(self, reason: EndReason = "closed") -> None:
        """Ask for the close, in whatever state; an open that runs is cancelled."""
        if not self._stop.is_set():
            self._end_reason = reason
            self._stop.set()
            self.abort(f"closing the Side: {reason}")

    def expired(self) -> SideExpiredError:
        """Return the error for an operation that comes too late."""
        return SideExpiredError(self.ref.side, self.events.ended or self._end_reason)

    def _on_end(self, reason: EndReason) -> None:
        """Follow the scope's own end: the provider lost it, or nobody kept up with it."""
        self.request_close(reason)

    # The task.

    async def run(self) -> None:
        """Live: open, wait for the wish to close, close. Never raises but `trio.Cancelled`."""
        try:
            try:
                with self._opening:
                    await self._open()
            except Exception as error:  # outside the scope: what is left of a group that a cancel was part of, as well
                self.error = self._as_side_error(error)
            if self.lifecycle.state == "open":
                await self._stop.wait()
        finally:
            if self.lifecycle.state == "open":
                self.request_close("host_stopped")  # keeps an earlier reason; without one, all around it was cancelled
            try:
                with self._controller.shutdown.bounded(CLOSE_BOUND_S if self.binding else RELEASE_BOUND_S) as closing:
                    await self._close()  # noqa: ASYNC102 - the scope is shielded, and has a deadline
                if closing.cancelled_caught:
                    self._note_failed_close(None)
            except Exception as error:  # contained: the adapter's nursery keeps what it could not release
                self._note_failed_close(error)
            self._finish()

    async def _open(self) -> None:
        """Open under the locks and commit."""
        async with self._controller.locks.hold(self.source, self.ref):
            self.lifecycle.step("start")
            request = await self._find_source()
            binding = await self._open_at_provider(request)
            self._commit(binding)

    def _as_side_error(self, error: Exception) -> SideError:
        if isinstance(error, SideError):
            return error
        # Our errors say what went wrong without content; of any other only the type is safe to show.
        problem = str(error) if isinstance(error, TuttiSideError) else f"{type(error).__name__} in the adapter"
        failed = OpenFailedError(self.ref.side, "provider", problem)
        failed.__cause__ = error
        return failed

    async def _find_source(self) -> OpenSide:
        """Find the source, live or kept, and compose what the Side is told: host context, then its instructions."""
        controller = self._controller
        try:
            self._adapter, history = await controller.find_source(self.source)
        except SessionUnknownError as error:
            raise OpenFailedError(self.ref.side, "source", str(error)) from error
        live = controller.registry.live_source(self.source)
        if history is not None:
            self.source_provider_session_id = history.provider_session_id
            context = history.host_context
            kind = "historical"
        elif live is not None:
            self.source_provider_session_id = live.provider_session_id
            context = live.host_context
            kind = "active" if live.events.turns.is_busy else "idle"
        else:
            raise OpenFailedError(self.ref.side, "source", f"session {self.source.session} has just ended")
        controller.metrics.count("side_opens_by_source", source=kind)
        instructions = self._request.instructions
        if context:
            instructions = f"{context}\n\n{instructions}"
        return msgspec.structs.replace(self._request, instructions=instructions, history=history)

    async def _open_at_provider(self, request: OpenSide) -> SideBinding:
        adapter = self.adapter
        side = self.ref.side
        if not isinstance(adapter, SideConversationAdapter):
            raise SideUnsupportedError(side, f"provider {adapter.name} offers no Sides")
        promised = await adapter.side_capabilities(self.source, request.history)
        if not promised:
            missing = ", ".join(promised.missing())
            raise SideUnsupportedError(side, f"{promised.reason or 'not attested'} (missing: {missing})")
        self.binding = binding = await adapter.open_side(request, self.events)
        seen = binding.capabilities
        if not seen:
            raise OpenFailedError(side, "result", f"the provider's result lacks {', '.join(seen.missing())}")
        if self._controller.registry.is_foreign(self, binding):
            self.binding = None  # whatever that is, it is not ours to close
            raise OpenFailedError(side, "result", "the provider returned an identity that is not a new branch")
        return binding

    def _commit(self, binding: SideBinding) -> None:
        """One synchronous block: attach, publish, drain, open the gate, register."""
        if self.events.ended is not None:
            raise OpenFailedError(self.ref.side, "provider", f"it ended while it was opening ({self.events.ended})")
        self.lifecycle.step("commit")
        buffered = self.events.buffered_events
        self.events.commit(binding.provider_session_id, self._subscriptions)
        self.settled.set()
        self._controller.tally.note_open(self.adapter.name, buffered, trio.current_time() - self._reserved_at)
        self._log(logging.INFO, "a Side is open", phase="open")

    async def _close(self) -> None:
        """Release everything at the provider; bounded by the caller."""
        if self.lifecycle.state == "open":
            self.lifecycle.step("close")
            await self.adapter.close(self.ref)
            return
        self.lifecycle.step("abort")
        self.events.close(self._end_reason)
        if self.error is None:
            self.error = (
                self.expired() if self._stop.is_set() else OpenFailedError(self.ref.side, "source", "cancelled")
            )
        self.settled.set()
        self._log_failed_open(self.error)
        adapter: object = self._adapter
        if self.binding is not None:
            await self.adapter.close(self.ref)
        elif isinstance(adapter, SideConversationAdapter):
            await adapter.wait_side_released(self.ref)

    def _finish(self) -> None:
        """Be gone: the terminal event, the registry, the waiters; synchronous."""
        if self._stop.is_set() or self.lifecycle.state == "closing":
            reason = self._end_reason
            if self.events.is_committed:
                reason = self.events.ended or reason
                self.events.close(reason)
            self.lifecycle.step("end_closed" if reason == "closed" else "end_expired")
            self._controller.forget_side(self, reason)
            self._log(logging.INFO, "a Side was closed" if reason == "closed" else "a Side expired", reason=reason)
        else:
            self.lifecycle.step("release")
            self._controller.forget_side(self, None)
        self.settled.set()
        self.gone.set()

    # Records.

    def _note_failed_close(self, error: Exception | None) -> None:
        """Count a close that the adapter failed at (`error`), or that took longer than its bound."""
        self._controller.tally.note_failed_close(None if self._adapter is None else self._adapter.name)
        reason = "bound" if error is None else "error"
        self._log(logging.WARNING, "a Side did not close at its provider", phase="close", reason=reason, error=error)

    def _log_failed_open(self, error: SideError) -> None:
        if isinstance(error, SideUnsupportedError):
            self._log(logging.INFO, "a Side is not supported", phase="capabilities")
        elif isinstance(error, OpenFailedError):
            self._log(logging.WARNING, "a Side could not be opened", phase=error.phase, error=error.__cause__)
        else:
            self._log(logging.INFO, "a Side ended while it was opening", phase="opening", reason=self._end_reason)

    def _log(
        self,
        level: int,
        message: str,
        *,
        phase: str | None = None,
        reason: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        log(
            level,
            message,
            self.ref,
            source=self.source,
            provider=None if self._adapter is None else self._adapter.name,
            child_id=None if self.binding is None else self.binding.provider_session_id,
            request_id=self.request_id,
            phase=phase,
            reason=reason,
            error=error,
        )
