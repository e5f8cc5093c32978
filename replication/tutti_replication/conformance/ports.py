"""What an implementation adds to its port so that the suites can run it: start over, put in, look at.

Source: activity replication specification ("two interfaces that match the direction of data flow").
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from tutti_replication.keys import EntityKey
from tutti_replication.ports import ProjectionBuilder, Sink
from tutti_replication.structs import Scope, Snapshot

__all__ = ["CanonicalEntity", "ConformanceBuilder", "ConformanceSink", "OpenSink", "StoredEntity"]


class StoredEntity(msgspec.Struct, frozen=True):
    """What a projection shows of one entity.

    Attributes:
      snapshot: the newest applied; of a session with the greater of its own and the observed message version and time;
        of a turn with the anchor that was ever asserted.
      scope: the one that came with that snapshot.
    """

    snapshot: Snapshot
    scope: Scope


class ConformanceSink(Sink, Protocol):
    """A sink that can be emptied and looked into."""

    def reset(self) -> None:
        """Empty the projection, its ledger and its tombstones. Cursors may start anew."""
        ...

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        """Return what a reader sees of an entity.

        Returns:
          None when it was never applied, is deleted, or belongs to a deleted session.
        """
        ...


OpenSink = Callable[[], ConformanceSink]
"""Opens another handle on *the same* projection each time it is called: a second writer, or the one after a restart.

A handle with a ``close`` method is closed by the runner when it is done with it."""


class CanonicalEntity(msgspec.Struct, frozen=True, kw_only=True):
    """One row of canonical state that a builder is seeded with; its key is in its snapshot."""

    workspace_id: str
    source_device_id: str
    snapshot: Snapshot
    scope: Scope


class ConformanceBuilder(ProjectionBuilder, Protocol):
    """A projection builder that can be emptied and seeded."""

    def reset(self) -> None:
        """Forget canonical state, and everything that waits to be sent."""
        ...

    def seed(self, entities: Sequence[CanonicalEntity]) -> None:
        """Store these entities as if they had just changed, in one transaction."""
        ...
