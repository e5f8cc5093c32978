"""Showing text that somebody else wrote on a person's terminal. Pure."""

import re

__all__ = ["plain"]

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL)
"""What a terminal acts on instead of showing it: colours, titles, single escapes (ECMA-48)."""


def plain(text: str) -> str:
    """Return `text` on one line, without anything that a terminal would act on."""
    return "".join(c if c.isprintable() else " " for c in _SEQUENCE.sub("", text))
