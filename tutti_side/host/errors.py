"""Errors of the host's front door."""

from collections.abc import Sequence

from tutti_side.errors import TuttiSideError

__all__ = ["MissingExtraError", "ProviderChoiceError"]


class ProviderChoiceError(TuttiSideError):
    """It is not clear which provider is meant.

    Attributes:
      known: the names that this host has.
    """

    def __init__(self, problem: str, known: Sequence[str]) -> None:
        super().__init__(f"{problem}; this host has {', '.join(known) or 'none'}")
        self.known = tuple(known)


class MissingExtraError(TuttiSideError):
    """A part of this distribution needs something that is not installed.

    Attributes:
      extra: the extra that brings it.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: pip install 'tutti-side[{extra}]'")
        self.extra = extra
