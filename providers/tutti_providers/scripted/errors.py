"""What the scripted provider raises; all of it because the script, or the caller, said so."""

from tutti_side.errors import TuttiSideError

__all__ = [
    "ConnectionNotClosedError",
    "InvalidScriptError",
    "ScriptedError",
    "ScriptedFailureError",
    "SessionHeldError",
    "SessionNotKeptError",
]


class ScriptedError(TuttiSideError):
    """Base of this provider's errors."""


class InvalidScriptError(ScriptedError):
    """A script that cannot be played.

    Attributes:
      field: which part, for example ``Wait.seconds``.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field


class ScriptedFailureError(ScriptedError):
    """The script says that this operation fails.

    Attributes:
      operation: start, resume, open_side or exec.
      provider_message: the script's words; not in the message, as a real provider's would not be.
    """

    def __init__(self, operation: str, provider_message: str) -> None:
        super().__init__(f"the script lets {operation} fail; `provider_message` has its words")
        self.operation = operation
        self.provider_message = provider_message


class SessionNotKeptError(ScriptedError):
    """No session under this provider session id was ever started here; start one."""

    def __init__(self, provider_session_id: str) -> None:
        super().__init__(f"the scripted provider keeps no session {provider_session_id}")
        self.provider_session_id = provider_session_id


class SessionHeldError(ScriptedError):
    """Somebody else holds this session live: a session has one writer. Close it there first."""

    def __init__(self, provider_session_id: str) -> None:
        super().__init__(f"session {provider_session_id} already has a live writer")
        self.provider_session_id = provider_session_id


class ConnectionNotClosedError(ScriptedError):
    """A Side's own connection would not close; told to the host's sweeper, which tries again.

    Attributes:
      attempts: how often it was tried so far.
    """

    def __init__(self, attempts: int) -> None:
        super().__init__(f"the connection would not close (attempt {attempts})")
        self.attempts = attempts
