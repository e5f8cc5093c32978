"""What the fake app-server hands back to its shell: actions, in order; and the things that number them.

No clock: a "now" in milliseconds grows by one with each message, so that equal inputs give equal outputs.
"""

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["Action", "Exit", "Outbox", "SendBytes", "SendMessage", "StopsReading", "Wake"]

EPOCH_MS = 1_796_000_000_000
"""The fake's first instant."""


class SendMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Write this message as one line."""

    message: dict[str, Any]


class SendBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Write these bytes as they are."""

    data: bytes


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    """Call `wake(token)` after so long."""

    after_s: float
    token: int


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """End the process; nothing after it counts."""

    status: int


class StopsReading(msgspec.Struct, frozen=True, kw_only=True):
    """Read no more input."""

    for_s: float | None = None
    """For so long; None is for ever."""


Action = SendMessage | SendBytes | Wake | Exit | StopsReading


class Outbox:
    """Collects actions and continuations; ids and times are counters."""

    def __init__(self, id_space: int) -> None:
        self._actions: list[Action] = []
        self._timers: dict[int, Callable[[], None]] = {}
        self._gates: dict[str, list[Callable[[], None]]] = {}
        self._open_gates: set[str] = set()
        self._arrivals: dict[str, int] = {}
        self._id_space = id_space
        self._ids = 0
        self._wakes = 0
        self._now_ms = EPOCH_MS

    def take(self) -> list[Action]:
        """Hand out what has gathered."""
        actions, self._actions = self._actions, []
        return actions

    def put(self, action: Action) -> None:
        """Append an action."""
        self._actions.append(action)

    def send(self, message: dict[str, Any]) -> None:
        """Append a message."""
        self._actions.append(SendMessage(message=message))

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Append a notification, stamped as the real one stamps it."""
        self.send({"method": method, "params": params, "emittedAtMs": self.now_ms()})

    def now_ms(self) -> int:
        """The next instant."""
        self._now_ms += 1
        return self._now_ms

    def new_id(self) -> str:
        """A fresh id that looks like the real one's."""
        self._ids += 1
        return f"01a00000-{self._id_space % 0x10000:04x}-7000-8000-{self._ids:012x}"

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Continue after that time."""
        self._wakes += 1
        self._timers[self._wakes] = then
        self.put(Wake(after_s=seconds, token=self._wakes))

    def wake(self, token: int) -> None:
        """Continue what waited for the token; an unknown token does nothing."""
        then = self._timers.pop(token, None)
        if then is not None:
            then()

    def at_gate(self, name: str, then: Callable[[], None]) -> None:
        """Continue when the gate is open, at once if it is."""
        self._arrivals[name] = self._arrivals.get(name, 0) + 1
        if name in self._open_gates:
            then()
        else:
            self._gates.setdefault(name, []).append(then)

    def open_gate(self, name: str) -> None:
        """Open a gate for all who wait and all who come."""
        self._open_gates.add(name)
        for then in self._gates.pop(name, []):
            then()

    def arrivals(self, name: str) -> int:
        """How many came to the gate so far."""
        return self._arrivals.get(name, 0)
