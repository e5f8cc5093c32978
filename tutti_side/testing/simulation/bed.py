"""What a provider brings so that it can be simulated: what the driver asks of its stand-in, and nothing more."""

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from tutti_side.contract import Provider
from tutti_side.testing.simulation.records import Record, World

__all__ = ["SimulatedBed", "SimulationBed"]


class SimulatedBed(Protocol):
    """A provider's stand-in for one run, which has one host after another, never two at a time."""

    @property
    def provider(self) -> Provider:
        """What `open_host` takes, again for each host; what was persisted outlives a host."""
        ...

    @property
    def faults(self) -> Mapping[str, str]:
        """Every fault point by its name, ``late_answer`` for example, with a sentence that says what it does."""
        ...

    @property
    def impossible(self) -> Mapping[tuple[str, str], str]:
        """Pairs of a Side's state (one of `coverage.STATES`) and a fault point that cannot meet, each with why."""
        ...

    def storm(self) -> None:
        """Let the faults begin."""
        ...

    def heal(self) -> None:
        """End them; what is held still comes when its time has come."""
        ...

    def connection_of(self, child: str) -> int | None:
        """Return the number of the connection that holds a session or Side, by the provider's id; None for none."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Sums over its connections, by name: what each bounded thing holds now, and how many ``connections`` live.

        `checks.bounds` knows the names that have a bound; others are only recorded.
        """
        ...

    def leftovers(self, live: frozenset[str]) -> list[str]:
        """Say what is left that none of the live sessions (by provider session id) needs, in one phrase each."""
        ...


class SimulationBed(Protocol):
    """What an entry point of ``tutti_side.testbeds`` makes, as far as a simulation needs it."""

    def simulate(
        self, rng: random.Random, world: World, record: Callable[[Record], None], note: Callable[[str], None]
    ) -> SimulatedBed:
        """Make a stand-in.

        Args:
          rng: draw everything from it.
          world: what the model says, and what its turns ask.
          record: takes each fact of `records` that the stand-in tells, at the moment when it happens.
          note: takes a free line for the trace, for example each line of a wire by its title and checksum.
        """
        ...
