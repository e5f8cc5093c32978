"""What may be said in a turn."""

import pytest

from tutti_side.contract import CONTENT_BYTES_MAX, InvalidContentError, TextContent, check_content


def test_a_text_is_one_block() -> None:
    """Our choice."""
    assert check_content("hi") == (TextContent("hi"),)
    assert check_content([TextContent("a"), TextContent("b")]) == (TextContent("a"), TextContent("b"))


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
    ],
)
def test_bad_content_is_refused_with_its_field_before_any_provider_sees_it(content: object, field: str) -> None:
    """T15: a lone surrogate would be dropped by the server without an answer; an empty turn would call the model."""
    with pytest.raises(InvalidContentError, match=field) as caught:
        check_content(content)  # type: ignore[arg-type]
    assert "aaa" not in str(caught.value)
