"""The interactions of one thread: what the server asks there, and how each is settled exactly once. Synchronous.

A request becomes an event, or is refused at once when no user could answer it: it is not of a kind that users answer,
its turn is over, its thread is closed for us or a sub-agent's, too many wait already, or its id was another's: a late
answer to that one must never be taken for an answer to this. It is settled by our answer and the server's word about
it, by its turn's end, or by the thread's; whichever comes first counts, and the others find nothing left.
"""

from collections import Counter
from collections.abc import Container
from typing import Protocol

import msgspec

from tutti_providers.codex._declines import REFUSED_CODE, not_offered, refusal
from tutti_providers.codex._interactions import Pending, interaction_id_of, pending_of
from tutti_providers.codex.schema.items import FileChangeItem, ThreadItem
from tutti_providers.codex.schema.notifications import Head
from tutti_side.contract import (
    Audit,
    Event,
    InteractionAnswer,
    InteractionId,
    InteractionResolved,
    InvalidAnswerError,
    ProviderLostError,
)
from tutti_side.jsonrpc import ConnectionClosedError, LocalError, Message, RequestId, RequestNotOpenError

__all__ = ["Asker", "ThreadInteractions", "refuse"]

PENDING_MAX = 256
"""Interactions that wait at once in one thread; more are refused."""

REQUEST_BYTES_MAX = 1 << 20
"""A request longer than that is refused, and paths longer than that together are not remembered: with `PENDING_MAX` and
`CHANGES_MAX` it bounds what one thread keeps."""

SETTLED_MAX = 1_024
"""Settled interactions whose ids are remembered: the runtime knows as many, and takes none of them for new."""

CHANGES_MAX = 64
"""File changes whose paths are remembered for their approvals."""


class Asker(Protocol):
    """The part of `tutti_side.jsonrpc.Peer` that answers the server's requests."""

    def respond(self, request_id: RequestId, result: object) -> None:
        """Answer."""
        ...

    def respond_error(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer with an error."""
        ...

    def settle_request(self, request_id: RequestId) -> None:
        """Take the server's word that no answer is needed."""
        ...


def refuse(asker: Asker, request_id: RequestId, method: str) -> None:
    """Refuse one request of the server in its own form."""
    answer = refusal(method)
    try:
        if answer is None:
            asker.respond_error(request_id, REFUSED_CODE, not_offered(method))
        else:
            asker.respond(request_id, answer)
    except (LocalError, ConnectionClosedError):
        return  # answered already, or nobody is left to hear it


class ThreadInteractions:
    """What waits for its user in one thread.

    Args:
      asker: answers the server's requests.
      unread: counts those that were malformed or refused.
      in_side: whether the thread is a Side.
    """

    def __init__(self, asker: Asker, unread: Counter[str], *, in_side: bool) -> None:
        self._asker = asker
        self._unread = unread
        self._in_side = in_side
        self._pending: dict[InteractionId, Pending] = {}
        self._settled: dict[InteractionId, None] = {}
        self._asked: dict[InteractionId, None] = {}
        self._changes: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def item_started(self, item: ThreadItem) -> None:
        """Remember the paths of a file change: the request for its approval names the item only."""
        if isinstance(item, FileChangeItem):
            paths = tuple(change.path for change in item.changes)
            if sum(map(len, paths)) > REQUEST_BYTES_MAX:
                return
            self._changes[item.id] = paths
            if len(self._changes) > CHANGES_MAX:
                del self._changes[next(iter(self._changes))]

    def take(self, message: Message[Head], *, heard: bool, ended_turns: Container[str | None]) -> Event:
        """Take a request of the server; return what is to be said of it.

        Args:
          heard: False once the thread is closed for us, and for a sub-agent's.
          ended_turns: turns that are over; nobody can answer for them.
        """
        request_id, method = message.id, message.method or ""
        assert request_id is not None
        self._asked[interaction_id_of(request_id)] = None
        if len(self._asked) > SETTLED_MAX:
            del self._asked[next(iter(self._asked))]
        try:
            pending = pending_of(method, message.line, request_id, in_side=self._in_side, changes=self._changes)
        except (msgspec.DecodeError, RecursionError):
            self._unread["malformed"] += 1
            pending = None
        full = len(self._pending) >= PENDING_MAX or len(message.line) > REQUEST_BYTES_MAX
        if (
            pending is None
            or full
            or not heard
            or pending.requested.turn_id in ended_turns
            or pending.interaction_id in self._pending
            or pending.interaction_id in self._settled
        ):
            self._unread["refused"] += 1
            refuse(self._asker, request_id, method)
            return Audit("request_declined", method)
        self._pending[pending.interaction_id] = pending
        return pending.requested

    def respond(self, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        """Answer, once; False when nobody waits. Check and sending are one step.

        Raises:
          InvalidAnswerError: it does not take this answer; it still waits.
          ProviderLostError: the connection is gone.
        """
        pending = self._pending.get(interaction_id)
        if pending is None or pending.answered:
            return False
        result = pending.encode(answer)
        try:
            self._asker.respond(pending.request_id, result)
        except ConnectionClosedError as error:
            raise ProviderLostError(None if error.exit is None else error.exit.status) from error
        except RequestNotOpenError:
            return False
        except LocalError:  # its message names a cause, no content; the request is still open
            raise InvalidAnswerError("answers", "can't be written as JSON") from None
        pending.answered = True
        return True

    def resolved(self, request_id: RequestId) -> Event | None:
        """Take the server's word that it needs no answer any more. Of what was not asked here it has no say."""
        if interaction_id_of(request_id) not in self._asked:
            return None
        self._asker.settle_request(request_id)
        for pending in self._pending.values():
            if pending.request_id == request_id and type(pending.request_id) is type(request_id):
                return self._settle(pending)
        return None

    def turn_ended(self, turn_id: str) -> list[Event]:
        """Settle what that turn asked: the server waits for it no longer, and says so only later, or never."""
        gone = [pending for pending in self._pending.values() if pending.requested.turn_id == turn_id]
        for pending in gone:
            self._asker.settle_request(pending.request_id)
        return [self._settle(pending) for pending in gone]

    def refuse_turn(self, turn_id: str) -> list[Event]:
        """Refuse what that turn asked: it is over for us, and perhaps not for the server."""
        return self._refuse([pending for pending in self._pending.values() if pending.requested.turn_id == turn_id])

    def refuse_all(self) -> list[Event]:
        """Refuse what waits: nobody will answer it any more."""
        return self._refuse(list(self._pending.values()))

    def _refuse(self, gone: list[Pending]) -> list[Event]:
        for pending in gone:
            if not pending.answered:
                self._unread["refused"] += 1
                refuse(self._asker, pending.request_id, pending.method)
        return [self._settle(pending) for pending in gone]

    def forget(self) -> None:
        """The connection is gone, and every request with it."""
        self._pending.clear()

    def _settle(self, pending: Pending) -> Event:
        del self._pending[pending.interaction_id]
        self._settled[pending.interaction_id] = None
        if len(self._settled) > SETTLED_MAX:
            del self._settled[next(iter(self._settled))]
        return InteractionResolved(pending.interaction_id, "answered" if pending.answered else "superseded")
