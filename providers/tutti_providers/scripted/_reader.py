"""Which cue of a script is next. Pure; one reader for each open adapter."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from tutti_providers.scripted.script import Closing, Opening, Script, Starting, Turn

__all__ = ["ScriptReader"]

Cue = TypeVar("Cue", Turn, Starting, Opening, Closing)


class ScriptReader:
    """Finds cues, and counts how often each was played."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._played: dict[tuple[type, int], int] = {}

    def turn(self, text: str, *, in_side: bool) -> Turn:
        """Return what is said to this text."""
        found = self._next(self.script.turns, text, lambda turn: turn.in_side in (None, in_side))
        return found or Turn(steps=self.script.fallback)

    def starting(self, session_id: str) -> Starting:
        """Return what happens when this session is started or resumed."""
        return self._next(self.script.starts, session_id) or Starting()

    def opening(self, side_id: str) -> Opening:
        """Return what happens when this Side is opened."""
        return self._next(self.script.opens, side_id) or Opening()

    def closing(self, scope_id: str) -> Closing:
        """Return what happens when this session or Side is closed."""
        return self._next(self.script.closes, scope_id) or Closing()

    def _next(self, cues: Sequence[Cue], key: str, fits: Callable[[Cue], bool] = lambda _: True) -> Cue | None:
        for index, cue in enumerate(cues):
            played = self._played.get((type(cue), index), 0)
            if fits(cue) and (cue.times is None or played < cue.times) and cue.matches(key):
                self._played[type(cue), index] = played + 1
                return cue
        return None
