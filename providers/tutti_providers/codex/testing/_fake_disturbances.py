"""What an app-server does of itself, with no request of ours before it.

Each takes two functions: `choose` draws, since nothing is drawn here, and `tell` hears which thread is concerned before
anything is done to it. When there is nothing now to do it to, nothing happens and nothing is told.
"""

from collections.abc import Callable
from typing import Any

from ._fake_outbox import Outbox
from ._fake_requests import Requests
from ._fake_shapes import turn_shape
from ._fake_threads import FakeThread

__all__ = ["Choose", "Disturb", "Disturbances", "Tell"]

Choose = Callable[[int], int]
"""Of so many, which: an index below the number, which is at least 1."""

Tell = Callable[[str], None]
"""Hears the id of the thread concerned."""

NAMED_AFTER_S = 0.001
"""So long after its first words a sub-agent is named."""


class Disturbances:
    """Over the threads of one server."""

    def __init__(self, requests: Requests, outbox: Outbox) -> None:
        self._requests = requests
        self._outbox = outbox
        self.agents: dict[str, str] = {}
        """The sub-agents that there were, and who called each."""

    def tighten_settings(self, choose: Choose, tell: Tell) -> None:
        """Restrict a session further, in mid-turn or not, as its user can; the snapshot is sent."""
        thread = _one(choose, [thread for thread in self._heard() if not thread.ephemeral and thread.can_be_tightened])
        if thread is not None:
            tell(thread.id)
            thread.tighten()
            self._requests.turns.tell(thread, "thread/settings/updated", {"threadSettings": thread.settings()})

    def drop_thread(self, choose: Choose, tell: Tell) -> None:
        """Unload a thread that is in use; a turn of it never ends."""
        thread = _one(choose, self._heard())
        if thread is not None:
            tell(thread.id)
            if thread.turn is not None:
                thread.turn.over = True
            self._requests.turns.tools.forget(thread)
            self._requests.unload(thread)

    def play_sub_agent(self, choose: Choose, tell: Tell) -> None:
        """A whole turn of an agent that a running turn has called, and a question of it.

        The first time an item names it a moment after its turn has begun (seen on 0.163); then after it has shown its
        status (the same with ``multi_agent_v2``); then its thread's start says who called it, which no server was seen
        to do; and so on.
        """
        parent = _one(choose, [thread for thread in self._heard() if thread.turn is not None])
        if parent is None:
            return
        tell(parent.id)
        caller = parent.turn
        child, turn = self._outbox.new_id(), self._outbox.new_id()
        way = len(self.agents) % 3
        self.agents[child] = parent.id
        notify = self._outbox.notify
        status: dict[str, Any] = {"threadId": child, "status": {"type": "active", "activeFlags": []}}
        begun = {"threadId": child, "turn": turn_shape(turn, "inProgress")}

        def name(what: str, item: dict[str, Any]) -> None:
            notify(f"item/{what}", {"threadId": parent.id, "turnId": caller.id, "item": item})

        def go_on() -> None:
            if caller.over:
                return  # it is never named
            if way == 0:
                name("completed", _call(parent.id, turn, child))
            elif way == 1:
                name("started", {"type": "subAgentActivity", "id": turn, "kind": "started", "agentThreadId": child})
                notify("turn/started", begun)
            where: dict[str, Any] = {"threadId": child, "turnId": turn}
            notify("item/agentMessage/delta", {**where, "itemId": "msg_sub", "delta": "sub-agent"})
            params = {**where, "itemId": "call_sub"}
            self._outbox.send({"method": "item/fileChange/requestApproval", "id": f"sub-{turn}", "params": params})
            notify("turn/completed", {"threadId": child, "turn": turn_shape(turn, "completed")})

        if way == 2:
            notify("thread/started", {"thread": parent.shape() | {"id": child, "parentThreadId": parent.id}})
            notify("turn/started", begun)
            go_on()
            return
        if way == 0:
            name("started", _call(parent.id, turn))
        notify("thread/status/changed", status)
        if way == 0:
            notify("turn/started", begun)
        self._outbox.after(NAMED_AFTER_S, go_on)

    def ask_for_ended_turn(self, choose: Choose, tell: Tell) -> None:
        """A question of a turn that is over."""
        thread = _one(choose, [thread for thread in self._heard() if thread.last_turn_id is not None])
        if thread is not None:
            tell(thread.id)
            self._requests.turns.tools.ask_for_ended_turn(thread)

    def ask_for_permissions(self, choose: Choose, tell: Tell) -> None:
        """A turn that runs wants to reach further than its policy lets it, in a Side too."""
        thread = _one(choose, [thread for thread in self._heard() if thread.turn is not None and thread.turn.streaming])
        if thread is not None:
            tell(thread.id)
            self._requests.turns.tools.ask_for_permissions(thread, thread.turn)

    def take_question_back(self, choose: Choose, tell: Tell) -> None:
        """Resolve what a thread asks, without an answer."""
        tools = self._requests.turns.tools
        request_id = _one(choose, tools.pending)
        if request_id is not None:
            tell(tools.thread_of(request_id).id)
            tools.take_back(request_id)

    def resolve_nothing(self, choose: Choose, tell: Tell) -> None:
        """Call a request resolved that never was: its id is another one's, as text."""
        thread = _one(choose, self._heard())
        if thread is not None:
            tell(thread.id)
            self._requests.turns.tell(thread, "serverRequest/resolved", {"requestId": "0"})

    def _heard(self) -> list[FakeThread]:
        return [thread for thread in self._requests.threads.values() if thread.subscribed]


Disturb = Callable[[Disturbances, Choose, Tell], None]
"""One of the above, unbound."""


def _one(choose: Choose, among: list[Any]) -> Any:
    return among[choose(len(among))] if among else None


def _call(parent: str, turn: str, *children: str) -> dict[str, Any]:
    """The item in which an agent calls another: it names it once it has."""
    return {
        "type": "collabAgentToolCall",
        "id": f"calls-{turn}",
        "tool": "spawnAgent",
        "status": "completed" if children else "inProgress",
        "senderThreadId": parent,
        "receiverThreadIds": list(children),
        "agentsStates": {},
    }
