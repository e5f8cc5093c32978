"""The scripted provider as a user names it, and what a test holds of it in its hand."""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio

from tutti_providers.scripted._gates import Gates
from tutti_providers.scripted._transcript import KeptSessions, Message
from tutti_providers.scripted.adapter import Call, ScriptedAdapter, open_adapter
from tutti_providers.scripted.script import Script
from tutti_side.contract import Diagnosis, ProviderPorts

__all__ = ["CALLS_MAX", "ScriptedProvider", "scripted"]

CALLS_MAX = 1_024
"""So many of the newest calls are remembered."""


class ScriptedProvider:
    """A scripted provider, not yet open; made by `scripted`. Implements `tutti_side.contract.Provider`.

    It may be opened by several hosts, one after the other or at once: they share its kept sessions and its gates, and
    each plays the script from the beginning.

    Attributes:
      name: within a host.
      script: what it plays.
      calls: what reached its adapters, oldest first; the newest `CALLS_MAX`.
    """

    def __init__(self, script: Script, name: str) -> None:
        self.name = name
        self.script = script
        self.calls: deque[Call] = deque(maxlen=CALLS_MAX)
        self._gates = Gates()
        self._kept = KeptSessions()
        self._adapters: list[ScriptedAdapter] = []

    @asynccontextmanager
    async def open(self, ports: ProviderPorts | None = None) -> AsyncIterator[ScriptedAdapter]:
        """Open an adapter; without ports nothing is counted, and what will not close is killed at once.

        Cancellation: everything it holds is dropped.
        """
        note = self.calls.append
        ports = ports or ProviderPorts()
        async with open_adapter(self.name, self.script, self._gates, self._kept, note, ports) as adapter:
            self._adapters.append(adapter)
            try:
                yield adapter
            finally:
                self._adapters.remove(adapter)

    async def diagnose(self) -> Diagnosis:
        """Say that it is there; it always is."""
        await trio.lowlevel.checkpoint()
        return Diagnosis(
            provider=self.name, found=True, version="1", supported=True, capabilities=self.script.capabilities
        )

    # What a test or program holds in its hand

    @property
    def adapters(self) -> tuple[ScriptedAdapter, ...]:
        """The adapters that are open now, in the order in which they were opened."""
        return tuple(self._adapters)

    @property
    def persisted(self) -> Mapping[str, tuple[Message, ...]]:
        """What is kept, by provider session id: canonical sessions only, never a Side."""
        return {kept: self._kept.read(kept).messages() for kept in self._kept.ids}

    @property
    def held(self) -> frozenset[str]:
        """Which kept sessions are live somewhere, by provider session id."""
        return self._kept.held

    def gate(self, name: str) -> trio.Event:
        """Return the gate that ``Wait(gate=name)`` waits at: ``provider.gate("rest").set()``."""
        return self._gates.gate(name)

    async def wait_reached(self, name: str, times: int = 1) -> None:
        """Wait until a script came to a gate so often, whether or not it was let through.

        Cancellation: harmless.
        """
        await self._gates.wait_reached(name, times)

    def drop(self) -> None:
        """Lose every connection at once, as when the provider's processes are killed."""
        for adapter in self._adapters:
            adapter.drop()


def scripted(script: Script | None = None, *, name: str = "scripted") -> ScriptedProvider:
    """Name a provider that plays a script.

    Args:
      script: what it does; by default it answers ``You said: …`` to everything.
      name: within a host; for a host with several of them.
    """
    return ScriptedProvider(Script() if script is None else script, name)
