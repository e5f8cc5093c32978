"""A user's content in the forms of the protocol."""

from typing import Any

import msgspec

from tutti_providers.codex._input import input_of
from tutti_side.contract import Content, ImageContent, MentionContent, SkillContent, TextContent


def wire(*content: Content) -> Any:
    return msgspec.json.decode(msgspec.json.encode(input_of(content)))


def test_every_block_takes_the_form_that_the_protocol_has_for_it() -> None:
    """Schema of 0.163, ``turn/start.input``; the binary is shown them in test_real_content."""
    assert wire(
        TextContent("look"),
        ImageContent(path="/a.png"),
        ImageContent(url="data:image/png;base64,AA=="),
        SkillContent("demo", "/s/SKILL.md"),
    ) == [
        {"type": "text", "text": "look"},
        {"type": "localImage", "path": "/a.png"},
        {"type": "image", "url": "data:image/png;base64,AA=="},
        {"type": "skill", "name": "demo", "path": "/s/SKILL.md"},
    ]


def test_a_mention_goes_along_as_text_since_the_model_sees_nothing_of_it_alone() -> None:
    """Measured on 0.163: a turn of one mention reached the model without any content."""
    assert wire(MentionContent("b.py", "/a/b.py")) == [
        {"type": "text", "text": "[b.py](/a/b.py)"},
        {"type": "mention", "name": "b.py", "path": "/a/b.py"},
    ]
