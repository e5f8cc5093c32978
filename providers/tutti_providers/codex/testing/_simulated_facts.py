"""What a wire tells: the facts of `tutti_side.testing.simulation.records`, read off one connection. Pure.

It watches our own end: what we asked for counts from the moment when we began to write it, and what the server said
from the moment when we had read it. So a fact is never judged by what nobody could know yet.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import msgspec

from tutti_side.jsonrpc.codec import LINE_BYTES_MAX, LineSplitter
from tutti_side.testing.simulation.records import (
    AgentCalled,
    Answered,
    Asked,
    BoundaryDrawn,
    BranchAnswered,
    BranchAsked,
    CommandsEnded,
    InterruptAsked,
    Record,
    ReleaseAnswered,
    ReleaseAsked,
    Rested,
    ResumeAsked,
    Settled,
    SteerAsked,
    TurnAnswered,
    TurnAsked,
    TurnBegan,
    TurnEnded,
    World,
    marked_owner,
)

from ._fake_shapes import sub_object

__all__ = ["WireFacts"]

REVIEWER = "user"

KINDS = {
    "item/commandExecution/requestApproval": "command",
    "item/fileChange/requestApproval": "change",
    "item/tool/requestUserInput": "input",
    "mcpServer/elicitation/request": "elicitation",
    "item/permissions/requestApproval": "permissions",
}
"""What the server asks, in the words of the records."""

CLEAN = "thread/backgroundTerminals/clean"
"""A close of a thread, unless a turn follows: it may take long until its unsubscribe."""

OVERLOADED = -32001
"""The error of a request that may be sent again as it is."""

BOUNDARY_MARK = "<side_conversation_boundary>"
"""In the item after which a Side begins."""

STATUSES = {"completed": "completed", "failed": "failed", "interrupted": "canceled"}

RESTING = ("idle", "systemError", "notLoaded")
"""Statuses of a thread in which no turn runs."""

ACCEPTED = frozenset({"accept", "acceptForSession", "acceptWithExecpolicyAmendment", "applyNetworkPolicyAmendment"})
"""Decisions that allow something."""

OUTSIDE = frozenset({"acceptWithExecpolicyAmendment", "applyNetworkPolicyAmendment"})
"""Decisions that write into the configuration of all."""


class _Policy(msgspec.Struct, frozen=True):
    """What a thread may do, from that time on."""

    since_s: float
    approval: object
    sandbox: object


class _Load(msgspec.Struct, frozen=True):
    """A thread that is being loaded: the key of the latest request for it, and what was said of it since the first."""

    key: str
    said: list[_Policy]


class WireFacts:
    """Reads one connection's lines.

    Args:
      connection: its number.
      world: says which questions there are.
      text_of: what a turn began with, by its id.
      record: takes the facts.
      clock: tells the time of the run, in seconds.
      line_bytes_max: longer lines are read by nobody.
    """

    def __init__(
        self,
        connection: int,
        world: World,
        text_of: Callable[[str], str],
        record: Callable[[Record], None],
        clock: Callable[[], float],
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self._connection = connection
        self._world = world
        self._text_of = text_of
        self._record = record
        self._clock = clock
        self._sent = LineSplitter(line_bytes_max)
        self._received = LineSplitter(line_bytes_max)
        self._calls: dict[str, tuple[str, dict[str, Any]]] = {}
        self._threads_of_calls: dict[str, str] = {}
        self._open: set[str] = set()
        self._turns: dict[tuple[str, str], bool] = {}
        self._policies: dict[str, list[_Policy]] = {}
        self._perhaps: dict[str, list[_Policy]] = {}
        self._given_up: dict[str, None] = {}
        self._loads: dict[str, _Load] = {}
        self._resumed_s: dict[str, float] = {}
        self._sources: dict[str, str] = {}
        self._made_s: dict[str, float] = {}
        self._overloaded_s: dict[bytes, float] = {}

    def thread_of(self, request_id: Any) -> str:
        """Return the thread that a request of ours was about; empty for none."""
        return self._threads_of_calls.get(_key(request_id), "")

    def sent(self, data: bytes, queued_s: float) -> list[bytes]:
        """Take what we write.

        Args:
          data: the bytes.
          queued_s: the earliest moment at which they can have been made.

        Returns:
          the whole lines.
        """
        lines = self._sent.receive_data(data)
        for line in lines:
            message = _message(line)
            if message is not None:
                self._take_sent(message, queued_s)
        return lines

    def received(self, data: bytes) -> list[bytes]:
        """Take what we read; return the whole lines."""
        lines = self._received.receive_data(data)
        for line in lines:
            message = _message(line)
            if message is not None:
                self._take_received(message)
        return lines

    def _take_sent(self, message: dict[str, Any], queued_s: float) -> None:
        if "id" not in message:
            return
        key, now, connection = _key(message["id"]), self._clock(), self._connection
        if "method" not in message:
            self._answered(key, message, queued_s)
            return
        method, params = str(message["method"]), sub_object(message, "params")
        child = str(params.get("threadId") or "")
        self._calls[key] = (method, params)
        self._threads_of_calls[key] = child
        # One that is sent again, since the server was overloaded, was made the first time.
        since_s = self._made_s[key] = self._overloaded_s.pop(_same(method, params), queued_s)
        if method == "thread/fork":
            self._record(
                BranchAsked(
                    at_s=now,
                    connection=connection,
                    request=key,
                    source=child,
                    owner=marked_owner(str(params.get("developerInstructions"))),
                    restricted=params.get("sandbox") == "read-only" and self._keeps_approval(child, params, since_s),
                )
            )
        elif method == CLEAN:
            self._given_up[child] = None
            self._record(CommandsEnded(at_s=now, connection=connection, child=child))
        elif method == "turn/start":
            self._given_up.pop(child, None)
            question = self._question(_text(params))
            restricted = child not in self._sources or self._keeps_policy(child, params, since_s)
            self._record(
                TurnAsked(
                    at_s=now,
                    connection=connection,
                    request=key,
                    child=child,
                    question=question,
                    restricted=restricted,
                )
            )
        elif method == "turn/interrupt":
            turn = str(params.get("turnId"))
            self._record(InterruptAsked(at_s=now, connection=connection, child=child, turn=turn))
        elif method == "turn/steer":
            turn, question = str(params.get("expectedTurnId")), self._question(_text(params))
            self._record(SteerAsked(at_s=now, connection=connection, child=child, turn=turn, question=question))
        elif method == "thread/unsubscribe":
            self._given_up[child] = None
            self._record(ReleaseAsked(at_s=now, connection=connection, child=child))
        elif method == "thread/resume":
            self._given_up.pop(child, None)
            self._loads[child] = _Load(key, self._said_in_load(child))
            self._policies.setdefault(child, [])  # from now on it is known here
            self._record(ResumeAsked(at_s=now, connection=connection, child=child))

    def _answered(self, key: str, message: dict[str, Any], queued_s: float) -> None:
        result = sub_object(message, "result")
        decision: Any = result.get("decision", result.get("action"))
        if isinstance(decision, dict):
            decision = next(iter(cast("dict[str, Any]", decision)), None)
        granted = bool(result.get("permissions"))
        self._open.discard(key)
        self._record(
            Answered(
                at_s=self._clock(),
                connection=self._connection,
                request=key,
                made_s=queued_s,
                accepts=decision in ACCEPTED or bool(result.get("answers")) or granted,
                outside=decision in OUTSIDE or granted,
            )
        )

    def _take_received(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            if isinstance(message.get("id"), int | str):
                self._take_answer(message)
        elif isinstance(method, str):
            params = sub_object(message, "params")
            if "id" not in message:
                self._take_notification(method, params)
            elif isinstance(message["id"], int | str):
                self._take_request(_key(message["id"]), method, params)

    def _take_request(self, key: str, method: str, params: dict[str, Any]) -> None:
        self._open.add(key)
        self._record(
            Asked(
                at_s=self._clock(),
                connection=self._connection,
                request=key,
                child=str(params.get("threadId") or ""),
                turn=str(params.get("turnId") or ""),
                kind=KINDS.get(method, method),
            )
        )

    def _take_notification(self, method: str, params: dict[str, Any]) -> None:
        child = params.get("threadId")
        now, connection = self._clock(), self._connection
        if method == "thread/started":
            thread = sub_object(params, "thread")
            agent, parent = thread.get("id"), thread.get("parentThreadId")
            if isinstance(agent, str) and isinstance(parent, str):
                self._record(AgentCalled(at_s=now, connection=connection, child=agent, parent=parent))
        if not isinstance(child, str):
            return
        for agent in _agents_in(sub_object(params, "item")):
            self._record(AgentCalled(at_s=now, connection=connection, child=agent, parent=child))
        turn = sub_object(params, "turn")
        turn_id = turn.get("id")
        if method == "turn/started" and isinstance(turn_id, str) and (child, turn_id) not in self._turns:
            self._turns[child, turn_id] = True
            question = self._question(self._text_of(turn_id))
            self._record(TurnBegan(at_s=now, connection=connection, child=child, turn=turn_id, question=question))
        elif method == "turn/completed" and isinstance(turn_id, str):
            self._take_end(child, turn)
        elif method == "serverRequest/resolved":
            key = _key(params.get("requestId"))
            if key in self._open:
                self._open.discard(key)
                self._record(Settled(at_s=now, connection=connection, request=key))
        elif method == "thread/settings/updated":
            settings = sub_object(params, "threadSettings")
            if settings:
                policy = _Policy(now, settings.get("approvalPolicy"), settings.get("sandboxPolicy"))
                if child in self._loads:  # nobody has to heed it before the load is answered
                    self._loads[child].said.append(policy)
                elif child in self._given_up:  # a source that is closing is perhaps listened to still
                    self._perhaps.setdefault(child, []).append(policy)
                else:
                    self._policies.setdefault(child, []).append(policy)

    def _take_end(self, child: str, turn: dict[str, Any]) -> None:
        """Record, once, how a turn ended, if it has."""
        turn_id, status = str(turn.get("id")), STATUSES.get(str(turn.get("status")))
        if status is not None and self._turns.get((child, turn_id)) is not False:
            self._turns[child, turn_id] = False
            now, connection = self._clock(), self._connection
            self._record(TurnEnded(at_s=now, connection=connection, child=child, turn=turn_id, status=status))

    def _take_answer(self, message: dict[str, Any]) -> None:
        key = _key(message["id"])
        method, params = self._calls.pop(key, ("", {}))
        child = str(params.get("threadId") or "")
        result = sub_object(message, "result")
        now, connection = self._clock(), self._connection
        made_s = self._made_s.pop(key, now)
        if sub_object(message, "error").get("code") == OVERLOADED:
            self._overloaded_s[_same(method, params)] = made_s
        if method == "thread/fork":
            made = str(sub_object(result, "thread").get("id") or "")
            # A thread that was there before is no child of this branch, whatever the answer says.
            made = "" if made in self._policies or made in self._sources else made
            if made:
                self._sources[made] = child
            self._record(BranchAnswered(at_s=now, connection=connection, request=key, child=made))
        elif method == "thread/start" and "thread" in result:
            self._take_started(result, made_s)
        elif method == "thread/resume":
            self._take_loaded(child, key, result)
        elif method == "turn/start":
            turn = str(sub_object(result, "turn").get("id") or "")
            self._record(TurnAnswered(at_s=now, connection=connection, request=key, child=child, turn=turn))
        elif method == "thread/inject_items" and "result" in message:
            owner = _told_to_be(params)
            if owner:
                self._record(BoundaryDrawn(at_s=now, connection=connection, child=child, owner=owner))
        elif method == "thread/read":
            status = sub_object(sub_object(result, "thread"), "status").get("type")
            if status in RESTING:
                self._record(Rested(at_s=now, connection=connection, child=child))
        elif method == "thread/turns/list":
            turns: list[dict[str, Any]] = result.get("data") or []
            for turn_of_list in turns:
                self._take_end(child, turn_of_list)
        elif method == "thread/unsubscribe" and "result" in message:
            self._record(ReleaseAnswered(at_s=now, connection=connection, child=child))

    # Restrictions

    def _take_started(self, result: dict[str, Any], made_s: float) -> None:
        """Take the policy of a new thread's answer. What the server said of it since the request is newer."""
        known = self._policies.setdefault(_thread_in(result), [])
        since = [each for each in known if each.since_s >= made_s]
        known.insert(len(known) - len(since), _policy_in(result, made_s))

    def _take_loaded(self, child: str, key: str, result: dict[str, Any]) -> None:
        """Take the policy of a loaded thread's answer.

        What the server said since the thread was asked for can be older or newer, so either may be heeded. The answer
        of a load that was given up says nothing: a later one counts.
        """
        load = self._loads.get(child)
        if load is None or load.key != key:
            return
        del self._loads[child]
        if "thread" in result:
            now = self._resumed_s[child] = self._clock()
            known = self._policies.setdefault(_thread_in(result), [])
            known.append(_policy_in(result, now))
            known.extend(msgspec.structs.replace(policy, since_s=now) for policy in load.said[-1:])
        else:  # it is as closed as before
            self._given_up[child] = None
            self._perhaps.setdefault(child, []).extend(load.said)

    def _said_in_load(self, child: str) -> list[_Policy]:
        """What was said of a thread since it was asked for; empty when it is not being loaded."""
        return self._loads[child].said if child in self._loads else []

    def _in_force(self, source: str, since_s: float) -> list[_Policy]:
        """The source's policies at any time since then.

        What it said while it was closing counts until a load of it is answered, and for what was made before that.
        """
        known = self._policies.get(source, [])
        before = [policy for policy in known if policy.since_s < since_s]
        before = [policy for policy in before if policy.since_s == before[-1].since_s]
        resumed_s = self._resumed_s.get(source, math.inf)
        perhaps = [policy for policy in self._perhaps.get(source, []) if not policy.since_s < resumed_s < since_s]
        return before + [policy for policy in known if policy.since_s >= since_s] + perhaps + self._said_in_load(source)

    def _keeps_approval(self, source: str, params: dict[str, Any], since_s: float) -> bool:
        allowed = [policy.approval for policy in self._in_force(source, since_s)]
        return params.get("approvalsReviewer") == REVIEWER and params.get("approvalPolicy") in allowed

    def _keeps_policy(self, child: str, params: dict[str, Any], since_s: float) -> bool:
        source = self._sources[child]
        allowed = [policy.sandbox for policy in self._in_force(source, since_s)]
        return params.get("sandboxPolicy") in allowed and self._keeps_approval(source, params, since_s)

    def _question(self, text: str) -> str:
        return next((question for question in self._world.answers if question in text), "")


def _thread_in(result: dict[str, Any]) -> str:
    return str(sub_object(result, "thread").get("id"))


def _agents_in(item: dict[str, Any]) -> list[str]:
    """Return the threads of the agents that an item names as its thread's."""
    if item.get("type") == "subAgentActivity":
        return [str(item.get("agentThreadId"))]
    return list(item.get("receiverThreadIds") or [])


def _policy_in(result: dict[str, Any], since_s: float) -> _Policy:
    return _Policy(since_s, result.get("approvalPolicy"), result.get("sandbox"))


def _told_to_be(params: dict[str, Any]) -> str:
    """Return the Side that injected items tell a child to be; empty when the last is not the boundary behind that."""
    items: list[Any] = params.get("items") or []
    if not items:
        return ""
    *told, last = [msgspec.json.encode(item).decode() for item in items]
    return marked_owner("".join(told)) if BOUNDARY_MARK in last else ""


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else None


def _key(request_id: Any) -> str:
    return msgspec.json.encode(request_id).decode()


def _same(method: str, params: dict[str, Any]) -> bytes:
    """What two sendings of one request have in common."""
    return msgspec.json.encode([method, params])


def _text(params: dict[str, Any]) -> str:
    parts: list[dict[str, Any]] = params.get("input") or []
    return "".join(str(part.get("text", "")) for part in parts)
