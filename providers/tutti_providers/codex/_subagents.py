"""The sub-agents of one thread: threads of their own on the same pipe, told as what an agent of that thread does.

A server that starts one says so in an item of its parent (0.163), or in a ``thread/started`` that names its parent.
What a sub-agent says reaches its parent's sink inside `SubAgentEvent`, so that no turn of it is ever taken for one of
the parent's. What it asks is declined: nobody would know whose question it is. With its parent it is closed: the server
lets a sub-agent run on when its parent is interrupted or unsubscribed (seen on 0.163).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tutti_providers.codex.schema.items import CollabAgentToolCallItem, SubAgentActivityItem, ThreadItem
from tutti_side.contract import EndReason, Event, SubAgentEvent

if TYPE_CHECKING:
    from tutti_providers.codex._thread import CodexThread

__all__ = ["SUB_AGENTS_MAX", "SubAgentSink", "SubAgents", "agents_in"]

SUB_AGENTS_MAX = 64
"""Sub-agents of one thread that are followed at once, those of sub-agents included. For one more the oldest that rests
goes; if none rests, the new one stays a stranger, which is heard when it is named again and there is room."""


class SubAgentSink:
    """Implements `tutti_side.contract.EventSink` in front of the parent's."""

    def __init__(self, agent_id: str, emit: Callable[[Sequence[Event], int], None]) -> None:
        self._agent_id = agent_id
        self._emit = emit

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        """Pass events on, marked."""
        self._emit([SubAgentEvent(self._agent_id, event) for event in events], size_bytes)

    def end(self, reason: EndReason) -> None:
        """A sub-agent's end is not its parent's."""
        del reason


class SubAgents:
    """Those of one thread that are followed, oldest first."""

    def __init__(self) -> None:
        self._threads: dict[str, CodexThread] = {}

    def __len__(self) -> int:
        return len(self._threads)

    def __iter__(self) -> "Iterator[CodexThread]":
        return iter(tuple(self._threads.values()))

    def make_room(self) -> "tuple[bool, CodexThread | None]":
        """Say whether one more can be followed, and who has to go for it."""
        if len(self._threads) < SUB_AGENTS_MAX:
            return True, None
        for agent_id, thread in self._threads.items():
            if not thread.is_busy:
                del self._threads[agent_id]
                return True, thread
        return False, None

    def add(self, thread: "CodexThread") -> None:
        """Follow one more."""
        self._threads[thread.thread_id] = thread

    def remove(self, thread: "CodexThread") -> None:
        """Follow it no longer. Idempotent."""
        self._threads.pop(thread.thread_id, None)


def agents_in(item: ThreadItem, thread_id: str) -> tuple[str, ...]:
    """Return the sub-agents of a thread that an item of it names."""
    if isinstance(item, CollabAgentToolCallItem) and item.sender_thread_id == thread_id:
        return item.receiver_thread_ids
    return (item.agent_thread_id,) if isinstance(item, SubAgentActivityItem) else ()
