"""The front door: `open_host` nests what a host is made of, and `AgentHost` is what an application calls."""

import getpass
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol, runtime_checkable

import msgspec
import trio

from tutti_side.contract import (
    NO_METRICS,
    SIDE_INSTRUCTIONS,
    Adapter,
    CanonicalRef,
    CleanupRow,
    Content,
    InteractionAnswer,
    InteractionId,
    Metrics,
    Notice,
    NoticePort,
    Provider,
    ProviderPorts,
    RequestId,
    SessionId,
    SideCapabilities,
    SideId,
    SideRef,
    SourceMetadataPort,
    TurnMode,
    TurnNotActiveError,
    WorkspaceId,
    check_directory,
    check_id,
    new_id,
)
from tutti_side.host.errors import ProviderChoiceError
from tutti_side.host.notices import NoticeBoard
from tutti_side.runtime import (
    ActivityReporter,
    ControllerStatistics,
    DurableGate,
    MemoryMetadata,
    RuntimeController,
    SessionHandle,
    SideHandle,
    Subscription,
    Sweeper,
    TurnHandle,
    open_controller,
    open_sweeper,
)

__all__ = ["AgentHost", "HostIdentity", "HostStatistics", "open_host"]


class HostIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who works where: what every canonical row needs and no provider knows."""

    workspace: WorkspaceId
    device: str
    user: str

    @classmethod
    def local(cls) -> "HostIdentity":
        """Name this user on this machine, in the workspace ``local``."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # no passwd entry, as in some containers
            user = f"uid-{os.getuid()}"
        return cls(workspace=WorkspaceId("local"), device=socket.gethostname() or "local", user=user)


class HostStatistics(ControllerStatistics, frozen=True, kw_only=True):
    """What lives in a host now, and what it counted: its controller's statistics, and its own."""

    cleanup: tuple[CleanupRow, ...]
    """What would not close and is being retried."""
    forced_cleanups: int
    refused_durable_writes: int
    failed_notices: int
    """Notices whose listener raised."""
    providers: Mapping[str, object]
    """Each provider's own statistics, where it has any."""


class AgentHost:
    """Starts canonical sessions, and opens, sends, cancels, answers and closes Sides; made by `open_host`.

    Sessions and Sides can be used through the handles that this returns, or by id through the ``*_side`` operations,
    as a service does. Each of those checks scope, source and request again.
    """

    def __init__(
        self,
        identity: HostIdentity,
        adapters: Mapping[str, Adapter],
        controller: RuntimeController,
        durable: DurableGate,
        sweeper: Sweeper,
        notices: NoticeBoard,
    ) -> None:
        self.identity = identity
        self.providers = tuple(adapters)
        self.controller = controller
        self._adapters = adapters
        self._durable = durable
        self._sweeper = sweeper
        self._notices = notices

    async def start_session(
        self,
        *,
        cwd: str | os.PathLike[str],
        provider: str | None = None,
        session_id: str | None = None,
        settings: object = None,
        host_context: str | None = None,
    ) -> SessionHandle:
        """Start a canonical session.

        Args:
          cwd: the directory that the agent works in; made absolute.
          provider: its name; may be left out when the host has one provider.
          session_id: its id; fresh by default.
          settings: the provider's own settings struct, for example `tutti_providers.codex.CodexSettings`.
          host_context: what the host has to tell the agent; see `SessionHandle.set_host_context`.

        Raises:
          ProviderChoiceError: no such provider, or several and none named.
          InvalidIdError, InvalidContentError: the id, the directory, the host context.
          SessionConflictError: the id is a live session's, or a Side's.
          SessionExpiredError: the id was used before.
          HostStoppedError: the host is stopping.
          TuttiSideError: the provider's own; nothing is left of the session.

        Cancellation: rolled back.
        """
        if provider is None:
            if len(self.providers) != 1:
                raise ProviderChoiceError("name a provider", self.providers)
            provider = self.providers[0]
        elif provider not in self.providers:
            raise ProviderChoiceError(f"there is no provider {provider!r}", self.providers)
        ref = self._session_ref(new_id() if session_id is None else session_id)
        path = check_directory("cwd", cwd)
        return await self.controller.start_session(ref, provider, path, settings, host_context)

    async def resume_session(self, session_id: str, *, settings: object = None) -> SessionHandle:
        """Load a canonical session that its provider has persisted; see `RuntimeController.resume_session`.

        Cancellation: rolled back.
        """
        return await self.controller.resume_session(self._session_ref(session_id), settings)

    async def delete_session(self, session_id: str) -> None:
        """Close a session for good; its Sides close with it, reason ``source_deleted``. Idempotent.

        Cancellation: the closes go on.
        """
        await self.controller.delete_session(self._session_ref(session_id))

    # Sides by id

    async def resolve_side(self, source_id: str) -> SideCapabilities:
        """Say whether a Side of this session, live or kept, can be opened, and what is missing if not.

        Raises:
          InvalidIdError: the id.

        Cancellation: harmless.
        """
        return await self.controller.side_capabilities(self._session_ref(source_id))

    async def open_side(
        self,
        source_id: str,
        side_id: str,
        request_id: str,
        *,
        instructions: str = SIDE_INSTRUCTIONS,
        subscribe: bool = False,
    ) -> SideHandle:
        """Open a Side, join its open, or return it; see `RuntimeController.open_side` for errors and cancellation."""
        return await self.controller.open_side(
            self._side_ref(side_id),
            self._session_ref(source_id),
            RequestId(check_id("request id", request_id)),
            instructions=instructions,
            subscribe=subscribe,
        )

    async def send_side(
        self,
        source_id: str,
        side_id: str,
        request_id: str,
        content: str | Sequence[Content],
        *,
        client_submit_id: str | None = None,
        mode: TurnMode | None = None,
    ) -> TurnHandle:
        """Start a turn of an open Side; see `SideHandle.send` for errors and cancellation.

        Raises:
          SideNotFoundError: there is no such Side.
          SideConflictError: it belongs to another source or request.
        """
        side = self._find(source_id, side_id, request_id)
        return await side.send(content, client_submit_id=client_submit_id, mode=mode)

    async def cancel_side(self, source_id: str, side_id: str, request_id: str, turn_id: str) -> None:
        """Interrupt exactly this turn of a Side, or nothing.

        Raises:
          TurnNotActiveError: another turn, or none, is active.
          SideNotFoundError, SideInProgressError, SideConflictError, SideExpiredError: as for `send_side`.
          TuttiSideError: the provider's own, for example that it did not answer in time.

        Cancellation: may have been sent.
        """
        side = self._find(source_id, side_id, request_id)
        check_id("turn id", turn_id)
        turn = side.active_turn
        if turn is None or turn.id != turn_id:
            await trio.lowlevel.checkpoint()
            raise TurnNotActiveError(turn_id)
        await turn.cancel()

    async def respond_side(
        self, source_id: str, side_id: str, request_id: str, interaction_id: str, answer: InteractionAnswer
    ) -> None:
        """Answer what a Side's provider asks, once; see `SideHandle.respond` for errors.

        Cancellation: before the answer, or not at all: the answer itself is one step.
        """
        await trio.lowlevel.checkpoint()
        side = self._find(source_id, side_id, request_id)
        side.respond(InteractionId(check_id("interaction id", interaction_id)), answer)

    async def close_side(self, source_id: str, side_id: str, request_id: str) -> None:
        """Close a Side, in whatever state it is; one that is over or unknown is closed already. Idempotent.

        Raises:
          SideConflictError: it belongs to another source or request.

        Cancellation: the close goes on in the Side's own task.
        """
        ref, source = self._side_ref(side_id), self._session_ref(source_id)
        request = RequestId(check_id("request id", request_id))
        self.controller.registry.require_same(ref, source, request)
        await self.controller.close_side(ref)

    def side_events(self, source_id: str, side_id: str, request_id: str) -> Subscription:
        """Return a subscription to an open Side's events from now on; otherwise as `send_side`."""
        return self._find(source_id, side_id, request_id).events()

    def notices(self) -> tuple[Notice, ...]:
        """Return the latest things that providers said and that belong to no session, oldest first.

        At most `tutti_side.host.NOTICES_KEPT_MAX`. To hear of them as they come, give `open_host` a `NoticePort`.
        """
        return self._notices.kept

    def statistics(self) -> HostStatistics:
        """Return what lives in this host, and what it counted."""
        return HostStatistics(
            **msgspec.structs.asdict(self.controller.statistics()),
            cleanup=(*self._sweeper.rows(), *self._provider_rows()),
            forced_cleanups=self._sweeper.forced,
            refused_durable_writes=self._durable.refused,
            failed_notices=self._notices.failures,
            providers={
                name: adapter.statistics() for name, adapter in self._adapters.items() if isinstance(adapter, _Counted)
            },
        )

    def _provider_rows(self) -> list[CleanupRow]:
        """What the providers retry themselves: a child still subscribed is its connection's own business."""
        cleaning = [adapter for adapter in self._adapters.values() if isinstance(adapter, _Cleaning)]
        return [row for adapter in cleaning for row in adapter.cleanup_rows()]

    def _session_ref(self, session_id: str) -> CanonicalRef:
        return CanonicalRef(self.identity.workspace, SessionId(check_id("session id", session_id)))

    def _side_ref(self, side_id: str) -> SideRef:
        return SideRef(self.identity.workspace, SideId(check_id("side id", side_id)))

    def _find(self, source_id: str, side_id: str, request_id: str) -> SideHandle:
        ref, source = self._side_ref(side_id), self._session_ref(source_id)
        self.controller.registry.require_same(ref, source, RequestId(check_id("request id", request_id)))
        return self.controller.find_side(ref)


@runtime_checkable
class _Cleaning(Protocol):
    """An adapter that retries some of its cleanups itself."""

    def cleanup_rows(self) -> tuple[CleanupRow, ...]:
        """Return them."""
        ...


@runtime_checkable
class _Counted(Protocol):
    """An adapter with statistics of its own."""

    def statistics(self) -> object:
        """Return them."""
        ...


class _ProviderMetrics:
    """What a provider counts, under its name."""

    def __init__(self, metrics: Metrics, provider: str) -> None:
        self._metrics = metrics
        self._provider = provider

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        self._metrics.count(name, value, **{"provider": self._provider, **labels})

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self._metrics.observe(name, seconds, **{"provider": self._provider, **labels})

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self._metrics.gauge(name, value, **{"provider": self._provider, **labels})


@asynccontextmanager
async def open_host(
    *providers: Provider,
    identity: HostIdentity | None = None,
    metadata: SourceMetadataPort | None = None,
    reporter: ActivityReporter | None = None,
    metrics: Metrics = NO_METRICS,
    notices: NoticePort | None = None,
) -> AsyncIterator[AgentHost]:
    """Open a host over providers; at the end of the block everything in it is closed, Sides first.

    Args:
      providers: for example ``codex()``; each name once.
      identity: who works where; `HostIdentity.local` by default.
      metadata: where sessions' metadata are kept, for example `JsonFileMetadata`; in memory by default.
      reporter: takes canonical activity; none by default.
      metrics: takes counts and durations, for example `tutti_side.host.PrometheusMetrics`; none by default. What a
        provider counts carries the label ``provider``.
      notices: told what providers say that belongs to no session, such as a warning of their configuration; the latest
        can be read from `AgentHost.notices` as well.

    Raises:
      ProviderChoiceError: a name twice, or no provider.
      InvalidIdError: a part of the identity.
      the block's own exception, as itself.

    Cancellation: everything is closed, by force after `tutti_side.runtime.HOST_STOP_S`; no process and no task is left.

    Source: architecture §2: nested context managers; a stop unwinds them from the inside.
    """
    identity = HostIdentity.local() if identity is None else identity
    for field in identity.__struct_fields__:
        check_id(f"identity.{field}", getattr(identity, field))
    for provider in providers:
        if not isinstance(getattr(provider, "name", None), str):
            what = getattr(provider, "__name__", type(provider).__name__)
            raise ProviderChoiceError(f"{what} is no provider; give what a factory returns, such as codex()", ())
    names = tuple(provider.name for provider in providers)
    if not names or len(set(names)) != len(names):
        raise ProviderChoiceError("open_host takes at least one provider, each name once", names)
    board = NoticeBoard(notices)
    durable = DurableGate(reporter, metadata or MemoryMetadata(), metrics)
    async with AsyncExitStack() as stack:
        sweeper = await stack.enter_async_context(open_sweeper(metrics))
        adapters: dict[str, Adapter] = {}
        for provider in providers:
            ports = ProviderPorts(
                metrics=_ProviderMetrics(metrics, provider.name), cleanup=sweeper, notices=board.of(provider.name)
            )
            adapters[provider.name] = await stack.enter_async_context(provider.open(ports))
        controller = await stack.enter_async_context(open_controller(adapters, durable=durable, metrics=metrics))
        yield AgentHost(identity, adapters, controller, durable, sweeper, board)
