"""What the sessions and Sides of a model say while they are open: events, turns, questions, and how they end.

A scope is one life of a session (``name#number``) or a Side (its name). Which of them there are, the model decides.
"""

import msgspec

__all__ = ["Scopes", "Turn"]


class Turn(msgspec.Struct, kw_only=True):
    """One that runs."""

    kind: str
    call: int
    """Which began it."""
    askers: list[int] = []
    """Calls that wait for its answer; one that is left interrupts it."""


class Scopes:
    """All that are or were open.

    Args:
      calls: takes the outcome of each call that has ended; the model's.
    """

    def __init__(self, calls: dict[int, str]) -> None:
        self.ends: dict[str, str] = {}
        """Scope → why it ended."""
        self.logs: dict[str, list[str]] = {}
        self.heard: dict[int, tuple[str, int]] = {}
        """Call → the scope that it listens to, and how much that had said before."""
        self.turns: dict[str, Turn] = {}
        self.interactions: dict[str, list[str]] = {}
        """Scope → open, answered or superseded, each in its turn."""
        self._calls = calls

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scopes) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def say(self, scope: str, *events: str) -> None:
        """Tell its subscribers."""
        self.logs.setdefault(scope, []).extend(events)

    def hear(self, call: int, scope: str) -> None:
        """Subscribe a call that returns a subscription, or a handle with one."""
        self.heard[call] = scope, len(self.logs.get(scope, ()))

    def end(self, scope: str, reason: str) -> None:
        """A session or open Side is over; what runs in it is interrupted, or lost with it."""
        self.ends[scope] = reason
        if reason == "lost":
            turn = self.turns.pop(scope, None)
            self._supersede(scope)
            kind = "Session" if "#" in scope else "Side"
            for call in [] if turn is None else turn.askers:
                self._calls[call] = f"{kind}ExpiredError lost"
        else:
            self._supersede(scope)
            self.end_turn(scope, "canceled")
        self.say(scope, "session.closed" if reason == "closed" else f"session.expired {reason}")

    # Turns

    def begin_turn(self, scope: str, kind: str, call: int, *, is_asked: bool) -> None:
        """Begin one, as its kind goes on: say and fail end at once; ask waits for an answer; hold and drop go on."""
        self.turns[scope] = Turn(kind=kind, call=call, askers=[call] if is_asked else [])
        if not is_asked:
            self._calls[call] = "ok"
        self.say(scope, "turn.started")
        if kind == "say":
            self.end_turn(scope, "completed", "said")
        elif kind == "fail":
            self.end_turn(scope, "failed")
        elif kind == "ask":
            self.interactions.setdefault(scope, []).append("open")
            self.say(scope, "interaction.requested")

    def end_turn(self, scope: str, how: str, text: str = "") -> None:
        """End the one that runs, if one does: completed, failed or canceled."""
        turn = self.turns.pop(scope, None)
        if turn is None:
            return
        if text:
            self.say(scope, f"message.delta {text}", f"message.updated {text}")
        self._supersede(scope)
        self.say(scope, f"turn.{how}")
        outcomes = {"completed": f"ok {text}", "failed": "TurnFailedError", "canceled": "TurnCanceledError"}
        for call in turn.askers:
            self._calls[call] = outcomes[how]

    def leave_turns(self, call: int) -> None:
        """A caller gives up: a turn whose answer it waits for is interrupted."""
        for scope, turn in list(self.turns.items()):
            if call in turn.askers:
                turn.askers.remove(call)
                self._supersede(scope)
                self.end_turn(scope, "canceled")

    # Questions

    def refusal(self, scope: str, number: int, answer: str) -> str:
        """Why an answer is refused, in the words of an error; empty when it is taken."""
        states = self.interactions.get(scope, [])
        state = states[number] if number < len(states) else "unknown"
        if state != "open":
            return {"answered": "InteractionAlreadyAnsweredError", "superseded": "InteractionNotLiveError"}.get(
                state, "InteractionInvalidError"
            )
        return "" if answer in ("accept", "decline") else "InteractionInvalidError"

    def answer(self, scope: str, number: int, answer: str) -> None:
        """Take an answer that is not refused; the turn that asked goes on to its end."""
        self.interactions[scope][number] = "answered"
        self.say(scope, "interaction.resolved answered")
        self.end_turn(scope, "completed", "done" if answer == "accept" else "left")

    def _supersede(self, scope: str) -> None:
        for number, state in enumerate(self.interactions.get(scope, ())):
            if state == "open":
                self.interactions[scope][number] = "superseded"
                self.say(scope, "interaction.resolved superseded")
