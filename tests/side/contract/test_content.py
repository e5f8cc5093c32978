"""What may be said in a turn."""

import base64

import pytest

from tutti_side.contract import (
    CONTENT_BLOCKS_MAX,
    CONTENT_BYTES_MAX,
    IMAGE_BYTES_MAX,
    Content,
    ImageContent,
    InvalidContentError,
    MentionContent,
    SkillContent,
    TextContent,
    check_content,
)

DATA = "data:image/png;base64," + base64.b64encode(b"no picture, but bytes").decode()
BIG = "data:image/png;base64," + "A" * (IMAGE_BYTES_MAX // 2)
EACH: list[Content] = [
    TextContent("look"),
    ImageContent(path="/a/b.png"),
    ImageContent(url=DATA),
    MentionContent("b.py", "/a/b.py"),
    MentionContent("docs", "app://docs"),
    SkillContent("demo", "/skills/demo/SKILL.md"),
]


def test_a_text_is_one_block() -> None:
    """Our choice."""
    assert check_content("hi") == (TextContent("hi"),)
    assert check_content([TextContent("a"), TextContent("b")]) == (TextContent("a"), TextContent("b"))


def test_every_kind_of_block_passes_unchanged_and_in_its_order() -> None:
    """Our choice: the check judges and changes nothing."""
    assert check_content(EACH) == tuple(EACH)


@pytest.mark.parametrize("block", EACH[1:], ids=repr)
def test_a_turn_without_any_text_is_no_blank_one_when_it_holds_something_else(block: Content) -> None:
    """Our choice: an image may speak for itself."""
    assert check_content([TextContent(" "), block])[1] == block


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("", "content"),
        ("  \n", "content"),
        ([], "content"),
        (["text"], r"content\[0\]"),
        ([TextContent("a"), 3], r"content\[1\]"),
        ([TextContent(3)], r"content\[0\].text"),  # type: ignore[arg-type]
        ("\ud800", "content"),
        ([TextContent("a"), TextContent("\udfff")], r"content\[1\].text"),
        ("a" * (CONTENT_BYTES_MAX + 1), "content"),
        ([TextContent("a")] * (CONTENT_BLOCKS_MAX + 1), "content"),
    ],
)
def test_bad_content_is_refused_with_its_field_before_any_provider_sees_it(content: object, field: str) -> None:
    """T15: a lone surrogate would be dropped by the server without an answer; an empty turn would call the model."""
    with pytest.raises(InvalidContentError, match=field) as caught:
        check_content(content)  # type: ignore[arg-type]
    assert "aaa" not in str(caught.value)


@pytest.mark.parametrize(
    ("block", "field"),
    [
        (ImageContent(), ""),
        (ImageContent(path="/a.png", url=DATA), ""),
        (ImageContent(path="a.png"), ".path"),
        (ImageContent(path=""), ".path"),
        (ImageContent(path="/a\0.png"), ".path"),
        (ImageContent(path="/\udfff.png"), ".path"),
        (ImageContent(path="app://a.png"), ".path"),
        (ImageContent(path=7), ".path"),  # type: ignore[arg-type]
        (ImageContent(path="/" + "a" * 5_000), ".path"),
        (ImageContent(url=7), ".url"),  # type: ignore[arg-type]
        (ImageContent(url="https://example.org/secret.png"), ".url"),
        (ImageContent(url="file:///a.png"), ".url"),
        (ImageContent(url="data:text/html;base64,QUJD"), ".url"),
        (ImageContent(url="data:image/svg+xml;base64,QUJD"), ".url"),
        (ImageContent(url="data:image/png,secret"), ".url"),
        (ImageContent(url="data:image/png;base64,secret secret"), ".url"),
        (ImageContent(url="data:image/png;base64,"), ".url"),
        (MentionContent("", "/a"), ".name"),
        (MentionContent("a\nb", "/a"), ".name"),
        (MentionContent("a" * 5_000, "/a"), ".name"),
        (MentionContent(7, "/a"), ".name"),  # type: ignore[arg-type]
        (MentionContent("a", "a"), ".path"),
        (MentionContent("a", "//\n"), ".path"),
        (MentionContent("a", None), ".path"),  # type: ignore[arg-type]
        (SkillContent("a", "app://a"), ".path"),
        (SkillContent("a", "../a"), ".path"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_bad_block_is_refused_with_its_place_and_none_of_its_words(block: Content, field: str) -> None:
    """Our choice; a relative path would mean another file to the server than to the user; nothing is fetched."""
    with pytest.raises(InvalidContentError) as caught:
        check_content([TextContent("look"), block])
    assert caught.value.field == f"content[1]{field}"
    assert "secret" not in str(caught.value)
    assert "aaaa" not in str(caught.value)


def test_images_are_bounded_together_whatever_each_one_has() -> None:
    """R12: a turn is one line of the wire."""
    with pytest.raises(InvalidContentError, match=f"bytes of images; at most {IMAGE_BYTES_MAX}"):
        check_content([ImageContent(url=BIG), ImageContent(url=BIG)])
    with pytest.raises(InvalidContentError, match="bytes of images"):
        check_content([ImageContent(url=BIG + "A" * IMAGE_BYTES_MAX)])
    assert len(check_content([ImageContent(url=BIG)])) == 1


def test_an_image_shows_nothing_of_itself_in_a_log() -> None:
    """R2: content is never logged, and 32 MiB are no line of a traceback."""
    assert repr(ImageContent(url=DATA)) == "ImageContent(url=<data>)"
    assert repr(ImageContent(path="/a.png")) == "ImageContent(path='/a.png')"
