"""What was said in a session, and the sessions that are kept. Pure.

A canonical session's transcript outlives its connection and its host: `KeptSessions` belongs to the provider object, so
that a session can be resumed, and a Side opened of it, by another host of the same program. A Side's transcript is
never kept.
"""

from typing import Literal

import msgspec

from tutti_providers.scripted.errors import SessionHeldError, SessionNotKeptError

__all__ = ["KEPT_MAX", "MESSAGES_MAX", "MESSAGE_CHARACTERS_MAX", "KeptSessions", "Message", "Transcript"]

MESSAGES_MAX = 1_024
"""Newest messages kept of one session."""

MESSAGE_CHARACTERS_MAX = 16_384
"""Kept of one message; its end is left out."""

KEPT_MAX = 1_024
"""Sessions kept of one provider; the oldest that nobody holds is forgotten first."""


class Message(msgspec.Struct, frozen=True):
    """One message of a transcript."""

    role: Literal["user", "agent"]
    text: str


class _Draft:
    """A message that may still grow."""

    def __init__(self, role: Literal["user", "agent"]) -> None:
        self.role: Literal["user", "agent"] = role
        self.parts: list[str] = []
        self._left = MESSAGE_CHARACTERS_MAX

    def add(self, text: str) -> None:
        if self._left:
            part = text[: self._left]
            self.parts.append(part)
            self._left -= len(part)


class Transcript:
    """The messages of one session, in order; also those of a turn that still runs."""

    def __init__(self, inherited: tuple[Message, ...] = ()) -> None:
        self.inherited = inherited
        self.turns = 0
        self._drafts: list[_Draft] = []
        self._by_item: dict[str, _Draft] = {}

    def add_user(self, text: str) -> None:
        """Add what the user said."""
        self._append("user").add(text)

    def add_agent(self, item_id: str, text: str) -> None:
        """Add to the agent's message under this item."""
        draft = self._by_item.get(item_id)
        if draft is None:
            draft = self._by_item[item_id] = self._append("agent")
        draft.add(text)

    def end_turn(self) -> None:
        """No message of this turn grows any more."""
        self._by_item.clear()

    def messages(self) -> tuple[Message, ...]:
        """Return what a branch made now inherits: the inherited messages, then its own."""
        own = tuple(Message(draft.role, "".join(draft.parts)) for draft in self._drafts)
        return (*self.inherited, *own)[-MESSAGES_MAX:]

    def _append(self, role: Literal["user", "agent"]) -> _Draft:
        draft = _Draft(role)
        self._drafts.append(draft)
        del self._drafts[:-MESSAGES_MAX]
        return draft


class KeptSessions:
    """Every canonical session that was started, by provider session id; one writer each."""

    def __init__(self) -> None:
        self._transcripts: dict[str, Transcript] = {}
        self._held: set[str] = set()
        self._made = 0

    def new_id(self, kind: Literal["session", "side"]) -> str:
        """Return a fresh provider session id: ``session-1``, ``side-2``, …"""
        self._made += 1
        return f"{kind}-{self._made}"

    def keep(self, provider_session_id: str, transcript: Transcript) -> None:
        """Keep a session that was just started, and hold it."""
        self._transcripts[provider_session_id] = transcript
        self._held.add(provider_session_id)
        if len(self._transcripts) > KEPT_MAX:
            idle = next((kept for kept in self._transcripts if kept not in self._held), None)
            if idle is not None:
                del self._transcripts[idle]

    def read(self, provider_session_id: str) -> Transcript:
        """Return a kept session's transcript.

        Raises:
          SessionNotKeptError: there is none.
        """
        try:
            return self._transcripts[provider_session_id]
        except KeyError:
            raise SessionNotKeptError(provider_session_id) from None

    def hold(self, provider_session_id: str) -> Transcript:
        """Become a session's one writer, and return its transcript.

        Raises:
          SessionNotKeptError: there is none.
          SessionHeldError: it has a writer.
        """
        transcript = self.read(provider_session_id)
        if provider_session_id in self._held:
            raise SessionHeldError(provider_session_id)
        self._held.add(provider_session_id)
        return transcript

    def release(self, provider_session_id: str) -> None:
        """Be its writer no longer. Idempotent."""
        self._held.discard(provider_session_id)

    @property
    def ids(self) -> tuple[str, ...]:
        """Provider session ids of all that is kept, oldest first."""
        return tuple(self._transcripts)

    @property
    def held(self) -> frozenset[str]:
        """Those that somebody holds live."""
        return frozenset(self._held)
