"""A tool server's form ↔ questions and answers, for each kind of field that the binary's schema names."""

from typing import Any

import pytest

from tutti_providers.codex._forms import form_of
from tutti_side.contract import InvalidAnswerError

TITLED = [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]
FIELDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "sure": {"type": "boolean"},
    "one": {"type": "string", "enum": ["r", "b"]},
    "named": {"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]},
    "titled": {"type": "string", "oneOf": TITLED},
    "many": {"type": "array", "items": {"type": "string", "enum": ["r", "b"]}},
    "many titled": {"type": "array", "items": {"anyOf": TITLED}},
}
"""Every alternative of the schema of 0.163."""


def one(described: Any, **form: Any) -> Any:
    return form_of({"type": "object", "properties": {"f": described}, **form})


@pytest.mark.parametrize(
    ("kind", "offered", "answer", "sent"),
    [
        ("text", (), ("x",), "x"),
        ("whole", (), ("7",), 7),
        ("number", (), ("1.5",), 1.5),
        ("sure", ("true", "false"), ("false",), False),
        ("one", ("r", "b"), ("b",), "b"),
        ("named", ("Red", "Blue"), ("Blue",), "b"),
        ("titled", ("Red", "Blue"), ("Red",), "r"),
        ("many", ("r", "b"), ("b", "r"), ["b", "r"]),
        ("many", ("r", "b"), (), []),
        ("many titled", ("Red", "Blue"), ("Blue",), ["b"]),
    ],
)
def test_each_field_offers_what_a_person_sees_and_sends_what_the_server_wants(
    kind: str, offered: tuple[str, ...], answer: tuple[str, ...], sent: object
) -> None:
    """Required: answers in the form's own types; a list was sent as a string, a title as free text."""
    form = one(FIELDS[kind])
    [question] = form.questions
    assert (question.options, question.takes_several) == (offered, "many" in kind)
    assert form.content({"f": answer}) == {"f": sent}


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("text", ()),
        ("text", ("a", "b")),
        ("whole", ("1.5",)),
        ("number", ("inf",)),
        ("sure", ("yes",)),
        ("one", ("x",)),
        ("one", ("r", "b")),
        ("titled", ("r",)),
        ("many", ("r", "x")),
        ("many titled", ("x",)),
    ],
)
def test_an_answer_that_a_field_does_not_take_is_refused_by_the_fields_name(kind: str, answer: tuple[str, ...]) -> None:
    """Bad input: before anything is sent; what was typed is not in the message."""
    with pytest.raises(InvalidAnswerError) as caught:
        one(FIELDS[kind]).content({"f": answer})
    assert caught.value.field == "answers['f']"
    assert not any(repr(value) in str(caught.value) for value in answer)


def test_only_what_a_form_requires_has_to_be_answered() -> None:
    """Specification of MCP: ``required`` names them; all were demanded, so that nobody could leave one out."""
    form = form_of({"type": "object", "properties": FIELDS, "required": ["text"]})
    assert [question.id for question in form.questions if not question.is_optional] == ["text"]
    assert form.content({"text": ("x",)}) == {"text": "x"}
    with pytest.raises(InvalidAnswerError) as caught:
        form.content({"one": ("r",)})
    assert caught.value.field == "answers['text']"
    assert one(FIELDS["text"]).content({}) == {}


JUNK: tuple[Any, ...] = (None, 0, -1.5, True, "", "x", [], {}, [None], [[]], {"a": 1}, [{"const": 1, "title": 2}])


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("key", ["type", "title", "description", "enum", "enumNames", "oneOf", "anyOf", "items"])
def test_no_form_raises_whatever_stands_in_it(key: str, junk: Any) -> None:
    """R9: an ``enum`` that was a number ended the whole Side; such a field is a text, or not shown."""
    for described in FIELDS.values():
        form = one({**described, key: junk}, required=junk)
        for question in form.questions:
            assert isinstance(question.text, str)
            assert all(isinstance(option, str) for option in question.options)
        one({"type": "array", "items": {key: junk}})


@pytest.mark.parametrize("titles", [["Same", "Same"], ["One"], [1, 2]])
def test_titles_that_name_no_choice_exactly_are_not_used(titles: list[Any]) -> None:
    """Our choice: a person must get what they chose."""
    [question] = one({"type": "string", "enum": ["r", "b"], "enumNames": titles}).questions
    assert question.options == ("r", "b")
