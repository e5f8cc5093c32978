"""InteractiveAdapter: what a provider asks its user, and how it is answered.

One model for all kinds: an approval (one of its options), a question (answers by question id), a plan (one of its
options). An interaction belongs to one turn of one session or Side, is answered once, and what nobody can answer any
more is declined by the adapter, never accepted.
"""

from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

import msgspec

from tutti_replication.canonical import InteractionKind
from tutti_side.contract.ids import InteractionId, ScopeRef
from tutti_side.errors import TuttiSideError

__all__ = [
    "ANSWER_BYTES_MAX",
    "InteractionAnswer",
    "InteractionKind",
    "InteractionOption",
    "InteractionQuestion",
    "InteractiveAdapter",
    "InvalidAnswerError",
    "check_answer",
    "without_key",
]

ANSWER_BYTES_MAX = 1 << 20
"""Bound on the text of one answer, in UTF-8 bytes."""


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
    is_optional: bool = False
    """It may be left out of an answer."""
    takes_several: bool = False
    """Several of the options may be chosen, or none."""


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
      field: which part of the answer, for example ``option_id`` or ``answers['color']``. A question's id is the
        model's, or a tool server's, so it stands here and not in the message.
      problem: what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{without_key(field)} {problem}")
        self.field = field
        self.problem = problem


def without_key(field: str) -> str:
    """Return a field's name as it may stand in a message: without the key that is somebody's text."""
    name, bracket, _ = field.partition("[")
    return f"{name}[…]" if bracket else name


def check_answer(answer: InteractionAnswer) -> InteractionAnswer:
    """Return the answer with each question's answers as a tuple; callers are not all typed.

    A bare string in place of a tuple is refused: as a row of letters it would reach the provider as another answer.

    Raises:
      InvalidAnswerError: not an answer, a part of another type, a lone surrogate, or over `ANSWER_BYTES_MAX`.
    """
    if not isinstance(answer, InteractionAnswer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidAnswerError("answer", f"is a {type(answer).__name__}; give an InteractionAnswer")
    option_id, answers = cast("tuple[object, object]", (answer.option_id, answer.answers))
    if not isinstance(option_id, str | None):
        raise InvalidAnswerError("option_id", f"is a {type(option_id).__name__}, not a string")
    if not isinstance(answers, Mapping):
        raise InvalidAnswerError("answers", f"is a {type(answers).__name__}; give question id → tuple of strings")
    checked: dict[str, tuple[str, ...]] = {}
    size_bytes = 0
    for key, values in cast("Mapping[object, object]", answers).items():
        if not isinstance(key, str):
            raise InvalidAnswerError("answers", f"has a {type(key).__name__} as a question's id")
        if not isinstance(values, tuple | list):
            raise InvalidAnswerError(f"answers[{key!r}]", f"is a {type(values).__name__}; give a tuple of strings")
        for value in cast("tuple[object, ...]", values):
            if not isinstance(value, str):
                raise InvalidAnswerError(f"answers[{key!r}]", f"holds a {type(value).__name__}, not a string")
            try:
                size_bytes += len(value.encode())
            except UnicodeEncodeError:
                raise InvalidAnswerError(f"answers[{key!r}]", "holds a lone surrogate, which is not text") from None
        checked[key] = tuple(cast("tuple[str, ...]", values))
    if size_bytes > ANSWER_BYTES_MAX:
        raise InvalidAnswerError("answers", f"is {size_bytes} bytes of text; at most {ANSWER_BYTES_MAX}")
    return InteractionAnswer(option_id=option_id, answers=checked)


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
