"""InteractiveAdapter: what a provider asks its user, and how it is answered.

One model for all kinds: an approval (one of its options), a question (answers by question id), a plan (one of its
options). An interaction belongs to one turn of one session or Side, is answered once, and what nobody can answer any
more is declined by the adapter, never accepted.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

from tutti_replication.canonical import InteractionKind
from tutti_side.contract.ids import InteractionId, ScopeRef
from tutti_side.errors import TuttiSideError

__all__ = [
    "InteractionAnswer",
    "InteractionKind",
    "InteractionOption",
    "InteractionQuestion",
    "InteractiveAdapter",
    "InvalidAnswerError",
]


class InteractionOption(msgspec.Struct, frozen=True, gc=False):
    """One way to answer."""

    id: str
    """What an answer names: ``accept``, ``accept_for_session``, ``decline``, ``cancel`` for approvals."""
    label: str
    """For a person."""


class InteractionQuestion(msgspec.Struct, frozen=True):
    """One question of several in an interaction of kind question."""

    id: str
    text: str
    options: tuple[str, ...] = ()
    """Offered answers."""
    takes_free_text: bool = True
    is_secret: bool = False
    """The answer must not be shown or kept."""


class InteractionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A user's answer. `option_id` for an approval or plan, `answers` for questions."""

    option_id: str | None = None
    answers: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """Question id → what was answered."""

    def __repr__(self) -> str:
        return f"InteractionAnswer(option_id={self.option_id!r}, answers=<{len(self.answers)}>)"


class InvalidAnswerError(TuttiSideError):
    """An answer that the interaction does not take; it is still open, and nothing was sent.

    Attributes:
      field: which part of the answer.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field


@runtime_checkable
class InteractiveAdapter(Protocol):
    """An `Adapter` whose provider asks its user."""

    def respond(self, ref: ScopeRef, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        """Answer an interaction. Synchronous, so that check and sending are one step and two answers cannot race.

        Returns:
          False when it is not pending at the provider any more; nothing was sent.

        Raises:
          InvalidAnswerError: it does not take this answer; nothing was sent.
          ProviderLostError: the connection is gone.
        """
        ...
