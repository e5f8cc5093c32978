"""What a provider may add for a turn that runs: more input, and an end for the commands that it leaves behind."""

from typing import Literal, Protocol, runtime_checkable

from tutti_side.contract.content import Content
from tutti_side.contract.ids import ScopeRef, TurnId

__all__ = ["CommandAdapter", "SteeringAdapter", "TurnMode"]

TurnMode = Literal["default", "plan"]
"""How an agent goes about a turn. ``plan``: it looks, asks its user, and proposes, instead of changing anything."""


@runtime_checkable
class SteeringAdapter(Protocol):
    """An `Adapter` that takes more input for a turn while it runs."""

    async def steer(self, ref: ScopeRef, turn_id: TurnId, content: tuple[Content, ...]) -> None:
        """Give that turn more input, or nothing. Returns when the provider has taken it.

        The agent reads it when it next turns to its model, in the same turn. What it was just saying may break off.

        Raises:
          TurnNotActiveError: another turn, or none, is active; no turn has the input.
          ProviderLostError: the connection is gone.
          TuttiSideError: the provider refused, or did not answer; only then the turn may have it.

        Cancellation: may have been sent.
        """
        ...


@runtime_checkable
class CommandAdapter(Protocol):
    """An `Adapter` whose agent runs shell commands that can outlive their turn."""

    async def end_commands(self, ref: ScopeRef) -> None:
        """End the commands that a session or Side left running. Idempotent; a close does it as well.

        Raises:
          ProviderLostError: the connection is gone, and the commands with it.
          TuttiSideError: the provider refused, or did not answer.

        Cancellation: may have been sent.
        """
        ...
