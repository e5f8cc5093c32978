"""One run: hosts one after another, each with its users; a storm; then calm, and proof that all has converged."""

import random
import threading
from collections.abc import Iterator
from typing import cast

import trio
import trio.testing

from tutti_side.contract import TurnMergedError, WorkspaceId
from tutti_side.host import AgentHost, HostIdentity, open_host
from tutti_side.runtime import SessionHandle
from tutti_side.testing.simulation._answering import decline
from tutti_side.testing.simulation._calls import Caller, Calls
from tutti_side.testing.simulation._cuts import StepCutter
from tutti_side.testing.simulation._errands import Errands
from tutti_side.testing.simulation._live_lock import StepBound
from tutti_side.testing.simulation._plan import HostPlan, draw_plan
from tutti_side.testing.simulation._ports import RecordingActivity
from tutti_side.testing.simulation._recorder import Recorder, captured_log
from tutti_side.testing.simulation._stage import Stage
from tutti_side.testing.simulation._users import Users
from tutti_side.testing.simulation._world import WORKSPACES, draw_world, fresh_side, side_ref
from tutti_side.testing.simulation.bed import SimulationBed
from tutti_side.testing.simulation.records import Healed, HostEnded, HostStopping, Leftover, Stormed

__all__ = ["DRIVER_FAULTS", "RUN_S", "Run"]

HEAL_S = 600.0
"""After the storm: longer than any deadline, grace and bounded retry after it."""

CLOSE_S = 60.0
"""Longer than the bound of any close, and than any other call may take in the calm."""

END_S = 300.0
"""After a host's end every call of its users has ended within so long: they lose patience sooner."""

MERGED_S = 5.0
"""Longer than the interrupt of a turn that took in what was meant for a new one."""

RUN_S = 10_000.0
"""Virtual time after which a run counts as hung; with nothing else to wait for, the clock jumps there at once."""

LOGGERS = ("tutti_side", "tutti_providers", "trio")

DRIVER_FAULTS = {
    "cancel_after_a_time": "a user leaves a call after a drawn time",
    "cancel_at_await": "a user leaves a call at its k-th await",
    "clock_jump": "the clock jumps, as on a machine that was suspended",
    "consumer_leaves": "a subscriber closes its subscription in mid-stream",
    "host_cancelled": "the host's whole block is cancelled",
    "host_stopped": "the host's block ends in mid-storm",
    "late_user": "what the provider asks is answered late",
    "nobody_answers": "what the provider asks is answered by nobody",
    "slow_consumer": "a subscriber waits before it reads on",
    "stalled_consumer": "a subscriber does not read at all before the calm",
}
"""Fault points that are the driver's own, as `SimulatedBed.faults` has those of the stand-in."""


class Run:
    """One run of one seed; `main` goes under `trio.run` with a `MockClock`, and with `instruments`."""

    def __init__(self, seed: int, bed: SimulationBed, jobs: int, clock: trio.testing.MockClock) -> None:
        rng = random.Random(seed)
        world, flooded = draw_world(rng)
        self.plan = draw_plan(rng, jobs)
        self.recorder = Recorder()
        self.cutter = StepCutter()
        self.calls = Calls(self.recorder, self.cutter)
        self.world = world
        self.bed = bed.simulate(rng, world, self.recorder.add, self.recorder.note)
        self._rng = random.Random(rng.random())
        self.bound = StepBound(clock, lambda who: self._note_left(f"R9 {who}"))
        self._clock = clock
        self._flooded = flooded

    @property
    def instruments(self) -> tuple[trio.abc.Instrument, ...]:
        """What looks at each step."""
        return self.cutter, self.bound

    async def main(self) -> None:
        """Run it all."""
        self._stage = Stage(self.recorder, self.calls, self.bed, self.world, self._flooded)
        with trio.fail_after(RUN_S), self.bound.scope, captured_log(self.recorder, *LOGGERS):
            for plan in self.plan:
                async with trio.open_nursery() as users:
                    await self._live(plan, users)
                    users.start_soon(self._end_users, users, name="end of users")
            for problem in self.bed.leftovers(frozenset()):
                self._note_left(f"after the last host's end: {problem}")

    async def _live(self, plan: HostPlan, nursery: trio.Nursery) -> None:
        """Let one host live and stop; its users live in the nursery, and may be there longer than the host."""
        tasks, threads = set(_tasks_beside(nursery)), set(_threads())
        error = ""
        try:
            with trio.CancelScope() as block:
                async with open_host(
                    self.bed.provider,
                    identity=HostIdentity(workspace=WorkspaceId(WORKSPACES[0]), device="device", user="user"),
                    metadata=self._stage.metadata,
                    reporter=RecordingActivity(self.recorder),
                ) as host:
                    self._stage.enter(host)
                    users = Users(self._stage, host, plan.number, nursery)
                    await self._storm(plan, users, nursery)
                    if plan.stop_s is None:
                        await self._calm(users)
                    elif plan.is_cancelled:
                        self.recorder.fault("host_cancelled")
                        block.cancel(reason="the simulated host is stopped")
                    else:
                        self.recorder.fault("host_stopped")
                    self.recorder.add(HostStopping(at_s=trio.current_time(), host=plan.number))
        except Exception as raised:  # nothing may leave the block: a checker says so
            error = _name(raised)
        self._stage.calm.set()
        left = [task for task in _tasks_beside(nursery) if task not in tasks]
        for name in sorted(task.name for task in left):  # the tasks of a nursery are a set
            self.recorder.note(f"left behind: {name}")
        self.recorder.add(
            HostEnded(
                at_s=trio.current_time(),
                host=plan.number,
                tasks=len(left),
                threads=len([thread for thread in _threads() if thread not in threads]),
                error=error,
            )
        )

    async def _storm(self, plan: HostPlan, users: Users, nursery: trio.Nursery) -> None:
        """Let the users work while faults strike; until all jobs are done, or it is time to stop."""
        if plan.number == 0:
            opener = Caller(self.calls, -1, self._rng, patient=True)
            for slot in self._stage.slots:
                await users.live_session(slot, opener)
            self.bed.storm()
            self.recorder.add(Stormed(at_s=trio.current_time()))
        else:
            for slot in self._stage.slots:
                nursery.start_soon(users.resume, slot, Caller(self.calls, -1, random.Random(self._rng.random())))
        done = trio.Event()
        nursery.start_soon(self._work, plan, users, done)
        with trio.move_on_after(float("inf") if plan.stop_s is None else plan.stop_s):
            await done.wait()

    async def _work(self, plan: HostPlan, users: Users, done: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            errands = Errands(users)
            for job in plan.jobs:
                nursery.start_soon(errands.run, job, name=f"job-{job.number}")
            for at_s, by_s in plan.jumps:
                nursery.start_soon(self._jump, at_s, by_s, name="clock")
        done.set()

    async def _jump(self, at_s: float, by_s: float) -> None:
        await trio.sleep(at_s)
        await trio.testing.wait_all_tasks_blocked()  # what can be read now is read now: a jump delays nobody else
        self.recorder.fault("clock_jump")
        self._clock.jump(by_s)

    # The calm

    async def _calm(self, users: Users) -> None:
        """End the faults; then all that was begun must come to its end, and what is new must work."""
        stage = self._stage
        self.bed.heal()
        stage.calm.set()
        self.recorder.add(Healed(at_s=trio.current_time()))
        await trio.sleep(HEAL_S)
        stage.sample("healed")
        caller = Caller(self.calls, -2, self._rng, patient=True)
        with trio.move_on_after(CLOSE_S) as bound:
            await self._end_turns(caller)
            for owner in stage.attempts:
                await users.host.controller.close_side(side_ref(owner))
        if bound.cancelled_caught:
            self._note_left("a close, or the end of a session's turn, hangs")
        await trio.sleep(HEAL_S)
        self._look_for_leftovers(users.host)
        await self._prove_alive(users, caller)
        stage.sample("end")

    async def _end_turns(self, caller: Caller) -> None:
        """Decline what sessions still ask, and cancel what they still do: each turn must end then."""
        for slot, session in self._stage.live_sessions():
            for asked in session.interactions:
                await decline(session, slot.owner, asked, caller)
            turn = session.active_turn
            if turn is not None:
                await caller.call("cancel", turn.cancel, owner=slot.owner, turn=turn.id)
                if caller.failed:
                    self._note_left(f"the turn of {slot.owner} can't be cancelled: {caller.failed}")
                else:
                    await caller.call("wait", turn.wait, owner=slot.owner, turn=turn.id)

    def _look_for_leftovers(self, host: AgentHost) -> None:
        statistics = host.controller.statistics()
        live = list(self._stage.live_sessions())
        held = {
            "R6 Sides registered": sum(statistics.sides.values()),
            "R5 locks in use": statistics.locks_in_use,
            "R5 lock waiters": statistics.locks_waiting,
            "R6 sessions registered": statistics.sessions - len(live),
            "R12 events buffered": statistics.buffered_events,
            "R11 interactions open": statistics.interactions_open,
            "R6 subscribers that nobody reads": statistics.subscribers - self._stage.watchers.reading,
        }
        for what, count in held.items():
            if count:
                self._note_left(f"{what}: {count}")
        for problem in self.bed.leftovers(frozenset(session.provider_session_id for _, session in live)):
            self._note_left(problem)

    async def _prove_alive(self, users: Users, caller: Caller) -> None:
        """In the calm each session can be asked, and a Side of each works; so does an identity that failed before."""
        stage = self._stage
        for slot in stage.slots:
            with trio.move_on_after(CLOSE_S) as bound:
                session = await users.live_session(slot, caller, spare=0)
                if session is None or not await self._answers(users, session, slot.owner, caller):
                    self._note_left(f"R14 slot {slot.number} has no session that works in the calm: {caller.failed}")
                    continue
                again = [owner for owner in stage.attempts if stage.state_of(owner) == "failed"]
                for owner in (fresh_side(slot.number), *again):
                    side = await users.open(session, owner, "r", caller, subscribe=True)
                    if side is None or await users.ask(side, owner, 0, caller) is None:
                        self._note_left(f"R14 a Side of {slot.owner} does not work in the calm: {caller.failed}")
                    if side is not None:
                        await users.close(side, owner, caller)
            if bound.cancelled_caught:
                self._note_left(f"R14 slot {slot.number} hangs in the calm")

    async def _answers(self, users: Users, session: SessionHandle, owner: str, caller: Caller) -> bool:
        """Ask a session; again, when it turns out that its server still went on with a turn that was given up."""
        answer = await users.ask(session, owner, 0, caller)
        if answer is None and caller.failed == TurnMergedError.__name__:
            await trio.sleep(MERGED_S)
            answer = await users.ask(session, owner, 0, caller)
        return answer is not None

    async def _end_users(self, nursery: trio.Nursery) -> None:
        """Each call that its host's end found under way must end, and each subscription."""
        await trio.sleep(END_S)
        hanging = nursery.child_tasks - {trio.lowlevel.current_task()}
        if hanging:
            names = sorted({*self.calls.open.values(), *(task.name for task in hanging)})
            self._note_left(f"R9 after the host's end these hang: {', '.join(names)}")
            nursery.cancel_scope.cancel(reason="the simulated users hang")

    def _note_left(self, what: str) -> None:
        self.recorder.add(Leftover(at_s=trio.current_time(), what=what))


def _tasks_beside(own: trio.Nursery) -> Iterator[trio.lowlevel.Task]:
    """Yield all tasks but those of one nursery."""
    root = trio.lowlevel.current_root_task()
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            if nursery is not own:
                waiting.extend(nursery.child_tasks)


def _threads() -> list[threading.Thread]:
    """All threads but Trio's idle cache."""
    return [thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")]


def _name(error: BaseException) -> str:
    """Name an error and what is in it; a simulation has no secrets."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return f"{type(group).__name__}[{', '.join(_name(part) for part in group.exceptions)}]"
    return f"{type(error).__name__}: {error}"
