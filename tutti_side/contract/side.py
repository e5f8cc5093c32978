"""SideConversationAdapter: what a provider adds to offer Sides."""

from typing import Protocol, runtime_checkable

import msgspec

from tutti_side.contract.adapter import EventSink
from tutti_side.contract.capabilities import SideCapabilities
from tutti_side.contract.ids import CanonicalRef, SideRef
from tutti_side.contract.metadata import SourceMetadata

__all__ = ["SIDE_INSTRUCTIONS", "OpenSide", "SideBinding", "SideConversationAdapter"]

SIDE_INSTRUCTIONS = """\
You are in a side conversation: a temporary branch of the conversation above, opened by the user to ask something \
while the main work goes on elsewhere.
Answer the user's question from the context that you have. Do not continue, repeat or redo the task of the main \
conversation, and do not change files or run commands with side effects unless the user asks for it here.
Nothing said here reaches the main conversation, and the branch is discarded when the user closes it. Be brief."""
"""Side instructions when the caller gives none."""


class OpenSide(msgspec.Struct, frozen=True, kw_only=True):
    """Branch a source."""

    side: SideRef
    source: CanonicalRef
    instructions: str = SIDE_INSTRUCTIONS
    """Composed instructions: the source's latest host context, then the Side instructions."""
    history: SourceMetadata | None = None
    """None: a connection of ours holds the source live. Otherwise the persisted snapshot to branch, on a connection of
    the Side's own."""


class SideBinding(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider made."""

    provider_session_id: str
    source_provider_session_id: str
    """What the provider says it branched from; the controller holds it against the source it asked for."""
    capabilities: SideCapabilities
    """As seen in the result, not as promised."""


@runtime_checkable
class SideConversationAdapter(Protocol):
    """An `Adapter` that can branch a live context. Exec, cancel and close of a Side are the ordinary ones."""

    async def side_capabilities(self, source: CanonicalRef, history: SourceMetadata | None = None) -> SideCapabilities:
        """Attest what a Side of this source would be; no wire traffic that changes anything.

        `history` is None for a live source; for another it is what was kept of it, which is all that may be used.

        Cancellation: harmless.
        """
        ...

    async def open_side(self, request: OpenSide, sink: EventSink) -> SideBinding:
        """Create the provider-native ephemeral branch.

        Owns its failure: once it has raised or was cancelled, the sink receives nothing more for that identity, even
        when late events come, and any child that it created, or that appears later, is released.

        Raises:
          TuttiSideError: the adapter's own.

        Cancellation: returns at once; what the provider still owes is released by the provider's nursery.
        """
        ...

    async def wait_side_released(self, side: SideRef) -> None:
        """Wait until nothing of a failed or cancelled open is left at the provider. At once if nothing was.

        Also called when the controller refuses the identity that `open_side` returned: whatever the adapter holds under
        this ref is then released, by the ref and never by that identity.

        Cancellation: harmless; the release goes on.
        """
        ...
