"""The fake app-server's methods: what each checks, does and answers, in the words of the real one.

A handler returns an `Outcome` or raises `Refused`. It doesn't send its answer itself: the machine does, because faults
may hold, repeat or drop it.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from ._fake_outbox import Outbox
from ._fake_shapes import default_sandbox, id_complaint, sub_object, turn_shape, version_tuple
from ._fake_threads import FakeSetup, FakeThread, StoredThread
from ._fake_turns import Turns
from .app_server_faults import FaultPlan, ForkAnswer, ForkMessage, ForkOrder, TurnFails, TurnStartsFirst

__all__ = ["INVALID_REQUEST", "Outcome", "Refused", "Requests"]

INVALID_REQUEST = -32600
"""Nearly every refusal of the real one has this code, also an unknown method."""


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(self, message: str, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def _nothing() -> None:
    return


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a request leads to, in wire order."""

    result: dict[str, Any] | None
    """None: never answered."""
    before: Callable[[], None] = _nothing
    """Sent ahead of the answer."""
    tied: Callable[[], None] = _nothing
    """Sent after the answer, and held with it when it is late."""
    then: Callable[[], None] = _nothing
    """Happens after the answer's turn, also when the answer is late."""


class Requests:
    """The methods, over the threads they work on."""

    def __init__(self, setup: FakeSetup, outbox: Outbox, plan: FaultPlan, chance: random.Random) -> None:
        self._setup = setup
        self._outbox = outbox
        self._plan = plan
        self._chance = chance
        self.turns = Turns(setup, outbox, plan, chance)
        self.threads: dict[str, FakeThread] = {}
        self.experimental = False
        self._stored = {stored.thread_id: stored for stored in setup.stored}
        self.persisted = dict(self._stored)
        self.handlers: dict[str, Callable[[dict[str, Any]], Outcome]] = {
            "thread/start": self._thread_start,
            "thread/resume": self._thread_resume,
            "thread/fork": self._thread_fork,
            "thread/read": self._thread_read,
            "thread/loaded/list": self._loaded_list,
            "thread/inject_items": self._inject_items,
            "thread/unsubscribe": self._unsubscribe,
            "thread/backgroundTerminals/clean": self._clean,
            "thread/archive": self._archive,
            "thread/delete": self._delete,
            "thread/name/set": self._set_name,
            "thread/turns/list": self._turns_list,
            "thread/items/list": self._items_list,
            "turn/start": self._turn_start,
            "turn/steer": self._turn_steer,
            "turn/interrupt": self._turn_interrupt,
        }

    def watch_unloads(self) -> None:
        """Start the unload timer of each thread that nobody subscribes and nothing holds."""
        for thread in self.threads.values():
            held = thread.subscribed or thread.turn is not None or thread.unload_attempt
            if not held and thread.unload_delay_s is not None:
                thread.unload_attempt = 1
                self._outbox.after(thread.unload_delay_s, lambda thread=thread: self._unload(thread))  # type: ignore[misc]

    def _unload(self, thread: FakeThread) -> None:
        thread.unload_attempt = 0
        if thread.subscribed or thread.turn is not None or self.threads.get(thread.id) is not thread:
            return
        self.unload(thread)

    def unload(self, thread: FakeThread) -> None:
        """Unload a thread whatever it does, and say so."""
        del self.threads[thread.id]
        self.turns.tools.clean(thread)
        self._outbox.notify("thread/status/changed", {"threadId": thread.id, "status": {"type": "notLoaded"}})
        self._outbox.notify("thread/closed", {"threadId": thread.id})

    def _thread_start(self, params: dict[str, Any]) -> Outcome:
        self._check_sandbox(params)
        thread = FakeThread(self._outbox.new_id(), self._setup, params)
        self.threads[thread.id] = thread
        shape = {"thread": thread.shape()}

        def started() -> None:
            self._outbox.notify("thread/started", shape)
            self._tell_tool_servers(thread, "starting")
            self._tell_tool_servers(thread, "ready")

        return Outcome(result=thread.opened(), tied=started)

    def _thread_resume(self, params: dict[str, Any]) -> Outcome:
        thread_id = self._id(params, "session")
        thread = self.threads.get(thread_id)
        stored = self.persisted.get(thread_id)
        if thread is not None and not thread.ephemeral and thread.turn_count:
            thread.subscribed = True
        elif stored is not None:
            thread = FakeThread(thread_id, self._setup, params)
            thread.preview, thread.responses, thread.turn_count = stored.preview, stored.responses, 1
            self.threads[thread_id] = thread
        else:
            raise Refused(f"no rollout found for thread id {thread_id}")
        return Outcome(result=thread.opened())

    def _thread_fork(self, params: dict[str, Any]) -> Outcome:
        source_id = self._id(params, "session")
        self._check_sandbox(params)
        child = FakeThread("", self._setup, params)
        self._copy_source(source_id, child, params)
        if (
            params.get("ephemeral")
            and not params.get("excludeTurns")
            and version_tuple(self._setup.version) >= (0, 163)
        ):
            raise Refused("ephemeral paginated thread/fork requires `excludeTurns: true`")
        self._refuse_options(params)
        child.id = self._outbox.new_id()
        child.forked_from = source_id
        fault = self._plan.take(ForkAnswer, "thread/fork")
        if fault is not None and fault.known_child:
            known = self._chance.choice(list(self.threads))
            return Outcome(result=_bent(self.threads[known].opened(), fault))
        if self._setup.is_new:
            child.unload_delay_s = sub_object(params, "config").get("thread_unload_delay_secs", child.unload_delay_s)
        self.threads[child.id] = child
        result = child.opened() if fault is None else _bent(child.opened(), fault)
        order = self._fork_order()
        split = order.index("response")
        senders = self._child_messages(child, result["thread"])

        def send(names: tuple[ForkMessage, ...]) -> None:
            for name in names:
                senders[name]()

        return Outcome(result=result, before=lambda: send(order[:split]), tied=lambda: send(order[split + 1 :]))

    def _copy_source(self, source_id: str, child: FakeThread, params: dict[str, Any]) -> None:
        """Inherit what a fork inherits: cwd, approval policy and reviewer; not model, provider, effort or sandbox."""
        source = self.threads.get(source_id)
        stored = self._stored.get(source_id)
        if source is not None and not source.ephemeral and source.turn_count:
            child.cwd = params.get("cwd") or source.cwd
            child.approval_policy = params.get("approvalPolicy") or source.approval_policy
            child.approvals_reviewer = params.get("approvalsReviewer") or source.approvals_reviewer
            child.preview, child.responses = source.preview, source.responses
            self._check_last_turn(source, params.get("lastTurnId"))
        elif source is None and stored is not None:
            if stored.archived:
                raise Refused(
                    f"session {source_id} is archived. Run `codex unarchive {source_id}` to unarchive it first."
                )
            child.preview, child.responses = stored.preview, stored.responses
        else:
            raise Refused(f"no rollout found for thread id {source_id}")

    @staticmethod
    def _check_last_turn(source: FakeThread, last_turn_id: str | None) -> None:
        if last_turn_id is None:
            return
        if source.turn is not None and source.turn.id == last_turn_id:
            raise Refused(f"lastTurnId '{last_turn_id}' identifies an in-progress turn")
        if last_turn_id != source.last_turn_id:
            raise Refused(f"turn not found: {last_turn_id}")

    def _refuse_options(self, params: dict[str, Any]) -> None:
        for name in ("beforeTurnId", "path", "permissions"):
            self._need_experimental(params, "thread/fork", name)
        if self._setup.is_new and params.get("attachToSource") and params.get("ephemeral"):
            raise Refused("attachToSource cannot be combined with ephemeral or deferGoalContinuation")

    def _fork_order(self) -> tuple[ForkMessage, ...]:
        fault = self._plan.take(ForkOrder, "thread/fork")
        if fault is not None:
            return fault.order if "response" in fault.order else (*fault.order, "response")
        plain: list[ForkMessage] = ["response", "started"]
        if self._setup.tool_servers:
            plain = ["starting", "response", "started", "ready"]
        if self._setup.jitter:
            self._chance.shuffle(plain)
            if "ready" in plain and plain.index("ready") < plain.index("starting"):
                plain[plain.index("ready")], plain[plain.index("starting")] = "starting", "ready"
        return tuple(plain)

    def _child_messages(self, child: FakeThread, shape: dict[str, Any]) -> dict[str, Callable[[], None]]:
        return {
            "starting": lambda: self._tell_tool_servers(child, "starting"),
            "ready": lambda: self._tell_tool_servers(child, "ready"),
            "status": lambda: self.turns.tell_status(child),
            "started": lambda: self._outbox.notify("thread/started", {"thread": shape}),
            "request": lambda: self.turns.tools.ask_early(child),
        }

    def _tell_tool_servers(self, thread: FakeThread, status: str) -> None:
        for name in self._setup.tool_servers:
            environment = {"environmentId": None} if self._setup.is_new else {}
            params = {"name": name, **environment, "status": status, "error": None, "failureReason": None}
            self.turns.tell(thread, "mcpServer/startupStatus/updated", params)

    def _thread_read(self, params: dict[str, Any]) -> Outcome:
        thread_id = self._id(params)
        thread = self.threads.get(thread_id)
        if thread is None:
            if thread_id not in self._stored:
                raise Refused(f"thread not loaded: {thread_id}")
            shape = FakeThread(thread_id, self._setup, {}).shape() | {"status": {"type": "notLoaded"}}
            return Outcome(result={"thread": shape, "readState": None})
        if thread.ephemeral and params.get("includeTurns"):
            raise Refused("ephemeral threads do not support includeTurns")
        return Outcome(result={"thread": thread.shape(full=not thread.ephemeral), "readState": thread.read_state()})

    def _loaded_list(self, params: dict[str, Any]) -> Outcome:
        return Outcome(result={"data": list(self.threads), "nextCursor": None})

    def _inject_items(self, params: dict[str, Any]) -> Outcome:
        thread = self._loaded(params)
        items = self._field(params, "items")
        if not items:
            raise Refused("items must not be empty")
        for position, item in enumerate(items):
            if "type" not in item:
                missing = "item" if self._setup.is_new else "type"
                raise Refused(f"items[{position}] is not a valid response item: missing field `{missing}`")
        thread.injected.extend(items)
        return Outcome(result={})

    def _unsubscribe(self, params: dict[str, Any]) -> Outcome:
        thread = self.threads.get(self._id(params))
        if thread is None:
            return Outcome(result={"status": "notLoaded"})
        if not thread.subscribed:
            return Outcome(result={"status": "notSubscribed"})
        thread.subscribed = False
        return Outcome(result={"status": "unsubscribed"})

    def _clean(self, params: dict[str, Any]) -> Outcome:
        if not self.experimental:
            raise Refused("thread/backgroundTerminals/clean requires experimentalApi capability")
        thread = self._loaded(params)
        self.turns.tools.clean(thread)
        return Outcome(result={})

    def _archive(self, params: dict[str, Any]) -> Outcome:
        thread = self.threads.get(self._id(params))
        if thread is None or thread.ephemeral:
            raise Refused(f"no rollout found for thread id {params['threadId']}")
        return Outcome(result={})

    def _delete(self, params: dict[str, Any]) -> Outcome:
        thread = self._loaded(params)
        if thread.ephemeral:
            raise Refused(f"thread is not persisted and cannot be deleted: {thread.id}")
        return Outcome(result={})

    def _set_name(self, params: dict[str, Any]) -> Outcome:
        thread = self._loaded(params)
        if thread.ephemeral:
            raise Refused(f"ephemeral thread does not support metadata updates: {thread.id}")
        return Outcome(result={})

    def _turns_list(self, params: dict[str, Any]) -> Outcome:
        thread = self._loaded(params)
        if thread.ephemeral:
            raise Refused("ephemeral threads do not support thread/turns/list")
        running = [] if thread.turn is None else [turn_shape(thread.turn.id, "inProgress", startedAt=1_796_000_000)]
        turns = [*running, *thread.ended_turns]
        if params.get("sortDirection") == "asc":
            turns.reverse()
        return Outcome(result={"data": turns[: params.get("limit")], "nextCursor": None, "backwardsCursor": None})

    def _items_list(self, params: dict[str, Any]) -> Outcome:
        raise Refused("thread/items/list is not supported yet", code=-32601)

    def _turn_start(self, params: dict[str, Any]) -> Outcome:
        inputs = self._field(params, "input")
        thread = self._loaded(params)
        self._need_experimental(params, "turn/start", "collaborationMode")
        if thread.turn is not None:
            busy = thread.turn
            return Outcome(
                result={"turn": turn_shape(busy.id, "inProgress")}, then=lambda: self.turns.steer(thread, busy, inputs)
            )
        changed = thread.change_settings(params)
        turn = self.turns.begin(thread, inputs)
        fails = self._plan.take(TurnFails, "turn/start")
        turn.fails_after = None if fails is None else fails.after_tokens
        if not thread.ephemeral:
            self.persisted[thread.id] = StoredThread(thread_id=thread.id, preview=thread.preview)
        starts_first = self._plan.take(TurnStartsFirst, "turn/start") is not None
        if self._setup.jitter:
            starts_first = starts_first or self._chance.random() < 0.1

        def before() -> None:
            if changed:
                self.turns.tell(thread, "thread/settings/updated", {"threadSettings": thread.settings()})
            self._warn_of_unknown_model(thread)
            if starts_first:
                self.turns.announce(thread, turn)

        def then() -> None:
            if not starts_first:
                self.turns.announce(thread, turn)
            self.turns.play(thread, turn, inputs)

        return Outcome(result={"turn": turn_shape(turn.id, "inProgress")}, before=before, then=then)

    def _warn_of_unknown_model(self, thread: FakeThread) -> None:
        if thread.model.startswith("mock"):
            text = f"Model metadata for `{thread.model}` not found. Defaulting to fallback metadata; "
            text += "this can degrade performance and cause issues."
            self.turns.tell(thread, "warning", {"message": text})

    def _turn_steer(self, params: dict[str, Any]) -> Outcome:
        thread = self._loaded(params)
        if thread.turn is None:
            raise Refused("no active turn to steer")
        expected = params.get("expectedTurnId")
        if expected != thread.turn.id:
            raise Refused(f"expected active turn id `{expected}` but found `{thread.turn.id}`")
        busy, inputs = thread.turn, self._field(params, "input")
        return Outcome(result={"turnId": busy.id}, then=lambda: self.turns.steer(thread, busy, inputs))

    def _turn_interrupt(self, params: dict[str, Any]) -> Outcome:
        thread = self._loaded(params)
        turn = thread.turn
        turn_id = params.get("turnId")
        if turn is None:
            if turn_id == "":
                return Outcome(result={})
            if turn_id == thread.last_turn_id and not self._setup.is_new:
                # 0.163 leaves a surplus interrupt unanswered until the thread's next turn ends.
                return Outcome(result=None)
            raise Refused("no active turn to interrupt")
        if turn_id not in ("", turn.id):
            raise Refused(f"expected active turn id {turn_id} but found {turn.id}")
        return Outcome(
            result={},
            before=lambda: self.turns.interrupt(thread, turn),
            then=lambda: self.turns.finish(thread, turn, "interrupted"),
        )

    def remember_surplus_interrupt(self, request_id: Any, params: dict[str, Any]) -> None:
        """Keep the id of an interrupt that is answered only when the thread's next turn ends."""
        self._loaded(params).surplus_interrupts.append(request_id)

    def _need_experimental(self, params: dict[str, Any], method: str, name: str) -> None:
        if params.get(name) is not None and not self.experimental:
            raise Refused(f"{method}.{name} requires experimentalApi capability")

    @staticmethod
    def _check_sandbox(params: dict[str, Any]) -> None:
        word = params.get("sandbox")
        if word is not None and default_sandbox(word) is None:
            modes = "`read-only`, `workspace-write`, `danger-full-access`"
            raise Refused(f"Invalid request: unknown variant `{word}`, expected one of {modes}")

    @staticmethod
    def _field(params: dict[str, Any], name: str) -> Any:
        if name not in params:
            raise Refused(f"Invalid request: missing field `{name}`")
        return params[name]

    def _id(self, params: dict[str, Any], kind: str = "thread") -> str:
        thread_id: str = self._field(params, "threadId")
        complaint = id_complaint(kind, thread_id)
        if complaint is not None:
            raise Refused(complaint)
        return thread_id

    def _loaded(self, params: dict[str, Any]) -> FakeThread:
        thread_id = self._id(params)
        thread = self.threads.get(thread_id)
        if thread is None:
            raise Refused(f"thread not found: {thread_id}")
        return thread


def _bent(result: dict[str, Any], fault: ForkAnswer) -> dict[str, Any]:
    thread = {key: value for key, value in result["thread"].items() if key not in fault.without}
    return {**result, **fault.result, "thread": thread | fault.thread}
