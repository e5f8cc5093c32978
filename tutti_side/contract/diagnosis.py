"""What a provider says of itself when a person asks: what is installed, which version, what it attests and why not."""

import msgspec

from tutti_side.contract.capabilities import SideCapabilities

__all__ = ["Diagnosis", "Fact"]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found out, in the provider's own words."""

    name: str
    """Short, lower case: ``binary``, ``home``."""
    value: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a provider's ``diagnose()``. Finding nothing is an answer, not an error."""

    provider: str
    found: bool
    """The provider's runtime is there; nothing is said of its version yet."""
    facts: tuple[Fact, ...] = ()
    """In the order in which a person wants to read them."""
    version: str | None = None
    """As the runtime itself says; None when it could not be asked, or its answer could not be read."""
    supported: bool = False
    """This version is proven."""
    reason: str | None = None
    """Why it is not found, does not start or is not supported, and what to do; None when all is well."""
    capabilities: SideCapabilities = SideCapabilities()
    """What is attested for a Side; its `reason` says what is missing."""
    startup_output: tuple[str, ...] = ()
    """The last stderr lines of a runtime that did not start: for the person who asked, never for a log or a message."""

    def __repr__(self) -> str:
        return (
            f"Diagnosis(provider={self.provider!r}, found={self.found}, version={self.version!r}, "
            f"supported={self.supported}, startup_output=<{len(self.startup_output)} lines>)"
        )
