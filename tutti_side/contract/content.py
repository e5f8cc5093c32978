"""What a user may put into a turn, and the check that everything passes before any provider sees it. Pure.

Nothing is read or fetched here: a path is the provider's to read, and an image that is no file travels in the content
itself. So no address in a user's content makes this process, or a provider, reach out.
"""

import binascii
import os
import re
from collections.abc import Sequence
from typing import TypeAlias, cast

import msgspec

from tutti_side.contract.metadata import HOST_CONTEXT_BYTES_MAX
from tutti_side.errors import TuttiSideError

__all__ = [
    "CONTENT_BLOCKS_MAX",
    "CONTENT_BYTES_MAX",
    "IMAGE_BYTES_MAX",
    "Content",
    "ImageContent",
    "InvalidContentError",
    "MentionContent",
    "SkillContent",
    "TextContent",
    "check_content",
    "check_directory",
    "check_instructions",
]

CONTENT_BYTES_MAX = 8 << 20
"""Bound on the text of one turn, in UTF-8 bytes: far above a question, far below a frame of 64 MiB."""

IMAGE_BYTES_MAX = 32 << 20
"""Bound on the ``data:`` URLs of one turn together, in bytes; with the text, still below a frame of 64 MiB."""

CONTENT_BLOCKS_MAX = 1_024
"""Blocks of one turn."""

NAME_BYTES_MAX = 4_096
"""Bound on a name and on a path, in UTF-8 bytes: the longest path that Linux takes."""

IMAGE_TYPES = ("gif", "jpeg", "png", "webp")
"""Kinds of image that travel in a ``data:`` URL: ``data:image/png;base64,…``."""

_DATA_URL = re.compile(rf"data:image/(?:{'|'.join(IMAGE_TYPES)});base64,", re.IGNORECASE)
_LINK = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


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


class ImageContent(msgspec.Struct, frozen=True, kw_only=True, tag="image"):
    """An image: a file that the provider reads, or the image itself. Exactly one of the two."""

    path: str | None = None
    """Absolute. If the provider can't read it, the model is told so."""
    url: str | None = None
    """A ``data:`` URL with base64. Addresses on the network are refused: somebody would have to fetch them."""

    def __repr__(self) -> str:
        return f"ImageContent(path={self.path!r})" if self.url is None else "ImageContent(url=<data>)"


class MentionContent(msgspec.Struct, frozen=True, tag="mention"):
    """A file, folder or app that the user points to. The model is told its name and path, not what stands in it."""

    name: str
    """As it is shown."""
    path: str
    """Absolute, or the provider's link, such as ``app://…``."""


class SkillContent(msgspec.Struct, frozen=True, tag="skill"):
    """A skill that the user chooses: the provider gives its instructions to the model."""

    name: str
    path: str
    """Absolute path of its file. A skill that the provider does not know is left out by it."""


Content: TypeAlias = TextContent | ImageContent | MentionContent | SkillContent


def check_content(content: str | Sequence[Content]) -> tuple[Content, ...]:
    """Return the content as blocks.

    Raises:
      InvalidContentError: neither a text nor a list, nothing in it, a block of another type, a lone surrogate, an image
        that is neither a file nor a ``data:`` URL, a path that is not absolute, or over one of the bounds.
    """
    if not isinstance(content, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise InvalidContentError("content", f"is a {type(content).__name__}; give a text or a list of blocks")
    blocks = (TextContent(content),) if isinstance(content, str) else tuple(content)
    if not blocks:
        raise InvalidContentError("content", "is empty; give a text or at least one block")
    if len(blocks) > CONTENT_BLOCKS_MAX:
        raise InvalidContentError("content", f"is {len(blocks)} blocks; at most {CONTENT_BLOCKS_MAX}")
    text_bytes = image_bytes = 0
    for index, block in enumerate(blocks):
        where = "content" if isinstance(content, str) else f"content[{index}]"
        if isinstance(block, TextContent):
            text_bytes += _size_of(f"{where}.text", block.text)
        elif isinstance(block, ImageContent):
            image_bytes += _check_image(where, block)
        elif isinstance(block, MentionContent | SkillContent):  # pyright: ignore[reportUnnecessaryIsInstance]
            _check_named(where, block)
        else:
            raise InvalidContentError(where, f"is a {type(block).__name__}, which is no block of content")
    if all(isinstance(block, TextContent) and not block.text.strip() for block in blocks):
        raise InvalidContentError("content", "is blank; give some text")
    if text_bytes > CONTENT_BYTES_MAX:
        raise InvalidContentError("content", f"is {text_bytes} bytes of text; at most {CONTENT_BYTES_MAX}")
    if image_bytes > IMAGE_BYTES_MAX:
        raise InvalidContentError("content", f"is {image_bytes} bytes of images; at most {IMAGE_BYTES_MAX}")
    return blocks


def _size_of(field: str, text: object) -> int:
    """Return the length of a text in UTF-8 bytes, if it is one."""
    if not isinstance(text, str):
        raise InvalidContentError(field, f"is a {type(text).__name__}, not a string")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidContentError(field, "holds a lone surrogate, which is not text") from None


def _check_image(where: str, block: ImageContent) -> int:
    """Return how many bytes the image adds to the turn."""
    if (block.path is None) == (block.url is None):
        raise InvalidContentError(where, "takes either a path or a url")
    if block.url is None:
        _check_path(f"{where}.path", block.path)
        return 0
    field = f"{where}.url"
    size_bytes = _size_of(field, block.url)
    start = _DATA_URL.match(block.url)
    if start is None:
        kinds = ", ".join(IMAGE_TYPES)
        raise InvalidContentError(field, f"is no data URL of an image ({kinds}) in base64; nothing is fetched for it")
    if size_bytes <= IMAGE_BYTES_MAX:
        try:
            image = binascii.a2b_base64(block.url[start.end() :], strict_mode=True)
        except ValueError:
            raise InvalidContentError(field, "holds something that is not base64") from None
        if not image:
            raise InvalidContentError(field, "holds no image")
    return size_bytes


def _check_named(where: str, block: MentionContent | SkillContent) -> None:
    if _size_of(f"{where}.name", block.name) > NAME_BYTES_MAX:
        raise InvalidContentError(f"{where}.name", f"is over {NAME_BYTES_MAX} bytes long")
    if not block.name.strip() or not block.name.isprintable():
        raise InvalidContentError(f"{where}.name", "is blank, or more than one line of printable text")
    _check_path(f"{where}.path", block.path, may_be_link=isinstance(block, MentionContent))


def _check_path(field: str, path: object, *, may_be_link: bool = False) -> None:
    if _size_of(field, path) > NAME_BYTES_MAX:
        raise InvalidContentError(field, f"is over {NAME_BYTES_MAX} bytes long")
    assert isinstance(path, str)
    if "\0" in path or "\n" in path:
        raise InvalidContentError(field, "holds a NUL or a line break")
    if not os.path.isabs(path) and not (may_be_link and _LINK.match(path)):
        raise InvalidContentError(field, "is not absolute")


def check_directory(field: str, path: object) -> str:
    """Return the path of a directory, made absolute; it is not looked for on the disk.

    Raises:
      InvalidContentError: no path, blank (which would be this process' own directory), not text, or no path that a
        system takes.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise InvalidContentError(field, f"is a {type(path).__name__}, not a path")
    name = os.fsdecode(cast("str | bytes | os.PathLike[str]", path))
    if not name.strip():
        raise InvalidContentError(field, "is blank; give a directory")
    absolute = os.path.abspath(name)
    if _size_of(field, absolute) > NAME_BYTES_MAX:
        raise InvalidContentError(field, f"is over {NAME_BYTES_MAX} bytes long")
    if "\0" in absolute:
        raise InvalidContentError(field, "holds a NUL")
    return absolute


def check_instructions(field: str, text: str | None) -> None:
    """Raise `InvalidContentError` unless a host context or Side instructions may be sent with every turn."""
    if text is None:
        return
    size_bytes = _size_of(field, text)
    if size_bytes > HOST_CONTEXT_BYTES_MAX:
        raise InvalidContentError(field, f"is {size_bytes} bytes long; at most {HOST_CONTEXT_BYTES_MAX}")
