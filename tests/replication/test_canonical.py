"""The vocabulary stands in one place, and importing the contract loads next to nothing."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tutti_replication
from tutti_replication import canonical

PACKAGES = Path(tutti_replication.__file__).parents[2]
CANONICAL = Path(canonical.__file__)
VOCABULARIES = {
    "entity types": canonical.ENTITY_TYPES,
    "turn phases": canonical.TURN_PHASES,
    "turn outcomes": canonical.TURN_OUTCOMES,
    "turn origins": canonical.TURN_ORIGINS,
    "interaction kinds": canonical.INTERACTION_KINDS,
    "interaction statuses": canonical.INTERACTION_STATUSES,
}
OWN_WORDS = canonical.TURN_ORIGINS | canonical.DELETE_ONLY_ENTITIES | {"agentTarget", "settling", "superseded"}
"""Words that nobody says by accident."""


def sources() -> list[Path]:
    folders = [PACKAGES / "tutti_side", PACKAGES / "providers", PACKAGES / "replication"]
    return [path for folder in folders for path in sorted(folder.rglob("*.py")) if path != CANONICAL]


def word_lists(tree: ast.AST) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield the strings of each collection, each `Literal` and each class body (an enum)."""
    for node in ast.walk(tree):
        items: list[ast.expr] = []
        if isinstance(node, ast.Set | ast.List | ast.Tuple):
            items = node.elts
        elif isinstance(node, ast.Dict):
            items = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.ClassDef):
            items = [statement.value for statement in node.body if isinstance(statement, ast.Assign)]
        words = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
        if words:
            yield getattr(node, "lineno", 0), frozenset(words)


def test_no_second_set_of_the_vocabulary_is_in_the_tree() -> None:
    """Activity replication specification: this module does not define a second set of lifecycle values."""
    paths = sources()
    assert len(paths) > 20
    for path in paths:
        for line, words in word_lists(ast.parse(path.read_text("utf-8"))):
            for name, vocabulary in VOCABULARIES.items():
                assert not vocabulary <= words, f"{path}:{line} lists the {name} again"


def test_the_replication_packages_spell_no_canonical_word_again() -> None:
    """Contract: canonical.py is the only place in the tree where the vocabulary stands."""
    for path in sources():
        if PACKAGES / "replication" not in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in OWN_WORDS, f"{path}:{node.lineno} spells {node.value!r}"


def test_the_grep_finds_a_second_set() -> None:
    """Our choice: a test that cannot fail is a defect."""
    planted = 'X = Literal["pending", "answered", "superseded"]\n'
    planted += 'class P(Enum):\n    A = "approval"\n    B = "question"\n    C = "plan"\n'
    found = {words for _, words in word_lists(ast.parse(planted))}
    assert canonical.INTERACTION_STATUSES in found
    assert canonical.INTERACTION_KINDS in found


PROBE = """
import sys
import msgspec  # brings typing_extensions along where that is installed
before = set(sys.modules)
import {module}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
foreign = sorted(loaded - set(sys.stdlib_module_names) - {{"msgspec", "tutti_replication"}})
suites = sorted(name for name in sys.modules if name.startswith("tutti_replication.conformance"))
print(foreign, suites if {module!r} == "tutti_replication" else [])
"""


@pytest.mark.process
@pytest.mark.parametrize("module", ["tutti_replication", "tutti_replication.conformance"])
def test_importing_loads_msgspec_and_the_standard_library_only(module: str) -> None:
    """R18; activity replication specification: no driver, no daemon. The contract alone loads no suite either."""
    ran = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[] []"


@pytest.mark.process
def test_the_vocabulary_needs_the_standard_library_only() -> None:
    """Activity replication specification: the nested, dependency-free module."""
    code = f"import runpy, sys; runpy.run_path({str(CANONICAL)!r}); print('msgspec' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "False"
