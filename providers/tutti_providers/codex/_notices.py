"""What the server says that names no thread → the contract's notices, counted by kind. Synchronous."""

from collections import Counter
from collections.abc import Callable

import msgspec

from tutti_providers.codex.schema.notifications import (
    ConfigWarning,
    DeprecationNotice,
    Head,
    McpServerStatusUpdated,
    Notification,
    RateLimits,
    RateLimitsUpdated,
    WarningNotification,
    decode_notification,
)
from tutti_side.contract import NOTICE_TEXT_MAX, Notice, NoticeKind, RateLimit
from tutti_side.jsonrpc import Message

__all__ = ["Notices", "notice_of"]

SUBJECT_MAX = 128
"""Characters of a method that we don't know."""


class Notices:
    """Takes a connection's messages without a thread.

    Args:
      send: told each notice; never raises.
      unread: counts what is malformed.
    """

    def __init__(self, send: Callable[[Notice], None], unread: Counter[str]) -> None:
        self.counts: Counter[NoticeKind] = Counter()
        self._send = send
        self._unread = unread

    def take(self, message: Message[Head]) -> None:
        """Tell what it says."""
        try:
            notification = decode_notification(message.method or "", message.line)
        except (msgspec.DecodeError, RecursionError):
            self._unread["malformed"] += 1
            return
        notice = notice_of(message.method or "", notification)
        self.counts[notice.kind] += 1
        self._send(notice)


def notice_of(method: str, notification: Notification | None) -> Notice:
    """Return the notice of a notification; None is one that we don't model, of which only its name is told."""
    subject = method[:SUBJECT_MAX]
    if isinstance(notification, WarningNotification):
        return _warning(subject, notification.message)
    if isinstance(notification, ConfigWarning):
        parts = (notification.details, notification.path)
        return _warning(subject, notification.summary, "\n".join(part for part in parts if part))
    if isinstance(notification, DeprecationNotice):
        return _warning(subject, notification.summary, notification.details or "")
    if isinstance(notification, McpServerStatusUpdated) and notification.status == "failed":
        return _warning(subject, f"the tool server {notification.name} did not start", notification.error or "")
    if isinstance(notification, RateLimitsUpdated):
        return Notice(kind="rate_limits", subject=subject, limits=_limits(notification.rate_limits))
    return Notice(kind="account" if method.startswith("account/") else "other", subject=subject)


def _warning(subject: str, message: str, detail: str = "") -> Notice:
    return Notice(kind="warning", subject=subject, message=message[:NOTICE_TEXT_MAX], detail=detail[:NOTICE_TEXT_MAX])


def _limits(limits: RateLimits) -> tuple[RateLimit, ...]:
    windows = (("primary", limits.primary), ("secondary", limits.secondary))
    return tuple(
        RateLimit(
            name=name,
            used_percent=window.used_percent,
            window_s=None if window.window_duration_mins is None else window.window_duration_mins * 60,
            resets_at_s=window.resets_at,
        )
        for name, window in windows
        if window is not None
    )
