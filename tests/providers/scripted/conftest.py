"""What the tests of the scripted provider share: a sink that remembers, and an axe that falls after a chosen step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import trio

from tutti_side.contract import CanonicalRef, EndReason, Event, SessionId, SideId, SideRef, WorkspaceId

WORKSPACE = WorkspaceId("w")


class Recorder:
    """A sink that keeps what it is given, in order, its end included."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended: EndReason | None = None

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        assert self.ended is None, "an event after the end"
        assert size_bytes > 0
        self.events += events

    def end(self, reason: EndReason) -> None:
        assert self.ended is None, "a second end"
        self.ended = reason


class Axe(trio.abc.Instrument):
    """Cancels a scope after the k-th step that any task takes while it is raised."""

    def __init__(self, steps: int) -> None:
        self.scope = trio.CancelScope()
        self._left = steps

    @property
    def fell(self) -> bool:
        return self._left <= 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self.scope.cancel(reason="the axe")


class Lab:
    """The helpers, since test modules import nothing from each other."""

    recorder = Recorder

    @staticmethod
    def session(name: str = "s") -> CanonicalRef:
        return CanonicalRef(WORKSPACE, SessionId(name))

    @staticmethod
    def side(name: str = "side") -> SideRef:
        return SideRef(WORKSPACE, SideId(name))

    @staticmethod
    @contextmanager
    def axe(steps: int) -> Iterator[Axe]:
        """Raise the axe over the block, which has to enter `scope` around what is to be cut."""
        axe = Axe(steps)
        trio.lowlevel.add_instrument(axe)
        try:
            yield axe
        finally:
            trio.lowlevel.remove_instrument(axe)

    @staticmethod
    def kinds(events: Sequence[Event]) -> list[str]:
        return [type(event).__name__ for event in events]


@pytest.fixture
def lab() -> type[Lab]:
    """The helpers of this folder."""
    return Lab  # the class itself: all of it is static
