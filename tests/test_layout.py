"""Facts about the tree that a linter cannot state."""

import ast
import pathlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata

import pytest

ROOT = pathlib.Path(__file__).parents[1]
HOMES = {
    "tutti_side": ROOT,
    "tutti_providers": ROOT / "providers",
    "tutti_replication": ROOT / "replication",
    "tutti_sinks": ROOT / "replication",
}
"""Each import package and the folder that it is imported from."""


def imported_names(path: pathlib.Path, package: str) -> Iterator[str]:
    """Yield every dotted name that the file imports, relative ones made absolute."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base]).rstrip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def package_files() -> Iterator[tuple[pathlib.Path, str]]:
    """Yield each module file with the dotted name of the folder it lies in."""
    for top, home in HOMES.items():
        for path in sorted((home / top).rglob("*.py")):
            yield path, ".".join(path.relative_to(home).parts[:-1])


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every tracked text file; what is deleted or not UTF-8 is left out."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listing.decode().split("\0"):
        if not (ROOT / name).is_file():
            continue
        try:
            yield name, (ROOT / name).read_text("utf-8")
        except UnicodeDecodeError:
            continue


def test_underscored_modules_are_imported_only_from_inside_their_folder() -> None:
    """`_x.py` is private to its folder and the folders below it. Source: our choice."""
    trespassers = []
    for path, package in package_files():
        for name in imported_names(path, package):
            parts = name.split(".")
            if parts[0] not in HOMES:
                continue
            for depth, part in enumerate(parts):
                owner = ".".join(parts[:depth])
                private = part.startswith("_") and not part.startswith("__")
                if private and not f"{package}.".startswith(f"{owner}."):
                    trespassers.append(f"{path.relative_to(ROOT)} imports {name}")

    assert trespassers == []


def test_nothing_imports_the_checkout_folders_as_packages() -> None:
    """In a checkout `providers` and `replication` are importable by accident. Source: our choice."""
    folders = {"providers", "replication", "tests", "examples", "benchmarks"}
    accidents = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, package in package_files()
        for name in imported_names(path, package)
        if name.split(".")[0] in folders
    ]

    assert accidents == []


def test_every_entry_point_of_pyproject_is_installed_and_loads() -> None:
    """Providers, test beds and the command are found by these names only. Source: our choice."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    declared = {(group, name, value) for group, points in groups.items() for name, value in points.items()}
    installed = list(metadata.distribution("tutti-side").entry_points)

    assert {(point.group, point.name, point.value) for point in installed} == declared
    for point in installed:
        assert callable(point.load()), point


@pytest.mark.process
def test_the_wheel_holds_the_four_packages_with_their_data_and_nothing_else(tmp_path: pathlib.Path) -> None:
    """What is imported from a checkout is what is installed from a wheel. Source: our choice."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    [wheel] = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    expected = {
        path.relative_to(home).as_posix()
        for top, home in HOMES.items()
        for path in (home / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == expected
    assert {f"{top}/py.typed" for top in HOMES} <= packed


OUTSIDE = {
    "a folder of one machine": re.compile(r"(?<![\w./~}-])/(?:root|work|workspace|mnt|Users|home/(?!user\b)\w+)/[\w.]"),
    "a temporary folder of one machine": re.compile(r"(?<![\w./~}-])/tmp/\w", re.ASCII),
}
URL_HOST = re.compile(r"\b(?:https?|wss?)://([^\s/\"'`<>)\]:{}]*)")
KNOWN_HOSTS = {
    "127.0.0.1",
    "example.com",
    "example.org",
    "json-schema.org",  # the name of a JSON Schema dialect
    "developers.openai.com",  # stands in a warning that the recorded binary printed
    "github.com",  # sources and issues that a comment gives as its reason
}


def is_known_host(host: str) -> bool:
    """Return whether a URL may name this host: loopback, made up for a test, or on the list."""
    return "." not in host or host in KNOWN_HOSTS or host.endswith((".example", ".invalid", ".test"))


@pytest.mark.parametrize("kind", OUTSIDE)
def test_no_tracked_file_names(kind: str) -> None:
    """The tree stands alone: a path of the machine it was written on helps nobody. Source: our choice."""
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if OUTSIDE[kind].search(line)
    ]

    assert found == []


def test_tracked_files_name_known_hosts_only() -> None:
    """No address of a registry, mirror or service of one workplace gets in. Source: our choice."""
    found = [
        f"{name}: {host}"
        for name, text in tracked_texts()
        for host in URL_HOST.findall(text)
        if not is_known_host(host)
    ]

    assert found == []


def test_every_relative_link_of_a_page_leads_to_a_file_of_the_tree() -> None:
    """Source: our choice."""
    broken = []
    for name, text in tracked_texts():
        if not name.endswith(".md"):
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            place = (ROOT / name).parent.joinpath(target).resolve()
            if "://" not in target and not (place.exists() and place.is_relative_to(ROOT)):
                broken.append(f"{name}: {target}")

    assert broken == []
