"""The base of all events."""

import msgspec

__all__ = ["EventBase"]


class EventBase(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """Base of all events; without garbage-collector tracking, since none can hold a cycle."""
