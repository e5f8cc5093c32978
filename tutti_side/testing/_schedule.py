"""Trio's scheduling, drawn from a seed: the one place that touches names which Trio keeps to itself.

Trio shuffles the tasks that can run, so that nobody relies on their order. With its own random source seeded, and the
tasks sorted before the shuffle (what Trio does under Hypothesis), the same seed gives the same interleaving. Two orders
are left that come from addresses: in which the tasks of one scope are cancelled, and in which scopes are whose deadlines
are one moment. What a task does at the moment of its cancel (a queued request is taken back) would depend on them, so
both are made the order in which things came.
"""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

__all__ = ["seeded_schedule"]

_run: Any = trio._core._run
_CancelStatus: Any = _run.CancelStatus


class _InOrder(dict[Any, None]):
    """As much of a set as Trio needs, walked in the order in which its members came."""

    def add(self, member: Any) -> None:
        self[member] = None

    def remove(self, member: Any) -> None:
        del self[member]


class _OrderedCancelStatus(_CancelStatus):  # type: ignore[misc]
    def __attrs_post_init__(self) -> None:
        self._tasks = _InOrder()
        self._children = _InOrder()
        parent: Any = super()
        parent.__attrs_post_init__()


@contextmanager
def seeded_schedule(seed: int) -> Iterator[None]:
    """Let each `trio.run` of the block draw its schedule from `seed`; afterwards everything is as before.

    Raises:
      AttributeError: this version of Trio has moved one of the names.
    """
    sorted_before: bool = _run._ALLOW_DETERMINISTIC_SCHEDULING
    source: random.Random = _run._r
    state = source.getstate()
    numbers = itertools.count()

    def next_number(_: object) -> int:
        return next(numbers)

    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    _run.CancelStatus = _OrderedCancelStatus
    _run.id = next_number  # what Trio tells equal deadlines apart by
    source.seed(seed)
    try:
        yield
    finally:
        del _run.id
        _run.CancelStatus = _CancelStatus
        _run._ALLOW_DETERMINISTIC_SCHEDULING = sorted_before
        source.setstate(state)
