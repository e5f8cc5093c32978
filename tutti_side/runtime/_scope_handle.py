"""What a session's handle and a Side's have in common: to send and ask, to answer what is asked, to end commands."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from tutti_side.contract import (
    CommandAdapter,
    Content,
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    InteractiveAdapter,
    InvalidAnswerError,
    ProviderLostError,
    TurnActiveError,
    TurnId,
    TurnMode,
    check_answer,
    check_content,
    check_id,
)
from tutti_side.runtime._log import log
from tutti_side.runtime.errors import (
    InteractionAlreadyAnsweredError,
    InteractionInvalidError,
    InteractionNotLiveError,
    OperationUnsupportedError,
    TurnCanceledError,
    TurnFailedError,
)
from tutti_side.runtime.turn_handle import Answer, TurnHandle

if TYPE_CHECKING:
    from tutti_side.runtime._session_scope import SessionScope
    from tutti_side.runtime._side_scope import SideScope
    from tutti_side.runtime.controller import RuntimeController

__all__ = ["CANCEL_BOUND_S", "ScopeHandle"]

CANCEL_BOUND_S = 5.0
"""A caller that is cancelled while it asks waits so long for its turn to be interrupted."""


class ScopeHandle:
    """What sessions and Sides have in common: turns and events."""

    controller: "RuntimeController"

    @property
    def scope(self) -> "SideScope | SessionScope":
        """What this handle stands for."""
        raise NotImplementedError

    def expired(self) -> Exception:
        """Return the error for what comes too late."""
        return self.scope.expired()

    def _busy(self) -> Exception:
        raise NotImplementedError

    def _check_submit(self, client_submit_id: str | None) -> None:
        if client_submit_id is not None:
            check_id("client_submit_id", client_submit_id)

    def _host_context(self) -> str | None:
        return None

    def _claim_submit(self, client_submit_id: str | None) -> None:
        """Take the id of a submit that is about to be made."""

    def _note_submit(self, turn_id: TurnId, client_submit_id: str | None) -> None:
        """A Side's submit is nowhere noted: the id correlates its events, nothing more."""

    async def send(
        self, content: str | Sequence[Content], *, client_submit_id: str | None = None, mode: TurnMode | None = None
    ) -> TurnHandle:
        """Start a turn and return its handle.

        Args:
          content: a text, or content blocks.
          client_submit_id: correlates, nothing more.
          mode: for this turn alone, for example ``plan``; by default the session's own, for a Side its source's.

        Raises:
          InvalidContentError, InvalidIdError: the content, the `client_submit_id`; before anything is sent.
          SideConflictError: a canonical submit has the `client_submit_id` that a Side's was given.
          SideBusyError, SessionBusyError: a turn is active.
          SideInProgressError, SideExpiredError, SessionExpiredError: not open.
          TurnMergedError: the provider put it into a turn that was over, which is being interrupted.
          TuttiSideError: the provider's refusal.

        Cancellation: not sent, or interrupted as soon as the provider names the turn.
        """
        blocks = check_content(content)
        self.scope.require_open()
        self._check_submit(client_submit_id)
        turns = self.scope.events.turns
        if not turns.begin():
            raise self._busy()
        try:
            self._claim_submit(client_submit_id)
            request = ExecTurn(
                content=blocks, client_submit_id=client_submit_id, host_context=self._host_context(), mode=mode
            )
            turn_id = await self.scope.adapter.exec(self.scope.ref, request)
            if self.scope.events.ended is not None:
                raise self.expired()
            self._note_submit(turn_id, client_submit_id)
            return TurnHandle(self.scope, turns.bind(turn_id))
        except TurnActiveError as error:
            raise self._busy() from error
        except ProviderLostError as error:
            raise self.expired() from error
        finally:
            turns.end_start()

    async def ask(
        self, content: str | Sequence[Content], *, client_submit_id: str | None = None, mode: TurnMode | None = None
    ) -> Answer:
        """Send, wait for the end, and return the answer.

        A turn in which the provider asks its user something goes on when that is answered (`interactions`, `respond`),
        or declined by a close; until then this waits.

        Raises:
          what `send` raises;
          TurnFailedError: the turn failed.
          TurnCanceledError: somebody interrupted it.
          SideExpiredError, SessionExpiredError: the Side or session ended first.

        Cancellation: the turn is interrupted and its end awaited, for `CANCEL_BOUND_S` at most; then the next may be
        asked at once.
        """
        turn = await self.send(content, client_submit_id=client_submit_id, mode=mode)
        try:
            result = await turn.wait()
        except trio.Cancelled:
            with self.controller.shutdown.bounded(CANCEL_BOUND_S):
                try:
                    await turn.cancel()  # noqa: ASYNC102 - `bounded` shields
                    await turn._record.settled.wait()  # noqa: ASYNC102 - as above; a provider takes it before the end
                except Exception as error:  # the Cancelled is what the caller is told
                    log(logging.WARNING, "a turn was not interrupted", self.scope.ref, phase="cancel", error=error)
            raise
        if result.status == "failed":
            raise TurnFailedError(turn.id, result.provider_message, result.reason or "failed")
        if result.status == "canceled":
            raise TurnCanceledError(turn.id)
        return result.answer

    async def end_commands(self) -> None:
        """End the shell commands that turns left running: an interrupt ends a turn, but not its commands. Idempotent.

        A close does it as well.

        Raises:
          SideExpiredError, SessionExpiredError: the Side or session is over, and its commands with it.
          OperationUnsupportedError: the provider has no such commands.
          TuttiSideError: the provider's own.

        Cancellation: may have been sent.
        """
        self.scope.require_open()
        adapter = self.scope.adapter
        if not isinstance(adapter, CommandAdapter):
            raise OperationUnsupportedError(adapter.name, "end_commands")
        try:
            await adapter.end_commands(self.scope.ref)
        except ProviderLostError as error:
            raise self.expired() from error

    @property
    def interactions(self) -> tuple[InteractionRequested, ...]:
        """What the provider asks now and nobody has answered, oldest first."""
        return self.scope.events.interactions.open

    def respond(self, interaction_id: InteractionId, answer: InteractionAnswer) -> None:
        """Answer an interaction, once. Synchronous: of two answers at once the second finds the first.

        Raises:
          InteractionInvalidError: unknown here, or it does not take this answer; an open one stays open.
          InteractionAlreadyAnsweredError: it was answered.
          InteractionNotLiveError: nobody waits any more.
          SideExpiredError, SessionExpiredError: the Side or session is over.
        """
        self.scope.require_open()
        table = self.scope.events.interactions
        if table.find(interaction_id) is None:
            outcome = table.outcome(interaction_id)
            if outcome == "answered":
                raise InteractionAlreadyAnsweredError(interaction_id)
            if outcome == "superseded":
                raise InteractionNotLiveError(interaction_id)
            raise InteractionInvalidError(interaction_id, "interaction_id", "is unknown here")
        adapter = self.scope.adapter
        if not isinstance(adapter, InteractiveAdapter):
            raise InteractionInvalidError(interaction_id, "provider", "takes no answers")
        try:
            sent = adapter.respond(self.scope.ref, interaction_id, check_answer(answer))
        except InvalidAnswerError as error:
            raise InteractionInvalidError(interaction_id, error.field, error.problem) from error
        except ProviderLostError as error:
            raise self.expired() from error
        if not sent:
            table.superseded(interaction_id)
            raise InteractionNotLiveError(interaction_id)
        table.answered(interaction_id)

    @property
    def active_turn(self) -> TurnHandle | None:
        """The turn that runs now, if any."""
        record = self.scope.events.turns.active
        return None if record is None else TurnHandle(self.scope, record)
