"""What the users of one run share: slots with sessions, the host of the moment, which Side stands where."""

from collections.abc import Iterator

import trio

from tutti_side.contract import SideRef
from tutti_side.host import AgentHost
from tutti_side.runtime import SessionHandle
from tutti_side.testing.simulation._calls import Calls
from tutti_side.testing.simulation._ports import KeptMetadata
from tutti_side.testing.simulation._recorder import Recorder
from tutti_side.testing.simulation._watching import Watchers
from tutti_side.testing.simulation._world import SESSIONS, session_ref, side_ref
from tutti_side.testing.simulation.bed import SimulatedBed
from tutti_side.testing.simulation.records import Fault, Matched, Sampled, World

__all__ = ["Slot", "Stage"]


class Slot:
    """Where one session after another lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.started = 0
        self.owner = ""
        """The latest session's name."""
        self.handle: SessionHandle | None = None
        self.has_turn = False
        self.changing = trio.Lock()

    @property
    def live(self) -> SessionHandle | None:
        """The session, while it is open."""
        return self.handle if self.handle is not None and self.handle.scope.is_live else None


class Attempt:
    """A Side that somebody tried to open."""

    def __init__(self, ref: SideRef, source_child: str) -> None:
        self.ref = ref
        self.source_child = source_child
        self.connection: int | None = None


class Stage:
    """The run's shared state; what a fault meets is worked out here.

    Args:
      recorder: the run's record.
      calls: the run's calls.
      bed: the provider's stand-in.
      world: what was made up.
      flooded: the owner whose answer can be a flood.
    """

    def __init__(self, recorder: Recorder, calls: Calls, bed: SimulatedBed, world: World, flooded: str) -> None:
        self.recorder = recorder
        self.calls = calls
        self.bed = bed
        self.world = world
        self.flooded = flooded
        self.calm = trio.Event()
        """Set when the faults have ended, or the host of the moment has."""
        self.watchers = Watchers(recorder)
        self.metadata = KeptMetadata(recorder)
        self.slots = [Slot(number) for number in range(SESSIONS)]
        self.attempts: dict[str, Attempt] = {}
        """Sides of the host of the moment, by owner, in the order of their first opens."""
        self.failed: set[str] = set()
        """Owners whose open failed at least once."""
        self.sources: dict[str, str] = {}
        """Source of each Side that was open for somebody, by owner."""
        self.host: AgentHost | None = None
        self._met: set[tuple[str, str]] = set()
        self._sampled_at = -1.0
        recorder.on_fault = self.match

    def enter(self, host: AgentHost) -> None:
        """A host begins; what was known of the Sides of another is not its."""
        self.host = host
        self.calm = trio.Event()
        self.attempts.clear()
        for slot in self.slots:
            slot.handle = None

    def attempt(self, owner: str, source_child: str) -> None:
        """Somebody is about to open this Side."""
        self.attempts.setdefault(owner, Attempt(side_ref(owner), source_child))

    def state_of(self, owner: str) -> str:
        """Return the lifecycle state of a Side that was tried; empty when it is not known to the host at all."""
        assert self.host is not None
        registry = self.host.controller.registry
        ref = self.attempts[owner].ref
        side = registry.sides.get(ref)
        if side is not None:
            return side.lifecycle.state
        if ref in registry.ended:
            return "closed" if registry.ended[ref] == "closed" else "expired"
        return "failed" if owner in self.failed else ""

    def match(self, fault: Fault) -> None:
        """Record which Sides a fault met, each pair of state and fault once a run, and the counts of the moment."""
        if self.host is None:
            return
        for owner, attempt in self.attempts.items():
            if fault.connection in (-1, self._connection(attempt)):
                state = self.state_of(owner)
                if state and (state, fault.fault) not in self._met:
                    self._met.add((state, fault.fault))
                    self.recorder.add(Matched(at_s=fault.at_s, owner=owner, state=state, fault=fault.fault))
        if fault.at_s != self._sampled_at:
            self._sampled_at = fault.at_s
            self.sample("fault")

    def _connection(self, attempt: Attempt) -> int | None:
        """The connection that a Side is or was on; remembered, since it is asked for Sides that are over, too."""
        if attempt.connection is None and attempt.source_child:
            attempt.connection = self.bed.connection_of(attempt.source_child)
        return attempt.connection

    def sample(self, where: str) -> None:
        """Record what is held now."""
        assert self.host is not None
        statistics = self.host.controller.statistics()
        counts = {
            "sessions": statistics.sessions,
            "sides": sum(statistics.sides.values()),
            "interactions_open": statistics.interactions_open,
            "subscribers": statistics.subscribers,
            "buffered_events": statistics.buffered_events,
            "locks_in_use": statistics.locks_in_use,
            "locks_waiting": statistics.locks_waiting,
            "remembered_ends": statistics.remembered_ends,
            **self.bed.counts(),
        }
        self.recorder.add(Sampled(at_s=trio.current_time(), where=where, counts=counts))

    def live_sessions(self) -> Iterator[tuple[Slot, SessionHandle]]:
        """Yield each slot whose session is open, and it."""
        for slot in self.slots:
            if (session := slot.live) is not None:
                yield slot, session

    def resumable(self, slot: Slot) -> bool:
        """True when the slot's session is not open, and its metadata are kept."""
        return slot.live is None and bool(slot.owner) and session_ref(slot.owner) in self.metadata
