"""Trio's scheduling, drawn from a seed: the one place that touches names which Trio keeps to itself.

Trio shuffles the tasks that can run, so that nobody relies on their order. With its own random source seeded, and the
tasks sorted before the shuffle (what Trio does under Hypothesis), the same seed gives the same interleaving.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

__all__ = ["seeded_schedule"]

_run: Any = trio._core._run


@contextmanager
def seeded_schedule(seed: int) -> Iterator[None]:
    """Let each `trio.run` of the block draw its schedule from `seed`; afterwards everything is as before.

    Raises:
      AttributeError: this version of Trio has moved one of the two names.
    """
    sorted_before: bool = _run._ALLOW_DETERMINISTIC_SCHEDULING
    source: random.Random = _run._r
    state = source.getstate()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    source.seed(seed)
    try:
        yield
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING = sorted_before
        source.setstate(state)
