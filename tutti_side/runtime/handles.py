"""What a user holds: a session, a Side, a turn, an answer."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from tutti_side.contract import (
    SIDE_INSTRUCTIONS,
    CanonicalRef,
    CommandAdapter,
    Content,
    EndReason,
    ExecTurn,
    FailureReason,
    InteractionAnswer,
    InteractionId,
    InteractionRequested,
    InteractiveAdapter,
    InvalidAnswerError,
    ProviderLostError,
    RequestId,
    SideCapabilities,
    SideId,
    SideRef,
    SteeringAdapter,
    TurnActiveError,
    TurnId,
    TurnMode,
    TurnNotActiveError,
    check_answer,
    check_content,
    check_id,
    new_id,
)
from tutti_side.runtime._log import log
from tutti_side.runtime._turns import TurnRecord, TurnStatus
from tutti_side.runtime.errors import (
    InteractionAlreadyAnsweredError,
    InteractionInvalidError,
    InteractionNotLiveError,
    OperationUnsupportedError,
    SessionBusyError,
    SideBusyError,
    TurnCanceledError,
    TurnFailedError,
)
from tutti_side.runtime.event_hub import Subscription

if TYPE_CHECKING:
    from tutti_side.runtime._session_scope import SessionScope
    from tutti_side.runtime._side_scope import SideScope
    from tutti_side.runtime.controller import RuntimeController

__all__ = ["Answer", "SessionHandle", "SideHandle", "TurnHandle", "TurnResult"]

CANCEL_BOUND_S = 5.0
"""A caller that is cancelled while it asks waits so long for its turn to be interrupted."""


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

    def __init__(self, owner: "_ScopeHandle", record: TurnRecord) -> None:
        self._owner = owner
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
            raise self._owner.expired()
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
            await self._owner.scope.adapter.cancel(self._owner.scope.ref, self.id)
        except TurnNotActiveError:
            return  # it ended by itself meanwhile; its terminal event says how
        except ProviderLostError as error:
            raise self._owner.expired() from error

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
        self._owner._require_open()
        if not self.is_active:
            await trio.lowlevel.checkpoint()
            raise TurnNotActiveError(self.id)
        adapter = self._owner.scope.adapter
        if not isinstance(adapter, SteeringAdapter):
            raise OperationUnsupportedError(adapter.name, "steer")
        try:
            await adapter.steer(self._owner.scope.ref, self.id, blocks)
        except ProviderLostError as error:
            raise self._owner.expired() from error


class _ScopeHandle:
    """What sessions and Sides have in common: turns and events."""

    controller: "RuntimeController"

    @property
    def scope(self) -> "SideScope | SessionScope":
        """What this handle stands for."""
        raise NotImplementedError

    def expired(self) -> Exception:
        """Return the error for what comes too late."""
        return self.scope.expired()

    def _require_open(self) -> None:
        raise NotImplementedError

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
        self._require_open()
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
            return TurnHandle(self, turns.bind(turn_id))
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
        self._require_open()
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
        self._require_open()
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
        return None if record is None else TurnHandle(self, record)


class SideHandle(_ScopeHandle):
    """A Side: ask it, close it. Several handles may stand for one Side."""

    def __init__(
        self, controller: "RuntimeController", scope: "SideScope", subscription: Subscription | None = None
    ) -> None:
        self.controller = controller
        self._scope = scope
        self._subscription = subscription

    @property
    def scope(self) -> "SideScope":
        """What this handle stands for."""
        return self._scope

    def __repr__(self) -> str:
        return f"<SideHandle {self.id} {self.scope.lifecycle.state}>"

    @property
    def id(self) -> SideId:
        """Its id."""
        return self.scope.ref.side

    @property
    def is_open(self) -> bool:
        """True while it takes questions."""
        return self.scope.lifecycle.state == "open" and self.scope.events.ended is None

    def events(self) -> Subscription:
        """Return a subscription to its events.

        The first call returns the one attached at the commit (sequence 1), if the open asked for it; any other starts
        at now.

        Raises:
          SideExpiredError: it is over.
        """
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            self._require_open()
            subscription = self.scope.events.hub.new_subscription()
            self.scope.events.hub.attach(subscription)
        return subscription

    async def close(self) -> None:
        """Close the Side; its source never notices. Idempotent.

        Cancellation: the close goes on in the Side's own task.
        """
        if self._subscription is not None:
            self._subscription.close()
        self.scope.request_close()
        await self.scope.gone.wait()

    def _require_open(self) -> None:
        if not self.is_open:
            raise self.expired()

    def _busy(self) -> Exception:
        return SideBusyError(self.id)

    def _check_submit(self, client_submit_id: str | None) -> None:
        super()._check_submit(client_submit_id)
        self.controller.require_own_submit(self.scope, client_submit_id)


class SessionHandle(_ScopeHandle):
    """A live canonical session."""

    def __init__(self, controller: "RuntimeController", scope: "SessionScope") -> None:
        self.controller = controller
        self._scope = scope

    @property
    def scope(self) -> "SessionScope":
        """What this handle stands for."""
        return self._scope

    def __repr__(self) -> str:
        return f"<SessionHandle {self.ref.session} {self.scope.state}>"

    @property
    def ref(self) -> CanonicalRef:
        """Its identity."""
        return self.scope.ref

    @property
    def provider_session_id(self) -> str:
        """What the provider calls it."""
        return self.scope.provider_session_id

    def events(self) -> Subscription:
        """Return a subscription to its events from now on.

        Raises:
          SessionExpiredError: it is over.
        """
        self._require_open()
        subscription = self.scope.events.hub.new_subscription()
        self.scope.events.hub.attach(subscription)
        return subscription

    async def set_host_context(self, host_context: str | None) -> None:
        """Keep the host's latest context for the agent: the session's next turns and every later Side get it.

        Raises:
          InvalidContentError: over 32 KiB, or not text.
          SessionExpiredError: the session is over.

        Cancellation: the old or the new one is kept, and used.
        """
        await self.controller.set_host_context(self.scope, host_context)

    async def side_capabilities(self) -> SideCapabilities:
        """Say whether a Side can be opened now, and what is missing if not. Cancellation: harmless."""
        return await self.controller.side_capabilities(self.ref)

    async def open_side(
        self,
        *,
        side_id: str | None = None,
        request_id: str | None = None,
        instructions: str = SIDE_INSTRUCTIONS,
        subscribe: bool = False,
    ) -> SideHandle:
        """Open a Side that lives until it is closed; see `RuntimeController.open_side`.

        Cancellation: before the commit rolled back, after it the handle is returned.
        """
        side = SideRef(self.ref.workspace, SideId(new_id() if side_id is None else side_id))
        request = RequestId(new_id() if request_id is None else request_id)
        return await self.controller.open_side(side, self.ref, request, instructions=instructions, subscribe=subscribe)

    @asynccontextmanager
    async def side(
        self,
        *,
        side_id: str | None = None,
        request_id: str | None = None,
        instructions: str = SIDE_INSTRUCTIONS,
        subscribe: bool = False,
    ) -> AsyncIterator[SideHandle]:
        """Open a Side for the block, and close it at its end, however it ends.

        The block's own exception leaves as itself.

        Cancellation: the Side is closed, waiting as long as a close may take at most.
        """
        side = await self.open_side(
            side_id=side_id, request_id=request_id, instructions=instructions, subscribe=subscribe
        )
        try:
            yield side
        finally:
            side.scope.request_close()
            # The Side's own task closes it within its bound; this only waits for it.
            with self.controller.shutdown.bounded(CLOSE_WAIT_S):
                await side.close()  # noqa: ASYNC102 - `bounded` shields

    async def close(self) -> None:
        """Close the session; its Sides live on. Idempotent.

        Cancellation: still open, or the provider's nursery finishes the close.
        """
        await self.controller.close_session(self.scope)

    async def wait_ended(self) -> EndReason:
        """Wait until the session is over, and return why.

        Cancellation: harmless.
        """
        await self.scope.ended.wait()
        return self.scope.events.ended or "closed"

    def _require_open(self) -> None:
        if self.scope.state != "open" or self.scope.events.ended is not None:
            raise self.expired()

    def _busy(self) -> Exception:
        return SessionBusyError(self.ref.session)

    def _claim_submit(self, client_submit_id: str | None) -> None:
        self.controller.registry.claim_submit(self.ref, client_submit_id)

    def _host_context(self) -> str | None:
        return self.scope.host_context

    def _note_submit(self, turn_id: TurnId, client_submit_id: str | None) -> None:
        self.controller.durable.submitted(self.ref, turn_id, client_submit_id)


CLOSE_WAIT_S = 20.0
"""Longer than a Side's own close may take, so that it is the Side that gives up first."""
