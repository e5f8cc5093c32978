"""The latest notices of a host's providers, and the one who listens."""

from collections import deque

import msgspec

from tutti_side.contract import Notice, NoticePort

__all__ = ["NOTICES_KEPT_MAX", "NoticeBoard"]

NOTICES_KEPT_MAX = 64
"""Notices that can still be read when nobody listened; the oldest goes first. Allowances come after each answer of a
model, so of those only the newest of a provider stays."""


class NoticeBoard:
    """Keeps and passes on.

    Args:
      listener: told each notice as it comes; what it raises is counted, since it was called in a provider's reader.
    """

    def __init__(self, listener: NoticePort | None) -> None:
        self.failures = 0
        self._listener = listener
        self._kept: deque[Notice] = deque(maxlen=NOTICES_KEPT_MAX)

    @property
    def kept(self) -> tuple[Notice, ...]:
        """The latest, oldest first."""
        return tuple(self._kept)

    def of(self, provider: str) -> NoticePort:
        """Return where one provider puts its notices."""
        return _Named(self, provider)

    def take(self, notice: Notice) -> None:
        """Keep a notice and tell the listener."""
        if notice.kind == "rate_limits":
            older = [kept for kept in self._kept if (kept.provider, kept.kind) == (notice.provider, notice.kind)]
            for kept in older:
                self._kept.remove(kept)
        self._kept.append(notice)
        if self._listener is None:
            return
        try:
            self._listener.notice(notice)
        except Exception:  # the reader that we are in belongs to every session of the provider
            self.failures += 1


class _Named:
    """A provider's part of the board."""

    def __init__(self, board: NoticeBoard, provider: str) -> None:
        self._board = board
        self._provider = provider

    def notice(self, notice: Notice) -> None:
        self._board.take(msgspec.structs.replace(notice, provider=self._provider))
