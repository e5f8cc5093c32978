"""The two kinds of struct on this wire: what we write, and what we read."""

import msgspec

__all__ = ["JsonObject", "Read", "Written"]

JsonObject = dict[str, object]
"""A JSON object that travels verbatim: what we don't model in it must survive the way back to the server."""


class Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that we send: camelCase on the wire, and what isn't set isn't sent.

    The server treats most absent fields as "keep" or "default"; a field whose explicit ``null`` means something else
    has `msgspec.UNSET` as its default.
    """


class Read(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that we receive: camelCase on the wire, unknown fields ignored, only what we use is named.

    Closed words (a status, a kind) are plain strings here, because a newer server may know more of them than we do.
    """
