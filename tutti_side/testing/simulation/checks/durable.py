"""R2: nothing of a Side is in anything durable; a log has ids, and nobody's words."""

import re
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Facts, Violation
from tutti_side.testing.simulation.records import LogLine, Stored, marked_owner

__all__ = ["nothing_of_a_side_is_written"]

_WORD = re.compile(r"[^\s\"'\\]+")


def nothing_of_a_side_is_written(facts: Facts) -> Iterator[Violation]:
    """R2: no Side's id, child, mark or words in what is stored; no mark and no one's words in a line of the log."""
    side_words: set[str] = set()
    all_words: set[str] = set()
    side_names = tuple(f"{owner}/" for owner in facts.context.sides)
    for said in facts.context.world.answers.values():
        words = {word for token in said for word in token.split()}
        all_words |= words
        side_words |= {word for word in words if word.startswith(side_names)}
    secrets = {f'"{side_id}"' for side_id in facts.context.sides.values()}
    secrets |= {child for child in facts.side_children if facts.is_side(facts.owner_of.get(child, ""))}
    for index, record in facts.all_of(Stored, LogLine):
        if isinstance(record, Stored):
            where, text, words = f"the {record.what} of {record.owner}", record.text, side_words
            for secret in sorted(secrets):
                if secret in text:
                    yield facts.violation("R2", index, f"{where} holds {secret}, which is a Side's")
        elif isinstance(record, LogLine):
            where, text, words = "a line of the log", record.text, all_words
        else:
            continue
        if marked_owner(text):
            yield facts.violation("R2", index, f"{where} holds the instructions of {marked_owner(text)}")
        found = words.intersection(_WORD.findall(text))
        if found:
            yield facts.violation("R2", index, f"{where} holds what was said: {min(found)}")
