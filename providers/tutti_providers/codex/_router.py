"""Thread id → route: where each message of a connection goes, early, late and unknown ones included. Pure.

There is no fallback: a message whose thread has no route reaches nobody. It is kept while it may belong to a thread
that is being created, and otherwise dropped and counted; a request of the server that reaches nobody is declined.

A sub-agent may speak before its parent's item names it (seen on 0.163: its status and its turn's start). So while a
thread of ours has a turn, notifications of an unknown thread are kept as well; a request of one is declined at once,
unless a thread is being created too.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from tutti_providers.codex._pool import STRANGERS_SHARE, ProvisionalPool
from tutti_providers.codex.schema.notifications import Head
from tutti_side.jsonrpc import ConnectionClosedError, Message

__all__ = ["PoolOverflowError", "Route", "Router", "RouterStatistics"]

CLOSED_THREADS_MAX = 4_096
"""Closed threads whose late messages are still known as such."""


CLOSED_METHOD = "thread/closed"
"""Says that a thread was unloaded."""


class Route(Protocol):
    """One thread's receiver. `batch` belongs to the router."""

    batch: list[Message[Head]]

    @property
    def is_busy(self) -> bool:
        """True while the thread has a turn, or may be about to."""
        ...

    def deliver(self, messages: list[Message[Head]]) -> None:
        """Take the thread's messages of one read, in wire order."""
        ...

    def crash(self, error: Exception) -> None:
        """Take note that `deliver` raised: this route is over, no other is touched."""
        ...

    def doubt(self) -> None:
        """Have it found out whether the thread's turn still runs."""
        ...

    def adopt(self, agent_id: str) -> None:
        """Take note of a sub-agent's thread; it may be registered in this call."""
        ...

    def connection_lost(self, exit_status: int | None) -> None:
        """Take note that nothing will come any more."""
        ...


class PoolOverflowError(Exception):
    """The early messages of an adopted thread did not all fit into the pool."""


class RouterStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a router holds, and what it counted."""

    routes: int
    creations: int
    """Requests that create a thread and lack their answer."""
    pooled: int
    evictions: int
    dropped: Mapping[str, int]
    """Messages that reached nobody, by cause: closed, unknown, unthreaded, unadopted, evicted, malformed."""
    route_failures: int


class Router:
    """Implements `tutti_side.jsonrpc.MessageRouter`: `feed` is called in the reader.

    Args:
      decline: answers a request of the server that nobody owns; synchronous.
      notice: takes a notification that names no thread; synchronous, never raises. None: it is dropped.
    """

    def __init__(
        self, decline: Callable[[Message[Head]], None], notice: Callable[[Message[Head]], None] | None = None
    ) -> None:
        self._decline = decline
        self._notice = notice
        self._routes: dict[str | None, Route] = {}
        self._pool = ProvisionalPool()
        self._creations = 0
        self._closed: dict[str, None] = {}
        self._loaded_again: dict[str, None] = {}
        self._loading: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._route_failures = 0
        self.lost: ConnectionClosedError | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def statistics(self) -> RouterStatistics:
        """Return counts."""
        return RouterStatistics(
            routes=len(self._routes),
            creations=self._creations,
            pooled=len(self._pool),
            evictions=self._pool.evictions,
            dropped=dict(self._dropped),
            route_failures=self._route_failures,
        )

    # MessageRouter

    def feed(self, messages: list[Message[Head]]) -> None:
        """Route one read: each touched route gets its messages as one batch."""
        find = self._routes.get
        touched: list[Route] = []
        unplaced: list[Message[Head]] = []
        for message in messages:
            head = message.params
            route = None if head is None else find(head.thread_id)
            if route is None:
                route = self._find_slowly(message, unplaced)
                if route is None:
                    continue
            batch = route.batch
            if not batch:
                touched.append(route)
            batch.append(message)
        for route in touched:
            batch, route.batch = route.batch, []
            self._deliver(route, batch)
        if unplaced:
            self._place(unplaced)

    def _place(self, messages: list[Message[Head]]) -> None:
        """Deliver, or drop, what had no route when its read began: the read itself may have named it as a sub-agent's.

        Messages of one thread keep their order: until the others were delivered, none of them had a route. (While a
        thread is being created one that names its parent comes behind those that are kept.)
        """
        keeps_strangers = self.is_busy
        for message in messages:
            head = message.params
            assert head is not None
            thread_id = _thread_id_of(head)
            parent = self._parent_of(head)
            if parent is not None and thread_id is not None and thread_id not in self._routes:
                parent.adopt(thread_id)
            route = self._routes.get(thread_id)
            if route is not None:
                self._deliver(route, [message])
            elif thread_id in self._closed:
                self._drop([message], "closed")
            elif thread_id is not None and message.id is None and keeps_strangers:
                self._drop(self._pool.add(thread_id, message, STRANGERS_SHARE), "evicted")
            else:
                self._drop([message], "unknown")
        if keeps_strangers:
            self.forget_strangers()  # the turn that was looked at may have ended in these

    def _parent_of(self, head: Head) -> Route | None:
        """Return the route of the thread whose agent started this one, if the message says so."""
        if head.thread is None or head.thread.parent_thread_id is None:
            return None
        return self._routes.get(head.thread.parent_thread_id)

    def connection_lost(self, error: ConnectionClosedError) -> None:
        """Tell every route, once."""
        self.lost = error
        status = None if error.exit is None else error.exit.status
        routes, self._routes = list(self._routes.values()), {}
        self._pool.drop_all()
        for route in routes:
            route.connection_lost(status)
        self.on_lost()

    # What the provider's parts do to it

    def begin_creation(self, resumed: str | None = None) -> None:
        """From now on messages of unknown threads are kept: a request that creates or loads one is about to be sent.

        `resumed` is the thread that it loads: it may have been ours before, and is no closed one any more. What was
        kept of it up to now is not of this load, unless somebody else loads it too: it would be told as if it were.
        """
        if not self._creations:
            self._pool.forget_evictions()  # none of those can be the new thread
        self._creations += 1
        if resumed is not None and self._loading[resumed] <= 1:
            self._drop(self._pool.take(resumed) or [], "unknown")
        if resumed is not None and resumed in self._closed:
            del self._closed[resumed]
            _remember(self._loaded_again, resumed)

    def begin_load(self, thread_id: str) -> None:
        """From now on the thread is known to everybody but its loader: no other answer may name it."""
        self._loading[thread_id] += 1

    def end_load(self, thread_id: str) -> None:
        """The load has its outcome: the thread has a route, or is nobody's."""
        self._loading[thread_id] -= 1
        if not self._loading[thread_id]:
            del self._loading[thread_id]

    def end_creation(self) -> None:
        """Such a request has its outcome; after the last one only a sub-agent's thread can be adopted."""
        self._creations -= 1
        if not self._creations:
            self._drop(self._pool.drop_requests() if self.is_busy else self._pool.drop_all(), "unadopted")

    def forget_strangers(self) -> None:
        """Drop what is kept of unknown threads, unless one of them can be adopted still: a turn may have ended."""
        if not self._creations and not self.is_busy:
            self._drop(self._pool.drop_all(), "unknown")

    @property
    def is_busy(self) -> bool:
        """True while a thread of ours has a turn, or may be about to."""
        return any(route.is_busy for route in self._routes.values())

    def doubt_busy(self) -> None:
        """Doubt every turn: the server lives, but said nothing of any for long."""
        for route in tuple(self._routes.values()):
            if route.is_busy:
                route.doubt()

    def knows(self, thread_id: str, *, loaded_by_asker: str = "") -> bool:
        """True for a thread that has a route, had one until lately, or that another than the asker is loading."""
        if thread_id in self._routes or thread_id in self._closed:
            return True
        return thread_id != loaded_by_asker and thread_id in self._loading

    def has_route(self, thread_id: str) -> bool:
        """True for a thread that is somebody's now."""
        return thread_id in self._routes

    def register(self, thread_id: str, route: Route, *, whole: bool = True) -> bool:
        """Give a new thread its route, and deliver what came early.

        Of a thread that was closed here before, what came up to the word that it was unloaded is taken to be of that
        time. Taken for this load's it would end it as soon as it began (seen on 0.163). Of any other thread that word
        is its end.

        Returns:
          True when such a word was set aside: perhaps it was of this load after all, and the thread is not loaded now.

        Raises:
          PoolOverflowError: some of it was evicted; nothing is registered. Not when it need not be `whole`.
        """
        early = self._pool.take(thread_id)
        if early is None:
            if whole:
                raise PoolOverflowError
            early = []
        is_doubtful = False
        if thread_id in self._loaded_again:
            del self._loaded_again[thread_id]
            ends = [at for at, message in enumerate(early, 1) if message.method == CLOSED_METHOD]
            if ends:
                is_doubtful = True
                self._drop(early[: ends[-1]], "closed")
                early = early[ends[-1] :]
        self._routes[thread_id] = route
        if early:
            self._deliver(route, early)
        return is_doubtful

    def retire(self, thread_id: str) -> None:
        """Take a thread's route away; what still comes of it is dropped, not kept. Idempotent."""
        self._routes.pop(thread_id, None)
        self._drop(self._pool.take(thread_id) or [], "closed")
        _remember(self._closed, thread_id)
        self.forget_strangers()

    # Inside

    def _find_slowly(self, message: Message[Head], unplaced: list[Message[Head]]) -> Route | None:
        """Find the route of a message that does not say its thread in the usual place; keep or drop one without."""
        head = message.params
        if head is None:
            self._drop([message], "malformed")
            return None
        thread_id = _thread_id_of(head)
        route = None if thread_id is None else self._routes.get(thread_id)
        if route is not None:
            return route
        if thread_id is None:
            if self._notice is not None and message.id is None:
                self._notice(message)
            else:
                self._drop([message], "unthreaded")
        elif thread_id in self._closed:
            self._drop([message], "closed")
        elif self._creations and (thread_id in self._loading or self._parent_of(head) is None):
            self._drop(self._pool.add(thread_id, message), "evicted")
        else:
            unplaced.append(message)
        return None

    def _deliver(self, route: Route, batch: list[Message[Head]]) -> None:
        try:
            route.deliver(batch)
        except Exception as error:  # one route's failure is its own
            self._route_failures += 1
            route.crash(error)

    def _drop(self, messages: list[Message[Head]], cause: str) -> None:
        for message in messages:
            self._dropped[cause] += 1
            if message.id is not None:
                self._decline(message)


def _remember(threads: dict[str, None], thread_id: str) -> None:
    threads[thread_id] = None
    if len(threads) > CLOSED_THREADS_MAX:
        del threads[next(iter(threads))]


def _thread_id_of(head: Head) -> str | None:
    """Return the thread that a message is about: the one place that knows the protocol's three."""
    return head.thread_id or head.conversation_id or (head.thread.id if head.thread is not None else None)
