"""R12: whatever is counted stays under the bound that the architecture names for it."""

from collections.abc import Iterator, Mapping

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.records import Sampled

__all__ = ["BOUNDS", "PER_CONNECTION", "no_count_over_its_bound"]

PER_CONNECTION: Mapping[str, int] = {
    "in_flight": 64 + 8,
    "pooled": 4_096,
    "expired": 1_024,
    "open_requests": 4_096,
    "write_queue_frames": 8_192,
    "write_queue_bytes": (1 << 20) + (1 << 20) + (64 << 20),
}
"""Bounds of one connection; a sample has the sums over ``connections`` of them. What is queued to be written may be one
line more than its bound and its reserve."""

BOUNDS: Mapping[str, int] = {
    "remembered_ends": 65_536,
}
"""Bounds of a whole host."""


def no_count_over_its_bound(facts: Facts) -> Iterator[Violation]:
    """R12: each sampled count is under its bound, and none is below zero."""
    for index, sample in facts.each(Sampled):
        connections = max(1, sample.counts.get("connections", 1))
        for name, count in sample.counts.items():
            bound = BOUNDS.get(name)
            if name in PER_CONNECTION:
                bound = PER_CONNECTION[name] * connections
            if count < 0 or (bound is not None and count > bound):
                limits = f"its bound of {bound}" if count > 0 else "all reason"
                yield facts.violation("R12", index, f"{name} is {count} ({sample.where}), beyond {limits}")
