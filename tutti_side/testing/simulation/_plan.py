"""What is drawn before a run begins: its hosts, their jobs, when each host is stopped, when the clock jumps. Pure."""

import random
from typing import Literal, get_args

import msgspec

from tutti_side.testing.simulation._world import SESSIONS, SIDES

__all__ = ["JOBS", "HostPlan", "Job", "JobKind", "draw_plan"]

JOBS = 16
"""Jobs of one run."""

START_S = 1.5
"""Jobs start within so long."""

RESTART_CHANCE = 0.35
"""How often the first host is stopped in mid-storm, and a second one follows; each has half of the jobs."""

CANCELLED_CHANCE = 0.5
"""How often such a stop is a cancel of the host's whole block, and not its end."""

STOP_S = 2.5
"""Such a stop comes within so long."""

JUMP_CHANCE = 0.3
"""How often the clock jumps in a host's storm."""

JUMPS_S = (0.05, 0.5, 4.0, 12.0, 45.0)
"""By how much; a machine that was suspended."""

JobKind = Literal[
    "side",
    "block",
    "turn",
    "by id",
    "close side",
    "close session",
    "delete session",
    "resume session",
    "resolve",
    "context",
    "watch",
    "odd source",
]

WEIGHTS = (9, 1, 4, 2, 2, 0.7, 0.6, 1, 1, 0.7, 1, 1)
"""How often each."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One user's errand; its details are drawn from its own seed, so that it does not depend on what others do."""

    number: int
    kind: JobKind
    start_s: float
    slot: int
    """Which session it is about."""
    side: int
    """Which Side."""
    request: str
    seed: int


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One host of the run."""

    number: int
    jobs: tuple[Job, ...]
    jumps: tuple[tuple[float, float], ...]
    """When the clock jumps, and by how much."""
    stop_s: float | None
    """When it is stopped in mid-storm; None for the last host, which lives to see the calm."""
    is_cancelled: bool
    """Whether that stop is a cancel."""


def draw_job(rng: random.Random, number: int) -> Job:
    """Draw a job."""
    side = rng.randrange(SIDES)
    return Job(
        number=number,
        kind=rng.choices(get_args(JobKind), weights=WEIGHTS)[0],
        start_s=rng.random() * START_S,
        slot=side % SESSIONS if rng.random() < 0.85 else rng.randrange(SESSIONS),
        side=side,
        request="r" if rng.random() < 0.9 else "other",
        seed=rng.randrange(1 << 32),
    )


def draw_plan(rng: random.Random, jobs: int) -> tuple[HostPlan, ...]:
    """Draw a run: one host, or two."""
    hosts = 2 if rng.random() < RESTART_CHANCE else 1
    return tuple(
        HostPlan(
            number=number,
            jobs=tuple(draw_job(rng, number * jobs + index) for index in range(-(-jobs // hosts))),
            jumps=((rng.random() * STOP_S, rng.choice(JUMPS_S)),) if rng.random() < JUMP_CHANCE else (),
            stop_s=rng.random() * STOP_S if number < hosts - 1 else None,
            is_cancelled=rng.random() < CANCELLED_CHANCE,
        )
        for number in range(hosts)
    )
