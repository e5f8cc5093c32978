"""The front door: `open_host` nests what a host is made of, and `AgentHost` is what an application calls."""

import getpass
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from tutti_side.contract import CanonicalRef, Provider, SessionId, WorkspaceId, check_id, new_id
from tutti_side.host.errors import ProviderChoiceError
from tutti_side.runtime import ControllerStatistics, RuntimeController, SessionHandle, open_controller

__all__ = ["AgentHost", "HostIdentity", "open_host"]


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


class AgentHost:
    """Starts canonical sessions at its providers; made by `open_host`."""

    def __init__(self, identity: HostIdentity, providers: tuple[str, ...], controller: RuntimeController) -> None:
        self.identity = identity
        self.providers = providers
        self.controller = controller

    async def start_session(
        self,
        *,
        cwd: str | os.PathLike[str],
        provider: str | None = None,
        session_id: str | None = None,
        settings: object = None,
    ) -> SessionHandle:
        """Start a canonical session.

        Args:
          cwd: the directory that the agent works in; made absolute.
          provider: its name; may be left out when the host has one provider.
          session_id: its id; fresh by default.
          settings: the provider's own settings struct, for example `tutti_providers.codex.CodexSettings`.

        Raises:
          ProviderChoiceError: no such provider, or several and none named.
          InvalidIdError: the id.
          SessionExpiredError: the id was used before.
          TuttiSideError: the provider's own; nothing is left of the session.

        Cancellation: rolled back.
        """
        if provider is None:
            if len(self.providers) != 1:
                raise ProviderChoiceError("name a provider", self.providers)
            provider = self.providers[0]
        elif provider not in self.providers:
            raise ProviderChoiceError(f"there is no provider {provider!r}", self.providers)
        session = SessionId(check_id("session id", new_id() if session_id is None else session_id))
        ref = CanonicalRef(self.identity.workspace, session)
        return await self.controller.start_session(ref, provider, os.path.abspath(cwd), settings)  # noqa: ASYNC240 - no disk is touched

    def statistics(self) -> ControllerStatistics:
        """Return what lives in this host, and what it counted."""
        return self.controller.statistics()


@asynccontextmanager
async def open_host(*providers: Provider, identity: HostIdentity | None = None) -> AsyncIterator[AgentHost]:
    """Open a host over providers; at the end of the block everything in it is closed, Sides first.

    Args:
      providers: for example ``codex()``; each name once.
      identity: who works where; `HostIdentity.local` by default.

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
    names = tuple(provider.name for provider in providers)
    if not names or len(set(names)) != len(names):
        raise ProviderChoiceError("open_host takes at least one provider, each name once", names)
    async with AsyncExitStack() as stack:
        adapters = {provider.name: await stack.enter_async_context(provider.open()) for provider in providers}
        controller = await stack.enter_async_context(open_controller(adapters))
        yield AgentHost(identity, names, controller)
