"""Which versions of Codex are proven, and what each of them does. Pure.

A version counts as supported only when it stands in `PROVEN`, letter by letter: an old one silently writes a durable
file for an ephemeral fork, and a newer one may have changed anything. Pre-releases and development builds are versions
of their own.

To add one: install its binary, run the tests marked ``codex`` against it (``CODEX_BIN`` names it) until all pass, write
down its facts, and pin the wheel in ``pyproject.toml`` if it is to be the one that is shipped.
"""

import re
from collections.abc import Mapping

import msgspec

from tutti_side.contract.capabilities import SideCapabilities

__all__ = ["PROVEN", "Attestation", "VersionFacts", "attest"]

_VERSION = re.compile(r"(\d{1,6}\.\d{1,6}\.\d{1,6}(?:[A-Za-z.+-][0-9A-Za-z.+-]{0,63})?) \(", re.ASCII)
"""What follows our client name and a slash in a user agent: ``0.163.0 (Debian 12.0.0; x86_64) …``.

Bounded, and no character in it that a terminal would act on, because what it reads is shown.
"""


class VersionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one proven version does, as far as it attests a Side."""

    forks_while_active: bool
    """``thread/fork`` works while a turn of the source runs, its first one included."""
    ephemeral_fork: bool
    """``ephemeral`` forks write no session file."""
    excludes_turns: bool
    """``excludeTurns`` keeps inherited turns out of the answer."""
    injects_items: bool
    """``thread/inject_items`` exists: instructions and boundary reach the model."""


PROVEN: Mapping[str, VersionFacts] = {
    "0.163.0": VersionFacts(
        forks_while_active=True,
        ephemeral_fork=True,
        excludes_turns=True,
        injects_items=True,
    ),
}
"""Version → facts: the whole list of what is supported."""


class Attestation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the version of a running app-server."""

    version: str | None
    """As it says itself; None when it could not be read."""
    facts: VersionFacts | None = None
    """None: not supported."""
    reason: str | None = None
    """Why it is not supported; None when it is."""

    @property
    def supported(self) -> bool:
        """Whether this very version is proven."""
        return self.facts is not None

    def capabilities(self) -> SideCapabilities:
        """Return what this version attests for a Side, before anything of the source is looked at."""
        if self.facts is None:
            return SideCapabilities.unsupported(self.reason or "unknown version")
        return SideCapabilities(
            supported=True,
            active_source_turn=self.facts.forks_while_active,
            ephemeral=self.facts.ephemeral_fork,
            hide_inherited_turns=self.facts.excludes_turns,
            model_boundary_injected=self.facts.injects_items,
        )


def attest(user_agent: str, client_name: str) -> Attestation:
    """Return what is known of the server that calls itself `user_agent` to the client `client_name`.

    The user agent begins with the client's own name, which may itself hold digits and slashes, so the version is looked
    for right behind exactly that name and nowhere else. Total: no text raises.

    Source: the binary's answers to ``initialize``, versions 0.100 to 0.171.
    """
    head = f"{client_name}/"
    if not user_agent.startswith(head):
        return Attestation(
            version=None, reason="its user agent does not begin with our client name, so we can't tell its version"
        )
    match = _VERSION.match(user_agent, len(head))
    if match is None:
        return Attestation(version=None, reason="its user agent names no version that we can read")
    version = match.group(1)
    facts = PROVEN.get(version)
    if facts is not None:
        return Attestation(version=version, facts=facts)
    kind = "is a pre-release or development build of Codex" if _is_unreleased(version) else "of Codex is not proven"
    return Attestation(version=version, reason=f"version {version} {kind}; proven: {', '.join(PROVEN)}")


def _is_unreleased(version: str) -> bool:
    return version == "0.0.0" or re.fullmatch(r"\d+\.\d+\.\d+", version) is None
