"""Playing a turn: what the script says becomes the notifications that the real app-server sends for it.

A turn is a row of rounds: one reply of the model, then its tools, then the next reply. A round ends when its stream is
read and its tools are done; the turn ends with the first round that called no tool.
"""

import random
from typing import Any

from ._fake_outbox import Outbox
from ._fake_shapes import (
    agent_message,
    completed_params,
    rate_limits,
    reasoning_item,
    started_params,
    turn_shape,
    usage_shape,
    user_message,
    web_search_item,
)
from ._fake_threads import FakeSetup, FakeThread, FakeTool, FakeTurn
from ._fake_tools import Tools
from .app_server_faults import DropTurnCompleted, FaultPlan
from .model_script import CallTool, Drop, Fail, Pause, Reason, Reply, Say, SearchWeb, Step, Think

__all__ = ["Turns"]

_DROPPED = "stream disconnected before completion: Transport error: network error: error decoding response body"
TEXTS_KEPT_MAX = 4096
"""Texts of turns kept for reading."""

_BUSY = "We\u2019re currently experiencing high demand, which may cause temporary errors."


class Turns:
    """Starts, plays, steers and ends the turns of all threads."""

    def __init__(self, setup: FakeSetup, outbox: Outbox, plan: FaultPlan, chance: random.Random) -> None:
        self._setup = setup
        self._outbox = outbox
        self._plan = plan
        self._chance = chance
        self._messages = 0
        self.texts: dict[str, str] = {}
        """Turn → what it began with, for as many as `TEXTS_KEPT_MAX`."""
        self.tools = Tools(setup, outbox, tell=self.tell, done=self._tool_done, interrupt=self._interrupted_by_answer)

    def tell(self, thread: FakeThread, method: str, params: dict[str, Any]) -> None:
        """Notify the thread's subscriber, if there is one."""
        if thread.subscribed:
            self._outbox.notify(method, {"threadId": thread.id, **params})

    def tell_status(self, thread: FakeThread) -> None:
        """Send the thread's status; everyone gets it, subscribed or not."""
        self._outbox.notify("thread/status/changed", {"threadId": thread.id, "status": thread.status()})

    def begin(self, thread: FakeThread, inputs: list[Any]) -> FakeTurn:
        """Make a turn for the input; `announce` and `play` follow."""
        thread.turn_count += 1
        thread.failed = False
        thread.preview = thread.preview or _text(inputs)
        turn = thread.turn = FakeTurn(self._outbox.new_id(), _text(inputs), thread.turn_count)
        self.texts[turn.id] = turn.text
        if len(self.texts) > TEXTS_KEPT_MAX:
            del self.texts[next(iter(self.texts))]
        return turn

    def announce(self, thread: FakeThread, turn: FakeTurn) -> None:
        """Send the turn's first two notifications."""
        self.tell_status(thread)
        self.tell(thread, "turn/started", {"turn": turn_shape(turn.id, "inProgress", startedAt=1_796_000_000)})

    def play(self, thread: FakeThread, turn: FakeTurn, inputs: list[Any]) -> None:
        """Play the turn until it ends or waits."""
        self._show_user(thread, turn, inputs)
        self._sample(thread, turn)

    def interrupt(self, thread: FakeThread, turn: FakeTurn) -> None:
        """End the turn as interrupted, up to the point where the answer to the interrupt goes out."""
        turn.over = True
        self._tell_usage(thread, turn)

    def steer(self, thread: FakeThread, turn: FakeTurn, inputs: list[Any]) -> None:
        """Give the turn more input. A reply that is being streamed is cut off for it, as 0.163 does; a tool isn't."""
        turn.steered.append(inputs)
        if turn.streaming:
            turn.steps.clear()
            turn.tokens.clear()
            turn.message_id = None
            turn.message_text.clear()
            turn.streaming = False
            self._end_round(thread, turn)

    def finish(self, thread: FakeThread, turn: FakeTurn, status: str, error: dict[str, Any] | None = None) -> None:
        """Send a turn's last notifications."""
        turn.over = True
        thread.turn = None
        thread.last_turn_id = turn.id
        thread.background += [tool for tool in turn.tools if tool.kind == "running" and not tool.over]
        fields: dict[str, Any] = {"error": error, "startedAt": 1_796_000_000, "completedAt": 1_796_000_000}
        dropped = self._plan.take(DropTurnCompleted, "turn/completed")
        if dropped is None or not dropped.forgets:
            thread.ended_turns.appendleft(turn_shape(turn.id, status, durationMs=1, **fields))
        if dropped is not None and dropped.with_status:
            return
        if error is not None:
            thread.failed = True
            self.tell_status(thread)
            self.tell(thread, "error", {"error": error, "willRetry": False, "turnId": turn.id})
        if status != "interrupted" and not thread.ephemeral:
            thread.first_unread = thread.first_unread or turn.id
            self.tell(thread, "thread/readState/changed", {"readState": thread.read_state()})
        if error is None:
            self.tell_status(thread)
        if dropped is not None:
            return
        if status == "completed" and turn.last_message is not None:
            item = completed_params(turn.last_message, self._outbox.now_ms(), timed=self._setup.is_new)["item"]
            fields |= {"items": [item], "itemsView": "summary"}
        self.tell(thread, "turn/completed", {"turn": turn_shape(turn.id, status, durationMs=1, **fields)})
        self.tools.resolve_orphans(thread, turn)
        for request_id in thread.surplus_interrupts:
            self._outbox.send({"id": request_id, "result": {}})
        thread.surplus_interrupts.clear()

    def _sample(self, thread: FakeThread, turn: FakeTurn) -> None:
        reply = self._setup.script.reply_for(turn.text, turn=turn.number, tool_rounds=turn.rounds)
        turn.steps.extend(reply.steps if turn.fails_after is None else _failing(reply, turn.fails_after))
        turn.called = False
        turn.streaming = True
        turn.sampling += 1
        self._continue(thread, turn)

    def _continue(self, thread: FakeThread, turn: FakeTurn) -> None:
        sampling = turn.sampling
        while not turn.over and turn.sampling == sampling:
            if turn.tokens:
                if turn.token_delay_s:
                    stretch = self._chance.uniform(0.5, 1.5) if self._setup.jitter else 1.0
                    self._outbox.after(turn.token_delay_s * stretch, lambda: self._next_token(thread, turn, sampling))
                    return
                self._say(thread, turn)
                continue
            if not turn.steps:
                self._end_stream(thread, turn)
                return
            step = turn.steps.popleft()
            if isinstance(step, Say):
                turn.tokens.extend(step.tokens)
                turn.token_delay_s = step.delay_s
            elif isinstance(step, Pause):
                self._outbox.at_gate(step.gate, lambda: self._pass_gate(thread, turn, sampling))
                return
            elif isinstance(step, Reason):
                self._close_message(thread, turn)
                self._whole_item(thread, turn, reasoning_item(f"rs_{self._message_number()}", step.summary))
            elif isinstance(step, Think):
                self._think(thread, turn, step)
            elif isinstance(step, SearchWeb):
                self._close_message(thread, turn)
                self._whole_item(thread, turn, web_search_item(f"ws_{self._message_number()}", step.query))
            elif isinstance(step, CallTool):
                self._close_message(thread, turn)
                turn.called = True
                self.tools.start(thread, turn, step, f"call_{self._message_number()}")
            else:
                self._fail(thread, turn, step)

    def _next_token(self, thread: FakeThread, turn: FakeTurn, sampling: int) -> None:
        if not turn.over and turn.sampling == sampling and turn.tokens:
            self._say(thread, turn)
            self._continue(thread, turn)

    def _pass_gate(self, thread: FakeThread, turn: FakeTurn, sampling: int) -> None:
        if turn.sampling == sampling:
            self._continue(thread, turn)

    def _say(self, thread: FakeThread, turn: FakeTurn) -> None:
        if turn.message_id is None:
            turn.message_id = f"msg_{self._message_number()}"
            self._item(thread, turn, "item/started", self._message(turn, ""))
        token = turn.tokens.popleft()
        turn.message_text.append(token)
        self.tell(thread, "item/agentMessage/delta", {"turnId": turn.id, "itemId": turn.message_id, "delta": token})

    def _think(self, thread: FakeThread, turn: FakeTurn, step: Think) -> None:
        self._close_message(thread, turn)
        item_id = f"rs_{self._message_number()}"
        where = {"turnId": turn.id, "itemId": item_id}
        self._item(thread, turn, "item/started", reasoning_item(item_id))
        for index, pieces in enumerate(step.parts):
            self.tell(thread, "item/reasoning/summaryPartAdded", {**where, "summaryIndex": index})
            for piece in pieces:
                summary = {**where, "delta": piece, "summaryIndex": index}
                self.tell(thread, "item/reasoning/summaryTextDelta", summary)
        for piece in step.text:
            self.tell(thread, "item/reasoning/textDelta", {**where, "delta": piece, "contentIndex": 0})
        whole = reasoning_item(item_id, *map("".join, step.parts))
        if step.text:
            whole["content"] = ["".join(step.text)]
        self._item(thread, turn, "item/completed", whole)

    def _close_message(self, thread: FakeThread, turn: FakeTurn) -> None:
        if turn.message_id is None:
            return
        turn.last_message = self._message(turn, "".join(turn.message_text))
        self._item(thread, turn, "item/completed", turn.last_message)
        turn.message_id = None
        turn.message_text.clear()

    def _end_stream(self, thread: FakeThread, turn: FakeTurn) -> None:
        self._close_message(thread, turn)
        turn.streaming = False
        thread.responses += 1
        self._end_round(thread, turn)

    def _end_round(self, thread: FakeThread, turn: FakeTurn) -> None:
        """Go on once the stream is read and every tool is done."""
        if turn.over or turn.streaming or any(not tool.over for tool in turn.tools):
            return
        turn.tools.clear()
        self._tell_usage(thread, turn)
        if turn.diff:
            self.tell(thread, "turn/diff/updated", {"turnId": turn.id, "diff": turn.diff})
        if turn.steered:
            inputs = [part for parts in turn.steered for part in parts]
            turn.steered.clear()
            turn.text, turn.rounds = _text(inputs), 0
            self._show_user(thread, turn, inputs)
            self._sample(thread, turn)
        elif turn.called:
            turn.rounds += 1
            self._sample(thread, turn)
        else:
            self.finish(thread, turn, "completed")

    def _fail(self, thread: FakeThread, turn: FakeTurn, step: Fail | Drop) -> None:
        began = turn.message_id is not None
        if isinstance(step, Drop):
            message, info = _DROPPED, "other"
        elif began:
            message, info = f"stream disconnected before completion: {step.message}", "other"
        else:
            message, info = _BUSY, "internalServerError"
        if began:
            self._tell_usage(thread, turn)
        error = {"message": message, "codexErrorInfo": info, "additionalDetails": None, "misalignment": None}
        self.finish(thread, turn, "failed", error)

    def _tell_usage(self, thread: FakeThread, turn: FakeTurn) -> None:
        if thread.responses:
            usage = usage_shape(thread.responses)
            self.tell(thread, "thread/tokenUsage/updated", {"turnId": turn.id, "tokenUsage": usage})
        # Names no thread, and yet goes only to those who subscribe to the one that ran.
        if thread.subscribed:
            self._outbox.notify("account/rateLimits/updated", rate_limits())

    def _tool_done(self, thread: FakeThread, turn: FakeTurn, tool: FakeTool) -> None:
        tool.over = True
        self._end_round(thread, turn)

    def _interrupted_by_answer(self, thread: FakeThread, turn: FakeTurn) -> None:
        """The user cancelled a request: that ends the turn."""
        self.interrupt(thread, turn)
        self.finish(thread, turn, "interrupted")

    def _show_user(self, thread: FakeThread, turn: FakeTurn, inputs: list[Any]) -> None:
        self._whole_item(thread, turn, user_message(self._outbox.new_id(), inputs))

    def _whole_item(self, thread: FakeThread, turn: FakeTurn, item: dict[str, Any]) -> None:
        self._item(thread, turn, "item/started", item)
        self._item(thread, turn, "item/completed", item)

    def _item(self, thread: FakeThread, turn: FakeTurn, method: str, item: dict[str, Any]) -> None:
        shape = started_params if method == "item/started" else completed_params
        params = shape(item, self._outbox.now_ms(), timed=self._setup.is_new)
        self.tell(thread, method, {"turnId": turn.id, **params})

    def _message(self, turn: FakeTurn, text: str) -> dict[str, Any]:
        return agent_message(str(turn.message_id), text, timed=self._setup.is_new)

    def _message_number(self) -> int:
        self._messages += 1
        return self._messages


def _text(inputs: list[Any]) -> str:
    return "".join(part.get("text", "") for part in inputs)


def _failing(reply: Reply, after_tokens: int) -> list[Step]:
    """The first tokens of a reply, and then a failure."""
    says = [step for step in reply.steps if isinstance(step, Say)]
    tokens = [(token, say.delay_s) for say in says for token in say.tokens][:after_tokens]
    return [*(Say(tokens=(token,), delay_s=delay_s) for token, delay_s in tokens), Fail()]
