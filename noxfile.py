"""The project's chores: ``python -m nox -s NAME``, ``python -m nox --list`` for the list.

All sessions run in one environment, ``.nox/env``, because the wheel that carries the real Codex binary is big.
It is made anew when ``pyproject.toml`` or the Python changes; a dependency group comes when a session first needs it.
With uv on the machine that takes seconds; without it, virtualenv and pip (which nox brings) do the same more slowly.
"""

import hashlib
import json
import os
import pathlib
import shutil
import sys

import nox
import nox.project

ROOT = pathlib.Path(__file__).resolve().parent
HOME = ROOT / ".nox" / "env"
STAMP = HOME / "installed.json"
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")

PACKAGES = ("tutti_side", "providers/tutti_providers", "replication/tutti_replication", "replication/tutti_sinks")
"""The import packages, by folder."""
CODE = (*PACKAGES, "tests", "examples", "benchmarks", "noxfile.py")
"""What is linted and type-checked by mypy; pyright's list is in pyproject.toml."""
MINIMUM_PYTHON = (3, 11)

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = False


def _uv() -> str | None:
    """Return uv's path, the one on PATH or the one installed beside nox."""
    beside = pathlib.Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if beside.exists() else None)


def _digest() -> str:
    """Return what the environment depends on: pyproject.toml, the Python, this checkout's place."""
    parts = [(ROOT / "pyproject.toml").read_bytes(), sys.version.encode(), sys.executable.encode(), bytes(ROOT)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _installed() -> set[str]:
    """Return the dependency groups in the environment, nothing when it is out of date."""
    try:
        stamp = json.loads(STAMP.read_text("utf-8"))
    except (OSError, ValueError):
        return set()
    return set(stamp["groups"]) if stamp.get("digest") == _digest() and PYTHON.exists() else set()


def _install(session: nox.Session, *requirements: str) -> None:
    """Install into the environment, quietly."""
    uv = _uv()
    pip = [uv, "pip", "install", "--python", str(PYTHON)] if uv else [str(PYTHON), "-m", "pip", "install"]
    session.run(*pip, "--quiet", *requirements)


def _environment(session: nox.Session, *groups: str) -> None:
    """Make the environment hold the project, all its extras, and the dependency groups named.

    Args:
      session: the session that needs it.
      groups: names in ``[dependency-groups]`` of pyproject.toml.
    """
    if sys.version_info < MINIMUM_PYTHON:
        wanted = ".".join(map(str, MINIMUM_PYTHON))
        session.error(f"Python {wanted} or newer is needed, this is {sys.version.split()[0]}.")
    have = _installed()
    if not have:
        uv = _uv()
        maker = [uv, "venv", "--quiet", "--clear"] if uv else [sys.executable, "-m", "virtualenv", "--quiet", "--clear"]
        session.run(*maker, "--python", sys.executable, str(HOME))
        extras = ",".join(PROJECT["project"]["optional-dependencies"])
        _install(session, "--editable", f"{ROOT}[{extras}]")
        have = {"project"}
    missing = [group for group in groups if group not in have]
    if missing:
        _install(session, *nox.project.dependency_groups(PROJECT, *missing))
    STAMP.write_text(json.dumps({"digest": _digest(), "groups": sorted({*have, *missing})}), "utf-8")


def _run(session: nox.Session, program: str, *args: str) -> None:
    """Run a program of the environment from the root of the tree."""
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    session.run(str(BIN / program), *args, env={"PATH": path, "VIRTUAL_ENV": str(HOME)})


def _existing(*paths: str) -> list[str]:
    """Return those of the paths that hold a Python file, since some tools refuse a folder without one."""
    roots = [ROOT / path for path in paths]
    return [str(root.relative_to(ROOT)) for root in roots if root.is_file() or any(root.rglob("*.py"))]


@nox.session
def demo(session: nox.Session) -> None:
    """Show a Side opened in the middle of a running turn, against the real Codex binary; arguments go to the demo."""
    _environment(session)
    _run(session, "tutti-side", "demo", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests, the real binary and the database servers included; arguments go to pytest."""
    _environment(session, "test")
    _run(session, "python", "-m", "pytest", *(session.posargs or ["-q"]))


@nox.session
def fuzz(session: nox.Session) -> None:
    """Throw 5,000 spoiled batches per property at decode, validate and apply; arguments go to pytest."""
    _environment(session, "test")
    paths = ["tests/replication/fuzz", "--hypothesis-profile=fuzz"]
    _run(session, "python", "-m", "pytest", "-q", *paths, *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """See that deliberate faults in copies of contract, sink and Side runtime are found; arguments go to pytest."""
    _environment(session, "test")
    contract, sink = "tests/replication/test_mutants.py", "tests/replication/sinks/faults/test_mutants.py"
    paths = [contract, sink, "tests/simulation/test_mutants.py"]
    _run(session, "python", "-m", "pytest", "-q", *paths, *session.posargs)


@nox.session
def simulate(session: nox.Session) -> None:
    """Run a hundred simulations, or what the arguments say: `nox -s simulate -- --seed 7 --trace`."""
    _environment(session)
    _run(session, "python", "-m", "tutti_side.testing.simulate", *(session.posargs or ["--seeds", "100"]))


@nox.session
def examples(session: nox.Session) -> None:
    """Run every file of examples/."""
    _environment(session, "test")
    _run(session, "python", "-m", "pytest", "-q", "tests/test_examples.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and Trio habits: ruff, its formatter, and flake8-async."""
    _environment(session, "lint")
    paths = _existing(*CODE)
    _run(session, "ruff", "check", *paths)
    _run(session, "ruff", "format", "--check", *paths)
    _run(session, "flake8", *paths)


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy and pyright, both strict."""
    _environment(session, "test", "types")
    _run(session, "mypy", *_existing(*PACKAGES), *_existing("tests", "examples", "benchmarks", "noxfile.py"))
    _run(session, "pyright", "--pythonpath", str(PYTHON))


@nox.session
def layers(session: nox.Session) -> None:
    """Check who may import whom."""
    _environment(session, "lint")
    _run(session, "lint-imports")


@nox.session(name="format")
def format_(session: nox.Session) -> None:
    """Rewrite the code the way `lint` wants it."""
    _environment(session, "lint")
    paths = _existing(*CODE)
    _run(session, "ruff", "check", "--fix", *paths)
    _run(session, "ruff", "format", *paths)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run one benchmark by name, for example `nox -s benchmarks -- router --json`; without a name, list them."""
    names = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))
    if not session.posargs or session.posargs[0] not in names:
        session.error(f"Name one of: {', '.join(names) or 'none yet'}.")
    _environment(session, "test", "benchmarks")
    name, *rest = session.posargs
    _run(session, "python", f"benchmarks/{name}.py", *rest)
