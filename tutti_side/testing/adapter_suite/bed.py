"""What a provider's author brings to the kit: a provider whose agent says known things, and a few ways to upset it.

The agent is told by the user's text what to do; the texts here are the whole vocabulary. What a case can provoke by
itself, a capability that is not attested, an identity that is not the adapter's, events that come too late, the kit
does between runtime and adapter; a bed is asked only for what nobody but the provider can do.
"""

from pathlib import Path
from typing import Protocol

from tutti_side.contract import Provider

__all__ = ["ASK", "FAIL", "HELD_TEXTS", "HOLD", "QUERY", "SAID", "SAY", "AdapterBed"]

SAY = "kit, say it"
"""The turn says `SAID`, and completes. The text may stand in front of others; no other text here contains it."""

SAID = "this was said"
"""The whole of the one message of a `SAY` turn."""

HOLD = "kit, hold it"
"""The turn says the first of `HELD_TEXTS`, waits until `AdapterBed.let_go`, says the second, and completes."""

HELD_TEXTS = ("held here ", "and let go")
"""What a `HOLD` turn says; joined they are its one message."""

FAIL = "kit, fail it"
"""The turn begins, and fails."""

ASK = "kit, ask it"
"""The turn asks its user for an approval (options ``accept`` and ``decline`` among others), and waits. Answered with
either, it says `SAID` and completes. A provider that never asks needs no such turn: see `AdapterSuite.interactive`."""

QUERY = "kit, query it"
"""The turn asks its user something of kind ``question``, and waits. Answered, it says `SAID` and completes."""


class AdapterBed(Protocol):
    """A provider, and what stands behind it, for one case. Made anew for each: nothing is left of the one before.

    It is still open when the kit looks for what the closed provider left: its own threads, processes and system tasks
    are there before the provider is opened, or end with it. The tasks of its nurseries are its own matter.
    """

    @property
    def provider(self) -> Provider:
        """The provider; it may be opened by two hosts at once."""
        ...

    @property
    def workspace(self) -> Path:
        """The directory that sessions work in."""
        ...

    @property
    def settings(self) -> object:
        """Settings of a session, or None."""
        ...

    # Turns

    async def wait_held(self, times: int = 1) -> None:
        """Wait until so many `HOLD` turns, of sessions and Sides together, have come to where they wait.

        Cancellation: harmless.
        """
        ...

    def let_go(self) -> None:
        """Let every `HOLD` turn go on, also those that come later."""
        ...

    def told_model(self) -> str:
        """Return all that the model was given for the newest turn, as text in any form: its context and its user's."""
        ...

    # What the provider holds

    def kept(self) -> str:
        """Return everything that the provider has written to keep it, as text in any form."""
        ...

    def loaded(self) -> int:
        """Return how many sessions and Sides the provider holds for us now, in all open adapters together."""
        ...

    # Trouble

    def refuse_opens(self, *, refused: bool = True) -> None:
        """Let the provider refuse every branch from now on, or no longer."""
        ...

    def hold_opens(self) -> None:
        """From now on the provider makes a branch when it is asked to, and its answer stays on the way.

        What it says of the child behind its answer stays on the way as well; everything else arrives.
        """
        ...

    async def wait_open_held(self) -> None:
        """Wait until an answer is being held. Cancellation: harmless."""
        ...

    def release_opens(self) -> None:
        """Let what is held arrive, in its order, and hold nothing any more."""
        ...

    def drop(self) -> None:
        """Kill the provider: its processes or connections are gone at once. The next session gets new ones."""
        ...
