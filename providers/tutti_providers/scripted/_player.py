"""Plays one turn: its steps become events, its end is one of completed, failed and canceled."""

from collections.abc import Callable, Sequence

import trio

from tutti_providers.scripted._connection import Connection
from tutti_providers.scripted._thread import ScriptedThread
from tutti_providers.scripted.script import Ask, Echo, Emit, Fail, Recall, Say, Step, Wait, words
from tutti_side.contract import MessageDelta, MessageUpdated, TurnCanceled, TurnCompleted, TurnFailed, TurnId

__all__ = ["TurnPlayer"]


class _FailTurn(Exception):
    """Unwinds to the turn's end; never leaves this file."""


class TurnPlayer:
    """One turn, begun when this is made; `run` is a task of the connection.

    Args:
      prompt: what the user said; empty for a turn of the provider's own.
      steps_for: what is played to more input, when the turn is steered.
      is_stubborn: an interrupt changes nothing; only a kill ends it.
    """

    def __init__(
        self,
        connection: Connection,
        thread: ScriptedThread,
        steps: Sequence[Step],
        *,
        prompt: str = "",
        steps_for: Callable[[str], Sequence[Step]] = lambda prompt: (),
        is_stubborn: bool = False,
    ) -> None:
        self.has_waited = trio.Event()
        """Set at the first step that waits, or at the end."""
        self._connection = connection
        self._thread = thread
        self._steps = steps
        self._prompt = prompt
        self._steps_for = steps_for
        self._items: dict[str, list[str]] = {}
        self._scope = trio.CancelScope()
        self.turn_id: TurnId = thread.begin_turn(prompt)
        thread.kill = self._stop
        thread.interrupt = _take_and_ignore if is_stubborn else self._stop

    def _stop(self) -> None:
        self._scope.cancel(reason="the turn was interrupted")

    async def run(self) -> None:
        """Play; the turn's end is the last thing said. Cancelled from outside only with its whole connection."""
        last: TurnCompleted | TurnFailed | TurnCanceled = TurnCanceled(self.turn_id)
        with self._scope:
            try:
                await self._play(self._steps)
                while self._thread.steered:
                    self._prompt = self._thread.steered.pop(0)
                    await self._play(self._steps_for(self._prompt))
                last = TurnCompleted(self.turn_id)
            except _FailTurn as failure:
                last = TurnFailed(self.turn_id, str(failure))
        self._thread.end_turn(last)
        self.has_waited.set()

    async def _play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            await trio.lowlevel.checkpoint()
            await self._play_one(step)

    async def _play_one(self, step: Step) -> None:
        if isinstance(step, Say):
            await self._say(step)
        elif isinstance(step, Echo):
            await self._say(Say(words(self._echo())))
        elif isinstance(step, Recall):
            for message in self._thread.transcript.inherited:
                await self._say(Say((message.text,)))
        elif isinstance(step, Wait):
            self.has_waited.set()
            await self._connection.wait(step)
        elif isinstance(step, Emit):
            self._thread.emit(*step.events)
        elif isinstance(step, Ask):
            await self._ask(step)
        elif isinstance(step, Fail):
            raise _FailTurn(step.message)
        else:
            self._connection.lose()
            await trio.sleep_forever()  # the connection's tasks, this one among them, are being cancelled

    def _echo(self) -> str:
        text = f"You said: {self._prompt}"
        if not self._thread.is_side:
            return text
        return f"{text} (I know {len(self._thread.transcript.inherited)} messages of the main conversation.)"

    async def _say(self, step: Say) -> None:
        item_id = f"{self.turn_id}.{step.item or f'message-{len(self._items) + 1}'}"
        said = self._items.setdefault(item_id, [])
        for start in range(0, len(step.texts), step.per_emission):
            if step.delay_s:
                self.has_waited.set()
            await trio.sleep(step.delay_s)
            texts = step.texts[start : start + step.per_emission]
            said += texts
            for text in texts:
                self._thread.transcript.add_agent(item_id, text)
            self._thread.emit(*(MessageDelta(self.turn_id, item_id, text) for text in texts))
        if step.is_completed:
            self._thread.emit(MessageUpdated(self.turn_id, item_id, "".join(said)))

    async def _ask(self, step: Ask) -> None:
        pending = self._thread.request(step)
        if not step.is_waiting:
            return
        self.has_waited.set()
        bound_s = float("inf") if step.taken_back_after_s is None else step.taken_back_after_s
        with trio.move_on_after(bound_s):
            await pending.ended.wait()
        self._thread.supersede(pending)
        await trio.lowlevel.checkpoint_if_cancelled()  # what ended it may have ended the turn as well
        if pending.answer is not None:
            await self._play(step.answers.get(pending.answer.option_id or "", step.then))


def _take_and_ignore() -> None:
    """Answer an interrupt of a stubborn turn."""
