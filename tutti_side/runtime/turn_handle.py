"""What a user holds of one turn: what was said, how it ended; to interrupt it, and to give it more input."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import trio

from tutti_side.contract import (
    Content,
    FailureReason,
    ProviderLostError,
    SteeringAdapter,
    TurnId,
    TurnNotActiveError,
    check_content,
)
from tutti_side.runtime._turns import TurnRecord, TurnStatus
from tutti_side.runtime.errors import OperationUnsupportedError

if TYPE_CHECKING:
    from tutti_side.runtime._session_scope import SessionScope
    from tutti_side.runtime._side_scope import SideScope

__all__ = ["Answer", "TurnHandle", "TurnResult"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent said in one turn."""

    text: str
    """Its last message: what it concludes with."""
    messages: tuple[str, ...]
    """All its messages, in order; of a turn beyond all measure (64 Mi characters) the newest."""
    turn_id: TurnId


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended."""

    status: TurnStatus
    """completed, failed or canceled."""
    answer: Answer
    """What was said, also when the turn did not complete."""
    provider_message: str
    """The provider's words about a failure; empty otherwise."""
    reason: FailureReason | None = None
    """Why it failed: ``terminal_event_missing`` when nobody can say how it ended; None when it did not fail."""


class TurnHandle:
    """One turn of a session or Side."""

    def __init__(self, scope: "SideScope | SessionScope", record: TurnRecord) -> None:
        self._scope = scope
        self._record = record

    @property
    def id(self) -> TurnId:
        """The provider's id of the turn."""
        return self._record.turn_id

    @property
    def is_active(self) -> bool:
        """True until the turn's end is known."""
        return self._record.status == "active"

    @property
    def answer(self) -> Answer:
        """What was said so far."""
        messages = self._record.messages()
        return Answer(text=messages[-1] if messages else "", messages=messages, turn_id=self._record.turn_id)

    async def wait(self) -> TurnResult:
        """Wait for the turn's end.

        Raises:
          SideExpiredError, SessionExpiredError: the Side or session ended first.

        Cancellation: the turn goes on.
        """
        await self._record.settled.wait()
        if self._record.status == "lost":
            raise self._scope.expired()
        record = self._record
        return TurnResult(
            status=record.status, answer=self.answer, provider_message=record.failure, reason=record.reason
        )

    async def cancel(self) -> None:
        """Interrupt this turn, or nothing; returns when the provider has taken the request. Idempotent.

        Raises:
          SideExpiredError, SessionExpiredError: the Side or session is over.
          TuttiSideError: the provider's own, for example that it did not answer in time.

        Cancellation: may have been sent.
        """
        if not self.is_active:
            await trio.lowlevel.checkpoint()
            return
        try:
            await self._scope.adapter.cancel(self._scope.ref, self.id)
        except TurnNotActiveError:
            return  # it ended by itself meanwhile; its terminal event says how
        except ProviderLostError as error:
            raise self._scope.expired() from error

    async def steer(self, content: str | Sequence[Content]) -> None:
        """Give this turn more input while it runs; returns when the provider has taken it.

        The agent reads it when it next turns to its model, in the same turn, and answers there. What it was just saying
        may break off.

        Args:
          content: a text, or content blocks.

        Raises:
          InvalidContentError: the content; before anything is sent.
          TurnNotActiveError: this turn is over, or not the active one; no turn has the input.
          SideExpiredError, SessionExpiredError: the Side or session is over.
          OperationUnsupportedError: the provider takes no input while a turn runs.
          TuttiSideError: the provider's own; when it did not answer in time, the turn may have the input.

        Cancellation: may have been sent.
        """
        blocks = check_content(content)
        self._scope.require_open()
        if not self.is_active:
            await trio.lowlevel.checkpoint()
            raise TurnNotActiveError(self.id)
        adapter = self._scope.adapter
        if not isinstance(adapter, SteeringAdapter):
            raise OperationUnsupportedError(adapter.name, "steer")
        try:
            await adapter.steer(self._scope.ref, self.id, blocks)
        except ProviderLostError as error:
            raise self._scope.expired() from error
