"""Writing drafts as fixtures: one case per file, its steps spread out, a mutation on a line."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

from . import building, projection_details, refusals, retries, staleness
from .draft import Json

__all__ = ["fixtures", "write"]

SPREAD_LEVELS: Final = 6
"""So deep a fixture is spread over lines; a mutation, a snapshot or an acknowledgement below that is one line."""


def fixtures() -> Iterator[tuple[str, str]]:
    """Yield each fixture's path below ``fixtures/`` and its text."""
    sink = chain(retries.drafts(), staleness.drafts(), projection_details.drafts(), refusals.drafts())
    for draft in sink:
        yield f"sink/{draft.name}.json", _text(draft.json())
    for case in building.drafts():
        yield f"projection/{case['name']}.json", _text(case)


def write(folder: Path) -> int:
    """Write every fixture below this folder, remove those that are no more, and return how many there are."""
    wanted = dict(fixtures())
    for stale in set(folder.rglob("*.json")) - {folder / name for name in wanted}:
        stale.unlink()
    for name, text in wanted.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return len(wanted)


def _text(document: Json) -> str:
    return _spread(document, 0) + "\n"


def _spread(value: Json | list[Any] | str | int | None, level: int) -> str:
    if level >= SPREAD_LEVELS or not value or isinstance(value, str | int):
        return _line(value)
    inner, outer = "\n" + "  " * (level + 1), "\n" + "  " * level
    if isinstance(value, list):
        return "[" + inner + ("," + inner).join(_spread(item, level + 1) for item in value) + outer + "]"
    members = (f"{_line(name)}: {_spread(item, level + 1)}" for name, item in value.items())
    return "{" + inner + ("," + inner).join(members) + outer + "}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
