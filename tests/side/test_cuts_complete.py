"""Every public async callable is cut somewhere: found by introspection, held against the `CUTS` tables of the tests.

A table says what the cuts of its test must have fallen into, and that test asserts it; so a name in a table was really
cut. A new public coroutine, context manager or iterator fails here until it is in a table, or in `EXEMPT` with a
reason.
"""

import ast
import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tutti_providers
import tutti_side

TESTS = Path(__file__).parents[1]

HOMES = {
    "tutti_side": TESTS / "side",
    "tutti_providers.codex": TESTS / "providers" / "codex",
    "tutti_providers.scripted": TESTS / "providers" / "scripted",
}
"""Where the tables of a package are."""

NOT_CALLED_BY_PROGRAMS = {
    "tutti_side.cli": "a command is ended by a signal, as tests/side/cli/test_main.py and test_demo.py try",
    "tutti_side.testing.simulate": "a command",
    "tutti_side.testing.simulation": "a run of its own clock and schedule; it cuts the calls of others",
    "tutti_side.testing.adapter_suite": "tests, which pytest calls",
    "tutti_side.testing.pytest_plugin": "tests, which pytest calls",
    "tutti_providers.codex.testing": "a stand-in for the server: it is cut whenever the adapter over it is",
    "tutti_providers.codex.schema": "data",
    "tutti_providers.scripted.testing": "has no checkpoint of its own",
}
"""Public modules whose callables are no part of what a program awaits, each with its reason."""

EXEMPT = {
    "MemoryMetadata.read": "has no checkpoint",
    "MemoryMetadata.write": "has no checkpoint",
    "MemoryMetadata.forget": "has no checkpoint",
}
"""Callables that cannot be cut, each with its reason. A method of a Protocol has no body and is left out by itself."""


def modules(package: types.ModuleType) -> Iterator[types.ModuleType]:
    """Yield the package and each public module below it."""
    yield package
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        left_out = any(info.name == name or info.name.startswith(f"{name}.") for name in NOT_CALLED_BY_PROGRAMS)
        if not left_out and not any(part.startswith("_") for part in info.name.split(".")):
            yield importlib.import_module(info.name)


def is_async(thing: Any) -> bool:
    """A coroutine function, an async generator function, or a context manager made of one."""
    inner = inspect.unwrap(thing)
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def async_names(name: str, thing: Any) -> Iterator[str]:
    """Yield the async callables of one public name: itself, or the methods of a class, inherited ones too."""
    if not inspect.isclass(thing):
        if callable(thing) and is_async(thing):
            yield name
    elif not getattr(thing, "_is_protocol", False):
        for attribute in dir(thing):
            if attribute.startswith("_") and attribute not in ("__anext__", "__aenter__", "__aexit__"):
                continue
            method = inspect.getattr_static(thing, attribute)
            method = getattr(method, "__func__", method)
            if inspect.isfunction(method) and is_async(method):
                yield f"{thing.__qualname__}.{attribute}"


def public_async_callables() -> dict[str, dict[str, str]]:
    """Return, by home, each callable's name with the module that it is defined in."""
    found: dict[str, dict[str, str]] = {home: {} for home in HOMES}
    for package in (tutti_side, tutti_providers):
        for module in modules(package):
            for public in getattr(module, "__all__", ()):
                thing = getattr(module, public)
                defined_in = str(getattr(thing, "__module__", ""))
                for home in HOMES:
                    if defined_in == home or defined_in.startswith(f"{home}."):
                        found[home].update(dict.fromkeys(async_names(public, thing), defined_in))
    return found


def cut_tables(folder: Path) -> dict[str, list[str]]:
    """Return what the tables of the tests below a folder name, each with the files that name it."""
    named: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == "CUTS" for target in targets):
                assert isinstance(node, ast.Assign)
                for names in ast.literal_eval(node.value).values():
                    for name in names:
                        named.setdefault(name, []).append(str(path.relative_to(TESTS)))
    return named


def test_every_public_async_callable_is_cut_or_exempt_with_a_reason() -> None:
    """R14: every public async call, for every k. Add a new one to the `CUTS` table of a test that cuts it."""
    tables = {home: cut_tables(folder) for home, folder in HOMES.items()}
    uncut = [
        f"{name} of {defined_in}"
        for home, names in public_async_callables().items()
        for name, defined_in in names.items()
        if name not in tables[home] and name not in EXEMPT
    ]

    assert uncut == []


def test_every_name_in_a_table_or_list_is_a_public_async_callable() -> None:
    """Our choice: what was renamed does not stay behind as if it were still cut."""
    found = public_async_callables()
    everything = {name for names in found.values() for name in names}

    strangers = {name for home in HOMES for name in cut_tables(HOMES[home]) if name not in found[home]}
    assert strangers == set()
    assert set(EXEMPT) <= everything


def test_what_is_found_includes_each_kind_of_callable() -> None:
    """Our choice: an introspection that finds nothing would pass everything."""
    found = public_async_callables()

    assert found["tutti_side"].keys() >= {
        "AgentHost.start_session",  # a coroutine
        "SideHandle.ask",  # an inherited one
        "SessionHandle.side",  # a context manager that is a method
        "open_host",  # and one that is a function
        "Subscription.__anext__",  # an iterator
        "StdioTransport.aclose",  # in a module that its package does not export
        "cut_at_every_step",
    }
    assert "CodexAdapter.exec" in found["tutti_providers.codex"]
    assert "ScriptedProvider.open" in found["tutti_providers.scripted"]
    assert "Adapter.start" not in found["tutti_side"], "a Protocol has nothing to cut"
