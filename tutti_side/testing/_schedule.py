"""Trio's scheduling, drawn from a seed: the one place that touches names which Trio keeps to itself.

Trio shuffles the tasks that can run, so that nobody relies on their order. With its own random source seeded, and the
tasks sorted before the shuffle (what Trio does under Hypothesis), the same seed gives the same interleaving.

That is not enough where a cancel strikes several tasks: Trio tells them in the order of a set, that is of their
addresses, and of scopes with the same deadline the one at the lower address is first. What a call undoes at that moment
another task may see, so here the seed draws these orders as well.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

__all__ = ["seeded_schedule"]

_run: Any = trio._core._run
_link: Any = _run.CancelStatus.__attrs_post_init__

_T = TypeVar("_T")


class _DrawnSet(dict[_T, None]):
    """A set, as far as Trio uses those of a cancel scope; each time that it is gone through, in a drawn order."""

    def __init__(self, source: random.Random) -> None:
        super().__init__()
        self._source = source

    def __iter__(self) -> Iterator[_T]:
        order = [*super().__iter__()]
        if len(order) > 1:
            self._source.shuffle(order)
        return iter(order)

    def add(self, member: _T) -> None:
        self[member] = None

    def remove(self, member: _T) -> None:
        del self[member]


@contextmanager
def seeded_schedule(seed: int) -> Iterator[None]:
    """Let each `trio.run` of the block draw its schedule from `seed`; afterwards everything is as before.

    Blocks may nest. One inside a run does nothing to the cancel scopes that are there already.

    Raises:
      AttributeError: this version of Trio has moved one of the names.
    """
    orders = random.Random(seed)
    sorted_before: bool = _run._ALLOW_DETERMINISTIC_SCHEDULING
    source: random.Random = _run._r
    state = source.getstate()
    link_before, add_before = _run.CancelStatus.__attrs_post_init__, _run.Deadlines.add

    def link_drawn(status: Any) -> None:
        status._tasks, status._children = _DrawnSet(orders), _DrawnSet(orders)
        _link(status)

    def add_drawn(deadlines: Any, deadline: float, scope: Any) -> None:
        _run.heappush(deadlines._heap, (deadline, orders.getrandbits(64), scope))
        deadlines._active += 1

    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    source.seed(seed)
    _run.CancelStatus.__attrs_post_init__, _run.Deadlines.add = link_drawn, add_drawn
    try:
        yield
    finally:
        _run.CancelStatus.__attrs_post_init__, _run.Deadlines.add = link_before, add_before
        _run._ALLOW_DETERMINISTIC_SCHEDULING = sorted_before
        source.setstate(state)
