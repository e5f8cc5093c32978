"""Simulated users: what each kind of job does with the public API."""

import random
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from tutti_side.contract import CanonicalRef, InteractionAnswer, InteractionRequested, RequestId, SessionId
from tutti_side.errors import TuttiSideError
from tutti_side.host import AgentHost
from tutti_side.runtime import Answer, SessionHandle, SideHandle, TurnHandle, TurnResult
from tutti_side.testing.simulation._answering import answer_drawn
from tutti_side.testing.simulation._calls import Caller
from tutti_side.testing.simulation._plan import Job
from tutti_side.testing.simulation._stage import Slot, Stage
from tutti_side.testing.simulation._watching import Temper, draw_temper
from tutti_side.testing.simulation._world import (
    FLOOD,
    INCARNATIONS_MAX,
    QUESTIONS,
    WORKSPACES,
    owner_of_side,
    question,
    session_ref,
    side_ref,
    workspace_of,
)
from tutti_side.testing.simulation.records import Leftover, SideEnded, SideOpened, side_mark

__all__ = ["Users"]

SPARE = 1
"""Sessions of a slot that are kept for the calm."""

PAUSES_S = (0.0, 0.001, 0.03, 0.4)
"""Between two steps of one user."""


class Users:
    """The users of one host.

    Args:
      stage: what all share.
      host: the host.
      number: of the host.
      nursery: where subscribers live, and users who are asked something; outlives the host.
    """

    def __init__(self, stage: Stage, host: AgentHost, number: int, nursery: trio.Nursery) -> None:
        self.stage = stage
        self.host = host
        self.number = number
        self._nursery = nursery
        self._over: set[str] = set()
        self._kinds: dict[str, Callable[[Job, Caller], Awaitable[None]]] = {
            "side": self._side,
            "block": self._block,
            "turn": self._turn,
            "by id": self._by_id,
            "close side": self._close_side,
            "close session": self._close_session,
            "delete session": self._delete_session,
            "resume session": self._resume_session,
            "resolve": self._resolve,
            "context": self._context,
            "watch": self._watch,
            "odd source": self._odd_source,
        }

    async def work(self, job: Job) -> None:
        """Do a job."""
        await trio.sleep(job.start_s)
        await self._kinds[job.kind](job, Caller(self.stage.calls, job.number, random.Random(job.seed)))

    # Sessions

    async def live_session(self, slot: Slot, caller: Caller, *, spare: int = SPARE) -> SessionHandle | None:
        """Return the slot's session, started anew if it is over, with a turn, so that it can be branched.

        Args:
          slot: where it lives.
          caller: who wants it.
          spare: how many of the slot's sessions may not be started.
        """
        async with slot.changing:
            session = slot.live
            if session is None:
                if slot.started >= INCARNATIONS_MAX - spare:
                    return None
                owner = f"p{slot.number}.{slot.started + 1}"
                session = await caller.call("start", partial(self._start, owner), _child, owner=owner)
                if session is None:
                    slot.started += caller.rng.random() < 0.5  # half of the time the same id is tried again
                    return None
                slot.started += 1
                slot.owner, slot.has_turn = owner, False
                self._take_session(slot, session, caller)
            if not slot.has_turn:
                slot.has_turn = await self.ask(session, slot.owner, 0, caller) is not None
            return session

    async def resume(self, slot: Slot, caller: Caller) -> SessionHandle | None:
        """Load the slot's session again, if it is over and was kept."""
        async with slot.changing:
            if not self.stage.resumable(slot):
                return None
            begin = partial(self.host.controller.resume_session, session_ref(slot.owner))
            session = await caller.call("resume", begin, _child, owner=slot.owner)
            if session is not None:
                self._take_session(slot, session, caller)
            return session

    async def _start(self, owner: str) -> SessionHandle:
        ref = session_ref(owner)
        if ref.workspace == self.host.identity.workspace:
            return await self.host.start_session(cwd="/", session_id=owner)
        return await self.host.controller.start_session(ref, self.host.providers[0], "/")

    def _take_session(self, slot: Slot, session: SessionHandle, caller: Caller) -> None:
        slot.handle = session
        if caller.rng.random() < 0.9:
            self.follow(session, slot.owner, caller)

    def follow(
        self, handle: SessionHandle | SideHandle, owner: str, caller: Caller, temper: Temper | None = None
    ) -> None:
        """Subscribe to a session's or Side's events with a drawn subscriber; nothing when it is over."""
        try:
            events = handle.events()
        except TuttiSideError:
            return
        rng = random.Random(caller.rng.random())
        asked = partial(self._asked, handle, owner, caller.job, rng)
        chosen = draw_temper(rng) if temper is None else temper
        watch = partial(self.stage.watchers.watch, events, owner, chosen, rng, asked, self.stage.calm)
        self._nursery.start_soon(watch, name=f"watch {owner}")

    def _asked(
        self,
        handle: SessionHandle | SideHandle,
        owner: str,
        job: int,
        rng: random.Random,
        interaction: InteractionRequested,
    ) -> None:
        if not self.stage.calm.is_set():
            caller = Caller(self.stage.calls, job, random.Random(rng.random()))
            self._nursery.start_soon(answer_drawn, self.stage, handle, owner, interaction, caller, name=f"user {owner}")

    # Turns

    async def ask(self, handle: SessionHandle | SideHandle, owner: str, number: int, caller: Caller) -> Answer | None:
        """Ask a question and wait for the answer."""
        text = question(owner, number)
        return await caller.call("ask", partial(handle.ask, text), _answer, owner=owner, detail=text)

    async def _use(self, handle: SessionHandle | SideHandle, owner: str, caller: Caller) -> None:
        """Do a few drawn things with a session or Side."""
        rng = caller.rng
        for _ in range(rng.randrange(4)):
            number = FLOOD if owner == self.stage.flooded else rng.randrange(QUESTIONS)
            way = rng.choices(("ask", "send", "wait", "cancel", "pause"), weights=(5, 1, 2, 3, 1))[0]
            if way == "ask":
                await self.ask(handle, owner, number, caller)
            elif way == "pause":
                await trio.sleep(rng.choice(PAUSES_S))
            else:
                submit = f"submit-{rng.randrange(3)}" if rng.random() < 0.2 else None
                await self._send(handle, owner, number, submit, way, caller)

    async def _send(
        self, handle: SessionHandle | SideHandle, owner: str, number: int, submit: str | None, way: str, caller: Caller
    ) -> None:
        text = question(owner, number)
        send = partial(handle.send, text, client_submit_id=submit)
        turn = await caller.call("send", send, _turn, owner=owner, detail=text)
        if turn is None or way == "send":
            return
        if way == "cancel":
            await trio.sleep(caller.rng.choice(PAUSES_S))
            for _ in range(caller.rng.choice((1, 1, 2))):
                await caller.call("cancel", turn.cancel, owner=owner, turn=turn.id)
        await caller.call("wait", turn.wait, _result, owner=owner, turn=turn.id)

    async def _turn(self, job: Job, caller: Caller) -> None:
        slot = self.stage.slots[job.slot]
        session = await self.live_session(slot, caller)
        if session is not None:
            await self._use(session, session.ref.session, caller)

    # Sides

    def _owner(self, job: Job) -> str:
        return owner_of_side(workspace_of(job.slot), self.number, job.side)

    async def open(
        self, session: SessionHandle, owner: str, request: str, caller: Caller, *, subscribe: bool
    ) -> SideHandle | None:
        """Open a Side of a session, in one of the three ways."""
        source, ref = session.ref, side_ref(owner)
        told = f"{side_mark(owner)} Be brief."
        way = caller.rng.choice(("handle", "host", "controller"))
        if way == "handle" and ref.workspace == source.workspace:
            begin = partial(
                session.open_side, side_id=ref.side, request_id=request, instructions=told, subscribe=subscribe
            )
        elif way == "host" and ref.workspace == source.workspace == self.host.identity.workspace:
            begin = partial(
                self.host.open_side, source.session, ref.side, request, instructions=told, subscribe=subscribe
            )
        else:
            begin = partial(
                self.host.controller.open_side,
                ref,
                source,
                RequestId(request),
                instructions=told,
                subscribe=subscribe,
            )
        self.stage.attempt(owner, session.provider_session_id)
        side = await caller.call("open", begin, _side, owner=owner, source=source.session, request=request)
        if side is not None:
            self._note_open(owner, source.session, side)
            if subscribe:
                self.follow(side, owner, caller)
        elif caller.failed in ("OpenFailedError", "SideUnsupportedError", "cut off"):
            self.stage.failed.add(owner)
        return side

    def _note_open(self, owner: str, source: str, side: SideHandle) -> None:
        if owner in self._over:
            self.stage.recorder.add(Leftover(at_s=trio.current_time(), what=f"R8 {owner} came back to life"))
        self.stage.sources[owner] = source
        self.stage.recorder.add(
            SideOpened(at_s=trio.current_time(), owner=owner, source=source, child=_side(side)["child"])
        )

    async def close(self, side: SideHandle, owner: str, caller: Caller) -> None:
        """Close a Side."""
        await caller.call("close", side.close, owner=owner)
        if not caller.failed:
            self._note_ended(owner, side.scope.events.ended or "closed")

    def _note_ended(self, owner: str, reason: str) -> None:
        self._over.add(owner)
        self.stage.recorder.add(SideEnded(at_s=trio.current_time(), owner=owner, reason=reason))

    async def _side(self, job: Job, caller: Caller) -> None:
        session = await self.live_session(self.stage.slots[job.slot], caller)
        if session is None:
            return
        owner = self._owner(job)
        if caller.rng.random() < 0.1:  # of a source in another workspace
            owner = owner_of_side(caller.rng.choice(WORKSPACES), self.number, job.side)
        side = await self.open(session, owner, job.request, caller, subscribe=caller.rng.random() < 0.75)
        if side is None:
            return
        await self._use(side, owner, caller)
        end = caller.rng.choices(("close", "twice", "leave"), weights=(5, 1, 4))[0]
        if end == "twice":
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(self.close, side, owner, caller)
        elif end == "close":
            await self.close(side, owner, caller)

    async def _block(self, job: Job, caller: Caller) -> None:
        """Use a Side as a context manager: one call from before its open until after its close."""
        session = await self.live_session(self.stage.slots[job.slot], caller)
        if session is None:
            return
        owner, source = self._owner(job), session.ref.session
        ref, told = side_ref(owner), f"{side_mark(owner)} Be brief."

        async def block() -> None:
            async with session.side(side_id=ref.side, request_id=job.request, instructions=told) as side:
                self._note_open(owner, source, side)
                await trio.sleep(caller.rng.choice(PAUSES_S))

        self.stage.attempt(owner, session.provider_session_id)
        await caller.call("block", block, owner=owner, source=source, request=job.request)
        if not caller.failed:
            self._note_ended(owner, "closed")

    async def _close_side(self, job: Job, caller: Caller) -> None:
        owner = self._owner(job)
        was_open = owner in self.stage.sources
        await caller.call("close", partial(self.host.controller.close_side, side_ref(owner)), owner=owner)
        if was_open and not caller.failed:  # an id that was never used is not over
            self._note_ended(owner, "closed")

    async def _by_id(self, job: Job, caller: Caller) -> None:
        """Use a Side of the first workspace by id, as a service does; now and then under a wrong source or request."""
        rng, host = caller.rng, self.host
        owner = owner_of_side(WORKSPACES[0], self.number, job.side)
        source = self.stage.slots[rng.randrange(2)].owner or "p0.1"
        if rng.random() < 0.7:
            source = self.stage.sources.get(owner, source)
        ids = (source, side_ref(owner).side, job.request)
        for _ in range(rng.randint(1, 3)):
            way = rng.choice(("send", "cancel", "respond", "close"))
            if way == "send":
                text = question(owner, rng.randrange(QUESTIONS))
                turn = await caller.call("send", partial(host.send_side, *ids, text), _turn, owner=owner, detail=text)
                if turn is not None:
                    await caller.call("cancel", partial(host.cancel_side, *ids, turn.id), owner=owner, turn=turn.id)
                    await caller.call("wait", turn.wait, _result, owner=owner, turn=turn.id)
            elif way == "cancel":
                await caller.call("cancel", partial(host.cancel_side, *ids, "no such turn"), owner=owner, turn="none")
            elif way == "respond":
                answer = InteractionAnswer(option_id="accept")
                respond = partial(host.respond_side, *ids, "no such interaction", answer)
                await caller.call("respond", respond, owner=owner, detail="accept", interaction="none")
            else:
                was_open = owner in self.stage.sources
                await caller.call("close", partial(host.close_side, *ids), owner=owner)
                if was_open and not caller.failed:
                    self._note_ended(owner, "closed")

    async def _odd_source(self, job: Job, caller: Caller) -> None:
        """Open a Side of what is no live session: a Side, or a session that is over."""
        owner = self._owner(job)
        workspace = side_ref(owner).workspace
        slot = self.stage.slots[job.slot]
        if caller.rng.random() < 0.5 or not slot.owner:
            other = owner_of_side(workspace, self.number, (job.side + 1) % 4)
            source = CanonicalRef(workspace, SessionId(side_ref(other).side))
        else:
            source = session_ref(f"p{slot.number}.{caller.rng.randint(1, max(slot.started, 1))}")
        told = f"{side_mark(owner)} Be brief."
        begin = partial(
            self.host.controller.open_side, side_ref(owner), source, RequestId(job.request), instructions=told
        )
        self.stage.attempt(owner, "")
        side = await caller.call("open", begin, _side, owner=owner, source=source.session, request=job.request)
        if side is not None:
            self._note_open(owner, source.session, side)
            await self.close(side, owner, caller)
        elif caller.failed in ("OpenFailedError", "SideUnsupportedError", "cut off"):
            self.stage.failed.add(owner)

    # Other jobs with sessions

    async def _close_session(self, job: Job, caller: Caller) -> None:
        session = await self.live_session(self.stage.slots[job.slot], caller)
        if session is not None:
            async with trio.open_nursery() as nursery:
                for _ in range(caller.rng.choice((1, 1, 2))):
                    nursery.start_soon(partial(caller.call, "close session", session.close, owner=session.ref.session))

    async def _delete_session(self, job: Job, caller: Caller) -> None:
        owner = self.stage.slots[job.slot].owner
        if owner:
            delete = partial(self.host.controller.delete_session, session_ref(owner))
            await caller.call("delete", delete, owner=owner)

    async def _resume_session(self, job: Job, caller: Caller) -> None:
        slot = self.stage.slots[job.slot]
        session = slot.live
        if session is not None and caller.rng.random() < 0.5:
            await caller.call("close session", session.close, owner=session.ref.session)
        await self.resume(slot, caller)

    async def _resolve(self, job: Job, caller: Caller) -> None:
        owner = self.stage.slots[job.slot].owner or "p0.1"
        await caller.call("resolve", partial(self.host.controller.side_capabilities, session_ref(owner)), owner=owner)
        await caller.call("resolve", partial(self.host.resolve_side, "nobody"), owner="nobody")

    async def _context(self, job: Job, caller: Caller) -> None:
        session = self.stage.slots[job.slot].live
        if session is not None:
            context = partial(session.set_host_context, f"the user has file {job.number} open")
            await caller.call("context", context, owner=session.ref.session)

    async def _watch(self, job: Job, caller: Caller) -> None:
        """Subscribe once more, to a session or to a Side that somebody else opened."""
        session = self.stage.slots[job.slot].live
        if session is not None and caller.rng.random() < 0.5:
            self.follow(session, session.ref.session, caller)
        owner = self._owner(job)
        try:
            side = self.host.controller.find_side(side_ref(owner))
        except TuttiSideError:
            return
        self.follow(side, owner, caller)


def _child(session: SessionHandle) -> dict[str, str]:
    return {"child": session.provider_session_id}


def _side(side: SideHandle) -> dict[str, str]:
    binding = side.scope.binding
    return {"returned": side.id, "child": "" if binding is None else binding.provider_session_id}


def _turn(turn: TurnHandle) -> dict[str, str]:
    return {"turn": turn.id}


def _answer(answer: Answer) -> dict[str, str]:
    return {"returned": "completed", "text": "".join(answer.messages), "turn": answer.turn_id}


def _result(result: TurnResult) -> dict[str, str]:
    answer = result.answer
    return {"returned": result.status, "text": "".join(answer.messages), "turn": answer.turn_id}
