"""Simulated users: what they all do with sessions, turns and Sides, each call by one of the ways the API has."""

import random
from functools import partial

import trio

from tutti_side.contract import InteractionRequested, RequestId, TurnMode
from tutti_side.errors import TuttiSideError
from tutti_side.host import AgentHost
from tutti_side.runtime import Answer, SessionHandle, SideHandle
from tutti_side.testing.simulation._answering import answer_drawn
from tutti_side.testing.simulation._calls import Caller
from tutti_side.testing.simulation._stage import Slot, Stage
from tutti_side.testing.simulation._told import told_answer, told_result, told_session, told_side, told_turn
from tutti_side.testing.simulation._watching import Temper, draw_temper
from tutti_side.testing.simulation._world import (
    FLOOD,
    INCARNATIONS_MAX,
    QUESTIONS,
    question,
    session_ref,
    side_ref,
)
from tutti_side.testing.simulation.records import SideEnded, SideOpened, side_mark

__all__ = ["PAUSES_S", "Users"]

SPARE = 1
"""Sessions of a slot that are kept for the calm."""

STALLED_IN_A_FLOOD = 0.6
"""How often a subscriber of whoever is flooded does not read."""

WAYS = ("ask", "send", "wait", "cancel", "steer", "end commands", "pause")
"""What is done with a session or Side."""

WAY_WEIGHTS = (10, 2, 4, 6, 2, 1, 2)
"""How often each."""

PLAN_CHANCE = 0.1
"""How often a turn is asked for in plan mode."""

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
                session = await caller.call("start", partial(self._start, owner), told_session, owner=owner)
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
            session = await caller.call("resume", begin, told_session, owner=slot.owner)
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
        if caller.rng.random() < 0.9 or slot.owner == self.stage.flooded:
            self.follow(session, slot.owner, caller)

    def follow(
        self,
        handle: SessionHandle | SideHandle,
        owner: str,
        caller: Caller,
        temper: Temper | None = None,
        *,
        opened_by: int = 0,
    ) -> None:
        """Subscribe to a session's or Side's events with a drawn subscriber; nothing when it is over."""
        try:
            events = handle.events()
        except TuttiSideError:
            return
        rng = random.Random(caller.rng.random())
        asked = partial(self._asked, handle, owner, caller.job, rng)
        chosen = draw_temper(rng) if temper is None else temper
        if owner == self.stage.flooded and rng.random() < STALLED_IN_A_FLOOD:
            chosen = "stalled"
        watch = partial(self.stage.watchers.watch, events, owner, chosen, rng, asked, self.stage.calm, opened_by)
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
        return await caller.call("ask", partial(handle.ask, text), told_answer, owner=owner, detail=text)

    async def use(self, handle: SessionHandle | SideHandle, owner: str, caller: Caller) -> None:
        """Do a few drawn things with a session or Side."""
        rng = caller.rng
        for _ in range(3 if owner == self.stage.flooded else rng.randrange(4)):
            number = FLOOD if owner == self.stage.flooded else rng.randrange(QUESTIONS)
            way = rng.choices(WAYS, weights=WAY_WEIGHTS)[0]
            if way == "ask":
                await self.ask(handle, owner, number, caller)
            elif way == "pause":
                await trio.sleep(rng.choice(PAUSES_S))
            elif way == "end commands":
                await caller.call("end commands", handle.end_commands, owner=owner)
            else:
                submit = f"submit-{rng.randrange(3)}" if rng.random() < 0.2 else None
                await self._send(handle, owner, number, submit, way, caller)

    async def _send(
        self, handle: SessionHandle | SideHandle, owner: str, number: int, submit: str | None, way: str, caller: Caller
    ) -> None:
        text = question(owner, number)
        mode: TurnMode | None = "plan" if caller.rng.random() < PLAN_CHANCE else None
        send = partial(handle.send, text, client_submit_id=submit, mode=mode)
        turn = await caller.call("send", send, told_turn, owner=owner, detail=text)
        if turn is None or way == "send":
            return
        if way == "cancel":
            await trio.sleep(caller.rng.choice(PAUSES_S))
            for _ in range(caller.rng.choice((1, 1, 2))):
                await caller.call("cancel", turn.cancel, owner=owner, turn=turn.id)
        elif way == "steer":
            await trio.sleep(caller.rng.choice(PAUSES_S))
            more = question(owner, (number + 1) % QUESTIONS)
            await caller.call("steer", partial(turn.steer, more), owner=owner, turn=turn.id, detail=more)
        await caller.call("wait", turn.wait, told_result, owner=owner, turn=turn.id)

    # Sides

    async def open(
        self, session: SessionHandle, owner: str, request: str, caller: Caller, *, subscribe: bool
    ) -> SideHandle | None:
        """Open a Side of a session, in one of the three ways."""
        source, ref = session.ref, side_ref(owner)
        told = f"{side_mark(owner)} Be brief."
        subscribe = subscribe or owner == self.stage.flooded
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
        side = await caller.call("open", begin, told_side, owner=owner, source=source.session, request=request)
        if side is not None:
            self.note_open(owner, source.session, side)
            if subscribe:
                self.follow(side, owner, caller, opened_by=caller.number)
        elif caller.failed in ("OpenFailedError", "SideUnsupportedError", "cut off"):
            self.stage.failed.add(owner)
        return side

    def note_open(self, owner: str, source: str, side: SideHandle) -> None:
        """A call returned an open Side."""
        self.stage.sources[owner] = source
        self.stage.recorder.add(
            SideOpened(at_s=trio.current_time(), owner=owner, source=source, child=told_side(side)["child"])
        )

    async def close(self, side: SideHandle, owner: str, caller: Caller) -> None:
        """Close a Side."""
        await caller.call("close", side.close, owner=owner)
        if not caller.failed:
            self.note_ended(owner, side.scope.events.ended or "closed")

    def note_ended(self, owner: str, reason: str) -> None:
        """A user was told that a Side is over."""
        self.stage.recorder.add(SideEnded(at_s=trio.current_time(), owner=owner, reason=reason))
