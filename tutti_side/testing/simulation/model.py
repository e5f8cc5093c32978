"""The simplest description of what a host may do with sessions and Sides: dictionaries, and no runtime.

`Model.begin` takes one call of a user; `Model.settle` lets everything happen that nothing holds back, in the order in
which it waits. After both, `calls` has the outcome of each call that has ended, `scopes` what each session or Side has
said so far, `asked` what has reached the provider. Time stands still: whatever is only bounded in time stays as it is.

A session's lock is a queue (`waiting`): an open holds it while its provider branches, and a close, delete, resume or
change of context waits behind. Two calls at once have no order of their own: the model is asked for both.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tutti_side.testing.simulation._model_scopes import Scopes

__all__ = ["Model", "Operation", "Side"]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a user, or one thing that the provider does."""

    kind: str
    """Of a session: start, resume, close session, delete, context. Of a Side: open, close. Of both: send, ask, cancel,
    respond, subscribe, finish (its turn). Of the provider: pass (an open that it holds), lose. Of a call: leave."""
    who: str = ""
    source: str = ""
    request: str = "r"
    what: str = ""
    """A turn's kind (say, hold, ask, fail, drop), an answer's option, or a context."""
    submit: str = ""
    number: int = 0
    """Which interaction, or which call to leave."""


class Side(msgspec.Struct, kw_only=True):
    """One that is on its way, open or draining."""

    source: str
    request: str
    state: str = "waiting"
    """waiting (for its source's lock), branching (its provider holds it), open, draining."""
    openers: list[int] = []
    leaving: list[int] = []
    closing: list[int] = []
    used_up: str = ""
    """Why its id is over once it has drained; empty when the id is free then."""
    own_connection: bool = False
    branch: int = 0
    """Which of its id's branches at the provider this is, from 0."""


class Model:
    """All there is.

    Args:
      openings: what becomes of each Side's branches at the provider, one after the other: hold, fail, drop, unattested
        or, also when there are no more, work.
    """

    def __init__(self, openings: Mapping[str, Sequence[str]]) -> None:
        self.sessions: dict[str, str] = {}
        """Name → live, starting, or why it is over."""
        self.handles: dict[str, str] = {}
        """Name → the scope that its user's newest handle stands for."""
        self.kept: set[str] = set()
        self.contexts: dict[str, str] = {}
        self.sides: dict[str, Side] = {}
        self.opened: dict[str, None] = {}
        """Sides that a user got a handle of, in their order."""
        self.waiting: dict[str, list[tuple[int, Operation]]] = {}
        self.submits: set[str] = set()
        self.calls: dict[int, str] = {}
        self.scopes = Scopes(self.calls)
        self.asked: dict[str, list[str]] = {}
        self._openings = openings
        self._before: dict[str, str] = {}
        self._starts = 0
        self.deletes: dict[int, list[Side]] = {}

    def begin(self, call: int, op: Operation) -> None:
        """Take a call; what it comes to stands in `calls`, now or later."""
        {
            "start": self._start,
            "resume": self._resume,
            "close session": self._wait_for_lock,
            "delete": self._delete,
            "context": self._wait_for_lock,
            "open": self._open,
            "close": self._close,
            "send": self._send,
            "ask": self._send,
            "cancel": self._cancel,
            "respond": self._respond,
            "subscribe": self._subscribe,
            "finish": self._finish,
            "pass": self._pass,
            "lose": self._lose,
            "leave": self._leave,
        }[op.kind](call, op)

    def settle(self) -> None:
        """Let all that waits for a lock have it, until the provider holds each that is left."""
        moved = True
        while moved:
            moved = False
            for name in list(self.waiting):
                while self.waiting[name] and self._run(*self.waiting[name][0]):
                    moved = True
                    self.waiting[name].pop(0)
                if not self.waiting[name]:
                    del self.waiting[name]
            for call, sides in list(self.deletes.items()):
                if all(side is not self.sides.get(name) for side in sides for name in self.sides):
                    self.calls[call] = "ok"
                    del self.deletes[call]

    def stop(self) -> None:
        """End the host, with no call under way: all that lives is over."""
        for name, side in list(self.sides.items()):
            if side.state == "open":
                self._close_side(name, side, "host_stopped")
        for name, state in self.sessions.items():
            if state == "live":
                self.scopes.end(self.handles[name], "host_stopped")

    def allows(self, op: Operation) -> bool:
        """False when a user could not make this call: there is no handle, or nothing to let go on."""
        if op.kind in ("close session", "context"):
            return op.who in self.handles
        if op.kind == "finish":
            return self._scope(op.who) in self.scopes.turns and self.scopes.turns[self._scope(op.who)].kind == "hold"
        if op.kind == "pass":
            side = self.sides.get(op.who)
            return side is not None and side.state in ("branching", "draining")
        if op.kind == "leave":
            return op.number not in self.calls
        if op.kind == "cancel" and op.who in self.handles:
            return self._scope(op.who) in self.scopes.turns
        if op.kind in ("send", "ask", "cancel", "respond", "subscribe"):
            return op.who in self.handles or (op.who in self.opened if op.kind == "ask" else self._is_side(op.who))
        return True

    def _is_side(self, who: str) -> bool:
        return who in self._openings

    def _scope(self, who: str) -> str:
        return self.handles.get(who, who)

    # Sessions

    def _start(self, call: int, op: Operation) -> None:
        problem = self._taken(op.who)
        if not problem and op.who in self.sessions:
            problem = f"SessionExpiredError {self.sessions[op.who]}"
        self._begin_session(call, op, problem)

    def _resume(self, call: int, op: Operation) -> None:
        problem = self._taken(op.who)
        if not problem and self.sessions.get(op.who) == "source_deleted":
            problem = "SessionExpiredError source_deleted"
        if not problem and op.who not in self.kept:
            problem = "SessionUnknownError"
        self._begin_session(call, op, problem)

    def _taken(self, who: str) -> str:
        """One id is one thing."""
        is_taken = self.sessions.get(who) in ("live", "starting") or who in self.sides or who in self.scopes.ends
        return "SessionConflictError" if is_taken else ""

    def _begin_session(self, call: int, op: Operation, problem: str) -> None:
        if problem:
            self.calls[call] = problem
            return
        self._before[op.who] = self.sessions.get(op.who, "")
        self.sessions[op.who] = "starting"
        self._wait_for_lock(call, op)

    def _wait_for_lock(self, call: int, op: Operation) -> None:
        scope = self.handles.get(op.who, "")
        kept = msgspec.structs.replace(op, what=f"{scope}|{op.what}") if op.kind in ("close session", "context") else op
        self.waiting.setdefault(op.who, []).append((call, kept))

    def _run(self, call: int, op: Operation) -> bool:
        """Do what has come to hold the lock; False when it goes on holding it."""
        if op.kind == "open":
            return self._branch(op.who)
        self.calls[call] = "ok"
        if op.kind in ("start", "resume"):
            self._starts += 1
            scope = self.handles[op.who] = f"{op.who}#{self._starts}"
            self.sessions[op.who] = "live"
            self.kept.add(op.who)
            self.scopes.say(scope, "session.started")
            self.scopes.hear(call, scope)
        elif op.kind == "delete":
            if self.sessions.get(op.who) == "live":
                self.scopes.end(self.handles[op.who], "source_deleted")
            self._forget(call, op.who)
        else:
            scope, _, what = op.what.partition("|")
            if op.kind == "close session":
                if scope not in self.scopes.ends:
                    self.sessions[op.who] = "closed"
                    self.scopes.end(scope, "closed")
            elif scope in self.scopes.ends:
                self.calls[call] = f"SessionExpiredError {self.scopes.ends[scope]}"
            else:
                self.contexts[op.who] = what
        return True

    def _delete(self, call: int, op: Operation) -> None:
        self._close_sides_of(op.who)
        if self.sessions.get(op.who) in ("live", "starting"):
            self._wait_for_lock(call, op)
        else:
            self._forget(call, op.who)

    def _forget(self, call: int, who: str) -> None:
        """The last part of a delete: it waits until its Sides are gone."""
        self.sessions[who] = "source_deleted"
        self.kept.discard(who)
        self.calls.pop(call, None)
        self.deletes[call] = self._close_sides_of(who)

    def _close_sides_of(self, who: str) -> list[Side]:
        sides = [(name, side) for name, side in self.sides.items() if side.source == who]
        for name, side in sides:
            self._close_side(name, side, "source_deleted")
        return [side for name, side in sides if self.sides.get(name) is side]

    # Sides

    def _open(self, call: int, op: Operation) -> None:
        side = self.sides.get(op.who)
        if side is not None:
            if (side.source, side.request) != (op.source, op.request):
                self.calls[call] = "SideConflictError"
            elif side.state == "draining":
                self.calls[call] = "SideInProgressError"
            elif side.state == "open":
                self.calls[call] = "ok"
                self.scopes.hear(call, op.who)
            else:
                side.openers.append(call)
        elif op.who in self.scopes.ends:
            self.calls[call] = f"SideExpiredError {self.scopes.ends[op.who]}"
        elif op.who in self.sessions or op.source in self.sides or op.source in self.scopes.ends:
            self.calls[call] = "SideConflictError"
        else:
            self.sides[op.who] = Side(source=op.source, request=op.request, openers=[call])
            self.waiting.setdefault(op.source, []).append((call, op))

    def _branch(self, name: str) -> bool:
        """An open has its source's lock: branch it, if the source is there."""
        side = self.sides[name]
        is_live = self.sessions.get(side.source) == "live"
        if side.state == "branching":
            return False
        if not is_live and side.source not in self.kept:
            self._fail(name, side)
            return True
        side.own_connection = not is_live
        context = self.contexts.get(side.source, "")
        self.asked.setdefault(name, []).append(f"open_side {side.source} {context}")
        branches = self._openings.get(name, ())
        side.branch = sum(line.startswith("open_side") for line in self.asked[name]) - 1
        kind = branches[side.branch] if side.branch < len(branches) else "work"
        if kind == "hold":
            side.state = "branching"
            return False
        if kind == "work":
            self._commit(name, side)
        else:
            self._fail(name, side)
            if kind == "drop":
                self._lose_connection(name if side.own_connection else "")
        return True

    def _commit(self, name: str, side: Side) -> None:
        side.state = "open"
        self.opened[name] = None
        for call in side.openers:
            self.calls[call] = "ok"
            self.scopes.hear(call, name)
        side.openers = []
        self.scopes.say(name, "session.started")

    def _fail(self, name: str, side: Side) -> None:
        for call in side.openers:
            self.calls[call] = "OpenFailedError"
        del self.sides[name]

    def _close(self, call: int, op: Operation) -> None:
        side = self.sides.get(op.who)
        if side is None:
            self.calls[call] = "ok"
        elif (side.source, side.request) != (op.source, op.request):
            self.calls[call] = "SideConflictError"
        else:
            self._close_side(op.who, side, "closed")
            if self.sides.get(op.who) is side:
                side.closing.append(call)
            else:
                self.calls[call] = "ok"

    def _close_side(self, name: str, side: Side, reason: str) -> None:
        """Close it, in whatever state it is; what its provider still holds drains."""
        if side.state == "open":
            del self.sides[name]
            self.scopes.end(name, reason)
            return
        side.used_up = side.used_up or reason
        for call in side.openers:
            self.calls[call] = f"SideExpiredError {side.used_up}"
        self._give_up(name, side)

    def _give_up(self, name: str, side: Side) -> None:
        """End an open: its source's lock is free at once, its id when nothing of it can come any more.

        A connection that was made for it is closed with it, and brings nothing.
        """
        side.openers = []
        queue = self.waiting.get(side.source, [])
        queue[:] = [(call, op) for call, op in queue if op.kind != "open" or op.who != name]
        if side.state in ("branching", "draining") and not side.own_connection:
            side.state = "draining"
        else:
            self._drained(name, side)

    def _drained(self, name: str, side: Side) -> None:
        del self.sides[name]
        if side.used_up:
            self.scopes.ends[name] = side.used_up
        for call in side.leaving:
            self.calls[call] = "cancelled"
        for call in side.closing:
            self.calls[call] = "ok"

    def _pass(self, call: int, op: Operation) -> None:
        self.calls[call] = "ok"
        side = self.sides[op.who]
        if side.state == "draining":
            self._drained(op.who, side)
        else:
            self._commit(op.who, side)
            self.waiting[side.source].pop(0)

    # Turns

    def _refused(self, op: Operation) -> str:
        """Why a call about a session or Side is refused, in the words of an error; empty when it is open."""
        scope = self._scope(op.who)
        if op.who in self.handles:
            return f"SessionExpiredError {self.scopes.ends[scope]}" if scope in self.scopes.ends else ""
        side = self.sides.get(op.who)
        if op.kind == "ask":  # by its handle, so nothing but the Side itself is in the way
            return f"SideExpiredError {self.scopes.ends[op.who]}" if op.who in self.scopes.ends else ""
        if side is not None and (side.source, side.request) != (op.source, op.request):
            return "SideConflictError"
        if side is not None:
            return "" if side.state == "open" else "SideInProgressError"
        return f"SideExpiredError {self.scopes.ends[op.who]}" if op.who in self.scopes.ends else "SideNotFoundError"

    def _send(self, call: int, op: Operation) -> None:
        scope = self._scope(op.who)
        problem = self._refused(op)
        is_session = op.who in self.handles
        if not problem and not is_session and op.submit in self.submits:
            problem = "SideConflictError"
        if not problem and scope in self.scopes.turns:
            problem = "SessionBusyError" if is_session else "SideBusyError"
        if problem:
            self.calls[call] = problem
            return
        if is_session and op.submit:
            self.submits.add(op.submit)
        context = self.contexts.get(op.who, "") if is_session else ""
        self.asked.setdefault(op.who, []).append(f"exec {op.what} {context}")
        self.scopes.begin_turn(scope, op.what, call, is_asked=op.kind == "ask")
        if op.what == "drop":
            side = self.sides.get(op.who)
            self._lose_connection(op.who if side is not None and side.own_connection else "")

    def _cancel(self, call: int, op: Operation) -> None:
        problem = self._refused(op)
        scope = self._scope(op.who)
        is_another = op.what == "another" and op.who not in self.handles
        if not problem and (scope not in self.scopes.turns or is_another):
            problem = "TurnNotActiveError"
        self.calls[call] = problem or "ok"
        if not problem:
            self.scopes.end_turn(scope, "canceled")

    def _finish(self, call: int, op: Operation) -> None:
        self.calls[call] = "ok"
        self.scopes.end_turn(self._scope(op.who), "completed", "held")

    def _respond(self, call: int, op: Operation) -> None:
        scope = self._scope(op.who)
        problem = self._refused(op)
        problem = problem or self.scopes.refusal(scope, op.number, op.what)
        self.calls[call] = problem or "ok"
        if not problem:
            self.scopes.answer(scope, op.number, op.what)

    def _subscribe(self, call: int, op: Operation) -> None:
        problem = self._refused(op)
        self.calls[call] = problem or "ok"
        if not problem:
            self.scopes.hear(call, self._scope(op.who))

    # Ends

    def _lose(self, call: int, op: Operation) -> None:
        del op
        self.calls[call] = "ok"
        for name, side in list(self.sides.items()):
            if side.own_connection:
                self._lose_connection(name)
        self._lose_connection("")

    def _lose_connection(self, own: str) -> None:
        """Lose all that is on a Side's own connection, or on that of the sessions (empty)."""
        for name, side in list(self.sides.items()):
            if side.state == "waiting" or (name != own if own else side.own_connection):
                continue
            if side.state == "open":
                del self.sides[name]
                self.scopes.end(name, "lost")
            elif side.state == "draining":
                self._drained(name, side)
            else:
                queue = self.waiting[side.source]
                queue[:] = [(call, op) for call, op in queue if op.kind != "open" or op.who != name]
                self._fail(name, side)
        if not own:
            for name, state in self.sessions.items():
                if state == "live":
                    self.sessions[name] = "lost"
                    self.scopes.end(self.handles[name], "lost")

    def _leave(self, call: int, op: Operation) -> None:
        """A user gives up one call that has not ended."""
        self.calls[call] = "ok"
        left = op.number
        for name, side in list(self.sides.items()):
            if left in side.openers:
                side.openers.remove(left)
                if side.openers:
                    self.calls[left] = "cancelled"
                else:
                    side.leaving.append(left)
                    self._give_up(name, side)
                return
            if left in side.closing:
                side.closing.remove(left)
        self.scopes.leave_turns(left)
        for queue in self.waiting.values():
            for position, (number, waits) in enumerate(queue):
                if number == left:
                    del queue[position]
                    if waits.kind in ("start", "resume"):
                        self._restore(waits.who)
                    break
        self.deletes.pop(left, None)
        # A caller that waits for what drains already stays until it is gone, which is bounded.
        if not any(left in side.leaving for side in self.sides.values()):
            self.calls[left] = "cancelled"

    def _restore(self, who: str) -> None:
        """A start that was given up leaves the name as it was."""
        if self._before[who]:
            self.sessions[who] = self._before[who]
        else:
            del self.sessions[who]
