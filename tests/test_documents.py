"""What the documents name is there: files, calls of the handles, imports of their programs, sessions of nox."""

import ast
import functools
import pathlib
import re
from collections.abc import Iterator

import pytest

from tutti_side import AgentHost, SessionHandle, SideHandle, TurnHandle

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md", "docs/providers.md", "docs/sinks.md")

FOLDERS = ("tutti_side", "providers", "replication", "tests", "examples", "benchmarks", "docs", ".ci")
"""Where the files are that documents name, with as much of the path as tells them apart."""

ELSEWHERE = frozenset({"conftest.py", "test_my_adapter.py"})
"""Files that a reader is to write."""

HANDLES = {"host": AgentHost, "session": SessionHandle, "side": SideHandle, "turn": TurnHandle}
"""Names that stand for our handles in the documents."""

PATH = re.compile(r"`([\w./-]*[\w-]\.(?:py|md|toml|txt|json)|[\w./-]+/)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")
CALL = re.compile(r"\b(host|session|side|turn)\.([a-z_]+)\(")
NOX = re.compile(r"nox -s ([a-z ]+)")
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    """Return the text of a document."""
    return (ROOT / name).read_text("utf-8")


@functools.cache
def tree() -> tuple[str, ...]:
    """Return every file and folder, by its path from the root, with a slash in front."""
    paths = [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    return tuple(f"/{path.relative_to(ROOT)}" for path in paths)


def is_there(path: str) -> bool:
    """True when a path, or the end of one, is that of a file or folder."""
    return any(known.endswith(f"/{path}") for known in tree())


def imported(program: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a program, which may await at its top."""
    tree = compile(program, "a document", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_file_that_a_document_names_is_there(name: str) -> None:
    """Our choice: what was moved or renamed does not stay behind in a document."""
    text = read(name)
    named = {*PATH.findall(text), *LINK.findall(text)} - ELSEWHERE

    assert [path for path in sorted(named) if not is_there(path.removeprefix("../").rstrip("/"))] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_call_that_a_document_shows_is_one_of_the_handle(name: str) -> None:
    """Our choice: a reader copies it."""
    text = read(name)

    assert [f"{who}.{what}" for who, what in CALL.findall(text) if not hasattr(HANDLES[who], what)] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_program_of_a_document_is_python_and_imports_what_there_is(name: str) -> None:
    """Our choice: a reader copies it. Programs that need more than that stand in examples/, and run."""
    for program in PROGRAM.findall(read(name)):
        for node in imported(program):
            exec(compile(ast.Module([node], []), name, "exec"), {})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_session_of_nox_that_a_document_names_is_there(name: str) -> None:
    """Our choice."""
    sessions = set(re.findall(r"@nox\.session(?:\(name=\"(\w+)\"\))?\ndef (\w+)", read("noxfile.py")))
    known = {given or function for given, function in sessions}

    assert [
        found for names in NOX.findall(read(name)) for found in names.split() if found not in {*known, "NAME"}
    ] == []


def test_a_document_that_is_wrong_is_found() -> None:
    """Our choice: patterns that find nothing would pass everything."""
    text = read("README.md") + read("ARCHITECTURE.md")

    assert len(PATH.findall(text)) > 10
    assert len(LINK.findall(text)) > 5
    assert len(CALL.findall(text)) > 10
    assert len(PROGRAM.findall(text)) > 2
    assert len(NOX.findall(text)) >= 2
    assert not is_there("_pools.py")
    assert [ast.unparse(node) for node in imported("await x\nfrom a import b")] == ["from a import b"]
