"""Each case of the conformance kit fails over an adapter, a bed or a runtime that is broken for it."""

import pathlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from tutti_providers.scripted.testing import ScriptedKitBed
from tutti_side.contract import (
    Event,
    EventSink,
    InteractionRequested,
    InteractionResolved,
    ProviderLostError,
    ProviderProtocolError,
    SideBinding,
    SideCapabilities,
    SideRef,
    StatePatch,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
    TurnStarted,
)
from tutti_side.errors import TuttiSideError
from tutti_side.runtime._lifecycle_locks import LifecycleLocks
from tutti_side.runtime._registry import Registry
from tutti_side.runtime._scope import EventScope
from tutti_side.runtime._turns import TurnTable
from tutti_side.runtime.controller import RuntimeController
from tutti_side.testing.adapter_suite import AdapterSuite


class Plain:
    """The scripted adapter with every step within reach; as it stands it changes nothing."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name = inner.name
        self.sinks: dict[Any, Any] = {}

    def sink_for(self, ref: Any, sink: Any) -> Any:
        return sink

    def _sink(self, ref: Any, sink: Any) -> Any:
        self.sinks[ref] = sink
        return self.sink_for(ref, sink)

    async def start(self, request: Any, sink: Any) -> Any:
        return await self.inner.start(request, self._sink(request.ref, sink))

    async def resume(self, request: Any, sink: Any) -> Any:
        return await self.inner.resume(request, self._sink(request.ref, sink))

    def liveness(self, ref: Any) -> Any:
        return self.inner.liveness(ref)

    async def exec(self, ref: Any, request: Any) -> Any:
        return await self.inner.exec(ref, request)

    async def cancel(self, ref: Any, turn_id: Any) -> None:
        await self.inner.cancel(ref, turn_id)

    async def close(self, ref: Any) -> None:
        await self.inner.close(ref)

    def respond(self, ref: Any, interaction_id: Any, answer: Any) -> bool:
        return bool(self.inner.respond(ref, interaction_id, answer))

    async def steer(self, ref: Any, turn_id: Any, content: Any) -> None:
        await self.inner.steer(ref, turn_id, content)

    async def side_capabilities(self, source: Any, history: Any = None) -> Any:
        return await self.inner.side_capabilities(source, history)

    async def open_side(self, request: Any, sink: Any) -> Any:
        return await self.inner.open_side(request, self._sink(request.side, sink))

    async def wait_side_released(self, side: Any) -> None:
        await self.inner.wait_side_released(side)

    def parent_sink(self) -> Any:
        return next(sink for ref, sink in self.sinks.items() if not isinstance(ref, SideRef))


class Tap:
    """A sink with something in front of it: `change` says what goes on in place of an event."""

    def __init__(self, sink: EventSink, change: Callable[[Event], Sequence[Event]], *, tells_end: bool = True) -> None:
        self._sink = sink
        self._change = change
        self._tells_end = tells_end

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        changed = [new for event in events for new in self._change(event)]
        if changed:
            self._sink.emit(changed, size_bytes)

    def end(self, reason: Any) -> None:
        if self._tells_end:
            self._sink.end(reason)


# Broken adapters


class LeaksToItsParent(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        def change(event: Event) -> Sequence[Event]:
            if isinstance(ref, SideRef):
                self.parent_sink().emit([event], 10)
            return [event]

        return Tap(sink, change)


class AsksInItsParent(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        def change(event: Event) -> Sequence[Event]:
            if isinstance(ref, SideRef) and isinstance(event, InteractionRequested):
                self.parent_sink().emit([event], 10)
            return [event]

        return Tap(sink, change)


class LeaksToItsSides(Plain):
    """What its parent and other Sides say, every Side hears."""

    def sink_for(self, ref: Any, sink: Any) -> Any:
        def change(event: Event) -> Sequence[Event]:
            for other, their_sink in self.sinks.items():
                if other != ref and isinstance(other, SideRef):
                    their_sink.emit([event], 10)
            return [event]

        return Tap(sink, change)


class TalksAfterAFailedOpen(Plain):
    async def open_side(self, request: Any, sink: Any) -> Any:
        try:
            return await super().open_side(request, sink)
        except BaseException:
            self.late = sink
            raise

    async def wait_side_released(self, side: Any) -> None:
        await super().wait_side_released(side)
        if hasattr(self, "late"):
            self.late.emit([StatePatch("idle")], 10)


class TalksAfterAClose(Plain):
    async def close(self, ref: Any) -> None:
        await super().close(ref)
        if isinstance(ref, SideRef) and ref in self.sinks:
            self.inner._nursery.start_soon(self._talk, self.sinks[ref])

    async def _talk(self, sink: Any) -> None:
        await trio.lowlevel.checkpoint()
        sink.emit([StatePatch("idle")], 10)


class KeepsADiscardedChild(Plain):
    """Nothing that it made goes away, unless its close is asked for."""

    async def wait_side_released(self, side: Any) -> None:
        await trio.lowlevel.checkpoint()


class KeepsACancelledChild(Plain):
    """An open whose caller has gone goes on, and its child stays."""

    async def open_side(self, request: Any, sink: Any) -> Any:
        done = trio.Event()
        made: list[Any] = []

        async def go_on() -> None:
            try:
                made.append(await self.inner.open_side(request, self._sink(request.side, sink)))
            except Exception as error:
                made.append(error)
            done.set()

        self.inner._nursery.start_soon(go_on)
        await done.wait()
        if isinstance(made[0], Exception):
            raise made[0]
        return made[0]

    async def wait_side_released(self, side: Any) -> None:
        await trio.lowlevel.checkpoint()


class ClosesWhatAResultNames(Plain):
    """A child that is not wanted takes its source with it."""

    async def wait_side_released(self, side: Any) -> None:
        await super().wait_side_released(side)
        for ref in self.sinks:
            if ref != side:
                await self.inner.close(ref)


class ResumesSides(Plain):
    async def resume(self, request: Any, sink: Any) -> Any:
        return SideBinding(
            provider_session_id=request.metadata.provider_session_id,
            source_provider_session_id="",
            capabilities=SideCapabilities(),
        )


class CallsWhatIsOverAlive(Plain):
    def liveness(self, ref: Any) -> Any:
        return "live"


class AnswersTwice(Plain):
    def respond(self, ref: Any, interaction_id: Any, answer: Any) -> bool:
        super().respond(ref, interaction_id, answer)
        return True


class SettlesTwice(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        return Tap(sink, lambda event: [event, event] if isinstance(event, InteractionResolved) else [event])


class NeverSettles(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        return Tap(sink, lambda event: [] if isinstance(event, InteractionResolved) else [event])


class TakesAnyAnswer(Plain):
    def respond(self, ref: Any, interaction_id: Any, answer: Any) -> bool:
        if answer.option_id in ("accept", "decline"):
            return super().respond(ref, interaction_id, answer)
        return True


class NeverAsks(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        return Tap(sink, lambda event: [] if isinstance(event, InteractionRequested) else [event])


class CancelsOnADecline(Plain):
    def respond(self, ref: Any, interaction_id: Any, answer: Any) -> bool:
        if answer.option_id == "decline":
            self.inner._live[ref].thread.interrupt()
            return True
        return super().respond(ref, interaction_id, answer)


class AnswersTheFirst(Plain):
    """Whatever is answered, the oldest question of all gets it."""

    def respond(self, ref: Any, interaction_id: Any, answer: Any) -> bool:
        for other, live in self.inner._live.items():
            for pending in live.thread.pending:
                return super().respond(other, pending, answer)
        return super().respond(ref, interaction_id, answer)


class EndsTurnsTwice(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        ends = (TurnCompleted, TurnFailed, TurnCanceled)
        return Tap(sink, lambda event: [event, event] if isinstance(event, ends) else [event])


class NeverTellsALoss(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        return Tap(sink, lambda event: [event], tells_end=False)


class NeverEndsTurns(Plain):
    """Of Sides, once they have said something."""

    def sink_for(self, ref: Any, sink: Any) -> Any:
        ends = (TurnCompleted, TurnFailed, TurnCanceled)
        hides = isinstance(ref, SideRef)
        return Tap(sink, lambda event: [] if hides and isinstance(event, ends) else [event])


class ClosesItsParentToo(Plain):
    async def close(self, ref: Any) -> None:
        await super().close(ref)
        self.lose(lambda other: isinstance(ref, SideRef) and not isinstance(other, SideRef))

    def lose(self, chosen: Callable[[Any], bool]) -> None:
        for other, live in list(self.inner._live.items()):
            if chosen(other):
                live.thread.lose()


class ClosesItsSiblingsToo(ClosesItsParentToo):
    async def close(self, ref: Any) -> None:
        await Plain.close(self, ref)
        self.lose(lambda other: isinstance(ref, SideRef) and isinstance(other, SideRef))


class ClosesItsSidesToo(ClosesItsParentToo):
    async def close(self, ref: Any) -> None:
        await Plain.close(self, ref)
        self.lose(lambda other: not isinstance(ref, SideRef))


class NeverCloses(Plain):
    async def close(self, ref: Any) -> None:
        if not isinstance(ref, SideRef):
            await super().close(ref)
        elif ref in self.inner._live:
            self.inner._live[ref].thread.detach()
        await trio.lowlevel.checkpoint()


class ClosesOnce(Plain):
    async def close(self, ref: Any) -> None:
        if ref not in self.inner._live:
            raise ProviderProtocolError("it", "is broken")
        await super().close(ref)


class AttestsNothing(Plain):
    async def side_capabilities(self, source: Any, history: Any = None) -> Any:
        await trio.lowlevel.checkpoint()
        return SideCapabilities.unsupported("it says so")


class AttestsEverything(Plain):
    async def side_capabilities(self, source: Any, history: Any = None) -> Any:
        await trio.lowlevel.checkpoint()
        facts: dict[str, Any] = dict.fromkeys(SideCapabilities().missing(), True)
        return SideCapabilities(**facts)


class ShowsInheritedTurns(Plain):
    async def open_side(self, request: Any, sink: Any) -> Any:
        binding = await super().open_side(request, sink)
        turn_id = TurnId("inherited")
        sink.emit([TurnStarted(turn_id), TurnCompleted(turn_id)], 20)
        return binding


class GivesOneIdentityToAll(Plain):
    async def open_side(self, request: Any, sink: Any) -> Any:
        binding = await super().open_side(request, sink)
        return SideBinding(
            provider_session_id="the-side",
            source_provider_session_id=binding.source_provider_session_id,
            capabilities=binding.capabilities,
        )


class CancelsWhateverRuns(Plain):
    async def cancel(self, ref: Any, turn_id: Any) -> None:
        await super().cancel(ref, self.inner._live[ref].thread.active_turn)


class InterruptsItsParent(Plain):
    """A branch taken in mid-turn ends the turn."""

    async def open_side(self, request: Any, sink: Any) -> Any:
        parent = self.inner._live[request.source].thread
        if parent.interrupt is not None:
            parent.interrupt()
        return await super().open_side(request, sink)


class OpensOneAtATime(Plain):
    """While a Side opens, everything else waits."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._lock = trio.Lock()

    async def open_side(self, request: Any, sink: Any) -> Any:
        async with self._lock:
            return await super().open_side(request, sink)

    async def exec(self, ref: Any, request: Any) -> Any:
        async with self._lock:
            return await super().exec(ref, request)


class SteersTurns(Plain):
    """A second question becomes a part of the first one's turn."""

    async def exec(self, ref: Any, request: Any) -> Any:
        active = self.inner._live[ref].thread.active_turn
        return active if active is not None else await super().exec(ref, request)


class RefusesTurns(Plain):
    """Of Sides."""

    async def exec(self, ref: Any, request: Any) -> Any:
        if isinstance(ref, SideRef):
            raise ProviderProtocolError("it", "is broken")
        return await super().exec(ref, request)


class OpensOnlyOnce(Plain):
    """An id that was tried is used up."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._tried: set[Any] = set()

    async def open_side(self, request: Any, sink: Any) -> Any:
        if request.side in self._tried:
            raise ProviderProtocolError("it", "is broken")
        self._tried.add(request.side)
        return await super().open_side(request, sink)


class ForgetsItsSettlingOrder(Plain):
    """A question is settled after its turn's end."""

    def sink_for(self, ref: Any, sink: Any) -> Any:
        kept: list[Event] = []

        def change(event: Event) -> Sequence[Event]:
            if isinstance(event, InteractionResolved):
                kept.append(event)
                return []
            if isinstance(event, TurnCanceled):
                return [event, *kept]
            return [event]

        return Tap(sink, change)


class TakesAnySettings(Plain):
    async def start(self, request: Any, sink: Any) -> Any:
        return await super().start(msgspec.structs.replace(request, settings=None), sink)


class BranchesNothingResumed(Plain):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._resumed: set[Any] = set()

    async def resume(self, request: Any, sink: Any) -> Any:
        self._resumed.add(request.ref)
        return await super().resume(request, sink)

    async def side_capabilities(self, source: Any, history: Any = None) -> Any:
        if source in self._resumed:
            return SideCapabilities.unsupported("it was resumed")
        return await super().side_capabilities(source, history)


class LeaksToOtherSessions(Plain):
    def sink_for(self, ref: Any, sink: Any) -> Any:
        def change(event: Event) -> Sequence[Event]:
            if not isinstance(ref, SideRef):
                for other, their_sink in self.sinks.items():
                    if other != ref and not isinstance(other, SideRef):
                        their_sink.emit([event], 10)
            return [event]

        return Tap(sink, change)


class InterruptsAll(Plain):
    async def cancel(self, ref: Any, turn_id: Any) -> None:
        for live in list(self.inner._live.values()):
            if live.thread.interrupt is not None:
                live.thread.interrupt()
        await trio.lowlevel.checkpoint()


class InterruptsNothing(Plain):
    async def cancel(self, ref: Any, turn_id: Any) -> None:
        await trio.lowlevel.checkpoint()


class HangsWhenItIsLost(Plain):
    async def open_side(self, request: Any, sink: Any) -> Any:
        try:
            return await super().open_side(request, sink)
        except ProviderLostError:
            await trio.sleep_forever()


class SteersWhateverRuns(Plain):
    async def steer(self, ref: Any, turn_id: Any, content: Any) -> None:
        await super().steer(ref, self.inner._live[ref].thread.active_turn, content)


class SteersEveryThread(Plain):
    async def steer(self, ref: Any, turn_id: Any, content: Any) -> None:
        await super().steer(ref, turn_id, content)
        for other, live in list(self.inner._live.items()):
            if other != ref and live.thread.active_turn is not None:
                await super().steer(other, live.thread.active_turn, content)


# Broken beds


class KeepsEverything(ScriptedKitBed):
    """The provider writes down what a Side is asked, too."""

    def kept(self) -> str:
        return super().kept() + str([call.request for call in self.scripted.calls])


class RemembersEverything(ScriptedKitBed):
    """The model is given what others were asked, too."""

    def told_model(self) -> str:
        return super().told_model() + str([call.request for call in self.scripted.calls])


class ForgetsTheContext(ScriptedKitBed):
    """A Side's model is given the question alone."""

    def told_model(self) -> str:
        return str([call.request for call in self.scripted.calls][-1])


class RefusesSilently(ScriptedKitBed):
    """A refused open leaves its child."""

    def loaded(self) -> int:
        return super().loaded() + self._refuses


# Broken runtimes


@contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, replacement)
        yield


def offers_without(fact: str) -> Any:
    """It does not look at one fact."""
    real = SideCapabilities.missing

    def missing(attested: SideCapabilities) -> tuple[str, ...]:
        return tuple(name for name in real(attested) if name != fact)

    return patched(SideCapabilities, "missing", missing)


def counts_from_two() -> Any:
    """The first event is number 2."""
    real = EventScope.commit

    def commit(scope: EventScope, *arguments: Any) -> None:
        scope._next_sequence = 2
        real(scope, *arguments)

    return patched(EventScope, "commit", commit)


def forks_for_each() -> Any:
    """Nobody joins an open."""
    return patched(Registry, "find_or_allow", lambda *_: None)


def takes_any_turn() -> Any:
    """It does not look whether a turn runs."""
    return patched(TurnTable, "begin", lambda _: True)


def locks_nothing() -> Any:
    """Opens and closes go as they like."""

    @asynccontextmanager
    async def hold(*_: Any) -> AsyncIterator[None]:
        yield

    return patched(LifecycleLocks, "hold", hold)


def tells_no_closes() -> Any:
    """What was closed on request is told to nobody."""
    return patched(EventScope, "close", lambda *_: None)


def passes_late_events_on() -> Any:
    """What comes for a scope that is over goes to the newest."""
    scopes: list[EventScope] = []
    real, init = EventScope.emit, EventScope.__init__

    def note(scope: EventScope, **options: Any) -> None:
        init(scope, **options)
        scopes.append(scope)

    def emit(scope: EventScope, events: Sequence[Event], size_bytes: int) -> None:
        real(scope if scope.ended is None else scopes[-1], events, size_bytes)

    stack = ExitStack()
    stack.enter_context(patched(EventScope, "__init__", note))
    stack.enter_context(patched(EventScope, "emit", emit))
    return stack


def leaves_with_the_first() -> Any:
    """Whoever gives up an open ends it for all."""

    async def wait_settled(_: RuntimeController, side: Any) -> None:
        try:
            await side.settled.wait()
        except trio.Cancelled:
            side.abort("one has left")
            raise

    return patched(RuntimeController, "_wait_settled", wait_settled)


FACTS = ("supported", "active_source_turn", "ephemeral", "hide_inherited_turns", "model_boundary_injected")


class Broken(msgspec.Struct, frozen=True):
    """Something broken, and the cases that must find it."""

    cases: tuple[str, ...]
    adapter: Any = Plain
    bed: Any = ScriptedKitBed
    runtime: Any = nullcontext


BROKEN = {
    "takes any settings": Broken(
        ("test_settings_of_another_provider_are_refused_and_nothing_is_started",), TakesAnySettings
    ),
    "branches nothing resumed": Broken(("test_a_resumed_session_is_branched_as_any_other",), BranchesNothingResumed),
    "leaks to other sessions": Broken(("test_two_sessions_hear_each_its_own",), LeaksToOtherSessions),
    "interrupts all": Broken(
        ("test_a_parents_turn_that_is_interrupted_is_told_once_and_its_sides_turn_goes_on",), InterruptsAll
    ),
    "interrupts nothing": Broken(
        ("test_a_question_whose_asker_has_gone_is_interrupted_and_the_next_is_answered",), InterruptsNothing
    ),
    "hangs when it is lost": Broken(
        ("test_an_open_whose_provider_is_lost_meanwhile_fails_for_all_who_wait_for_it",), HangsWhenItIsLost
    ),
    "leaves with the first": Broken(
        ("test_one_who_gives_up_an_open_leaves_it_to_the_others",), runtime=leaves_with_the_first
    ),
    "steers whatever runs": Broken(("test_more_input_for_a_turn_that_is_over_reaches_no_other",), SteersWhateverRuns),
    "steers every thread": Broken(("test_more_input_is_answered_in_the_turn_that_runs",), SteersEveryThread),
    "interrupts its parent": Broken(
        (
            "test_a_side_opens_while_its_parents_turn_runs_and_the_turn_goes_on",
            "test_a_side_answers_while_its_parents_turn_runs",
        ),
        InterruptsItsParent,
    ),
    "refuses the turns of Sides": Broken(
        ("test_a_side_opens_on_an_idle_source", "test_a_side_answers_while_its_parents_turn_runs"), RefusesTurns
    ),
    "counts from two": Broken(
        ("test_a_sides_events_begin_with_its_start_and_are_numbered_without_a_gap",), runtime=counts_from_two
    ),
    "shows inherited turns": Broken(("test_the_turns_that_a_side_inherits_are_not_its_own",), ShowsInheritedTurns),
    "forgets the context": Broken(
        (
            "test_a_sides_model_is_given_what_its_source_has_said",
            "test_a_closed_session_resumes_with_what_was_said_in_it",
        ),
        bed=ForgetsTheContext,
    ),
    "leaks to its Sides": Broken(
        ("test_two_sides_of_one_source_hear_each_its_own", "test_what_the_parent_asks_is_not_asked_in_its_side"),
        LeaksToItsSides,
    ),
    "forks for each": Broken(("test_many_who_open_the_same_side_at_once_get_one_branch",), runtime=forks_for_each),
    "steers turns": Broken(
        ("test_a_second_question_in_a_running_turn_is_refused_and_changes_nothing",),
        SteersTurns,
        runtime=takes_any_turn,
    ),
    "cancels whatever runs": Broken(("test_a_cancel_interrupts_exactly_the_turn_that_it_names",), CancelsWhateverRuns),
    "leaks to its parent": Broken(
        (
            "test_nothing_of_a_side_reaches_its_parents_subscribers",
            "test_nothing_of_a_side_is_reported_or_kept_by_the_host",
        ),
        LeaksToItsParent,
    ),
    "keeps what a Side is asked": Broken(
        ("test_nothing_that_a_side_was_asked_is_in_what_the_provider_keeps",), bed=KeepsEverything
    ),
    "remembers what a Side was asked": Broken(
        ("test_the_parents_next_turn_knows_nothing_of_the_side",), bed=RemembersEverything
    ),
    "resumes Sides": Broken(("test_a_side_is_not_resumable_at_its_provider",), ResumesSides),
    "calls what is over alive": Broken(
        ("test_a_closed_side_is_over_for_good", "test_a_side_whose_provider_is_lost_expires_and_is_never_resumed"),
        CallsWhatIsOverAlive,
    ),
    "closes its parent too": Broken(("test_closing_a_side_leaves_its_parents_turn_running",), ClosesItsParentToo),
    "closes its siblings too": Broken(("test_closing_one_side_leaves_its_sibling",), ClosesItsSiblingsToo),
    "closes its Sides too": Broken(
        (
            "test_a_side_lives_on_when_its_source_is_closed",
            "test_a_sides_turn_goes_on_when_its_source_is_closed",
        ),
        ClosesItsSidesToo,
    ),
    "never ends the turns of Sides": Broken(
        ("test_a_close_in_a_sides_own_turn_ends_that_turn_and_no_other",), NeverEndsTurns
    ),
    "never closes": Broken(
        (
            "test_a_closed_side_is_no_longer_held_by_its_provider",
            "test_a_side_that_nobody_keeps_up_with_ends_alone",
        ),
        NeverCloses,
    ),
    "talks after a close": Broken(
        ("test_closing_a_side_leaves_its_parents_turn_running", "test_closing_one_side_leaves_its_sibling"),
        TalksAfterAClose,
    ),
    "closes once": Broken(("test_closing_twice_is_closing_once",), ClosesOnce),
    "refuses and keeps": Broken(("test_a_refused_open_leaves_nothing_and_its_parent_untouched",), bed=RefusesSilently),
    "opens an id once": Broken(("test_the_id_of_a_refused_open_opens_when_it_is_tried_again",), OpensOnlyOnce),
    "keeps a cancelled child": Broken(
        ("test_a_cancelled_open_discards_the_child_that_its_provider_answers_with_later",), KeepsACancelledChild
    ),
    "talks after a failed open": Broken(
        ("test_an_open_that_was_cancelled_is_quiet_whatever_its_provider_says_then",), TalksAfterAFailedOpen
    ),
    "opens one at a time": Broken(
        ("test_an_open_that_is_answered_late_holds_up_neither_its_parent_nor_another_open",), OpensOneAtATime
    ),
    "locks nothing": Broken(("test_the_close_of_a_source_waits_for_an_open_that_branches_it",), runtime=locks_nothing),
    "passes late events on": Broken(
        ("test_late_events_of_a_discarded_child_reach_nobody",), runtime=passes_late_events_on
    ),
    "keeps a discarded child": Broken(
        (
            "test_a_result_that_names_the_parent_closes_nothing_of_the_parent",
            "test_a_branch_of_another_source_is_not_taken",
        ),
        KeepsADiscardedChild,
    ),
    "closes what a result names": Broken(
        (
            "test_a_result_that_names_the_parent_closes_nothing_of_the_parent",
            "test_a_result_that_names_a_sibling_closes_nothing_of_the_sibling",
        ),
        ClosesWhatAResultNames,
    ),
    "gives one identity to all": Broken(("test_no_two_branches_have_the_same_identity",), GivesOneIdentityToAll),
    "attests nothing": Broken(("test_an_adapter_attests_all_five_facts_for_a_live_source",), AttestsNothing),
    "attests everything": Broken(("test_nothing_is_attested_for_a_source_that_nobody_holds",), AttestsEverything),
    "asks in its parent": Broken(("test_what_a_side_asks_is_asked_there_and_not_in_its_parent",), AsksInItsParent),
    "never asks": Broken(("test_what_a_side_asks_is_asked_there_and_not_in_its_parent",), NeverAsks),
    "answers twice": Broken(("test_an_answer_is_taken_once",), AnswersTwice),
    "settles twice": Broken(("test_an_answer_is_taken_once",), SettlesTwice),
    "cancels on a decline": Broken(("test_a_decline_is_an_answer_and_the_turn_goes_on",), CancelsOnADecline),
    "takes any answer": Broken(
        (
            "test_an_answer_that_does_not_fit_leaves_the_question_open",
            "test_a_question_is_answered_by_the_ids_of_its_questions",
            "test_an_option_is_no_answer_to_a_question",
        ),
        TakesAnyAnswer,
    ),
    "answers the first": Broken(("test_two_that_ask_at_once_are_answered_crosswise_each_in_its_own",), AnswersTheFirst),
    "settles after the end": Broken(("test_an_interrupted_turn_supersedes_what_it_asked",), ForgetsItsSettlingOrder),
    "never settles": Broken(
        (
            "test_a_close_declines_what_is_open",
            "test_a_session_that_closes_declines_what_it_asks",
            "test_a_host_that_stops_declines_what_is_open",
        ),
        NeverSettles,
    ),
    "never tells a loss": Broken(
        (
            "test_what_is_open_when_its_provider_is_lost_can_no_longer_be_answered",
            "test_a_turn_whose_provider_is_lost_is_told_once",
            "test_a_side_whose_provider_is_lost_expires_and_is_never_resumed",
            "test_a_session_whose_provider_is_lost_is_told_once_and_the_next_one_starts",
        ),
        NeverTellsALoss,
    ),
    "ends turns twice": Broken(
        (
            "test_a_turn_that_completes_is_told_once",
            "test_a_turn_that_fails_is_told_once_and_its_side_goes_on",
            "test_a_parents_turn_that_fails_is_told_once_and_its_side_goes_on",
            "test_a_turn_that_is_interrupted_is_told_once_and_its_side_goes_on",
        ),
        EndsTurnsTwice,
    ),
    "tells no closes": Broken(
        (
            "test_a_side_that_is_closed_is_told_once",
            "test_a_side_ends_with_its_source_when_that_is_deleted",
            "test_a_host_that_stops_tells_everybody_once",
            "test_a_session_that_is_closed_is_told_once",
        ),
        runtime=tells_no_closes,
    ),
    **{
        f"offers without {fact}": Broken(
            (
                f"test_without_the_promise_{fact}_no_side_is_asked_for",
                f"test_a_branch_whose_result_lacks_{fact}_is_released",
            ),
            runtime=partial(offers_without, fact),
        )
        for fact in FACTS
    },
}


class BrokenProvider:
    """The scripted provider behind a broken adapter."""

    name = "scripted"

    def __init__(self, inner: Any, adapter: Any) -> None:
        self._inner = inner
        self._adapter = adapter

    @asynccontextmanager
    async def open(self, ports: Any) -> AsyncIterator[Any]:
        async with self._inner.open(ports) as inner:
            yield self._adapter(inner)

    async def diagnose(self) -> Any:
        return await self._inner.diagnose()


class Suite(AdapterSuite):
    """The kit over whatever is broken."""

    virtual_time = True
    steers = True

    def __init__(self, broken: Broken) -> None:
        self.broken = broken

    @asynccontextmanager
    async def open_bed(self, directory: pathlib.Path) -> AsyncIterator[Any]:
        bed = self.broken.bed(directory)
        bed.provider = BrokenProvider(bed.scripted, self.broken.adapter)
        with self.broken.runtime():
            yield bed


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, or the one error."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


@pytest.mark.parametrize("name", Suite.cases())
def test_no_case_fails_over_an_adapter_that_changes_nothing(tmp_path: pathlib.Path, name: str) -> None:
    """Our choice: what the broken ones below are built on is whole."""
    getattr(Suite(Broken(())), name)(tmp_path)


@pytest.mark.parametrize(("how", "name"), [(how, name) for how, broken in BROKEN.items() for name in broken.cases])
def test_a_case_finds_what_it_is_there_for(tmp_path: pathlib.Path, how: str, name: str) -> None:
    """Our choice: a case that cannot fail says nothing; it fails as a case does, not by a mistake of the test."""
    with pytest.raises(BaseException) as caught:
        getattr(Suite(BROKEN[how]), name)(tmp_path)
    kinds = (AssertionError, trio.TooSlowError, TuttiSideError)
    assert [error for error in leaves(caught.value) if not isinstance(error, kinds)] == []


def test_every_case_is_seen_to_fail() -> None:
    """Our choice: a new case brings what it finds."""
    assert {name for broken in BROKEN.values() for name in broken.cases} == set(Suite.cases())
