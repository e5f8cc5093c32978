"""One thread at the scripted provider: where its events go, the turn that runs, what it asks. Synchronous.

A thread is attached to its sink until it is detached, once; what the provider says of it afterwards is dropped and
counted, so that an adapter that closed it, lost it or never opened it is quiet for good.
"""

from collections.abc import Callable
from typing import cast

import msgspec
import trio

from tutti_providers.scripted._transcript import Transcript
from tutti_providers.scripted.script import Ask
from tutti_side.contract import (
    Event,
    EventSink,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    InteractionResolved,
    InvalidAnswerError,
    MessageDelta,
    MessageUpdated,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
    TurnStarted,
)

__all__ = ["PendingAsk", "ScriptedThread", "check_answer"]

EVENT_BYTES = 96
"""About what an event without text holds in memory."""


class PendingAsk:
    """Something asked that is not answered yet."""

    def __init__(self, interaction_id: InteractionId, ask: Ask) -> None:
        self.interaction_id = interaction_id
        self.ask = ask
        self.ended = trio.Event()
        self.answer: InteractionAnswer | None = None
        """None once `ended` is set: nobody answered."""


class ScriptedThread:
    """A canonical session or a Side, as the provider holds it."""

    def __init__(
        self,
        thread_id: str,
        sink: EventSink,
        transcript: Transcript,
        *,
        is_side: bool,
        on_dropped: Callable[[int], None],
    ) -> None:
        self.thread_id = thread_id
        self.transcript = transcript
        self.is_side = is_side
        self.lost = False
        self.is_starting = False
        self.active_turn: TurnId | None = None
        self.turn_ended = trio.Event()
        self.interrupt: Callable[[], None] | None = None
        """Ends the active turn, unless it is stubborn."""
        self.kill: Callable[[], None] | None = None
        """Ends the active turn, stubborn or not."""
        self.pending: dict[InteractionId, PendingAsk] = {}
        self.steered: list[str] = []
        """More input for the active turn, which has not come to it yet."""
        self._sink: EventSink | None = sink
        self._on_dropped = on_dropped
        self._asked = 0

    def __repr__(self) -> str:
        return f"<ScriptedThread {self.thread_id}>"

    @property
    def is_attached(self) -> bool:
        """True while its events reach somebody."""
        return self._sink is not None

    @property
    def is_busy(self) -> bool:
        """True while a turn runs or is starting."""
        return self.is_starting or self.active_turn is not None

    def emit(self, *events: Event) -> None:
        """Pass events on, or drop them when nobody wants this thread's events any more."""
        if self._sink is None:
            self._on_dropped(len(events))
        elif events:
            self._sink.emit(events, sum(map(_size_bytes, events)))

    # Turns

    def begin_turn(self, prompt: str) -> TurnId:
        """Begin a turn, and say so; `prompt` is empty for one that the provider begins by itself."""
        self.transcript.turns += 1
        turn_id = TurnId(f"{self.thread_id}.turn-{self.transcript.turns}")
        self.is_starting = False
        self.active_turn = turn_id
        self.turn_ended = trio.Event()
        self.steered = []
        if prompt:
            self.transcript.add_user(prompt)
        self.emit(TurnStarted(turn_id))
        return turn_id

    def steer(self, prompt: str) -> None:
        """Give the active turn more input; it comes to it after what it is playing."""
        self.transcript.add_user(prompt)
        self.steered.append(prompt)

    def end_turn(self, last: TurnCompleted | TurnFailed | TurnCanceled) -> None:
        """End the active turn: what it asked is over first."""
        self.supersede_all()
        self._forget_turn()
        self.emit(last)
        self.turn_ended.set()

    def _forget_turn(self) -> None:
        self.transcript.end_turn()
        self.active_turn = None
        self.interrupt = self.kill = None

    # Interactions

    def request(self, ask: Ask) -> PendingAsk:
        """Ask the user."""
        self._asked += 1
        interaction_id = InteractionId(f"{self.thread_id}.ask-{self._asked}")
        pending = self.pending[interaction_id] = PendingAsk(interaction_id, ask)
        self.emit(
            InteractionRequested(
                interaction_id=interaction_id,
                turn_id=self.active_turn,
                kind=ask.kind,
                title=ask.title,
                detail=ask.detail,
                options=ask.offered,
                questions=ask.questions,
            )
        )
        return pending

    def respond(self, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        """Take an answer; False when nothing waits for it.

        Raises:
          InvalidAnswerError: it does not fit; what was asked is still open.
        """
        pending = self.pending.get(interaction_id)
        if pending is None:
            return False
        check_answer(pending.ask, answer)
        del self.pending[interaction_id]
        pending.answer = answer
        self.emit(InteractionResolved(interaction_id, "answered"))
        pending.ended.set()
        return True

    def supersede(self, pending: PendingAsk) -> None:
        """End something asked without an answer, if it is still open."""
        if self.pending.pop(pending.interaction_id, None) is not None:
            self.emit(InteractionResolved(pending.interaction_id, "superseded"))
            pending.ended.set()

    def supersede_all(self) -> None:
        """Nobody can answer any more: decline what is open."""
        for pending in tuple(self.pending.values()):
            self.supersede(pending)

    # Ends

    def detach(self) -> None:
        """Nothing reaches the sink from now on. Idempotent."""
        self._sink = None

    def lose(self) -> None:
        """The connection is gone: say so, once. A thread that is only on its way is taken off before that."""
        if self.lost:
            return
        self.lost = True
        self.supersede_all()
        self._forget_turn()
        self.turn_ended.set()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.end("lost")


def check_answer(ask: Ask, answer: InteractionAnswer) -> None:
    """Hold an answer against what was asked. Pure.

    Raises:
      InvalidAnswerError: naming the part that does not fit; never what was answered.
    """
    if ask.kind != "question":
        if answer.answers:
            raise InvalidAnswerError("answers", f"are for questions; this is of kind {ask.kind}")
        if answer.option_id not in {option.id for option in ask.offered}:
            raise InvalidAnswerError("option_id", "is none of the options")
        return
    if answer.option_id is not None:
        raise InvalidAnswerError("option_id", "is for approvals and plans; this is a question")
    questions = {question.id: question for question in ask.questions}
    needed = {question_id for question_id, question in questions.items() if not question.is_optional}
    if not needed <= set(answer.answers) <= set(questions):
        raise InvalidAnswerError("answers", f"must answer {len(needed)} questions, each by its id")
    for question_id, given in answer.answers.items():
        question = questions[question_id]
        where = f"answers[{question_id}]"
        if not given or not all(text.strip() for text in given):
            raise InvalidAnswerError(where, "is blank")
        if not question.takes_free_text and not set(given) <= set(question.options):
            raise InvalidAnswerError(where, "is none of the offered answers")


def _size_bytes(event: Event) -> int:
    if isinstance(event, MessageDelta | MessageUpdated):
        return EVENT_BYTES + len(event.text)
    return EVENT_BYTES + _text_size(event)


def _text_size(value: object) -> int:
    """Return how many characters a value holds, in whatever depth."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, tuple):
        return sum(map(_text_size, cast("tuple[object, ...]", value)))
    if isinstance(value, msgspec.Struct):
        return sum(_text_size(getattr(value, name)) for name in value.__struct_fields__)
    return 0
