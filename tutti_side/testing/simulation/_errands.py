"""What each kind of job does: the errands that simulated users run."""

import random
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from tutti_side.contract import CanonicalRef, InteractionAnswer, RequestId, SessionId
from tutti_side.errors import TuttiSideError
from tutti_side.testing.simulation._calls import Caller
from tutti_side.testing.simulation._plan import Job
from tutti_side.testing.simulation._told import told_result, told_side, told_turn
from tutti_side.testing.simulation._users import PAUSES_S, Users
from tutti_side.testing.simulation._world import (
    QUESTIONS,
    SIDES,
    WORKSPACES,
    owner_of_side,
    question,
    session_ref,
    side_ref,
    workspace_of,
)
from tutti_side.testing.simulation.records import side_mark

__all__ = ["Errands"]


class Errands:
    """The jobs of one host's users."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._host = users.host
        self._stage = users.stage
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

    async def run(self, job: Job) -> None:
        """Do a job."""
        await trio.sleep(job.start_s)
        await self._kinds[job.kind](job, Caller(self._stage.calls, job.number, random.Random(job.seed)))

    async def _turn(self, job: Job, caller: Caller) -> None:
        slot = self._stage.slots[job.slot]
        session = await self._users.live_session(slot, caller)
        if session is not None:
            await self._users.use(session, session.ref.session, caller)

    def _owner(self, job: Job) -> str:
        return owner_of_side(workspace_of(job.slot), self._users.number, job.side)

    async def _side(self, job: Job, caller: Caller) -> None:
        session = await self._users.live_session(self._stage.slots[job.slot], caller)
        if session is None:
            return
        owner = self._owner(job)
        if caller.rng.random() < 0.1:  # of a source in another workspace
            owner = owner_of_side(caller.rng.choice(WORKSPACES), self._users.number, job.side)
        side = await self._users.open(session, owner, job.request, caller, subscribe=caller.rng.random() < 0.75)
        if side is None:
            return
        await self._users.use(side, owner, caller)
        end = caller.rng.choices(("close", "twice", "leave"), weights=(5, 1, 4))[0]
        if end == "twice":
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(self._users.close, side, owner, caller)
        elif end == "close":
            await self._users.close(side, owner, caller)

    async def _block(self, job: Job, caller: Caller) -> None:
        """Use a Side as a context manager: one call from before its open until after its close."""
        session = await self._users.live_session(self._stage.slots[job.slot], caller)
        if session is None:
            return
        owner, source = self._owner(job), session.ref.session
        ref, told = side_ref(owner), f"{side_mark(owner)} Be brief."

        async def block() -> None:
            async with session.side(side_id=ref.side, request_id=job.request, instructions=told) as side:
                self._users.note_open(owner, source, side)
                await trio.sleep(caller.rng.choice(PAUSES_S))

        self._stage.attempt(owner, session.provider_session_id)
        await caller.call("block", block, owner=owner, source=source, request=job.request)
        if not caller.failed:
            self._users.note_ended(owner, "closed")

    async def _close_side(self, job: Job, caller: Caller) -> None:
        owner = self._owner(job)
        was_open = owner in self._stage.sources
        await caller.call("close", partial(self._host.controller.close_side, side_ref(owner)), owner=owner)
        if was_open and not caller.failed:  # an id that was never used is not over
            self._users.note_ended(owner, "closed")

    async def _by_id(self, job: Job, caller: Caller) -> None:
        """Use a Side of the first workspace by id, as a service does; now and then under a wrong source or request."""
        rng, host = caller.rng, self._host
        owner = owner_of_side(WORKSPACES[0], self._users.number, job.side)
        source = self._stage.slots[rng.randrange(2)].owner or "p0.1"
        if rng.random() < 0.7:
            source = self._stage.sources.get(owner, source)
        ids = (source, side_ref(owner).side, job.request)
        for _ in range(rng.randint(1, 3)):
            way = rng.choice(("send", "cancel", "respond", "close"))
            if way == "send":
                text = question(owner, rng.randrange(QUESTIONS))
                turn = await caller.call(
                    "send", partial(host.send_side, *ids, text), told_turn, owner=owner, detail=text
                )
                if turn is not None:
                    await caller.call("cancel", partial(host.cancel_side, *ids, turn.id), owner=owner, turn=turn.id)
                    await caller.call("wait", turn.wait, told_result, owner=owner, turn=turn.id)
            elif way == "cancel":
                await caller.call("cancel", partial(host.cancel_side, *ids, "no such turn"), owner=owner, turn="none")
            elif way == "respond":
                answer = InteractionAnswer(option_id="accept")
                respond = partial(host.respond_side, *ids, "no such interaction", answer)
                await caller.call("respond", respond, owner=owner, detail="accept", interaction="none")
            else:
                was_open = owner in self._stage.sources
                await caller.call("close", partial(host.close_side, *ids), owner=owner)
                if was_open and not caller.failed:
                    self._users.note_ended(owner, "closed")

    async def _odd_source(self, job: Job, caller: Caller) -> None:
        """Open a Side of what is no live session: a Side, or a session that is over."""
        owner = self._owner(job)
        workspace = side_ref(owner).workspace
        slot = self._stage.slots[job.slot]
        if caller.rng.random() < 0.5 or not slot.owner:
            other = owner_of_side(workspace, self._users.number, (job.side + 1) % SIDES)
            source = CanonicalRef(workspace, SessionId(side_ref(other).side))
        else:
            source = session_ref(f"p{slot.number}.{caller.rng.randint(1, max(slot.started, 1))}")
        told = f"{side_mark(owner)} Be brief."
        begin = partial(
            self._host.controller.open_side, side_ref(owner), source, RequestId(job.request), instructions=told
        )
        self._stage.attempt(owner, "")
        side = await caller.call("open", begin, told_side, owner=owner, source=source.session, request=job.request)
        if side is not None:
            self._users.note_open(owner, source.session, side)
            await self._users.close(side, owner, caller)
        elif caller.failed in ("OpenFailedError", "SideUnsupportedError", "cut off"):
            self._stage.failed.add(owner)

    # Other jobs with sessions

    async def _close_session(self, job: Job, caller: Caller) -> None:
        session = await self._users.live_session(self._stage.slots[job.slot], caller)
        if session is not None:
            async with trio.open_nursery() as nursery:
                for _ in range(caller.rng.choice((1, 1, 2))):
                    nursery.start_soon(partial(caller.call, "close session", session.close, owner=session.ref.session))

    async def _delete_session(self, job: Job, caller: Caller) -> None:
        owner = self._stage.slots[job.slot].owner
        if owner:
            delete = partial(self._host.controller.delete_session, session_ref(owner))
            await caller.call("delete", delete, owner=owner)

    async def _resume_session(self, job: Job, caller: Caller) -> None:
        slot = self._stage.slots[job.slot]
        session = slot.live
        if session is not None and caller.rng.random() < 0.5:
            await caller.call("close session", session.close, owner=session.ref.session)
        await self._users.resume(slot, caller)

    async def _resolve(self, job: Job, caller: Caller) -> None:
        owner = self._stage.slots[job.slot].owner or "p0.1"
        await caller.call("resolve", partial(self._host.controller.side_capabilities, session_ref(owner)), owner=owner)
        await caller.call("resolve", partial(self._host.resolve_side, "nobody"), owner="nobody")

    async def _context(self, job: Job, caller: Caller) -> None:
        session = self._stage.slots[job.slot].live
        if session is not None:
            context = partial(session.set_host_context, f"the user has file {job.number} open")
            await caller.call("context", context, owner=session.ref.session)

    async def _watch(self, job: Job, caller: Caller) -> None:
        """Subscribe once more, to a session or to a Side that somebody else opened."""
        session = self._stage.slots[job.slot].live
        if session is not None and caller.rng.random() < 0.5:
            self._users.follow(session, session.ref.session, caller)
        owner = self._owner(job)
        try:
            side = self._host.controller.find_side(side_ref(owner))
        except TuttiSideError:
            return
        self._users.follow(side, owner, caller)
