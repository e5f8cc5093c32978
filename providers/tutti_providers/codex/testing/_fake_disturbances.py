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

        In turn: its thread's start says who called it, which no server was seen to do; an item of the call names it,
        behind the first that is heard of it (seen on 0.163); an item that it has begun does, with no call before.
        """
        parent = _one(choose, [thread for thread in self._heard() if thread.turn is not None])
        if parent is None:
            return
        tell(parent.id)
        child, turn = self._outbox.new_id(), self._outbox.new_id()
        way = len(self.agents) % 3
        self.agents[child] = parent.id
        where = {"threadId": child, "turnId": turn}
        notify = self._outbox.notify
        early: list[tuple[str, dict[str, Any]]] = [
            ("thread/status/changed", {"threadId": child, "status": {"type": "active", "activeFlags": []}}),
            ("turn/started", {"threadId": child, "turn": turn_shape(turn, "inProgress")}),
        ]
        if way == 0:
            notify("thread/started", {"thread": parent.shape() | {"id": child, "parentThreadId": parent.id}})
        elif way == 1:
            _notify_item(notify, parent, "started", _call(parent, turn))
        elif way == 2:
            notify(*early.pop(0))
            activity = {"type": "subAgentActivity", "id": f"of-{turn}", "kind": "started", "agentThreadId": child}
            _notify_item(notify, parent, "started", activity)
        for method, params in early:
            notify(method, params)
        if way == 1:
            _notify_item(notify, parent, "completed", _call(parent, turn, child))
        notify("item/agentMessage/delta", {**where, "itemId": "msg_sub", "delta": "sub-agent"})
        params = {**where, "itemId": "call_sub"}
        self._outbox.send({"method": "item/fileChange/requestApproval", "id": f"sub-{turn}", "params": params})
        notify("turn/completed", {"threadId": child, "turn": turn_shape(turn, "completed")})

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


def _call(parent: FakeThread, turn: str, *children: str) -> dict[str, Any]:
    """The item in which an agent calls another: it names it once it has."""
    return {
        "type": "collabAgentToolCall",
        "id": f"calls-{turn}",
        "tool": "spawnAgent",
        "status": "completed" if children else "inProgress",
        "senderThreadId": parent.id,
        "receiverThreadIds": list(children),
        "agentsStates": {},
    }


def _notify_item(notify: Callable[[str, dict[str, Any]], None], parent: FakeThread, what: str, item: Any) -> None:
    assert parent.turn is not None
    notify(f"item/{what}", {"threadId": parent.id, "turnId": parent.turn.id, "item": item})
