"""What the seeds of a command have met: how often each fault struck, and in which states of a Side's life. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

__all__ = ["IMPOSSIBLE", "STATES", "Coverage"]

STATES = ("reserved", "opening", "open", "closing", "draining", "closed", "expired", "failed")
"""Of a Side's lifecycle, in its order."""

IMPOSSIBLE: Mapping[tuple[str, str], str] = {
    (state, "version_unproven"): "a connection shows its version before there is any session on it" for state in STATES
}
"""Pairs of state and fault that cannot be met, each with the reason."""

SHARE_MIN = 0.95
"""Of the table's possible pairs so much must be met by a run that is long enough to say so."""


LISTED_MAX = 40
"""So many pairs that were not met are listed; after few seeds there are hundreds."""


class Coverage:
    """Counts over any number of seeds.

    Args:
      faults: every fault point by name.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        self._faults = sorted(faults)
        self.struck: Counter[str] = Counter()
        self.met: Counter[tuple[str, str]] = Counter()

    def add(self, struck: Mapping[str, int], met: Mapping[tuple[str, str], int]) -> None:
        """Take what one seed, or many, have come to."""
        self.struck.update(struck)
        self.met.update(met)

    def possible(self) -> list[tuple[str, str]]:
        """Return the table without the impossible pairs."""
        return [(state, fault) for fault in self._faults for state in STATES if (state, fault) not in IMPOSSIBLE]

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
            for (state, fault), reason in IMPOSSIBLE.items()
            if self.met[state, fault]
        ]
        return found

    def lines(self) -> Iterator[str]:
        """Say it all for a person."""
        yield f"fault points: {len(self._faults)}"
        for fault in self._faults:
            cells = " ".join(
                f"{'-' if (state, fault) in IMPOSSIBLE else self.met[state, fault]:>8}" for state in STATES
            )
            yield f"  {fault:28} {self.struck[fault]:>8} {cells}"
        yield f"  {'(seeds that met the state)':28} {'':>8} " + " ".join(f"{state:>8}" for state in STATES)
        missing = [f"{state} + {fault}" for state, fault in self.missing()]
        yield f"states and faults met: {self.share:.1%} of {len(self.possible())} possible pairs"
        if len(missing) > LISTED_MAX:
            yield f"not met: {len(missing)}, too many to list"
        elif missing:
            yield f"not met: {', '.join(missing)}"
        for (state, fault), reason in IMPOSSIBLE.items():
            yield f"impossible: {state} + {fault}: {reason}"
