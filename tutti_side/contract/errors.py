"""What an adapter raises, beside errors of its own under `TuttiSideError`."""

from tutti_side.errors import TuttiSideError

__all__ = [
    "InvalidSettingsError",
    "ProviderLostError",
    "ProviderProtocolError",
    "TurnActiveError",
    "TurnMergedError",
    "TurnNotActiveError",
]


class ProviderProtocolError(TuttiSideError):
    """The provider answered something that its own protocol does not allow.

    Attributes:
      operation: what was asked.
      problem: what was wrong with the answer; never its content.
    """

    def __init__(self, operation: str, problem: str) -> None:
        super().__init__(f"the provider's answer to {operation} is not usable: {problem}")
        self.operation = operation
        self.problem = problem


class ProviderLostError(TuttiSideError):
    """The provider's process or connection is gone; what it held is lost with it.

    Attributes:
      exit_status: of its process, as `subprocess` gives it; None when unknown.
    """

    def __init__(self, exit_status: int | None = None) -> None:
        known = "" if exit_status is None else f" (exit status {exit_status})"
        super().__init__(f"the provider's process or connection is gone{known}")
        self.exit_status = exit_status


class InvalidSettingsError(TuttiSideError):
    """Settings that this provider does not take.

    Attributes:
      field: which one.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field


class TurnNotActiveError(TuttiSideError):
    """The turn that was to be canceled, or given more input, is not the active one; nothing was done to another."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn {turn_id} is not active")
        self.turn_id = turn_id


class TurnActiveError(TuttiSideError):
    """A turn is active, starting, or not yet known to have ended; another one would be merged into it."""

    def __init__(self) -> None:
        super().__init__("a turn is active; wait for it or cancel it first")


class TurnMergedError(TuttiSideError):
    """The provider put a new turn's input into a turn that was over for us, instead of starting one.

    Nothing of it is told: that turn had its end. It is being interrupted; what was sent may stand in the history.

    Attributes:
      turn_id: the turn that took the input.
    """

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"the provider put the input into turn {turn_id}, which was over; it is being interrupted")
        self.turn_id = turn_id
