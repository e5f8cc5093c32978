"""The provisional pool: messages of threads that nobody owns yet. Pure.

While a request that creates a thread lacks its answer, messages of an unknown thread may belong to that thread: only
the answer says so, nothing in them does. They are kept by thread, in wire order, requests of the server included, until
the answer adopts them or no such request is left. While a turn runs they may be of a sub-agent that is named next; for
those there is a small share. When the pool, or that share, is full the largest thread is evicted; whoever adopts that
one later is told, because it would begin with a hole.
"""

from tutti_providers.codex.schema.notifications import Head
from tutti_side.jsonrpc import Message

__all__ = ["EVICTED_THREADS_MAX", "POOL_BYTES_MAX", "POOL_MESSAGES_MAX", "ProvisionalPool"]

POOL_MESSAGES_MAX = 4_096
"""Messages kept, of all unknown threads together."""

POOL_BYTES_MAX = 4 << 20
"""The same in bytes of their lines."""

STRANGERS_SHARE = 16
"""While no request creates a thread, the pool holds only that part of both: a stranger's flood can't take the place of
a thread that is asked for later. A sub-agent says two or three things before it is named (seen on 0.163)."""

EVICTED_THREADS_MAX = 4_096
"""Evicted threads that are told apart. Past that no further thread is taken in until evictions are forgotten, and
whoever adopts one that isn't in it is told so, too: the pool can't know any more what that thread has lost."""


class ProvisionalPool:
    """Messages by unknown thread.

    Attributes:
      size_bytes: of all lines kept; counted as they come and go, since this is asked for each message, in the reader.
      evictions: threads that had to go.
    """

    def __init__(self, messages_max: int = POOL_MESSAGES_MAX, bytes_max: int = POOL_BYTES_MAX) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._threads: dict[str, list[Message[Head]]] = {}
        self._sizes: dict[str, int] = {}
        self._evicted: dict[str, None] = {}
        self._is_flooded = False
        self._count = 0
        self.size_bytes = 0
        self.evictions = 0

    def __len__(self) -> int:
        return self._count

    def add(self, thread_id: str, message: Message[Head], share: int = 1) -> list[Message[Head]]:
        """Keep a message; return those that had to go for it, since the pool is to hold one part in `share` at most."""
        if self._has_lost(thread_id):
            return [message]
        self._threads.setdefault(thread_id, []).append(message)
        self._sizes[thread_id] = self._sizes.get(thread_id, 0) + len(message.line)
        self._count += 1
        self.size_bytes += len(message.line)
        gone: list[Message[Head]] = []
        while self._count > self._messages_max // share or self.size_bytes > self._bytes_max // share:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            gone += self._remove(largest)
            self._evicted[largest] = None
            self._is_flooded = self._is_flooded or len(self._evicted) >= EVICTED_THREADS_MAX
            self.evictions += 1
        return gone

    def take(self, thread_id: str) -> list[Message[Head]] | None:
        """Hand out what was kept of a thread; None when some of it was evicted."""
        if self._has_lost(thread_id):
            self._evicted.pop(thread_id, None)
            return None
        return self._remove(thread_id)

    def drop_all(self) -> list[Message[Head]]:
        """Empty the pool: nobody can adopt anything any more. Return what it held."""
        gone = [message for messages in self._threads.values() for message in messages]
        self._threads.clear()
        self._sizes.clear()
        self.forget_evictions()
        self._count = self.size_bytes = 0
        return gone

    def drop_requests(self) -> list[Message[Head]]:
        """Take out the requests of the server and return them; notifications stay, and evictions are forgotten."""
        gone: list[Message[Head]] = []
        self.forget_evictions()
        for thread_id in tuple(self._threads):
            messages = self._remove(thread_id)
            gone += [message for message in messages if message.id is not None]
            for message in messages:
                if message.id is None:
                    self.add(thread_id, message)
        return gone

    def forget_evictions(self) -> None:
        """Take whoever comes next for one of which nothing is lost: it can't be one of those that were evicted."""
        self._evicted.clear()
        self._is_flooded = False

    def _has_lost(self, thread_id: str) -> bool:
        """True when a part of the thread may be gone."""
        return thread_id in self._evicted or (self._is_flooded and thread_id not in self._threads)

    def _remove(self, thread_id: str) -> list[Message[Head]]:
        messages = self._threads.pop(thread_id, [])
        self.size_bytes -= self._sizes.pop(thread_id, 0)
        self._count -= len(messages)
        return messages
