"""One live canonical session, as the controller holds it."""

from collections.abc import Callable
from typing import Literal

import trio

from tutti_side.contract import Adapter, CanonicalRef, EventBatch, SourceMetadata
from tutti_side.runtime._scope import EventScope
from tutti_side.runtime.errors import SessionExpiredError

__all__ = ["SessionScope"]


class SessionScope:
    """One live canonical session."""

    def __init__(
        self,
        ref: CanonicalRef,
        adapter: Adapter,
        on_lost: Callable[["SessionScope"], None],
        report: Callable[[CanonicalRef, EventBatch], None],
        on_drop: Callable[[int], None],
    ) -> None:
        self.ref = ref
        self.adapter = adapter
        self.events = EventScope(
            ends_when_all_lag=False,
            on_end=lambda _: on_lost(self),
            tap=lambda batch: report(ref, batch),
            on_drop=on_drop,
        )
        self.provider_session_id = ""
        self.metadata: SourceMetadata | None = None
        self.state: Literal["starting", "open", "closing", "closed"] = "starting"
        self.ended = trio.Event()

    @property
    def host_context(self) -> str | None:
        """The host's latest context for the agent."""
        return None if self.metadata is None else self.metadata.host_context

    @property
    def is_live(self) -> bool:
        """True while a connection of ours holds it."""
        return self.state == "open" and self.events.ended is None

    def require_open(self) -> None:
        """Raise `SessionExpiredError` when no connection of ours holds it."""
        if not self.is_live:
            raise self.expired()

    def expired(self) -> SessionExpiredError:
        """Return the error for an operation that comes too late."""
        return SessionExpiredError(self.ref.session, self.events.ended or "closed")
