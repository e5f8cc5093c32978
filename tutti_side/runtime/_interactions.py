"""The interactions of one scope: which are open, and how each ended. Pure.

An interaction is answered once. `find` returns an open one, `outcome` says what became of another; `answered` notes
that its answer went out; the adapter's own `InteractionResolved` ends one that had no answer of ours.
"""

from collections.abc import Sequence
from typing import Literal

from tutti_side.contract import Event, InteractionId, InteractionRequested, InteractionResolved

__all__ = ["ENDED_MAX", "OPEN_MAX", "InteractionTable"]

OPEN_MAX = 256
"""Interactions open at once in one scope. A provider with more is mad: the rest are shown, but can't be answered here,
and are the adapter's to decline."""

ENDED_MAX = 1_024
"""Ended interactions that are still known as such."""

Outcome = Literal["unknown", "answered", "superseded"]


class InteractionTable:
    """All interactions of one scope."""

    def __init__(self) -> None:
        self._open: dict[InteractionId, InteractionRequested] = {}
        self._ended: dict[InteractionId, Outcome] = {}

    @property
    def open(self) -> tuple[InteractionRequested, ...]:
        """What waits for an answer, oldest first."""
        return tuple(self._open.values())

    def find(self, interaction_id: InteractionId) -> InteractionRequested | None:
        """Return an open interaction; None when there is none under this id (`outcome` says why)."""
        return self._open.get(interaction_id)

    def outcome(self, interaction_id: InteractionId) -> Outcome:
        """Say what became of an interaction that is not open."""
        return self._ended.get(interaction_id, "unknown")

    def apply(self, events: Sequence[Event]) -> None:
        """Follow events in their order."""
        for event in events:
            if type(event) is InteractionRequested:
                if len(self._open) < OPEN_MAX and event.interaction_id not in self._ended:
                    self._open[event.interaction_id] = event
            elif type(event) is InteractionResolved and event.interaction_id in self._open:
                self._end(event.interaction_id, event.status)

    def answered(self, interaction_id: InteractionId) -> None:
        """Note that the one answer went out."""
        self._end(interaction_id, "answered")

    def superseded(self, interaction_id: InteractionId) -> None:
        """Note that the provider waits no longer."""
        self._end(interaction_id, "superseded")

    def lose(self) -> None:
        """The scope is over: nothing waits any more."""
        for interaction_id in tuple(self._open):
            self._end(interaction_id, "superseded")

    def _end(self, interaction_id: InteractionId, outcome: Outcome) -> None:
        self._open.pop(interaction_id, None)
        self._ended[interaction_id] = outcome
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
