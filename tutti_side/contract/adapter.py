"""Adapter: what every provider does for a session or Side once it is open, and how events leave it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

from tutti_side.contract.content import Content
from tutti_side.contract.diagnosis import Diagnosis
from tutti_side.contract.events import EndReason, Event
from tutti_side.contract.ids import CanonicalRef, ScopeRef, TurnId
from tutti_side.contract.metadata import SourceMetadata
from tutti_side.contract.ports import ProviderPorts
from tutti_side.contract.turns import TurnMode

__all__ = [
    "Adapter",
    "EventSink",
    "ExecTurn",
    "Liveness",
    "Provider",
    "ResumeSession",
    "SessionBinding",
    "StartSession",
]


Liveness = Literal["live", "lost", "unknown"]
"""``lost``: its process or connection is gone; ``unknown``: this adapter does not know it (any more)."""


class StartSession(msgspec.Struct, frozen=True, kw_only=True):
    """Start a canonical session."""

    ref: CanonicalRef
    cwd: str
    """Absolute path of the directory that the agent works in."""
    settings: object = None
    """The provider's own settings struct, or None for its defaults."""


class ResumeSession(msgspec.Struct, frozen=True, kw_only=True):
    """Load a canonical session that the provider has persisted."""

    ref: CanonicalRef
    metadata: SourceMetadata
    settings: object = None
    """As in `StartSession`."""


class SessionBinding(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider calls the session that it started."""

    provider_session_id: str
    runtime: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """The provider's own facts to keep with the session's metadata."""


class ExecTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Start one turn."""

    content: tuple[Content, ...]
    client_submit_id: str | None = None
    """Correlates the provider's events with this submit, nothing more."""
    host_context: str | None = None
    """For a canonical session's turn: the host's latest context for the agent. A Side has it in its instructions."""
    mode: TurnMode | None = None
    """For this turn alone; None is the session's own mode, and for a Side its source's."""


class EventSink(Protocol):
    """Where an adapter puts the events of one session or Side. Synchronous: it never waits, and never raises."""

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        """Take events in the provider's own order; `size_bytes` is about what they hold in memory."""
        ...

    def end(self, reason: EndReason) -> None:
        """Take the provider's word that the session is lost to it; nothing is emitted afterwards."""
        ...


class Adapter(Protocol):
    """One provider, open.

    Everything is addressed by our own `ScopeRef`, so an identity that the provider returns is never acted upon by
    anyone but the adapter that validated it.
    """

    @property
    def name(self) -> str:
        """The provider's name, as in ``open_host(codex())``."""
        ...

    async def start(self, request: StartSession, sink: EventSink) -> SessionBinding:
        """Start a canonical session.

        Raises:
          TuttiSideError: the adapter's own, with nothing left at the provider.

        Cancellation: rolled back; a session that the provider makes later is released by the adapter.
        """
        ...

    async def resume(self, request: ResumeSession, sink: EventSink) -> SessionBinding:
        """Load a canonical session; otherwise as `start`. Never called for a Side.

        Raises:
          TuttiSideError: the adapter's own, with nothing left at the provider.

        Cancellation: rolled back.
        """
        ...

    def liveness(self, ref: ScopeRef) -> Liveness:
        """Say whether the provider still holds a session or Side; without wire traffic."""
        ...

    async def exec(self, ref: ScopeRef, request: ExecTurn) -> TurnId:
        """Start a turn and return the provider's id for it; its events may come before that.

        A turn's end is an event, exactly once, also when the provider never tells it: what nobody can say then is
        `TurnFailed` with the reason ``terminal_event_missing``, and no event of that turn follows it.

        Raises:
          TurnActiveError: a turn is active or starting; nothing was sent.
          TurnMergedError: the provider put the input into a turn that was over.
          ProviderLostError: the connection is gone, or the session or Side was closed meanwhile.
          TuttiSideError: the provider refused.

        Cancellation: not sent, or interrupted as soon as the provider names it.
        """
        ...

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        """Interrupt that turn, or nothing. Returns when the provider has answered; the turn's end is an event.

        Raises:
          TurnNotActiveError: another turn, or none, is active.
          ProviderLostError: the connection is gone.
          TuttiSideError: the provider did not answer, or not in its own protocol.

        Cancellation: may have been sent.
        """
        ...

    async def close(self, ref: ScopeRef) -> None:
        """Release the session or Side at the provider: decline, interrupt, clean, unsubscribe, in this order.

        Idempotent and bounded; what fails is retried by the provider's own nursery. Emits nothing afterwards.

        Cancellation: what is left to do is handed to the provider's nursery.
        """
        ...


class Provider(Protocol):
    """A provider as the user names it; it holds no resource until it is opened."""

    @property
    def name(self) -> str:
        """Short and unique within a host."""
        ...

    def open(self, ports: ProviderPorts = ...) -> AbstractAsyncContextManager[Adapter]:
        """Open the provider: its nursery lives as long as the block, and ends after the controller's."""
        ...

    async def diagnose(self) -> Diagnosis:
        """Say what is installed, which version, and what it attests; for a person."""
        ...
