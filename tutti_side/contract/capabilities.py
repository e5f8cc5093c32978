"""The five facts a provider must attest before a Side is offered. Pure."""

import msgspec

__all__ = ["SideCapabilities"]


class SideCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider attests for one source, before an open and again in its result.

    A fact that is not attested is absent: the default of each is False, and a Side needs all five.

    Source: specification, Standard provider contract; architecture §4.4, R15.
    """

    supported: bool = False
    """This runtime, in this version, can branch this source at all."""
    active_source_turn: bool = False
    """It *can* branch while a turn of the source runs (whether or not one does)."""
    ephemeral: bool = False
    """The branch leaves nothing durable behind."""
    hide_inherited_turns: bool = False
    """The turns inherited from the source are not returned as the Side's own."""
    model_boundary_injected: bool = False
    """The model is told where the inherited context ends."""
    reason: str | None = None
    """Why something is missing, for a person; None when nothing is."""

    @classmethod
    def unsupported(cls, reason: str) -> "SideCapabilities":
        """Attest nothing, and say why."""
        return cls(reason=reason)

    def missing(self) -> tuple[str, ...]:
        """Return the names of the facts that are not attested, in the contract's order."""
        facts = ("supported", "active_source_turn", "ephemeral", "hide_inherited_turns", "model_boundary_injected")
        return tuple(name for name in facts if not getattr(self, name))

    def __bool__(self) -> bool:
        """True when a Side may be offered."""
        return not self.missing()
