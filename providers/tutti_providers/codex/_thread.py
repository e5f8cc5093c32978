"""One Codex thread of ours: the route of its messages, which become contract events. Synchronous.

`deliver` runs in the reader. It also tells `_thread_turns` what becomes of turns, because a close must know the active
one even when nobody listens any more: a thread whose sink is gone still sees its turn end and refuses requests.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import trio

from tutti_providers.codex._asking import Asker, ThreadInteractions
from tutti_providers.codex._items import (
    delta_event,
    is_malformed,
    item_completed_event,
    item_started_event,
    notification_event,
    size_of,
    state_event,
    unknown,
)
from tutti_providers.codex._settings import SourceSettings
from tutti_providers.codex._subagents import SubAgents, agents_in
from tutti_providers.codex._thread_turns import ThreadTurns
from tutti_providers.codex.schema.items import Turn, UnknownItem, decode_item
from tutti_providers.codex.schema.notifications import (
    QUIET_METHODS,
    Head,
    ItemCompleted,
    ItemStarted,
    Notification,
    RequestResolved,
    ThreadClosed,
    ThreadSettingsUpdated,
    ThreadStatusChanged,
    TurnCompleted,
    TurnStarted,
    decode_notification,
)
from tutti_side.contract import (
    EndReason,
    Event,
    EventSink,
    MessageDelta,
    SessionUpdated,
    TurnCanceled,
    TurnFailed,
    TurnId,
    TurnMode,
)
from tutti_side.contract import TurnCompleted as TurnCompletedEvent
from tutti_side.contract import TurnStarted as TurnStartedEvent
from tutti_side.jsonrpc import Message

__all__ = ["TURN_BEGIN_WAIT_S", "CodexThread"]

HOT_METHOD = "item/agentMessage/delta"
"""Nearly all of a stream; `Head` holds the whole of it."""

TURN_BEGIN_WAIT_S = 5.0
"""How long an interrupt is held back until the server has said that the turn began.

Seen on 0.163: sent right behind the answer to ``turn/start``, an interrupt is refused ("no active turn"), and the turn
runs on. ``turn/started`` comes some 50 ms after that answer, also with a tool server that is slow to start.
"""


class CodexThread:
    """Implements `tutti_providers.codex._router.Route`.

    Args:
      sink: where its events go, until `detach`.
      asker: answers the server's requests.
      source: the thread that a Side was forked from; None for a canonical session.
      instructions: a Side's composed instructions.
      on_busy: see `ThreadTurns`.
      on_doubt: called when a turn has perhaps ended without a word: somebody must ask (see `_settling`).
      on_late_begin: called when a turn begins that was given up before: somebody must interrupt it.
      on_sub_agent: called with the id of a thread that this one's agent started or speaks to.
      unread: counts what nothing was made of, by cause; its connection's, or one of its own.
    """

    def __init__(
        self,
        sink: EventSink,
        asker: Asker,
        *,
        source: "CodexThread | None" = None,
        instructions: str = "",
        on_busy: Callable[[bool], None] = lambda is_busy: None,
        on_doubt: Callable[["CodexThread", TurnId], None] = lambda thread, turn_id: None,
        on_late_begin: Callable[["CodexThread", TurnId], None] = lambda thread, turn_id: None,
        on_sub_agent: Callable[["CodexThread", str], None] = lambda thread, agent_id: None,
        unread: Counter[str] | None = None,
    ) -> None:
        self.batch: list[Message[Head]] = []
        self.thread_id = ""
        self.source = source
        self.instructions = instructions
        self.turns = ThreadTurns(on_busy, lambda turn_id: on_doubt(self, turn_id))
        self.had_context = False
        self.is_stopped = False
        """True once its close has ended its turn and its commands."""
        self.first_item = trio.Event()
        self.interrupting: TurnId | None = None
        """A turn whose interrupt is on its way; no second one is sent meanwhile."""
        self.deliveries = 0
        """How often something of this thread came."""
        self.lost = False
        self.exit_status: int | None = None
        self.unread: Counter[str] = Counter() if unread is None else unread
        self._settings: SourceSettings | None = None
        self._own_mode: str | None = None
        self._sink: EventSink | None = sink
        self._closing = False
        self.interactions = ThreadInteractions(asker, self.unread, in_side=source is not None)
        self._on_late_begin = on_late_begin
        self.sub_agents = SubAgents()
        self._on_sub_agent = on_sub_agent

    def __repr__(self) -> str:
        return f"<CodexThread {self.thread_id or 'unnamed'}>"

    @property
    def settings(self) -> SourceSettings:
        """What it runs with; known once it is bound."""
        assert self._settings is not None
        return self._settings

    @property
    def mode(self) -> str:
        """Its collaboration mode now: its own, or that which the running turn was asked for."""
        if self._own_mode is None or self.turns.active is not None:
            return self.settings.mode
        return self._own_mode

    def mode_of_turn(self, asked: TurnMode | None) -> str | None:
        """Return the mode to be said with the next turn, None for none.

        The server keeps a mode until it is told of another. So from the first turn on that was asked for in a mode,
        each one says its own.
        """
        if self._own_mode is None:
            if asked is None:
                return None
            self._own_mode = self.settings.mode
        return asked or self._own_mode

    def bind(self, thread_id: str, settings: SourceSettings, *, is_persisted: bool = False) -> None:
        """Take the thread's id and settings from the answer that created it, or loaded it.

        The server keeps only threads that have had a turn (seen on 0.163), so a persisted one can be branched at once.
        """
        self.thread_id = thread_id
        self._settings = settings
        if is_persisted:
            self.turns.has_any = True
            self.first_item.set()

    def begin_close(self) -> None:
        """Refuse what waits for its user, and what is still asked from now on. Idempotent."""
        self._closing = True
        self._emit(self.interactions.refuse_all())

    def detach(self) -> None:
        """Let nothing reach the sink any more, and refuse what waits. Idempotent."""
        self._sink = None
        self.interactions.refuse_all()

    # Route

    def deliver(self, messages: list[Message[Head]]) -> None:
        """Take the thread's messages of one read."""
        self.deliveries += 1
        events: list[Event] = []
        append = events.append
        given_up = self.turns.given_up
        size_bytes = 0
        for message in messages:
            head = message.params
            if given_up and head is not None and head.turn_id in given_up and message.id is None:
                self.unread["given-up turn"] += 1
            elif message.method == HOT_METHOD:
                if head is None or head.turn_id is None or head.item_id is None or head.delta is None:
                    self.unread["malformed"] += 1
                    continue
                append(MessageDelta(head.turn_id, head.item_id, head.delta))  # type: ignore[arg-type]
                size_bytes += len(message.line)
            elif message.id is not None:
                heard = self._sink is not None and not self._closing
                append(self.interactions.take(message, heard=heard, ended_turns=self.turns.over))
                size_bytes += len(message.line)
            else:
                for event in self._normalise(message):
                    append(event)
                    size_bytes += size_of(event, len(message.line))
        if events and self._sink is not None:
            self._sink.emit(events, size_bytes)
        if self.turns.is_resting:
            self.doubt()

    def adopt(self, agent_id: str) -> None:
        """Take the server's word that a thread belongs to an agent which this one's started."""
        self._on_sub_agent(self, agent_id)

    def emit_of_sub_agent(self, events: Sequence[Event], size_bytes: int) -> None:
        """Pass on what a sub-agent said, already marked as such."""
        if self._sink is not None:
            self._sink.emit(events, size_bytes)

    def crash(self, error: Exception) -> None:
        """End this thread's session or Side: its route raised."""
        del error  # counted by the router; its text may hold content
        self._end("lost")

    @property
    def is_over(self) -> bool:
        """True once nothing of it reaches its sink any more."""
        return self._sink is None

    def note_unloaded(self) -> None:
        """End this thread's session or Side: the server does not hold it any more. Idempotent."""
        self._end("lost")

    def connection_lost(self, exit_status: int | None) -> None:
        """End: the process or its pipe is gone."""
        self.lost = True
        self.exit_status = exit_status
        self.turns.lose()
        self.first_item.set()
        self.interactions.forget()
        self._end("lost")

    def _emit(self, events: list[Event]) -> None:
        if events and self._sink is not None:
            self._sink.emit(events, 0)

    def _end(self, reason: EndReason) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.end(reason)

    # Turns

    @property
    def is_busy(self) -> bool:
        """True while a turn is active, or one may be about to be."""
        return self.turns.is_busy

    def doubt(self) -> None:
        """Have it found out whether the active turn still runs. Idempotent."""
        self.turns.doubt()

    def has_ended(self, turn_id: TurnId) -> bool:
        """True when nothing of this turn is waited for any more: it has ended, or its thread is over."""
        return turn_id in self.turns.over or self.is_over

    @contextmanager
    def being_interrupted(self, turn_id: TurnId) -> Iterator[None]:
        """Mark a turn while an interrupt of it is on its way: one at a time is, see `interrupting`."""
        self.interrupting = turn_id
        try:
            yield
        finally:
            if self.interrupting == turn_id:
                self.interrupting = None

    def note_late_start(self, turn_id: TurnId) -> None:
        """Take the word that a turn runs from an answer that nobody waited for any more: it can be interrupted then.

        Also when the thread is over: its turn would run on, and nobody would hear of it.
        """
        if self.turns.active is None and turn_id not in self.turns.over:
            self.turns.begin(turn_id)

    def conclude(self, turn: Turn) -> None:
        """End a doubted turn as the server, when asked, says that it ended."""
        if turn.id not in self.turns.over:
            self.unread["missing end"] += 1
            settled = self.interactions.refuse_turn(turn.id)  # asked behind the answer, it may be waited for still
            self._emit([*settled, *self._end_events(turn)])

    def give_up(self, turn_id: TurnId) -> None:
        """End a doubted turn of which nobody can say how it ended. What is still said of it is dropped, and counted."""
        if self.turns.give_up(turn_id):
            self.unread["missing end"] += 1
            settled = self.interactions.refuse_turn(turn_id)  # the server may wait for it still
            self._emit([*settled, TurnFailed(turn_id, "", reason="terminal_event_missing")])

    # Normalising what is not hot

    def _normalise(self, message: Message[Head]) -> Sequence[Event]:
        method, head = message.method or "", message.params
        make = delta_event(method)
        if make is not None:
            if head is None or head.turn_id is None or head.item_id is None or head.delta is None:
                self.unread["malformed"] += 1
                return ()
            return (make(TurnId(head.turn_id), head.item_id, head.delta),)
        try:
            notification = decode_notification(method, message.line)
        except (msgspec.DecodeError, RecursionError):
            self.unread["malformed"] += 1
            return ()
        if notification is None:
            if method in QUIET_METHODS:
                return ()
            self.unread["not modelled"] += 1
            return (unknown(method, None if head is None else head.turn_id),)
        if isinstance(notification, TurnCompleted):
            return self._end_events(notification.turn)
        event = self._event_of(notification)
        return () if event is None else (event,)

    def _event_of(self, notification: Notification) -> Event | None:
        if isinstance(notification, TurnStarted):
            turn_id = TurnId(notification.turn.id)
            if turn_id in self.turns.given_up:
                self._on_late_begin(self, turn_id)
            if turn_id in self.turns.over:
                return None
            self.turns.begin(turn_id)
            if self.turns.began.is_set():
                self.unread["repeated start"] += 1
                return None
            self.turns.began.set()
            return TurnStartedEvent(turn_id)
        if isinstance(notification, ItemStarted | ItemCompleted):
            return self._item_event(notification)
        elif isinstance(notification, RequestResolved):
            return self.interactions.resolved(notification.request_id)
        elif isinstance(notification, ThreadStatusChanged):
            # At a turn's end this comes right before the word of it; so it is looked at after the whole read.
            self.turns.is_resting = notification.status.type != "active"
            return state_event(notification.status)
        elif isinstance(notification, ThreadSettingsUpdated):
            settings = notification.thread_settings
            self._settings = SourceSettings.of_update(settings)
            return SessionUpdated(settings.cwd, settings.model, settings.model_provider)
        elif isinstance(notification, ThreadClosed):
            self.note_unloaded()
        else:
            return notification_event(notification)
        return None

    def _end_events(self, turn: Turn) -> Sequence[Event]:
        """Say a turn's end, once, and before it the end of what it asked."""
        turn_id = TurnId(turn.id)
        if not self.turns.end(turn_id):
            self.unread["repeated end"] += 1
            return ()
        settled = self.interactions.turn_ended(turn_id)
        if turn.status == "completed":
            return (*settled, TurnCompletedEvent(turn_id))
        if turn.status == "interrupted":
            return (*settled, TurnCanceled(turn_id))
        return (*settled, TurnFailed(turn_id, "" if turn.error is None else turn.error.message))

    def _item_event(self, notification: ItemStarted | ItemCompleted) -> Event | None:
        item, turn_id = decode_item(notification.item), TurnId(notification.turn_id)
        is_over = isinstance(notification, ItemCompleted)
        if is_over:
            self.first_item.set()
        if is_malformed(item):
            self.unread["malformed"] += 1
            return None
        for agent_id in agents_in(item, self.thread_id):
            self.adopt(agent_id)
        if not is_over:
            self.interactions.item_started(item)
            return item_started_event(turn_id, item)
        if isinstance(item, UnknownItem):
            self.unread["not modelled"] += 1
        return item_completed_event(turn_id, item)
