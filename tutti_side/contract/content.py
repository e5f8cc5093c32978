"""What a user may put into a turn. Pure."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from tutti_side.contract.metadata import HOST_CONTEXT_BYTES_MAX
from tutti_side.errors import TuttiSideError

__all__ = ["CONTENT_BYTES_MAX", "Content", "InvalidContentError", "TextContent", "check_content", "check_instructions"]

CONTENT_BYTES_MAX = 8 << 20
"""Bound on the text of one turn, in UTF-8 bytes: far above a question, far below a frame of 64 MiB."""


class InvalidContentError(TuttiSideError):
    """Content that is refused before any provider sees it.

    Attributes:
      field: where it is, for example ``content[2].text``.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field


class TextContent(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text."""

    text: str


Content: TypeAlias = TextContent


def check_content(content: str | Sequence[Content]) -> tuple[Content, ...]:
    """Return the content as blocks.

    Raises:
      InvalidContentError: neither a text nor a list, nothing in it, a block of another type, a lone surrogate, or
        over `CONTENT_BYTES_MAX` bytes.
    """
    if not isinstance(content, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise InvalidContentError("content", f"is a {type(content).__name__}; give a text or a list of blocks")
    blocks = (TextContent(content),) if isinstance(content, str) else tuple(content)
    if not blocks:
        raise InvalidContentError("content", "is empty; give a text or at least one block")
    size_bytes = 0
    for index, block in enumerate(blocks):
        where = "content" if isinstance(content, str) else f"content[{index}]"
        if not isinstance(block, TextContent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidContentError(where, f"is a {type(block).__name__}; a block is a TextContent")
        if not isinstance(block.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidContentError(f"{where}.text", f"is a {type(block.text).__name__}, not a string")
        try:
            size_bytes += len(block.text.encode())
        except UnicodeEncodeError:
            raise InvalidContentError(f"{where}.text", "holds a lone surrogate, which is not text") from None
    if not any(block.text.strip() for block in blocks):
        raise InvalidContentError("content", "is blank; give some text")
    if size_bytes > CONTENT_BYTES_MAX:
        raise InvalidContentError("content", f"is {size_bytes} bytes of text; at most {CONTENT_BYTES_MAX}")
    return blocks


def check_instructions(field: str, text: str | None) -> None:
    """Raise `InvalidContentError` unless a host context or Side instructions may be sent with every turn."""
    if text is None:
        return
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise InvalidContentError(field, f"is a {type(text).__name__}, not a string")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidContentError(field, "holds a lone surrogate, which is not text") from None
    if size_bytes > HOST_CONTEXT_BYTES_MAX:
        raise InvalidContentError(field, f"is {size_bytes} bytes long; at most {HOST_CONTEXT_BYTES_MAX}")
