"""One simulated run: jobs and faults drawn from a seed; first safety while it storms, then convergence once it heals.

`simulate` runs a host over a provider's stand-in. Users open, use and close sessions and Sides under overlapping
identities, answer what they are asked, and are cut off at drawn awaits, while the stand-in answers late, twice or
never, refuses and crashes; some runs stop a host in mid-storm and start another. Then the faults end, and all must
come to rest: nothing is left that no live session needs, and a fresh Side of each session works. Clock, transports and
schedule are virtual, so a seed is the whole run: the same seed, the same records.

The parts: `_plan` and `_world` draw, `_users` and `_answering` use the public API through `_calls`, `_watching` reads
events, `_run` sets the phases. All that happens is one list of `records`, which `checks` judges; `bed` is what a
provider brings.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import trio
import trio.testing

from tutti_side.testing._schedule import seeded_schedule
from tutti_side.testing.simulation._plan import JOBS
from tutti_side.testing.simulation._run import DRIVER_FAULTS, Run
from tutti_side.testing.simulation._world import side_owners, side_ref
from tutti_side.testing.simulation.bed import SimulatedBed, SimulationBed
from tutti_side.testing.simulation.checks import Context, check_all
from tutti_side.testing.simulation.coverage import largest
from tutti_side.testing.simulation.records import Fault, Matched, Record, Sampled

__all__ = ["JOBS", "Result", "SimulatedBed", "SimulationBed", "simulate", "trace_lines"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed came to."""

    seed: int
    digest: str
    """Of all that happened, in order."""
    violations: tuple[str, ...]
    """A rule and what broke it, each."""
    outcomes: Mapping[str, int]
    """How often each call ended how: ``open: ok``, ``close: cut off``, ``send: SideBusyError``."""
    faults: Mapping[str, str]
    """Every fault point there is, the stand-in's and the driver's own, with a sentence each."""
    impossible: Mapping[tuple[str, str], str]
    """Pairs of a Side's state and a fault point that cannot meet, each with why."""
    struck: Mapping[str, int]
    """How often each struck."""
    met: tuple[tuple[str, str], ...]
    """Pairs of a Side's state and a fault point that met."""
    counted: Mapping[str, int]
    """Each count that was sampled, at its largest."""
    entries: tuple[Record, ...]
    """All that happened."""


def simulate(seed: int, bed: SimulationBed, *, jobs: int = JOBS) -> Result:
    """Run one seed; blocks, and runs Trio itself.

    Args:
      seed: everything is drawn from it.
      bed: makes the provider's stand-in.
      jobs: how many jobs.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    violations: list[str] = []
    with seeded_schedule(seed):
        run = Run(seed, bed, jobs, clock)
        try:
            trio.run(run.main, clock=clock, instruments=run.instruments)
        except Exception as error:
            if not run.bound.was_passed:  # it was cancelled, and its records say why
                violations.append(f"R13 the run itself ended by {error!r}")
    entries = run.recorder.entries
    context = Context(world=run.world, sides={owner: side_ref(owner).side for owner in side_owners()})
    violations += [str(violation) for violation in check_all(run.recorder.facts(), context)]
    return Result(
        seed=seed,
        digest=hashlib.sha256(msgspec.json.encode(entries)).hexdigest()[:16],
        violations=tuple(violations),
        outcomes=run.calls.outcomes,
        faults={**run.bed.faults, **DRIVER_FAULTS},
        impossible=run.bed.impossible,
        struck=Counter(record.fault for record in entries if type(record) is Fault),
        met=tuple((record.state, record.fault) for record in entries if type(record) is Matched),
        counted=largest(record.counts for record in entries if type(record) is Sampled),
        entries=tuple(entries),
    )


def trace_lines(entries: Sequence[Record]) -> list[str]:
    """Return a run's records as lines for a person."""
    return [_line(entry) for entry in entries]


def _line(entry: Record) -> str:
    fields = {name: value for name, value in msgspec.structs.asdict(entry).items() if name != "at_s" and value != ""}
    said = str(fields["text"]) if list(fields) == ["text"] else " ".join(f"{k}={v}" for k, v in fields.items())
    return f"{entry.at_s:.6f} {type(entry).__name__} {said}"
