"""What a user put into a turn → the input of ``turn/start``; the same for a session and a Side. Pure."""

from tutti_providers.codex.schema.requests import (
    ImageInput,
    LocalImageInput,
    MentionInput,
    SkillInput,
    TextInput,
    UserInput,
)
from tutti_side.contract import Content, ImageContent, SkillContent, TextContent

__all__ = ["input_of"]


def input_of(content: tuple[Content, ...]) -> tuple[UserInput, ...]:
    """Return the input in the protocol's own forms; the content was checked.

    Of a mention alone the model sees nothing (measured on 0.163: it is an instruction to the server, which looks the
    app up). So its link goes along as text.
    """
    parts: list[UserInput] = []
    for block in content:
        if isinstance(block, TextContent):
            parts.append(TextInput(text=block.text))
        elif isinstance(block, ImageContent):
            parts.append(_image(block))
        elif isinstance(block, SkillContent):
            parts.append(SkillInput(name=block.name, path=block.path))
        else:
            parts.append(TextInput(text=f"[{block.name}]({block.path})"))
            parts.append(MentionInput(name=block.name, path=block.path))
    return tuple(parts)


def _image(block: ImageContent) -> UserInput:
    if block.url is not None:
        return ImageInput(url=block.url)
    assert block.path is not None
    return LocalImageInput(path=block.path)
