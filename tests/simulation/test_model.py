"""The honest model against the real host: whatever users do, in whatever order, each call comes to what the model says.

The host runs over the scripted provider, in one `trio.run` for each example, with a clock that stands still. After each
step everything is let happen that can, and then outcomes, what every subscriber has heard, what has reached the
provider and what is registered are compared. A step may be two calls at once; then the model has to know an order that
explains what was seen. Trio's schedule is drawn with the example.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tutti_providers.scripted import (
    ALL_CAPABILITIES,
    Ask,
    Drop,
    Fail,
    Opening,
    Say,
    Script,
    ScriptedProvider,
    Turn,
    Wait,
    scripted,
)
from tutti_providers.scripted._thread import ScriptedThread
from tutti_side import AgentHost, SessionHandle, SideHandle, TuttiSideError, open_host
from tutti_side.contract import (
    Event,
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    InteractionResolved,
    MessageDelta,
    MessageUpdated,
    OpenSide,
    SessionExpired,
    SideRef,
    TextContent,
    TurnId,
)
from tutti_side.runtime._interactions import InteractionTable
from tutti_side.runtime._lifecycle_locks import LifecycleLocks
from tutti_side.runtime._registry import Registry
from tutti_side.runtime._sessions import Sessions
from tutti_side.runtime._side_scope import SideScope
from tutti_side.runtime.event_hub import Subscription
from tutti_side.testing.simulation.model import Model, Operation, Side

STEPS_MIN, STEPS_MAX = 12, 30
"""Steps of one example; what can't be done at its time is left out."""

SESSIONS = ("p0", "p0", "p1", "p2", "s2")
SIDES = ("s0", "s0", "s1", "s2", "p2")
"""Names; one of each kind is also of the other, since an id is one thing."""

EXAMPLES, EXAMPLES_SLOW = 200, 1_000
"""Examples of one run of the tests, some 30 ms each."""

NUMBER_MAX = 3
"""Of what is drawn by number."""

MODELS_MAX = 8
"""Explanations that are followed at once."""

RUN_S = 600.0
"""Virtual time; only the host's end takes any."""

Step = tuple[Operation, ...]
Openings = Mapping[str, Sequence[str]]

SIDE_STATES = {"waiting": "reserved", "branching": "opening", "open": "open", "draining": "draining"}
"""What the model calls a Side's state → what statistics call it."""


# What is drawn


def one(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    """Operations of a kind."""
    return st.builds(Operation, kind=st.just(kind), **fields)


def often(usual: str, *others: str) -> st.SearchStrategy[str]:
    """Mostly the first."""
    return st.sampled_from((usual,) * 9 + others)


numbers = st.integers(0, NUMBER_MAX)
sessions = st.sampled_from(SESSIONS)
sides = st.sampled_from(SIDES)
owners = often("", "p0", "s0", "s1", "p1")
sources = often("", "p0", "p1", "s0", "nobody")
requests = often("r", "other")
turn_kinds = st.sampled_from(("ask", "ask", "ask", "hold", "hold", "say", "fail", "drop"))
submits = st.sampled_from(("", "", "submit-1", "submit-2"))
to_owner = {"who": owners, "source": sources, "request": requests, "number": numbers}

opens = one("open", who=sides, source=sources, request=requests)
lifecycle = st.one_of(
    *(opens, opens, opens, opens),
    one("close", who=sides, source=sources, request=requests),
    one("start", who=sessions),
    one("resume", who=often("p0", "p1", "p2")),
    one("close session", who=sessions),
    one("delete", who=st.sampled_from(("p0", "p1", "p1", "p2"))),
    one("leave", number=numbers),
)
answers = one("respond", what=st.sampled_from(("accept", "decline", "wrong")), **to_owner)
turns = st.one_of(
    one("send", what=turn_kinds, submit=submits, **to_owner),
    one("ask", what=turn_kinds, submit=submits, **to_owner),
    one("cancel", what=often("", "another"), **to_owner),
    answers,
    answers,
    one("subscribe", **to_owner),
    one("finish", who=owners, number=numbers),
)
operations = st.one_of(
    *(opens, lifecycle, turns, turns),
    st.one_of(one("pass", who=sides), one("leave", number=numbers)),
    one("context", who=sessions, what=st.sampled_from(("", "read the plan", "be brief"))),
    st.one_of(turns, turns, turns, one("lose")),
)
step = st.one_of(
    st.tuples(operations),
    st.tuples(operations),
    st.tuples(lifecycle, lifecycle),
    st.tuples(answers, answers),
)
steps = st.lists(step, min_size=STEPS_MIN, max_size=STEPS_MAX)
branches = st.lists(st.sampled_from(("work", "work", "hold", "hold", "hold", "fail", "drop", "unattested")), max_size=3)
openings = st.fixed_dictionaries(dict.fromkeys(sorted(set(SIDES)), branches))


# The host


def gate_of(side: str, branch: int) -> str:
    """Name of the gate that a branch of a Side waits at."""
    return f"{side}/{branch}"


def make_provider(drawn: Openings) -> ScriptedProvider:
    """The scripted provider for an example: every branch as it is drawn, every turn as its text says."""
    unattested = msgspec.structs.replace(ALL_CAPABILITIES, ephemeral=False)
    opens: list[Opening] = []
    for side, kinds in drawn.items():
        for branch, kind in enumerate(kinds):
            phases: dict[str, tuple[Wait | Fail | Drop, ...]] = {
                "hold": (Wait(gate=gate_of(side, branch)),),
                "fail": (Fail(),),
                "drop": (Drop(),),
            }
            seen = unattested if kind == "unattested" else None
            opens.append(Opening(when=side, times=1, steps=phases.get(kind, ()), seen=seen))
    held = [
        Turn(when=f"[hold {number}]", steps=(Wait(gate=f"turn {number}"), Say(("held",))))
        for number in range(2 * STEPS_MAX + 2)
    ]
    ask = Ask(title="May I?", answers={"accept": (Say(("done",)),)}, then=(Say(("left",)),))
    turn_cues = (
        Turn(when="[say", steps=(Say(("said",)),)),
        Turn(when="[fail", steps=(Fail(),)),
        Turn(when="[drop", steps=(Drop(),)),
        Turn(when="[ask", steps=(ask,)),
        *held,
    )
    return scripted(Script(turns=turn_cues, opens=tuple(opens)))


def words_of(event: Event) -> str:
    """An event in the model's words."""
    kind: str = type(event).__struct_config__.tag  # type: ignore[assignment]
    if isinstance(event, SessionExpired):
        return f"{kind} {event.reason}"
    if isinstance(event, InteractionResolved):
        return f"{kind} {event.status}"
    return f"{kind} {event.text}" if isinstance(event, MessageDelta | MessageUpdated) else kind


def words_of_error(error: TuttiSideError) -> str:
    """An error in the model's words."""
    reason = getattr(error, "reason", "")
    return f"{type(error).__name__} {reason}" if type(error).__name__.endswith("ExpiredError") else type(error).__name__


class RealHost:
    """Does what the model is asked, in a host."""

    def __init__(self, host: AgentHost, provider: ScriptedProvider, nursery: trio.Nursery) -> None:
        self.outcomes: dict[int, str] = {}
        self.heard: dict[int, list[tuple[int, str]]] = {}
        self._host = host
        self._provider = provider
        self._nursery = nursery
        self._scopes: dict[int, trio.CancelScope] = {}
        self._sessions: dict[str, SessionHandle] = {}
        self._sides: dict[str, SideHandle] = {}
        self._asked: dict[str, list[InteractionId]] = {}
        self._starts: dict[str, str] = {}

    async def call(self, number: int, op: Operation, model: Model) -> None:
        """Make a call, and note what it came to."""
        with trio.CancelScope() as scope:
            self._scopes[number] = scope
            try:
                self.outcomes[number] = await self._do(number, op, model)
            except TuttiSideError as error:
                self.outcomes[number] = words_of_error(error)
        if scope.cancelled_caught:
            self.outcomes[number] = "cancelled"

    async def _do(self, number: int, op: Operation, model: Model) -> str:
        host, provider = self._host, self._provider
        session = self._sessions.get(op.who)
        if op.kind in ("start", "resume"):
            if op.kind == "start":
                session = await host.start_session(cwd="/", session_id=op.who)
            else:
                session = await host.resume_session(op.who)
            self._sessions[op.who] = session
            self._starts[op.who] = f"{op.who}#{number}"
            self._listen(number, session.events())
        elif op.kind == "delete":
            await host.delete_session(op.who)
        elif op.kind == "open":
            side = await host.open_side(op.source, op.who, op.request, instructions="side", subscribe=True)
            self._sides[op.who] = side
            self._listen(number, side.events())
        elif op.kind == "close":
            await host.close_side(op.source, op.who, op.request)
        elif op.kind == "finish":
            scope = model.handles.get(op.who, op.who)
            provider.gate(f"turn {model.scopes.turns[scope].call}").set()
        elif op.kind == "pass":
            provider.gate(gate_of(op.who, model.sides[op.who].branch)).set()
        elif op.kind == "lose":
            provider.drop()
        elif op.kind == "leave":
            self._scopes[op.number].cancel()
        elif session is not None:
            return await self._use_session(session, number, op)
        else:
            return await self._use_side(number, op)
        return "ok"

    async def _use_session(self, session: SessionHandle, number: int, op: Operation) -> str:
        text = f"[{op.what} {number}]"
        if op.kind == "close session":
            await session.close()
        elif op.kind == "context":
            await session.set_host_context(op.what or None)
        elif op.kind == "send":
            await session.send(text, client_submit_id=op.submit or None)
        elif op.kind == "ask":
            return f"ok {(await session.ask(text, client_submit_id=op.submit or None)).text}"
        elif op.kind == "cancel":
            turn = session.active_turn
            assert turn is not None
            await turn.cancel()
        elif op.kind == "respond":
            session.respond(self._interaction(self._starts[op.who], op), InteractionAnswer(option_id=op.what))
        else:
            assert op.kind == "subscribe"
            self._listen(number, session.events())
        return "ok"

    async def _use_side(self, number: int, op: Operation) -> str:
        host, identity, text = self._host, (op.source, op.who, op.request), f"[{op.what} {number}]"
        side = self._sides.get(op.who)
        if op.kind == "send":
            await host.send_side(*identity, text, client_submit_id=op.submit or None)
        elif op.kind == "ask":
            assert side is not None
            return f"ok {(await side.ask(text, client_submit_id=op.submit or None)).text}"
        elif op.kind == "cancel":
            turn = None if side is None else side.active_turn
            is_another = turn is None or op.what == "another"
            await host.cancel_side(*identity, TurnId("another") if is_another or turn is None else turn.id)
        elif op.kind == "respond":
            await host.respond_side(*identity, self._interaction(op.who, op), InteractionAnswer(option_id=op.what))
        else:
            assert op.kind == "subscribe"
            self._listen(number, host.side_events(*identity))
        return "ok"

    def _interaction(self, scope: str, op: Operation) -> InteractionId:
        known = self._asked.get(scope, [])
        return known[op.number] if op.number < len(known) else InteractionId("unknown")

    def _listen(self, number: int, subscription: Subscription) -> None:
        self._nursery.start_soon(self._hear, subscription, self.heard.setdefault(number, []))

    async def _hear(self, subscription: Subscription, heard: list[tuple[int, str]]) -> None:
        with subscription:
            async for batch in subscription:
                heard += [(sequence, words_of(event)) for sequence, event in batch.numbered()]

    def look(self) -> None:
        """Take note of what is asked now."""
        handles: list[tuple[str, SessionHandle | SideHandle]] = [
            *((self._starts[who], session) for who, session in self._sessions.items()),
            *self._sides.items(),
        ]
        for scope, handle in handles:
            known = self._asked.setdefault(scope, [])
            known += [asked.interaction_id for asked in handle.interactions if asked.interaction_id not in known]

    def view(self) -> "View":
        """What can be seen."""
        statistics = self._host.statistics()
        asked: dict[str, list[str]] = {}
        for made in self._provider.calls:
            who = made.ref.side if isinstance(made.ref, SideRef) else made.ref.session
            request = made.request
            if isinstance(request, OpenSide):
                context = request.instructions.removesuffix("side").strip()
                asked.setdefault(who, []).append(f"open_side {request.source.session} {context}")
            elif isinstance(request, ExecTurn):
                first = request.content[0]
                assert isinstance(first, TextContent)
                kind = first.text.strip("[]").split()[0]
                asked.setdefault(who, []).append(f"exec {kind} {request.host_context or ''}")
        return View(
            outcomes=dict(self.outcomes),
            heard={number: list(heard) for number, heard in self.heard.items()},
            asked=asked,
            sessions=statistics.sessions,
            sides=dict(statistics.sides),
            interactions=statistics.interactions_open,
        )


# The comparison


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What model and host must agree on."""

    outcomes: dict[int, str]
    heard: dict[int, list[tuple[int, str]]]
    """Call → the numbered events that its subscription got."""
    asked: dict[str, list[str]]
    """Name → what reached the provider in it."""
    sessions: int
    sides: dict[str, int]
    interactions: int


def view_of(model: Model) -> View:
    """What the model says can be seen."""
    sides: dict[str, int] = {}
    for side in model.sides.values():
        state = SIDE_STATES[side.state]
        sides[state] = sides.get(state, 0) + 1
    return View(
        outcomes=dict(model.calls),
        heard={
            number: list(enumerate(model.scopes.logs.get(scope, [])[first:], first + 1))
            for number, (scope, first) in model.scopes.heard.items()
        },
        asked=model.asked,
        sessions=sum(state in ("live", "starting") for state in model.sessions.values()),
        sides=sides,
        interactions=sum(states.count("open") for states in model.scopes.interactions.values()),
    )


def explanations(model: Model, calls: Sequence[tuple[int, Operation]]) -> list[Model]:
    """Every order in which the model can take these calls, the second before the first is done, or behind it.

    A call that is left in the instant in which it is refused may come to either.
    """
    found: list[Model] = []
    for order in {tuple(calls): None, tuple(reversed(calls)): None}:
        for settles in (True, False) if len(calls) > 1 else (True,):
            tried = deepcopy(model)
            late: list[int] = []
            for number, op in order:
                if op.kind == "leave" and op.number in tried.calls:
                    tried.calls[number] = "ok"
                    late += [op.number] if tried.calls[op.number] != "ok" else []
                    continue
                tried.begin(number, op)
                if settles:
                    tried.settle()
            tried.settle()
            found.append(tried)
            for left in late:
                cut = deepcopy(tried)
                cut.calls[left] = "cancelled"
                found.append(cut)
    return found


class Comparison:
    """Host and model, side by side."""

    def __init__(self, real: RealHost, model: Model, nursery: trio.Nursery) -> None:
        self.models = [model]
        """Every model that explains what was seen so far; they differ where two calls had no order of their own."""
        self._real = real
        self._nursery = nursery
        self._number = 0

    async def take(self, step: Step) -> str:
        """Take one step in both; return what cannot be explained."""
        model = self.models[0]
        calls: list[tuple[int, Operation]] = []
        for op in step:
            chosen = choose(model, op)
            if chosen is not None:
                calls.append((self._number, chosen))
                self._number += 1
        for number, op in calls:
            self._nursery.start_soon(self._real.call, number, op, model)
        await trio.testing.wait_all_tasks_blocked()
        self._real.look()
        seen = self._real.view()
        tried = [told for model in self.models for told in explanations(model, calls)]
        explained = [told for told in tried if view_of(told) == seen]
        self.models = [
            told
            for index, told in enumerate(explained)
            if all(vars(told) != vars(other) for other in explained[:index])
        ][:MODELS_MAX]
        if self.models:
            return ""
        differences = [f"{name} {is_} != {told}" for name, is_, told in differing(seen, view_of(tried[0]))]
        return f"{calls}: " + "; ".join(differences)

    def told_at_the_end(self) -> dict[int, list[tuple[int, str]]]:
        """What each subscription has heard once the host has stopped."""
        self.models[0].stop()
        return view_of(self.models[0]).heard


def differing(seen: View, told: View) -> list[tuple[str, object, object]]:
    """Name what differs, as it is and as it should be."""
    return [
        (name, getattr(seen, name), getattr(told, name))
        for name in View.__struct_fields__
        if getattr(seen, name) != getattr(told, name)
    ]


async def compare(drawn: Openings, todo: Sequence[Step], clock: trio.testing.MockClock) -> str:
    """Take each step in host and model; return the first thing that the model cannot explain, or nothing."""
    provider = make_provider(drawn)
    async with trio.open_nursery() as nursery:
        async with open_host(provider) as host:
            real = RealHost(host, provider, nursery)
            both = Comparison(real, Model(drawn), nursery)
            try:
                problem = await both.take((Operation(kind="start", who="p0"),))
                for step in todo:
                    problem = problem or await both.take(step)
                if not problem:
                    for step in ending(both.models[0]):
                        problem = problem or await both.take(step)
            finally:
                clock.autojump_threshold = 0  # the host's own end may take its time
        if not problem:
            await trio.testing.wait_all_tasks_blocked()
            told = both.told_at_the_end()
            problem = "" if real.heard == told else f"at the end {real.heard} was heard instead of {told}"
        nursery.cancel_scope.cancel()
    return problem


def choose(model: Model, op: Operation) -> Operation | None:
    """Turn what was drawn into something that can be done now; None when nothing can.

    What the draw left open is chosen so that something comes of it.
    """
    if op.kind == "leave":
        pending = sorted(pending_calls(model))
        if not pending:
            return None
        return msgspec.structs.replace(op, number=pending[op.number % len(pending)])
    if not op.who and op.kind in TO_OWNER:
        known = [*model.handles, *model.opened]
        asks = [name for name in known if model.scopes.interactions.get(model.handles.get(name, name))]
        busy = [name for name in known if model.handles.get(name, name) in model.scopes.turns]
        live = [name for name in known if model.handles.get(name, name) not in model.scopes.ends]
        some = {"respond": asks, "finish": busy, "cancel": busy}.get(op.kind) or live or known
        op = msgspec.structs.replace(op, who=some[op.number % len(some)])
        if op.kind == "respond":  # what was asked last, mostly
            states = model.scopes.interactions.get(model.handles.get(op.who, op.who), [])
            op = msgspec.structs.replace(op, number=max(0, len(states) - 1) if op.number < NUMBER_MAX else 0)
    if not op.source and op.kind not in ("start", "resume", "delete"):
        side = model.sides.get(op.who)
        op = msgspec.structs.replace(op, source="p0" if side is None else side.source)
    return op if model.allows(op) else None


TO_OWNER = ("send", "ask", "cancel", "respond", "subscribe", "finish")
"""What is done to a session or Side; without a name it is one that may well take it."""


def pending_calls(model: Model) -> set[int]:
    """Calls that have not ended."""
    begun = {call for side in model.sides.values() for call in (*side.openers, *side.leaving, *side.closing)}
    begun |= {call for turn in model.scopes.turns.values() for call in turn.askers}
    begun |= {call for queue in model.waiting.values() for call, _ in queue} | set(model.deletes)
    return begun - set(model.calls)


def ending(model: Model) -> list[Step]:
    """What ends every call: held opens pass, turns are finished or answered, and what still waits is left."""
    names = {scope: name for name, scope in model.handles.items()}
    todo = [Operation(kind="pass", who=name) for name in model.sides]
    for scope, turn in model.scopes.turns.items():
        who = names.get(scope, scope)
        side = model.sides.get(who, Side(source="", request=""))
        last = len(model.scopes.interactions.get(scope, ())) - 1
        kind, what = ("finish", "") if turn.kind == "hold" else ("respond", "accept")
        todo.append(Operation(kind=kind, who=who, source=side.source, request=side.request, what=what, number=last))
    todo += [Operation(kind="leave")] * len(pending_calls(model))
    return [(op,) for op in todo]


def run_example(drawn: Openings, todo: Sequence[Step]) -> None:
    """Compare in a run of its own."""

    clock = trio.testing.MockClock()

    async def main() -> str:
        with trio.fail_after(RUN_S):
            return await compare(drawn, todo, clock)

    problem = trio.run(main, clock=clock)
    assert not problem, problem


relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(relaxed, max_examples=EXAMPLES)
@given(drawn=openings, todo=steps, schedule=st.random_module())
def test_every_call_comes_to_what_the_model_says(drawn: Openings, todo: list[Step], schedule: object) -> None:
    """R1, R3, R4, R5, R8, R9, R11, R14. Source: specification, Standard provider contract, by the simplest model."""
    del schedule
    run_example(drawn, todo)


@pytest.mark.slow
@settings(relaxed, max_examples=EXAMPLES_SLOW)
@given(drawn=openings, todo=steps, schedule=st.random_module())
def test_every_call_comes_to_what_the_model_says_in_many_more_examples(
    drawn: Openings, todo: list[Step], schedule: object
) -> None:
    """As above. Source: our choice."""
    del schedule
    run_example(drawn, todo)


def test_two_explanations_that_differ_in_nothing_are_one() -> None:
    """Else they crowd out the one that holds: a run that was right seemed wrong. Source: a fixed false alarm."""
    used_up = Operation(kind="close", who="s2"), Operation(kind="leave", number=0)
    conflict = Operation(kind="start", who="p0")
    todo: list[Step] = [
        (Operation(kind="close session", who="p0"),),
        (Operation(kind="open", who="s2"),),
        used_up,
        (conflict, conflict),
        (Operation(kind="open", who="s2"),),
    ]
    run_example({"p2": [], "s0": [], "s1": [], "s2": ["hold"]}, todo)
    model = Model({"s2": []})
    assert vars(deepcopy(model)) == vars(model)


# It bites


def forget_the_ended(patch: pytest.MonkeyPatch) -> None:
    """R8: an id that is over is free again."""
    patch.setattr(Registry, "remember", lambda self, ref, reason: None)


def join_anything(patch: pytest.MonkeyPatch) -> None:
    """Another source or request gets the Side that is there."""
    patch.setattr(Registry, "require_same", lambda self, ref, source, request_id: None)


def take_no_lock(patch: pytest.MonkeyPatch) -> None:
    """R5: a source is closed in the middle of an open."""

    @asynccontextmanager
    async def hold(self: LifecycleLocks, *refs: object) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        yield

    patch.setattr(LifecycleLocks, "hold", hold)


def leave_what_nobody_wants(patch: pytest.MonkeyPatch) -> None:
    """R14: an open that its last caller left goes on."""
    patch.setattr(SideScope, "abort", lambda self, reason: None)


def forget_answers(patch: pytest.MonkeyPatch) -> None:
    """R11: an interaction that was answered is as good as one that never was."""
    patch.setattr(InteractionTable, "outcome", lambda self, interaction_id: "unknown")


def let_sides_outlive_their_source(patch: pytest.MonkeyPatch) -> None:
    """A deleted session's Sides go on."""
    patch.setattr(Sessions, "_close_sides_of", lambda self, ref: [])


def end_a_turn_twice(patch: pytest.MonkeyPatch) -> None:
    """R3: a turn's end is told twice."""
    real = ScriptedThread.end_turn

    def end_turn(self: ScriptedThread, last: Any) -> None:
        real(self, last)
        self.emit(last)

    patch.setattr(ScriptedThread, "end_turn", end_turn)


PLANTS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    forget_the_ended,
    join_anything,
    take_no_lock,
    leave_what_nobody_wants,
    forget_answers,
    let_sides_outlive_their_source,
    end_a_turn_twice,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """A model that explains everything proves nothing. Source: our choice."""
    plant(monkeypatch)

    @settings(relaxed, max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate])
    @given(drawn=openings, todo=steps, schedule=st.random_module())
    def look_for_it(drawn: Openings, todo: list[Step], schedule: object) -> None:
        del schedule
        run_example(drawn, todo)

    with pytest.raises(AssertionError):
        look_for_it()
