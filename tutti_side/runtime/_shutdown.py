"""The end of a host: one deadline, and every shielded wait that it caps."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tutti_side.runtime.errors import HostStoppedError

__all__ = ["ABORT_WAIT_S", "HOST_STOP_S", "Shutdown"]

HOST_STOP_S = 10.0
"""One deadline for everything that closes when the host stops; it caps every shield."""

ABORT_WAIT_S = 5.0
"""So long is waited for the rollback of what was given up: by an opener that is cancelled, and by a close that aborted
an open."""


class Shutdown:
    """Whether the host is stopping, and until when."""

    def __init__(self) -> None:
        self.deadline = float("inf")
        self._shields: dict[trio.CancelScope, None] = {}  # a set would be walked in another order each run

    @property
    def has_begun(self) -> bool:
        """True from the stop on: nothing new is opened."""
        return self.deadline != float("inf")

    def require_running(self) -> None:
        """Raise `HostStoppedError` when the host is stopping."""
        if self.has_begun:
            raise HostStoppedError

    def begin(self) -> float:
        """Stop, and return the deadline; the first call sets it, for the waits that run already too."""
        if not self.has_begun:
            self.deadline = trio.current_time() + HOST_STOP_S
            for scope in self._shields:
                scope.deadline = min(scope.deadline, self.deadline)
        return self.deadline

    @contextmanager
    def bounded(self, bound_s: float, *, shield: bool = True) -> Iterator[trio.CancelScope]:
        """Shield the block, and end it at its own bound or the host's deadline, whichever is first.

        The host's stop caps it in both orders: also when it comes while the block runs.
        """
        deadline = min(trio.current_time() + bound_s, self.deadline)
        with trio.CancelScope(shield=shield, deadline=deadline) as scope:
            self._shields[scope] = None
            try:
                yield scope
            finally:
                del self._shields[scope]
