"""R12: whatever is counted stays under the bound that the architecture names for it."""

from collections.abc import Iterator, Mapping

import msgspec

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.records import Sampled

__all__ = ["BOUNDS", "Bound", "judged_counts", "no_count_over_its_bound"]


class Bound(msgspec.Struct, frozen=True):
    """How much may be held."""

    most: int
    each: tuple[str, ...] = ()
    """Other counts: so much for each of those. None: so much in a whole host."""

    def of(self, counts: Mapping[str, int]) -> int:
        """Return the bound at the moment of a sample."""
        return self.most * max(1, sum(counts.get(name, 0) for name in self.each)) if self.each else self.most


CONNECTION = ("connections",)
THREAD = ("sessions", "sides")

BOUNDS: Mapping[str, Bound] = {
    "in_flight": Bound(64 + 8, CONNECTION),
    "pooled": Bound(4_096, CONNECTION),
    "expired": Bound(1_024, CONNECTION),
    "open_requests": Bound(4_096, CONNECTION),
    "write_queue_frames": Bound(8_192, CONNECTION),
    # The backlog and its reserve, into which one more line goes, however long.
    "write_queue_bytes": Bound((1 << 20) + (1 << 20) + (64 << 20), CONNECTION),
    "interactions_open": Bound(256, THREAD),
    "buffered_events": Bound(8_192, THREAD),
    "remembered_ends": Bound(65_536),
}
"""By the names under which driver and bed tell the counts. A name that nobody tells would be a judge of nothing, so
`coverage` asks a long run for all of `judged_counts`."""


def judged_counts() -> set[str]:
    """Return every count that a bound needs."""
    return {name for own, bound in BOUNDS.items() for name in (own, *bound.each)}


def no_count_over_its_bound(facts: Facts) -> Iterator[Violation]:
    """R12: each sampled count is under its bound, and none is below zero."""
    for index, sample in facts.each(Sampled):
        for name, count in sample.counts.items():
            bound = BOUNDS[name].of(sample.counts) if name in BOUNDS else None
            if count < 0 or (bound is not None and count > bound):
                limits = f"its bound of {bound}" if count > 0 else "all reason"
                yield facts.violation("R12", index, f"{name} is {count} ({sample.where}), beyond {limits}")
