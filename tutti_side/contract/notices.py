"""What a provider says that belongs to no session: warnings of its configuration, the account's allowances. Pure.

A provider puts them into a `NoticePort`; a host keeps the latest and tells its own port. None of them is an event:
there is no stream that they would be in, and a Side must not learn of others by them.
"""

from typing import Literal, Protocol

import msgspec

__all__ = ["NOTICE_TEXT_MAX", "NO_NOTICES", "Notice", "NoticeKind", "NoticePort", "RateLimit"]

NOTICE_TEXT_MAX = 16 << 10
"""Characters of one text of a notice; the rest is left out."""

NoticeKind = Literal["warning", "rate_limits", "account", "other"]
"""``warning``: a person should read it. ``rate_limits``: an allowance is used up so far. ``account``: who pays, or is
logged in, changed. ``other``: anything else; only its subject is known."""


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much of one allowance is used."""

    name: str
    """The provider's word for it, such as ``primary``."""
    used_percent: int
    window_s: int | None = None
    """How long a stretch of time it is for."""
    resets_at_s: int | None = None
    """Unix time at which it is whole again."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that a provider said of itself."""

    kind: NoticeKind
    subject: str
    """The provider's word for it, such as the name of its method."""
    message: str = ""
    """For a person; it can name paths of the user's configuration, so it does not belong into a log."""
    detail: str = ""
    limits: tuple[RateLimit, ...] = ()
    provider: str = ""
    """Set by the host: who said it."""


class NoticePort(Protocol):
    """Where a provider puts its notices."""

    def notice(self, notice: Notice) -> None:
        """Take one, in the provider's order. Synchronous and cheap, since it is called in the reader; never raises."""
        ...


class _Nowhere:
    """Nobody listens."""

    def notice(self, notice: Notice) -> None:
        del notice


NO_NOTICES = _Nowhere()
"""The one that everybody shares."""
