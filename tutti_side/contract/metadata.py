"""What is kept of a canonical session so that a Side can be opened when no connection of ours holds it any more.

The port stands here because providers read what it returns; a host brings an implementation. Only canonical sessions
have metadata: nothing of a Side is ever kept.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from tutti_side.contract.ids import CanonicalRef

__all__ = ["HOST_CONTEXT_BYTES_MAX", "SourceMetadata", "SourceMetadataPort"]

HOST_CONTEXT_BYTES_MAX = 32 << 10
"""Bound on a host context, and on Side instructions, in UTF-8 bytes each: they are sent with every turn."""


class SourceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One session's persisted metadata."""

    provider: str
    provider_session_id: str
    cwd: str
    runtime: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """The provider's own facts, for example its home and version; for that provider only."""
    host_context: str | None = None
    """The host's latest context for the agent."""

    def __repr__(self) -> str:
        return f"SourceMetadata(provider={self.provider!r}, provider_session_id={self.provider_session_id!r})"


class SourceMetadataPort(Protocol):
    """Where metadata is kept."""

    async def read(self, ref: CanonicalRef) -> SourceMetadata | None:
        """Return what is kept of a session; None when nothing is.

        Cancellation: harmless.
        """
        ...

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        """Keep this, in place of what was kept.

        Cancellation: the old or the new one is kept, whole.
        """
        ...

    async def forget(self, ref: CanonicalRef) -> None:
        """Keep nothing of a session any more: its user deleted it. Idempotent.

        Cancellation: kept or forgotten.
        """
        ...
