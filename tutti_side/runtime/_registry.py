"""Which ids live, which are over, and what each may be used for. Pure: it decides, and raises; it never waits.

One id is one thing: a session's is never a Side's, in either order, and what is over is never taken for new. The
controller asks here between two awaits, so nothing that is decided can be raced.
"""

from typing import TYPE_CHECKING

from tutti_side.contract import CanonicalRef, EndReason, RequestId, ScopeRef, SessionId, SideBinding, SideId, SideRef
from tutti_side.runtime.errors import (
    SessionConflictError,
    SessionExpiredError,
    SideConflictError,
    SideExpiredError,
    SideInProgressError,
    SideNotFoundError,
)

if TYPE_CHECKING:
    from tutti_side.runtime._session_scope import SessionScope
    from tutti_side.runtime._side_scope import SideScope

__all__ = ["ENDED_REMEMBERED_MAX", "SUBMITS_REMEMBERED_MAX", "Registry"]

SUBMITS_REMEMBERED_MAX = 65_536
"""Canonical submits whose `client_submit_id` a Side may not use."""

ENDED_REMEMBERED_MAX = 65_536
"""Closed and expired ids that are refused for ever; older ones are forgotten, and would be taken for new."""


class Registry:
    """The sessions and Sides of one controller, and what is remembered of those that are over."""

    def __init__(self) -> None:
        self.sessions: dict[CanonicalRef, SessionScope] = {}
        self.sides: dict[SideRef, SideScope] = {}
        self.ended: dict[ScopeRef, EndReason] = {}
        self._submits: dict[tuple[str, str], None] = {}

    def remember(self, ref: ScopeRef, reason: EndReason) -> None:
        """Note that an id is over, and why."""
        self.ended[ref] = reason
        if len(self.ended) > ENDED_REMEMBERED_MAX:
            del self.ended[next(iter(self.ended))]

    # Sessions

    def require_free(self, ref: CanonicalRef) -> None:
        """Raise `SessionConflictError` when this id is a live session's, or is or was a Side's: one id, one thing."""
        if ref in self.sessions:
            raise SessionConflictError(ref.session, "is in use here; use the handle of that session, or a fresh id")
        as_side = SideRef(ref.workspace, SideId(ref.session))
        if as_side in self.sides or as_side in self.ended:
            raise SessionConflictError(ref.session, "is a Side's; use a fresh id")

    def require_fresh(self, ref: CanonicalRef) -> None:
        """As `require_free`, and raise `SessionExpiredError` when a session of this id is over."""
        self.require_free(ref)
        if ref in self.ended:
            raise SessionExpiredError(ref.session, self.ended[ref])

    def is_deleted(self, ref: CanonicalRef) -> bool:
        """True for a session that its user deleted."""
        return self.ended.get(ref) == "source_deleted"

    def live_source(self, source: CanonicalRef) -> "SessionScope | None":
        """Return the live session of this ref, if a connection of ours holds it."""
        session = self.sessions.get(source)
        return session if session is not None and session.is_live else None

    # Sides

    def require_same(self, ref: SideRef, source: CanonicalRef, request_id: RequestId) -> None:
        """Raise `SideConflictError` when there is a Side under this id, and it is another source's or request's."""
        side = self.sides.get(ref)
        if side is not None and (side.source != source or side.request_id != request_id):
            problem = "belongs to another source or request"
            raise SideConflictError(ref.side, source.session, request_id, problem)

    def find_or_allow(self, ref: SideRef, source: CanonicalRef, request_id: RequestId) -> "SideScope | None":
        """Return the Side that an open of this identity joins or gets; None when a new one may be made.

        Raises:
          SideConflictError: another source or request, a canonical session's id, or a Side as the source.
          SideInProgressError: a failed open of this id is still draining.
          SideExpiredError: it is over, or about to be.
        """
        self.require_same(ref, source, request_id)
        side = self.sides.get(ref)
        if side is not None:
            if side.lifecycle.state == "draining" or side.is_given_up:
                raise SideInProgressError(ref.side, "draining")
            if side.lifecycle.state == "closing" or (side.lifecycle.state == "open" and side.is_ending):
                raise side.expired()
            return side
        if ref in self.ended:
            raise SideExpiredError(ref.side, self.ended[ref])
        as_session = CanonicalRef(ref.workspace, SessionId(ref.side))
        if as_session in self.sessions or as_session in self.ended:
            raise SideConflictError(ref.side, source.session, request_id, "is a canonical session's id")
        as_side = SideRef(source.workspace, SideId(source.session))
        if as_side in self.sides or as_side in self.ended:
            raise SideConflictError(ref.side, source.session, request_id, "would branch a Side, which has no history")
        return None

    def find_open(self, ref: SideRef) -> "SideScope":
        """Return an open Side.

        Raises:
          SideInProgressError: it is opening or draining.
          SideExpiredError: it was closed or lost.
          SideNotFoundError: there is no such Side.
        """
        side = self.sides.get(ref)
        if side is None:
            if ref in self.ended:
                raise SideExpiredError(ref.side, self.ended[ref])
            raise SideNotFoundError(ref.side)
        if side.lifecycle.state == "closing":
            raise side.expired()
        if side.lifecycle.state != "open":
            raise SideInProgressError(ref.side, side.lifecycle.state)
        return side

    def is_foreign(self, side: "SideScope", binding: SideBinding) -> bool:
        """True when what the adapter returned is not a new branch of the source that was asked for."""
        if binding.source_provider_session_id != side.source_provider_session_id:
            return True
        known = {side.source_provider_session_id}  # a historical source is not among the live ones
        known.update(session.provider_session_id for session in self.sessions.values())
        known.update(
            other.binding.provider_session_id for other in self.sides.values() if other.binding and other is not side
        )
        return binding.provider_session_id in known

    # Submits

    def claim_submit(self, ref: CanonicalRef, client_submit_id: str | None) -> None:
        """Take note of the id of a canonical submit, before it is made: a Side may not use it from now on."""
        if client_submit_id is not None:
            self._submits[(ref.workspace, client_submit_id)] = None
            if len(self._submits) > SUBMITS_REMEMBERED_MAX:
                del self._submits[next(iter(self._submits))]

    def is_canonical_submit(self, ref: SideRef, client_submit_id: str | None) -> bool:
        """True for an id that a canonical submit of the same workspace has."""
        return client_submit_id is not None and (ref.workspace, client_submit_id) in self._submits
