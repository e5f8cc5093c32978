"""One simulated run: jobs and faults drawn from a seed; first safety while it storms, then convergence once it heals.

A host with two canonical sessions; jobs open, ask and close Sides under overlapping identities, run turns of the
sessions, close sessions, and are cut off at drawn moments, while the provider's stand-in answers late, early, twice or
never, refuses, and crashes. Every event that anybody sees is checked at once. Then the faults end, everything is
closed, and nothing may be left: no thread subscribed, no route, no registration, no lock, nothing pending; and a fresh
Side must work. Clock, transports and schedule are virtual, so a seed is the whole run: the same seed, the same trace.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from typing import cast

import msgspec
import trio
import trio.testing

from tutti_side.contract import (
    MessageDelta,
    MessageUpdated,
    RequestId,
    SessionStarted,
    SideId,
    SideRef,
    WorkspaceId,
)
from tutti_side.errors import TuttiSideError
from tutti_side.host import AgentHost, HostIdentity, open_host
from tutti_side.runtime import SessionHandle, SideHandle
from tutti_side.runtime.event_hub import Subscription
from tutti_side.testing._schedule import seeded_schedule
from tutti_side.testing.simulation.bed import SimulatedBed, SimulationBed
from tutti_side.testing.simulation.records import Record, World

__all__ = ["JOBS", "Result", "SimulatedBed", "SimulationBed", "simulate"]

JOBS = 14
"""Jobs of one run."""

SESSIONS = 2
"""Canonical sessions at a time; one that is lost or closed is started anew by whoever needs it."""

SIDES = 6
"""Side identities; fewer than jobs, so that they meet."""

QUESTIONS = 3
"""Different questions to each of them."""

START_S = 1.0
"""Jobs start within so long."""

LIMITS_S = (0.0005, 0.01, 0.1, 1.0, 120.0)
"""A job is cut off after one of these."""

HEAL_S = 120.0
"""After the storm: longer than any deadline, grace and bounded retry after it."""

CLOSE_S = 60.0
"""Longer than the bound of any close."""

RUN_S = 3_600.0
"""Virtual time after which a run counts as hung; with nothing else to wait for, the clock jumps there at once."""

WORKSPACE = WorkspaceId("simulated")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed came to."""

    seed: int
    digest: str
    """Of the trace."""
    violations: tuple[str, ...]
    counts: Mapping[str, int]
    """What happened how often: outcomes of jobs, by name."""
    trace: tuple[str, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One drawn job."""

    number: int
    kind: str
    start_s: float
    limit_s: float
    session: int
    side: int
    request: str
    questions: tuple[int, ...]
    closes: bool


def simulate(seed: int, bed: SimulationBed, *, jobs: int = JOBS) -> Result:
    """Run one seed; blocks, and runs Trio itself.

    Args:
      seed: everything is drawn from it.
      bed: makes the provider's stand-in.
      jobs: how many jobs.
    """
    with seeded_schedule(seed):
        run = _Run(seed, bed, jobs)
        try:
            trio.run(run.main, clock=trio.testing.MockClock(autojump_threshold=0))
        except Exception as error:
            run.violate(f"the host raised {_brief(error)}")
    digest = hashlib.sha256("\n".join(run.trace).encode()).hexdigest()[:16]
    return Result(seed=seed, digest=digest, violations=tuple(run.violations), counts=run.counts, trace=tuple(run.trace))


def draw_job(rng: random.Random, number: int) -> Job:
    """Draw a job."""
    kind = rng.choices(("side", "turn", "close side", "close session"), weights=(8, 3, 2, 1))[0]
    side = rng.randrange(SIDES)
    return Job(
        number=number,
        kind=kind,
        start_s=rng.random() * START_S,
        limit_s=rng.choice(LIMITS_S),
        session=side % SESSIONS if rng.random() < 0.9 else rng.randrange(SESSIONS),
        side=side,
        request="r" if rng.random() < 0.9 else "other",
        questions=tuple(rng.randrange(QUESTIONS) for _ in range(rng.randrange(3))),
        closes=rng.random() < 0.7,
    )


def question(owner: str, number: int) -> str:
    """What is asked: the brackets keep one question from being a part of another."""
    return f"<{owner}/{number}>"


def tokens(owner: str, number: int) -> tuple[str, ...]:
    """The answer to it; each token says whose it is."""
    return tuple(f"{owner}/{number}.{position} " for position in range(4 + 3 * number))


class _Run:
    """One run: what was drawn, what was seen."""

    def __init__(self, seed: int, bed: SimulationBed, jobs: int) -> None:
        rng = random.Random(seed)
        owners = [*(f"p{number}" for number in range(SESSIONS)), *(f"s{number}" for number in range(SIDES)), "after"]
        answers = {question(owner, n): tokens(owner, n) for owner in owners for n in range(QUESTIONS)}
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self._jobs = [draw_job(rng, number) for number in range(jobs)]
        self.records: list[Record] = []
        world = World(answers=answers, approvals={})
        self._bed = bed.simulate(rng, world, self.records.append, self.note)
        self._sessions: list[SessionHandle | None] = [None] * SESSIONS
        self._has_turn = [False] * SESSIONS
        self._closed_sides: set[str] = set()
        self._starts = 0
        self._starting = [trio.Lock() for _ in range(SESSIONS)]

    def note(self, line: str) -> None:
        """Append to the trace."""
        self.trace.append(f"{trio.current_time():.6f} {line}")

    def violate(self, problem: str) -> None:
        """Note that something must never be."""
        self.violations.append(problem)

    def count(self, what: str) -> None:
        """Count an outcome, and note it."""
        self.counts[what] += 1
        self.note(what)

    async def main(self) -> None:
        """The whole run."""
        identity = HostIdentity(workspace=WORKSPACE, device="device", user="user")
        with trio.fail_after(RUN_S):
            async with open_host(self._bed.provider, identity=identity) as host, trio.open_nursery() as watchers:
                for slot in range(SESSIONS):
                    await self._live_session(host, watchers, slot)
                self._bed.storm()
                async with trio.open_nursery() as nursery:
                    for job in self._jobs:
                        nursery.start_soon(self._work, host, watchers, job, name=f"job-{job.number}")
                self._bed.heal()
                await trio.sleep(HEAL_S)
                await self._close_sides(host)
                await trio.sleep(HEAL_S)
                self._check_converged(host)
                await self._prove_alive(host, watchers)
                watchers.cancel_scope.cancel()
        for problem in self._bed.leftovers(frozenset()):
            self.violate(f"after the host's end: {problem}")

    # Jobs

    async def _work(self, host: AgentHost, watchers: trio.Nursery, job: Job) -> None:
        await trio.sleep(job.start_s)
        with trio.move_on_after(job.limit_s) as limit:
            try:
                await self._do(host, watchers, job)
            except TuttiSideError as error:
                self.count(type(error).__name__)
        if limit.cancelled_caught:
            self.count("cut off")

    async def _do(self, host: AgentHost, watchers: trio.Nursery, job: Job) -> None:
        if job.kind == "close side":
            await host.controller.close_side(SideRef(WORKSPACE, SideId(f"s{job.side}")))
            self.count("closed by id")
            return
        session = await self._live_session(host, watchers, job.session)
        if job.kind == "turn":
            for number in job.questions:
                await self._ask(session, f"p{job.session}", number)
        elif job.kind == "close session":
            await session.close()
            self.count("closed session")
        else:
            await self._use_side(session, watchers, job)

    async def _use_side(self, session: SessionHandle, watchers: trio.Nursery, job: Job) -> None:
        owner = f"s{job.side}"
        side = await session.open_side(side_id=owner, request_id=job.request, subscribe=True)
        self.count("opened")
        if owner in self._closed_sides:
            self.violate(f"R8 {owner} came back to life")
        watchers.start_soon(self._watch, side.events(), owner)
        for number in job.questions:
            await self._ask(side, owner, number)
        if job.closes:
            await side.close()
            self._closed_sides.add(owner)
            self.count("closed")

    async def _ask(self, handle: SessionHandle | SideHandle, owner: str, number: int) -> None:
        answer = await handle.ask(question(owner, number))
        self.count("answered")
        if answer.messages != ("".join(tokens(owner, number)),):
            self.violate(f"R3 the answer to {owner} is not what was said")

    async def _live_session(self, host: AgentHost, watchers: trio.Nursery, slot: int) -> SessionHandle:
        """Return the slot's session, started anew if it is over, with a turn, so that it can be branched."""
        async with self._starting[slot]:
            session = self._sessions[slot]
            if session is None or session.scope.state != "open":
                self._starts += 1
                session = await host.start_session(cwd="/", session_id=f"p{slot}-{self._starts}")
                self.count("started")
                self._sessions[slot], self._has_turn[slot] = session, False
                watchers.start_soon(self._watch, session.events(), f"p{slot}")
            if not self._has_turn[slot]:
                await self._ask(session, f"p{slot}", 0)
                self._has_turn[slot] = True
            return session

    # What must hold

    async def _watch(self, events: Subscription, owner: str) -> None:
        """See every event of one session or Side, and check each."""
        following: int | None = None
        with events:
            async for batch in events:
                if following is not None and batch.first_sequence != following:
                    self.violate(f"R3 {owner}: sequence {batch.first_sequence} instead of {following}")
                following = batch.first_sequence + len(batch.events)
                for sequence, event in batch.numbered():
                    if isinstance(event, SessionStarted) != (sequence == 1):
                        self.violate(f"R3 {owner}: {type(event).__name__} has sequence {sequence}")
                    if isinstance(event, MessageDelta | MessageUpdated) and not _is_of(owner, event.text):
                        self.violate(f"R1 a foreign text reached {owner}")

    async def _close_sides(self, host: AgentHost) -> None:
        """Close what cut off jobs left open; in the calm every close ends within its bound."""
        with trio.move_on_after(CLOSE_S) as bound:
            for number in range(SIDES):
                await host.controller.close_side(SideRef(WORKSPACE, SideId(f"s{number}")))
        if bound.cancelled_caught:
            self.violate("a close hangs")

    def _check_converged(self, host: AgentHost) -> None:
        statistics = host.statistics()
        live = [session for session in self._sessions if session is not None and session.scope.state == "open"]
        held = {
            "R6 Sides registered": sum(statistics.sides.values()),
            "R5 locks in use": statistics.locks_in_use,
            "R5 lock waiters": statistics.locks_waiting,
            "sessions registered": statistics.sessions - len(live),
        }
        for what, count in held.items():
            if count:
                self.violate(f"{what}: {count}")
        for problem in self._bed.leftovers(frozenset(session.provider_session_id for session in live)):
            self.violate(problem)

    async def _prove_alive(self, host: AgentHost, watchers: trio.Nursery) -> None:
        """In the calm a Side of each session works."""
        try:
            for slot in range(SESSIONS):
                session = await self._live_session(host, watchers, slot)
                with trio.fail_after(CLOSE_S):
                    side = await session.open_side(side_id=f"after-{slot}", request_id=RequestId("r"), subscribe=True)
                    watchers.start_soon(self._watch, side.events(), "after")
                    await self._ask(side, "after", 0)
                    await side.close()
        except (TuttiSideError, trio.TooSlowError) as error:
            self.violate(f"a fresh Side does not work in the calm: {_brief(error)}")


def _is_of(owner: str, text: str) -> bool:
    return all(word.startswith(f"{owner}/") for word in text.split())


def _brief(error: BaseException) -> str:
    """Name an error and what is in it; a simulation has no secrets."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return f"{type(group).__name__}[{', '.join(_brief(part) for part in group.exceptions)}]"
    return f"{type(error).__name__}: {error}"
