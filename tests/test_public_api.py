"""Each package says what it offers: a docstring, and public names that exist and are documented."""

import ast
import importlib
import inspect
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
HOMES = (ROOT, ROOT / "providers", ROOT / "replication")
PACKAGES = {
    ".".join(path.parent.relative_to(home).parts): path
    for home in HOMES
    for top in sorted(home.glob("tutti_*"))
    for path in sorted(top.rglob("__init__.py"))
}
"""Each package by its dotted name, with its ``__init__.py``."""
PROMISING = [name for name, path in PACKAGES.items() if "__all__" in path.read_text("utf-8")]
"""The packages that have public names."""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_docstring_and_names_what_it_re_exports(package: str) -> None:
    """Whoever imports something for others says so in `__all__`. Source: our choice."""
    tree = ast.parse(PACKAGES[package].read_text("utf-8"))
    imports = any(isinstance(node, ast.ImportFrom | ast.Import) for node in tree.body)

    assert (ast.get_docstring(tree) or "").strip(" .") not in ("", "Placeholder")
    assert package in PROMISING or not imports


@pytest.mark.parametrize("package", PROMISING)
def test_public_names_exist_once_and_in_order(package: str) -> None:
    """Source: our choice."""
    module = importlib.import_module(package)
    names = list(module.__all__)

    assert len(set(names)) == len(names)
    assert [name for name in names if not hasattr(module, name)] == []
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []


@pytest.mark.parametrize("package", PROMISING)
def test_public_classes_and_functions_have_a_docstring_of_their_own(package: str) -> None:
    """A docstring that the dataclass decorator made, or that a base class has, does not count. Source: our choice."""
    module = importlib.import_module(package)
    bare = []
    for name in module.__all__:
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        own = (vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__) or ""
        if not own.strip() or own.startswith(f"{name}("):
            bare.append(name)

    assert bare == []


@pytest.mark.parametrize("package", PROMISING)
def test_public_functions_and_methods_are_annotated(package: str) -> None:
    """So that a user's type checker sees what ours sees. Source: our choice."""
    module = importlib.import_module(package)
    loose = []
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            functions = [thing]
        elif inspect.isclass(thing):
            public = [part for label, part in vars(thing).items() if not label.startswith("_")]
            functions = [part for part in public if inspect.isfunction(part)]
        else:
            functions = []
        for function in functions:
            parameters = [label for label in inspect.signature(function).parameters if label not in ("self", "cls")]
            if not {*parameters, "return"} <= set(function.__annotations__):
                loose.append(function.__qualname__)

    assert loose == []
