"""SPEC.toml is complete, and every test it names is there and runs."""

import ast
import collections
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tutti_side.testing.adapter_suite import AdapterSuite

OWNERS = {"main", "runtime", "proof", "codex", "contract", "later"}
KEYS = ["id", "source", "says", "owner", "tests"]
NUMBERED = {"R": 19, "F": 45, "T": 22}
"""How many rules, faults and traps there are."""


def test_every_entry_has_its_keys_a_known_owner_and_an_id_of_its_own(spec_watch: Any) -> None:
    """Source: our choice; see the head of SPEC.toml."""
    entries = spec_watch.entries
    twice = [name for name, count in collections.Counter(entry["id"] for entry in entries).items() if count > 1]

    assert twice == []
    assert [entry["id"] for entry in entries if list(entry) != KEYS] == []
    assert [entry["id"] for entry in entries if entry["owner"] not in OWNERS] == []
    assert [entry["id"] for entry in entries if not entry["says"].strip() or not entry["source"].strip()] == []
    assert [entry["id"] for entry in entries if len(set(entry["tests"])) != len(entry["tests"])] == []


@pytest.mark.parametrize("letter", NUMBERED)
def test_every_rule_fault_and_trap_has_its_entry(spec_watch: Any, letter: str) -> None:
    """Source: ARCHITECTURE §8, the list of public faults, the list of traps."""
    ids = {entry["id"] for entry in spec_watch.entries}

    assert [name for number in range(1, NUMBERED[letter] + 1) if (name := f"{letter}{number}") not in ids] == []


@pytest.mark.parametrize("document", ["SC-", "AR-", "RW-"])
def test_every_document_of_the_specification_has_entries(spec_watch: Any, document: str) -> None:
    """Source: our choice."""
    assert any(entry["id"].startswith(document) for entry in spec_watch.entries)


def test_an_owner_whose_work_is_closed_has_no_open_entry(spec_watch: Any) -> None:
    """Source: our choice; `closed` in SPEC.toml."""
    closed = set(spec_watch.document["closed"])

    assert closed <= OWNERS
    assert [entry["id"] for entry in spec_watch.entries if entry["owner"] in closed and not entry["tests"]] == []


def defined_tests(path: pathlib.Path) -> set[str]:
    """Return what a module defines, as the last parts of node ids; names that are assigned may be test classes."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            if any(isinstance(base, ast.Name) and base.id == AdapterSuite.__name__ for base in node.bases):
                inner += AdapterSuite.cases()
            found.update(f"{node.name}::{name}" for name in inner)
        elif isinstance(node, ast.Assign):
            found.update(f"{target.id}::runTest" for target in node.targets if isinstance(target, ast.Name))
    return found


def test_every_named_test_is_collected(spec_watch: Any, root: pathlib.Path) -> None:
    """A full run asks pytest's collection, a part of it the source of the named file. Source: our choice."""
    print(spec_watch.open_by_owner())
    if spec_watch.is_full_run:
        missing = spec_watch.missing()
    else:
        missing = []
        for entry in spec_watch.entries:
            for name in entry["tests"]:
                path, _, test = name.partition("[")[0].partition("::")
                if not (root / path).is_file() or test not in defined_tests(root / path):
                    missing.append(f"{entry['id']} names {name}")

    assert missing == []


SMALL_SPEC = """
closed = []
[[entry]]
id = "R1"
source = "here"
says = "something"
owner = "main"
tests = ["tests/test_small.py::test_named"]
"""
SMALL_TREE = {
    "held": ("def test_named(): pass", 0, "1 held by tests; open: none"),
    "skipped": ("import pytest\ndef test_named(): pytest.skip()\ndef test_other(): pass", 1, "was skipped"),
    "one case skipped": (
        "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_named(n):\n    if n == 2: pytest.skip()",
        1,
        "R1 names tests/test_small.py::test_named, of which tests/test_small.py::test_named[2] was skipped",
    ),
    "expected to fail": ("import pytest\n@pytest.mark.xfail\ndef test_named(): assert False", 1, "was xfailed"),
    "not collected": ("def test_other(): pass", 1, "R1 names tests/test_small.py::test_named, which is not collected"),
}


def run_small_tree(folder: pathlib.Path, root: pathlib.Path, source: str, *arguments: str) -> tuple[int, str]:
    """Run pytest, with our conftest.py and no other plugin, over a tree of one test; return status and output."""
    tests = folder / "tests"
    tests.mkdir()
    shutil.copy(root / "tests" / "conftest.py", tests)
    (tests / "SPEC.toml").write_text(SMALL_SPEC, "utf-8")
    (tests / "test_small.py").write_text(source, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return run.returncode, run.stdout


@pytest.mark.process
@pytest.mark.parametrize("case", SMALL_TREE)
def test_a_full_run_fails_when_a_named_test_did_not_run(tmp_path: pathlib.Path, root: pathlib.Path, case: str) -> None:
    """The watch in conftest.py, over a tree of one test. Source: our choice."""
    source, status, said = SMALL_TREE[case]

    returned, output = run_small_tree(tmp_path, root, source)

    assert said in output
    assert returned == status


@pytest.mark.process
def test_a_part_of_the_run_may_leave_named_tests_out(tmp_path: pathlib.Path, root: pathlib.Path) -> None:
    """The watch in conftest.py. Source: our choice."""
    returned, output = run_small_tree(tmp_path, root, "def test_other(): pass", "tests/test_small.py")

    assert returned == 0
    assert "not collected" not in output
