"""What a user holds: a session, a Side. What both can do is in `_scope_handle`, a turn in `turn_handle`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tutti_side.contract import (
    SIDE_INSTRUCTIONS,
    CanonicalRef,
    EndReason,
    RequestId,
    SideCapabilities,
    SideId,
    SideRef,
    TurnId,
    new_id,
)
from tutti_side.runtime._scope_handle import ScopeHandle
from tutti_side.runtime.errors import SessionBusyError, SideBusyError
from tutti_side.runtime.event_hub import Subscription

if TYPE_CHECKING:
    from tutti_side.runtime._session_scope import SessionScope
    from tutti_side.runtime._side_scope import SideScope
    from tutti_side.runtime.controller import RuntimeController

__all__ = ["SessionHandle", "SideHandle"]

CLOSE_WAIT_S = 20.0
"""Longer than a Side's own close may take, so that it is the Side that gives up first."""


class SideHandle(ScopeHandle):
    """A Side: ask it, close it. Several handles may stand for one Side."""

    def __init__(
        self, controller: "RuntimeController", scope: "SideScope", subscription: Subscription | None = None
    ) -> None:
        self.controller = controller
        self._scope = scope
        self._subscription = subscription

    @property
    def scope(self) -> "SideScope":
        """What this handle stands for."""
        return self._scope

    def __repr__(self) -> str:
        return f"<SideHandle {self.id} {self.scope.lifecycle.state}>"

    @property
    def id(self) -> SideId:
        """Its id."""
        return self.scope.ref.side

    @property
    def is_open(self) -> bool:
        """True while it takes questions."""
        return self.scope.is_open

    def events(self) -> Subscription:
        """Return a subscription to its events.

        The first call returns the one attached at the commit (sequence 1), if the open asked for it; any other starts
        at now.

        Raises:
          SideExpiredError: it is over.
        """
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            self.scope.require_open()
            subscription = self.scope.events.hub.new_subscription()
            self.scope.events.hub.attach(subscription)
        return subscription

    async def close(self) -> None:
        """Close the Side; its source never notices. Idempotent.

        Cancellation: the close goes on in the Side's own task.
        """
        if self._subscription is not None:
            self._subscription.close()
        self.scope.request_close()
        await self.scope.gone.wait()

    def _busy(self) -> Exception:
        return SideBusyError(self.id)

    def _check_submit(self, client_submit_id: str | None) -> None:
        super()._check_submit(client_submit_id)
        self.controller.require_own_submit(self.scope, client_submit_id)


class SessionHandle(ScopeHandle):
    """A live canonical session."""

    def __init__(self, controller: "RuntimeController", scope: "SessionScope") -> None:
        self.controller = controller
        self._scope = scope

    @property
    def scope(self) -> "SessionScope":
        """What this handle stands for."""
        return self._scope

    def __repr__(self) -> str:
        return f"<SessionHandle {self.ref.session} {self.scope.state}>"

    @property
    def ref(self) -> CanonicalRef:
        """Its identity."""
        return self.scope.ref

    @property
    def provider_session_id(self) -> str:
        """What the provider calls it."""
        return self.scope.provider_session_id

    def events(self) -> Subscription:
        """Return a subscription to its events from now on.

        Raises:
          SessionExpiredError: it is over.
        """
        self.scope.require_open()
        subscription = self.scope.events.hub.new_subscription()
        self.scope.events.hub.attach(subscription)
        return subscription

    async def set_host_context(self, host_context: str | None) -> None:
        """Keep the host's latest context for the agent: the session's next turns and every later Side get it.

        Raises:
          InvalidContentError: over 32 KiB, or not text.
          SessionExpiredError: the session is over.

        Cancellation: the old or the new one is kept, and used.
        """
        await self.controller.set_host_context(self.scope, host_context)

    async def side_capabilities(self) -> SideCapabilities:
        """Say whether a Side can be opened now, and what is missing if not. Cancellation: harmless."""
        return await self.controller.side_capabilities(self.ref)

    async def open_side(
        self,
        *,
        side_id: str | None = None,
        request_id: str | None = None,
        instructions: str = SIDE_INSTRUCTIONS,
        subscribe: bool = False,
    ) -> SideHandle:
        """Open a Side that lives until it is closed; see `RuntimeController.open_side`.

        Cancellation: before the commit rolled back, after it the handle is returned.
        """
        side = SideRef(self.ref.workspace, SideId(new_id() if side_id is None else side_id))
        request = RequestId(new_id() if request_id is None else request_id)
        return await self.controller.open_side(side, self.ref, request, instructions=instructions, subscribe=subscribe)

    @asynccontextmanager
    async def side(
        self,
        *,
        side_id: str | None = None,
        request_id: str | None = None,
        instructions: str = SIDE_INSTRUCTIONS,
        subscribe: bool = False,
    ) -> AsyncIterator[SideHandle]:
        """Open a Side for the block, and close it at its end, however it ends.

        The block's own exception leaves as itself.

        Cancellation: the Side is closed, waiting as long as a close may take at most.
        """
        side = await self.open_side(
            side_id=side_id, request_id=request_id, instructions=instructions, subscribe=subscribe
        )
        try:
            yield side
        finally:
            side.scope.request_close()
            # The Side's own task closes it within its bound; this only waits for it.
            with self.controller.shutdown.bounded(CLOSE_WAIT_S):
                await side.close()  # noqa: ASYNC102 - `bounded` shields

    async def close(self) -> None:
        """Close the session; its Sides live on. Idempotent.

        Cancellation: still open, or the provider's nursery finishes the close.
        """
        await self.controller.close_session(self.scope)

    async def wait_ended(self) -> EndReason:
        """Wait until the session is over, and return why.

        Cancellation: harmless.
        """
        await self.scope.ended.wait()
        return self.scope.events.ended or "closed"

    def _busy(self) -> Exception:
        return SessionBusyError(self.ref.session)

    def _claim_submit(self, client_submit_id: str | None) -> None:
        self.controller.registry.claim_submit(self.ref, client_submit_id)

    def _host_context(self) -> str | None:
        return self.scope.host_context

    def _note_submit(self, turn_id: TurnId, client_submit_id: str | None) -> None:
        self.controller.durable.submitted(self.ref, turn_id, client_submit_id)
