"""A tool server's form ↔ questions to a user, and the user's answers ↔ the form's content. Pure.

The fields are those of MCP's elicitation: text, a number, yes or no, one choice, several choices. A person chooses by
title where choices have one, and the server gets what stands behind it. A field that is none of these is not shown.
"""

import math
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from tutti_side.contract import InteractionQuestion, InvalidAnswerError

__all__ = ["Form", "check_answers", "form_of"]

JsonObject = dict[str, object]
Reader = Callable[[str], object]

BOOLEANS = {"true": True, "false": False}


class Field(msgspec.Struct, frozen=True):
    """One field of a form."""

    question: InteractionQuestion
    read: Reader
    """Makes one value of what was answered; raises `ValueError` or `KeyError` for what is none."""
    wanted: str
    """What it takes, for a person."""


class Form:
    """The fields of one form that can be asked for, in its order."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self._fields = fields

    @property
    def questions(self) -> tuple[InteractionQuestion, ...]:
        """One for each field."""
        return tuple(field.question for field in self._fields.values())

    def content(self, answers: Mapping[str, tuple[str, ...]]) -> JsonObject:
        """Return the form, filled in; an optional field without an answer is left out.

        Raises:
          InvalidAnswerError: an answer is missing, answers nothing, or is not of its field's type.
        """
        check_answers(answers, self.questions)
        return {name: _value(name, self._fields[name], values) for name, values in answers.items()}


def check_answers(answers: Mapping[str, tuple[str, ...]], questions: tuple[InteractionQuestion, ...]) -> None:
    """Raise `InvalidAnswerError` unless every question is answered that has to be, with what was offered."""
    known = {question.id: question for question in questions}
    for key, values in answers.items():
        question = known.get(key)
        if question is None:
            raise InvalidAnswerError(f"answers[{key!r}]", "answers no question that was asked")
        if not question.takes_free_text and not set(values) <= set(question.options):
            raise InvalidAnswerError(f"answers[{key!r}]", "is not one of the offered answers")
    missing = [question.id for question in questions if not question.is_optional and question.id not in answers]
    if missing:
        raise InvalidAnswerError(f"answers[{missing[0]!r}]", "is missing")


def form_of(schema: object) -> Form:
    """Return the form that a schema describes, as far as it is one; anything else is a form without fields."""
    if not isinstance(schema, dict):
        return Form({})
    form = cast("JsonObject", schema)
    properties, required = form.get("properties"), form.get("required")
    if not isinstance(properties, dict):
        return Form({})
    names = _listed(required)
    fields: dict[str, Field] = {}
    for name, described in cast("dict[str, object]", properties).items():
        if isinstance(described, dict):
            fields[name] = _field(name, cast("JsonObject", described), is_optional=name not in names)
    return Form(fields)


def _field(name: str, described: JsonObject, *, is_optional: bool) -> Field:
    text = next((words for key in ("title", "description") if isinstance(words := described.get(key), str)), "") or name
    wanted = described.get("type")
    takes_several = wanted == "array"
    items = described.get("items") if takes_several else described
    choices = _choices(cast("JsonObject", items)) if isinstance(items, dict) else {}
    read: Reader = str
    if choices:
        read = choices.__getitem__
    elif wanted == "integer":
        read = int
    elif wanted == "number":
        read = _finite
    elif wanted == "boolean":
        read = _boolean
    question = InteractionQuestion(
        id=name,
        text=text,
        options=tuple(choices) or (tuple(BOOLEANS) if wanted == "boolean" else ()),
        takes_free_text=not choices,
        is_optional=is_optional,
        takes_several=takes_several,
    )
    return Field(question, read, wanted if isinstance(wanted, str) else "text")


def _choices(described: JsonObject) -> dict[str, str]:
    """Return what can be chosen, as a person sees it → as the server wants it; titles that are not unique are none."""
    titled = _listed(described.get("oneOf")) or _listed(described.get("anyOf"))
    if titled:
        pairs = [cast("JsonObject", choice) for choice in titled if isinstance(choice, dict)]
        values, titles = [pair.get("const") for pair in pairs], [pair.get("title") for pair in pairs]
    else:
        values, titles = _listed(described.get("enum")), _listed(described.get("enumNames"))
    choices = [value for value in values if isinstance(value, str)]
    names = [title for title in titles if isinstance(title, str)]
    if len(choices) != len(values):
        return {}
    if len(names) != len(choices) or len(set(names)) != len(names):
        names = choices
    return dict(zip(names, choices, strict=True))


def _listed(listed: object) -> list[object]:
    return cast("list[object]", listed) if isinstance(listed, list) else []


def _value(name: str, field: Field, values: tuple[str, ...]) -> object:
    """Read one field's answer as the type that its schema wants."""
    where = f"answers[{name!r}]"
    try:
        if field.question.takes_several:
            return [field.read(value) for value in values]
        if len(values) != 1:
            raise InvalidAnswerError(where, "takes exactly one answer")
        return field.read(values[0])
    except (ValueError, KeyError):
        raise InvalidAnswerError(where, f"is no {field.wanted}") from None


def _boolean(text: str) -> bool:
    return BOOLEANS[text.strip().lower()]


def _finite(text: str) -> float:
    """Return the number, if JSON has it: ``nan`` and ``inf`` would be written as null."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number
