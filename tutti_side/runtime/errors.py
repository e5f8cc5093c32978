"""The names of the runtime's errors; each says whose fault it is and carries the ids."""

from tutti_side.contract import (
    EndReason,
    FailureReason,
    InteractionId,
    RequestId,
    SessionId,
    SideId,
    TurnId,
    without_key,
)
from tutti_side.errors import TuttiSideError

__all__ = [
    "HostStoppedError",
    "InteractionAlreadyAnsweredError",
    "InteractionError",
    "InteractionInvalidError",
    "InteractionNotLiveError",
    "OpenFailedError",
    "OperationUnsupportedError",
    "SessionBusyError",
    "SessionConflictError",
    "SessionExpiredError",
    "SessionUnknownError",
    "SideBusyError",
    "SideConflictError",
    "SideError",
    "SideExpiredError",
    "SideInProgressError",
    "SideNotFoundError",
    "SideUnsupportedError",
    "SubscriptionInUseError",
    "TurnCanceledError",
    "TurnFailedError",
]


class SideError(TuttiSideError):
    """Base of the errors about one Side.

    Attributes:
      side_id: which Side.
    """

    def __init__(self, message: str, side_id: SideId) -> None:
        super().__init__(message)
        self.side_id = side_id


class SideUnsupportedError(SideError):
    """The provider cannot attest a Side of this source, so none is offered.

    Attributes:
      reason: what is missing, and why.
    """

    def __init__(self, side_id: SideId, reason: str) -> None:
        super().__init__(f"a Side is not supported here: {reason}", side_id)
        self.reason = reason


class SideInProgressError(SideError):
    """The Side exists but cannot take this operation yet.

    Attributes:
      state: its lifecycle state, for example ``opening`` or ``draining``.
    """

    def __init__(self, side_id: SideId, state: str) -> None:
        super().__init__(f"side {side_id} is {state}; try again when that is over", side_id)
        self.state = state


class SideNotFoundError(SideError):
    """There is no such Side, and there was none that is remembered."""

    def __init__(self, side_id: SideId) -> None:
        super().__init__(f"there is no side {side_id}; open one", side_id)


class SideConflictError(SideError):
    """This side id belongs to something else.

    Attributes:
      source: the source that was asked for.
      request_id: the request that was made.
    """

    def __init__(self, side_id: SideId, source: SessionId, request_id: RequestId, problem: str) -> None:
        super().__init__(f"side {side_id} {problem}; use a fresh side id", side_id)
        self.source = source
        self.request_id = request_id


class SideExpiredError(SideError):
    """The Side is over and never comes back; open another one.

    Attributes:
      reason: closed, lost, overflow, source_deleted or host_stopped.
    """

    def __init__(self, side_id: SideId, reason: EndReason) -> None:
        super().__init__(f"side {side_id} is over ({reason}); open another one", side_id)
        self.reason = reason


class SideBusyError(SideError):
    """A turn of this Side is active; wait for it or cancel it."""

    def __init__(self, side_id: SideId) -> None:
        super().__init__(f"side {side_id} has an active turn; wait for it or cancel it", side_id)


class OpenFailedError(SideError):
    """The Side could not be opened; everything was rolled back, and the same id may be tried again.

    Attributes:
      phase: where it failed: source, provider or result.
    """

    def __init__(self, side_id: SideId, phase: str, problem: str) -> None:
        super().__init__(f"side {side_id} could not be opened ({phase}): {problem}", side_id)
        self.phase = phase


class SessionExpiredError(TuttiSideError):
    """The live canonical session is over.

    Attributes:
      session_id: which session.
      reason: closed, lost, overflow, source_deleted or host_stopped.
    """

    def __init__(self, session_id: SessionId, reason: EndReason) -> None:
        super().__init__(f"session {session_id} is over ({reason})")
        self.session_id = session_id
        self.reason = reason


class SessionConflictError(TuttiSideError):
    """This session id is taken.

    Attributes:
      session_id: which id.
    """

    def __init__(self, session_id: SessionId, problem: str) -> None:
        super().__init__(f"session id {session_id} {problem}")
        self.session_id = session_id


class SessionUnknownError(TuttiSideError):
    """There is no such session, here or kept.

    Attributes:
      session_id: which session.
    """

    def __init__(self, session_id: SessionId, problem: str) -> None:
        super().__init__(f"session {session_id} {problem}")
        self.session_id = session_id


class SessionBusyError(TuttiSideError):
    """A turn of this canonical session is active; wait for it or cancel it."""

    def __init__(self, session_id: SessionId) -> None:
        super().__init__(f"session {session_id} has an active turn; wait for it or cancel it")
        self.session_id = session_id


class TurnFailedError(TuttiSideError):
    """The turn failed.

    Attributes:
      turn_id: which turn.
      provider_message: the provider's own words. They can hold model text, so they are not in this error's message.
      reason: ``failed``, or ``terminal_event_missing``: it is over, but the provider never said how it ended.
    """

    def __init__(self, turn_id: TurnId, provider_message: str, reason: FailureReason = "failed") -> None:
        words = "`provider_message` has the provider's words"
        why = "the provider never said how it ended" if reason == "terminal_event_missing" else words
        super().__init__(f"turn {turn_id} failed; {why}")
        self.turn_id = turn_id
        self.provider_message = provider_message
        self.reason: FailureReason = reason


class TurnCanceledError(TuttiSideError):
    """The turn was interrupted before it could answer."""

    def __init__(self, turn_id: TurnId) -> None:
        super().__init__(f"turn {turn_id} was interrupted")
        self.turn_id = turn_id


class InteractionError(TuttiSideError):
    """Base of the errors about one interaction; nothing was sent to the provider.

    Attributes:
      interaction_id: which one.
    """

    def __init__(self, message: str, interaction_id: InteractionId) -> None:
        super().__init__(message)
        self.interaction_id = interaction_id


class InteractionInvalidError(InteractionError):
    """There is no such interaction here, or it does not take this answer; an open one stays open.

    Attributes:
      field: which part of the answer, or ``interaction_id``; see `tutti_side.contract.InvalidAnswerError`.
    """

    def __init__(self, interaction_id: InteractionId, field: str, problem: str) -> None:
        super().__init__(f"interaction {interaction_id}: {without_key(field)} {problem}", interaction_id)
        self.field = field


class InteractionNotLiveError(InteractionError):
    """Nobody waits for this answer any more: the turn ended, or the provider took it back."""

    def __init__(self, interaction_id: InteractionId) -> None:
        super().__init__(f"interaction {interaction_id} is over; nobody waits for an answer any more", interaction_id)


class InteractionAlreadyAnsweredError(InteractionError):
    """This interaction was answered; there is one answer."""

    def __init__(self, interaction_id: InteractionId) -> None:
        super().__init__(f"interaction {interaction_id} was answered already", interaction_id)


class OperationUnsupportedError(TuttiSideError):
    """The provider does not offer this operation; nothing was sent.

    Attributes:
      provider: its name.
      operation: ``steer`` or ``end_commands``.
    """

    def __init__(self, provider: str, operation: str) -> None:
        super().__init__(f"provider {provider} does not offer {operation}")
        self.provider = provider
        self.operation = operation


class SubscriptionInUseError(TuttiSideError):
    """Two tasks iterate one subscription; each needs its own."""

    def __init__(self) -> None:
        super().__init__("another task is waiting on this subscription; subscribe once for each task")


class HostStoppedError(TuttiSideError):
    """The host is stopping; nothing new is opened."""

    def __init__(self) -> None:
        super().__init__("the host is stopping; nothing new can be opened")
