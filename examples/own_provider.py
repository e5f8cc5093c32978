"""A provider of your own, whole: an agent in this process, behind the contract, held against the conformance kit.

What it does is little: it keeps transcripts in memory and asks a function what to say. How it ends things is all that
the contract asks for. `docs/providers.md` goes through it; the kit runs at the end, as it would under pytest.
"""

import contextlib
import itertools
import pathlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

from tutti_side import TuttiSideError, open_host
from tutti_side.contract import (
    CanonicalRef,
    Diagnosis,
    Event,
    EventSink,
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    InteractionOption,
    InteractionRequested,
    InteractionResolved,
    InvalidAnswerError,
    InvalidSettingsError,
    Liveness,
    MessageUpdated,
    OpenSide,
    ProviderLostError,
    ProviderPorts,
    ResumeSession,
    ScopeRef,
    SessionBinding,
    SideBinding,
    SideCapabilities,
    SideRef,
    SourceMetadata,
    StartSession,
    TextContent,
    TurnActiveError,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnId,
    TurnNotActiveError,
    TurnStarted,
)
from tutti_side.nursery import open_service_nursery
from tutti_side.testing.adapter_suite import ASK, FAIL, HELD_TEXTS, HOLD, SAID, SAY, AdapterSuite

ATTESTED = SideCapabilities(
    supported=True,
    active_source_turn=True,
    ephemeral=True,
    hide_inherited_turns=True,
    model_boundary_injected=True,
)
TURN_END_WAIT_S = 5.0
"""How long a close waits for the end of the turn that it interrupts: an agent may shield what it does."""

OPTIONS = (InteractionOption("accept", "Yes"), InteractionOption("decline", "No"))


class ParrotError(TuttiSideError):
    """The agent failed, or does not know a session. The message holds no text of anybody's."""


class Question:
    """Something that the agent asks, until it is settled."""

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.answer = ""


class Thread:
    """A session or Side as this provider holds it."""

    def __init__(self, thread_id: str, sink: EventSink, context: list[str]) -> None:
        self.id = thread_id
        self.context = context
        self.sink: EventSink | None = sink
        self.lost = False
        self.turn: TurnId | None = None
        self.turn_scope = trio.CancelScope()
        self.turn_ended = trio.Event()
        self.questions: dict[InteractionId, Question] = {}
        self._numbers = itertools.count(1)

    def emit(self, event: Event) -> None:
        """Tell the runtime, unless this thread has to be quiet."""
        if self.sink is not None:
            self.sink.emit([event], 100)

    def begin_turn(self) -> TurnId:
        self.turn = TurnId(f"{self.id}.turn-{next(self._numbers)}")
        self.turn_scope, self.turn_ended = trio.CancelScope(), trio.Event()
        self.emit(TurnStarted(self.turn))
        return self.turn

    def end_turn(self, event: Event) -> None:
        for asked in tuple(self.questions):
            self.settle(asked, "")
        self.turn = None
        self.emit(event)
        self.turn_ended.set()

    def say(self, text: str, item: str = "message") -> None:
        assert self.turn is not None
        self.context.append(text)
        self.emit(MessageUpdated(self.turn, item, text))

    async def ask(self, title: str) -> str:
        """Ask the user, and return the option that was chosen."""
        asked, question = InteractionId(f"{self.id}.ask-{next(self._numbers)}"), Question()
        self.questions[asked] = question
        self.emit(InteractionRequested(asked, self.turn, "approval", title, options=OPTIONS))
        await question.settled.wait()
        return question.answer

    def settle(self, asked: InteractionId, answer: str) -> None:
        """End a question, once: answered, or declined since nobody can answer it any more."""
        question = self.questions.pop(asked)
        question.answer = answer
        self.emit(InteractionResolved(asked, "answered" if answer else "superseded"))
        question.settled.set()

    def lose(self) -> None:
        """The provider is gone: say so once, and nothing more."""
        sink, self.sink, self.lost = self.sink, None, True
        self.turn_scope.cancel()
        if sink is not None:
            sink.end("lost")


Agent = Callable[[Thread, str], Awaitable[None]]
"""Answers one text in a thread; raises `ParrotError` to fail the turn."""


class ParrotAdapter:
    """Implements `Adapter`, `SideConversationAdapter` and `InteractiveAdapter`."""

    name = "parrot"

    def __init__(self, provider: "Parrot", nursery: trio.Nursery) -> None:
        self.threads: dict[ScopeRef, Thread] = {}
        self._provider = provider
        self._nursery = nursery

    def _find(self, ref: ScopeRef) -> Thread:
        thread = self.threads.get(ref)
        if thread is None or thread.lost:
            raise ProviderLostError
        return thread

    # Sessions

    async def start(self, request: StartSession, sink: EventSink) -> SessionBinding:
        if request.settings is not None:
            raise InvalidSettingsError("settings", f"is a {type(request.settings).__name__}; the parrot takes none")
        await trio.lowlevel.checkpoint()  # the last place where a cancel can strike: nothing is made yet
        thread = Thread(self._provider.new_id("session"), sink, [])
        self._provider.kept[thread.id] = thread.context
        self.threads[request.ref] = thread
        return SessionBinding(provider_session_id=thread.id)

    async def resume(self, request: ResumeSession, sink: EventSink) -> SessionBinding:
        await trio.lowlevel.checkpoint()
        kept = request.metadata.provider_session_id
        if kept not in self._provider.kept:
            raise ParrotError("the parrot keeps no such session; start one")
        self.threads[request.ref] = Thread(kept, sink, self._provider.kept[kept])
        return SessionBinding(provider_session_id=kept)

    def liveness(self, ref: ScopeRef) -> Liveness:
        thread = self.threads.get(ref)
        return "unknown" if thread is None else "lost" if thread.lost else "live"

    async def exec(self, ref: ScopeRef, request: ExecTurn) -> TurnId:
        thread = self._find(ref)
        if thread.turn is not None:
            raise TurnActiveError
        await trio.lowlevel.checkpoint()
        text = "\n".join(block.text for block in request.content if isinstance(block, TextContent))
        turn_id = thread.begin_turn()
        self._nursery.start_soon(self._play, thread, turn_id, text)
        return turn_id

    async def _play(self, thread: Thread, turn_id: TurnId, text: str) -> None:
        """Play one turn. It ends once, whatever happens; the loss of the provider is no end of a turn."""
        thread.context.append(text)
        end: Event = TurnCanceled(turn_id)
        with thread.turn_scope:
            try:
                await self._provider.agent(thread, text)
                end = TurnCompleted(turn_id)
            except ParrotError as error:
                end = TurnFailed(turn_id, str(error))
        thread.end_turn(end)

    async def cancel(self, ref: ScopeRef, turn_id: TurnId) -> None:
        thread = self._find(ref)
        if thread.turn != turn_id:
            raise TurnNotActiveError(turn_id)
        thread.turn_scope.cancel()
        await trio.lowlevel.checkpoint()

    async def close(self, ref: ScopeRef) -> None:
        thread = self.threads.pop(ref, None)
        if thread is None or thread.lost:
            await trio.lowlevel.checkpoint()
            return
        try:
            for asked in tuple(thread.questions):
                thread.settle(asked, "")
            if thread.turn is not None:
                thread.turn_scope.cancel()
                with trio.move_on_after(TURN_END_WAIT_S):
                    await thread.turn_ended.wait()
        finally:
            thread.sink = None  # quiet from here on
        await trio.lowlevel.checkpoint()

    def respond(self, ref: ScopeRef, interaction_id: InteractionId, answer: InteractionAnswer) -> bool:
        thread = self._find(ref)
        if interaction_id not in thread.questions:
            return False
        if answer.option_id is None or answer.option_id not in {option.id for option in OPTIONS}:
            raise InvalidAnswerError("option_id", "is none of the options")
        thread.settle(interaction_id, answer.option_id)
        return True

    # Sides

    async def side_capabilities(self, source: CanonicalRef, history: SourceMetadata | None = None) -> SideCapabilities:
        await trio.lowlevel.checkpoint()
        if history is not None or self.liveness(source) != "live":
            return SideCapabilities.unsupported("the parrot branches live sessions only")
        return ATTESTED

    async def open_side(self, request: OpenSide, sink: EventSink) -> SideBinding:
        source = self._find(request.source)
        # A copy: what is said in the Side never reaches the source. The instructions tell where the Side begins.
        child = Thread(self._provider.new_id("side"), sink, [*source.context, request.instructions])
        self.threads[request.side] = child
        try:
            await self._provider.before_answer()
            if child.lost:
                raise ProviderLostError
        except BaseException:
            child.sink = None
            self.threads.pop(request.side, None)
            raise
        return SideBinding(provider_session_id=child.id, source_provider_session_id=source.id, capabilities=ATTESTED)

    async def wait_side_released(self, side: SideRef) -> None:
        await self.close(side)


async def answer_at_once() -> None:
    """Do what is done before an open is answered: nothing."""
    await trio.lowlevel.checkpoint()


class Parrot:
    """The provider: what it keeps outlives its adapters."""

    name = "parrot"

    def __init__(self, agent: Agent, before_answer: Callable[[], Awaitable[None]] = answer_at_once) -> None:
        self.agent = agent
        self.before_answer = before_answer
        self.kept: dict[str, list[str]] = {}
        self.adapters: list[ParrotAdapter] = []
        self._numbers = itertools.count(1)

    def new_id(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    @contextlib.asynccontextmanager
    async def open(self, ports: ProviderPorts | None = None) -> AsyncIterator[ParrotAdapter]:
        async with open_service_nursery() as nursery:
            adapter = ParrotAdapter(self, nursery)
            self.adapters.append(adapter)
            try:
                yield adapter
            finally:
                self.adapters.remove(adapter)

    async def diagnose(self) -> Diagnosis:
        await trio.lowlevel.checkpoint()
        return Diagnosis(provider=self.name, found=True, version="1", supported=True, capabilities=ATTESTED)


# The conformance kit


class ParrotBed:
    """What the kit needs of a parrot; implements `tutti_side.testing.adapter_suite.AdapterBed`."""

    settings = None

    def __init__(self, workspace: pathlib.Path) -> None:
        self.workspace = workspace
        self.provider = Parrot(self.agent, self.before_answer)
        self.told: list[str] = []
        self.is_refusing = self.is_holding = False
        self.gate, self.let_gate = trio.Event(), trio.Event()
        self.open_held = trio.Event()
        self.held, self.more_held = 0, trio.Condition()

    async def agent(self, thread: Thread, text: str) -> None:
        self.told = list(thread.context)
        if SAY in text:
            thread.say(SAID)
        elif HOLD in text:
            thread.say(HELD_TEXTS[0])
            async with self.more_held:
                self.held += 1
                self.more_held.notify_all()
            await self.let_gate.wait()
            thread.say("".join(HELD_TEXTS))
        elif FAIL in text:
            raise ParrotError("the kit says so")
        elif ASK in text:
            await thread.ask("May I?")
            thread.say(SAID)

    async def before_answer(self) -> None:
        if self.is_refusing:
            raise ParrotError("the kit says so")
        if self.is_holding:
            self.open_held.set()
            await self.gate.wait()

    async def wait_held(self, times: int = 1) -> None:
        async with self.more_held:
            while self.held < times:
                await self.more_held.wait()

    def let_go(self) -> None:
        self.let_gate.set()

    def told_model(self) -> str:
        return "\n".join(self.told)

    def kept(self) -> str:
        return str(self.provider.kept)

    def loaded(self) -> int:
        return sum(not thread.lost for adapter in self.provider.adapters for thread in adapter.threads.values())

    def refuse_opens(self, *, refused: bool = True) -> None:
        self.is_refusing = refused

    def hold_opens(self) -> None:
        self.is_holding = True

    async def wait_open_held(self) -> None:
        await self.open_held.wait()

    def release_opens(self) -> None:
        self.is_holding = False
        self.gate.set()

    def drop(self) -> None:
        for adapter in self.provider.adapters:
            for thread in adapter.threads.values():
                thread.lose()


class TestParrot(AdapterSuite):
    """All that a test module needs; pytest collects a test for each case."""

    virtual_time = True
    excluded = {  # noqa: RUF012 - it never changes
        "test_a_question_is_answered_by_the_ids_of_its_questions": "a parrot asks for approvals only",
        "test_an_option_is_no_answer_to_a_question": "a parrot asks for approvals only",
    }

    @contextlib.asynccontextmanager
    async def open_bed(self, directory: pathlib.Path) -> AsyncIterator[ParrotBed]:
        yield ParrotBed(directory)


async def show() -> None:
    """Use it as any provider is used."""

    async def repeat(thread: Thread, text: str) -> None:
        await trio.lowlevel.checkpoint()
        thread.say(f"{len(thread.context)} lines known, and then: {text}")

    async with open_host(Parrot(repeat)) as host:
        session = await host.start_session(cwd=".")
        print((await session.ask("hello")).text)
        async with session.side() as side:
            print((await side.ask("what was that?")).text)


if __name__ == "__main__":
    trio.run(show)
    suite = TestParrot()
    names = [name for name in suite.cases() if name not in suite.excluded]
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            getattr(suite, name)(pathlib.Path(directory))
    print(f"{len(names)} cases of the conformance kit passed, {len(suite.excluded)} excluded")
