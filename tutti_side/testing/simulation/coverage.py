"""What the seeds of a command have met: how often each fault struck, in which states of a Side's life, and which counts
were judged. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tutti_side.testing.simulation.checks.bounds import BOUNDS, judged_counts

__all__ = ["STATES", "Coverage", "largest"]

STATES = ("reserved", "opening", "open", "closing", "draining", "closed", "expired", "failed")
"""Of a Side's lifecycle, in its order."""

SHARE_MIN = 0.95
"""Of the table's possible pairs so much must be met by a run that is long enough to say so."""

LISTED_MAX = 40
"""So many pairs that were not met are listed; after few seeds there are hundreds."""


def largest(samples: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return each count of some samples at its largest."""
    found: dict[str, int] = {}
    for sample in samples:
        for name, count in sample.items():
            found[name] = max(count, found.get(name, count))
    return found


class Coverage:
    """Counts over any number of seeds.

    Args:
      faults: every fault point by name.
      impossible: pairs of state and fault point that cannot meet, each with why.
    """

    def __init__(self, faults: Mapping[str, str], impossible: Mapping[tuple[str, str], str]) -> None:
        self._faults = sorted(faults)
        self._impossible = impossible
        self.counted: dict[str, int] = {}
        """Each count that was sampled, at its largest."""
        self.struck: Counter[str] = Counter()
        self.met: Counter[tuple[str, str]] = Counter()

    def add(self, struck: Mapping[str, int], met: Mapping[tuple[str, str], int], counted: Mapping[str, int]) -> None:
        """Take what one seed, or many, have come to."""
        self.counted = largest((self.counted, counted))
        self.struck.update(struck)
        self.met.update(met)

    def possible(self) -> list[tuple[str, str]]:
        """Return the table without the impossible pairs."""
        return [(state, fault) for fault in self._faults for state in STATES if (state, fault) not in self._impossible]

    def missing(self) -> list[tuple[str, str]]:
        """Return the possible pairs that were not met."""
        return [pair for pair in self.possible() if not self.met[pair]]

    @property
    def share(self) -> float:
        """The part of the possible pairs that was met."""
        possible = len(self.possible())
        return 1.0 if possible == 0 else 1.0 - len(self.missing()) / possible

    def problems(self) -> list[str]:
        """Say in what these seeds fell short, in one sentence each; empty when in nothing."""
        found = [f"the fault point {fault} never struck" for fault in self._faults if not self.struck[fault]]
        found += [
            f"the fault point {fault} is known to nobody" for fault in sorted(set(self.struck) - set(self._faults))
        ]
        if self.share < SHARE_MIN:
            found.append(f"only {self.share:.1%} of the table of states and faults was met, not {SHARE_MIN:.0%}")
        found += [
            f"{state} + {fault} was met, though it counts as impossible: {reason}"
            for (state, fault), reason in self._impossible.items()
            if self.met[state, fault]
        ]
        found += [
            f"{state} + {fault} counts as impossible, but there is no such pair"
            for state, fault in self._impossible
            if state not in STATES or fault not in self._faults
        ]
        found += [f"no sample has told {name}, so its bound has judged nothing" for name in self._untold()]
        return found

    def _untold(self) -> list[str]:
        return sorted(judged_counts() - set(self.counted))

    def lines(self) -> Iterator[str]:
        """Say it all for a person."""
        yield f"fault points: {len(self._faults)}"
        for fault in self._faults:
            cells = " ".join(
                f"{'-' if (state, fault) in self._impossible else self.met[state, fault]:>8}" for state in STATES
            )
            yield f"  {fault:28} {self.struck[fault]:>8} {cells}"
        yield f"  {'(seeds that met the state)':28} {'':>8} " + " ".join(f"{state:>8}" for state in STATES)
        missing = [f"{state} + {fault}" for state, fault in self.missing()]
        yield f"states and faults met: {self.share:.1%} of {len(self.possible())} possible pairs"
        if len(missing) > LISTED_MAX:
            yield f"not met: {len(missing)}, too many to list"
        elif missing:
            yield f"not met: {', '.join(missing)}"
        held = ", ".join(f"{name} {self.counted[name]}" for name in sorted(BOUNDS) if name in self.counted)
        yield f"most that was held of what has a bound: {held}"
        for (state, fault), reason in self._impossible.items():
            yield f"impossible: {state} + {fault}: {reason}"
