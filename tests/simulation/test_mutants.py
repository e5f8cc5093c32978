"""The simulation, tested: each deliberate fault in a copy of the product is found, by the rule that it breaks.

The faults are in ``mutants.toml``. A test replays the recorded seed in a process of its own, on a copy with the fault
and, here, without it. When the draws of the simulation have changed, the seeds are found anew:

    python tests/simulation/test_mutants.py [--seeds N] [--write] [NAME …]
"""

import argparse
import compileall
import functools
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tutti_providers
import tutti_side
from tutti_side.testing.simulate import find_bed
from tutti_side.testing.simulation import simulate

CATALOGUE = Path(__file__).with_name("mutants.toml")
PACKAGES = (Path(tutti_side.__file__).parent, Path(tutti_providers.__path__[0]))
MUTANTS_MIN = 20

SEED_S = 60
"""Real time after which a process is ended; a seed takes a tenth of a second."""

SEEDS_MAX = 1_000
"""Seeds in which each fault has to be found."""

NEXT_SEEDS = 80
"""A change of the product moves what a seed comes to. So a fault that its recorded seed no longer finds may be found by
one of so many next ones; that one is to be recorded then."""

RUN = """
import json, sys
import tutti_side
from tutti_side.testing.simulate import find_bed
from tutti_side.testing.simulation import simulate

print(json.dumps({"package": tutti_side.__file__}), flush=True)
bed = find_bed("codex")
first, count, rule = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for seed in range(first, first + count):
    violations = [str(violation) for violation in simulate(seed, bed).violations]
    print(json.dumps({"seed": seed, "violations": violations}), flush=True)
    if any(violation.split(" ", 1)[0] == rule for violation in violations):
        break
"""
"""Says what each seed found, a line each, until one has found a violation of the rule."""


class Edit(NamedTuple):
    """One anchored replacement."""

    file: str
    anchor: str
    replacement: str


class Mutant(NamedTuple):
    """One deliberate fault."""

    name: str
    rule: str
    seed: int
    edits: tuple[Edit, ...]


def read_mutants() -> list[Mutant]:
    """Return the catalogue, in its order."""
    mutants: list[Mutant] = []
    for entry in tomllib.loads(CATALOGUE.read_text("utf-8"))["mutant"]:
        parts: list[dict[str, str]] = [entry, *entry.get("also", ())]
        edits = tuple(Edit(part.get("file", entry["file"]), part["anchor"], part["replacement"]) for part in parts)
        mutants.append(Mutant(entry["name"], entry["rule"], entry["seed"], edits))
    return mutants


def copy_packages(folder: Path) -> Path:
    """Copy what is mutated, compiled, so that a process begins at once; hashes say when a file has changed."""
    for package in PACKAGES:
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    return folder


@contextmanager
def planted(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Have the fault in the copy for the block.

    Raises:
      LookupError: an anchor is not there exactly once.
    """
    before: dict[Path, str] = {}
    try:
        for edit in mutant.edits:
            path = copy / edit.file
            text = path.read_text("utf-8")
            if text.count(edit.anchor) != 1:
                raise LookupError(f"{mutant.name}: its anchor stands {text.count(edit.anchor)} times in {edit.file}")
            before.setdefault(path, text)
            path.write_text(text.replace(edit.anchor, edit.replacement), "utf-8")
        yield
    finally:
        for path, text in before.items():
            path.write_text(text, "utf-8")


class Found(NamedTuple):
    """What a process said."""

    package: str
    seeds: dict[int, list[str]]
    """Violations of each seed that was run."""
    failure: str
    """The end of its error output, or that it hung."""


def run_seeds(copy: Path, first: int, count: int, rule: str) -> Found:
    """Run seeds on the copy until one violates the rule."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", RUN, str(first), str(count), rule]
    bound_s = SEED_S + count
    try:
        ran = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=bound_s
        )
        output, failure = ran.stdout, ran.stderr[-500:] if ran.returncode else ""
    except subprocess.TimeoutExpired as hung:
        said = hung.stdout
        output, failure = said.decode() if isinstance(said, bytes) else "", f"no end within {bound_s} s"
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    package = next((line["package"] for line in lines if "package" in line), "")
    return Found(package, {line["seed"]: line["violations"] for line in lines if "seed" in line}, failure)


def rules_of(violations: Sequence[str]) -> set[str]:
    """Return the rules that violations name."""
    return {violation.split(" ", 1)[0] for violation in violations}


@functools.cache
def violations_without(seed: int) -> tuple[str, ...]:
    """Run a seed on the product as it is."""
    return tuple(str(violation) for violation in simulate(seed, find_bed("codex")).violations)


def search(mutant: Mutant, copy: Path, first: int, count: int) -> Found:
    """Run seeds on a copy with the fault until one finds it that finds nothing without it."""
    seeds: dict[int, list[str]] = {}
    while True:
        found = run_seeds(copy, first + len(seeds), count - len(seeds), mutant.rule)
        seeds |= found.seeds
        if found.failure or len(seeds) >= count or is_killed(mutant, found, max(seeds)):
            return Found(found.package, seeds, found.failure)


def is_killed(mutant: Mutant, found: Found, seed: int) -> bool:
    """True when a seed found the fault by its rule, and finds nothing without it."""
    return mutant.rule in rules_of(found.seeds[seed]) and not violations_without(seed)


MUTANTS = read_mutants()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of both packages."""
    return copy_packages(tmp_path_factory.mktemp("copy"))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_fault_is_found_by_the_rule_that_it_breaks_and_its_seed_passes_without_it(mutant: Mutant, copy: Path) -> None:
    """Mutants: each killed by the simulation, and the recorded killing seed passes without it."""
    with planted(mutant, copy):
        found = search(mutant, copy, mutant.seed, 1 + NEXT_SEEDS)

    assert found.seeds, found.failure
    assert is_killed(mutant, found, max(found.seeds)), f"survived {len(found.seeds)} seeds; see tests/README.md"


@pytest.mark.process
def test_a_process_runs_the_copy_and_the_copy_passes(copy: Path) -> None:
    """So that it is the fault that is found, not the copying. Source: our choice."""
    found = run_seeds(copy, 0, 3, "R")

    assert found.package == str(copy / "tutti_side" / "__init__.py")
    assert found.seeds == {0: [], 1: [], 2: []}


def test_a_fault_whose_anchor_is_gone_is_an_error_and_changes_nothing(copy: Path) -> None:
    """Mutants: they fail loudly when their anchor is gone."""
    file = "tutti_side/runtime/_gate.py"
    text = (copy / file).read_text("utf-8")
    lost = Mutant("lost", "R3", 0, (Edit(file, "class Gate:", "class Door:"), Edit(file, "no such line", "")))

    with pytest.raises(LookupError, match="lost: its anchor stands 0 times"), planted(lost, copy):
        pass

    assert (copy / file).read_text("utf-8") == text


def test_the_catalogue_is_as_broad_as_was_asked_for() -> None:
    """Mutants: at least 20, in jsonrpc, router, controller and scope."""
    names = [mutant.name for mutant in MUTANTS]
    files = " ".join(edit.file for mutant in MUTANTS for edit in mutant.edits)

    assert len(set(names)) == len(names) >= MUTANTS_MIN
    assert all(part in files for part in ("jsonrpc/", "_router.py", "controller.py", "_scope.py"))


def record_seed(name: str, seed: int) -> None:
    """Rewrite one mutant's seed in the catalogue."""
    text = CATALOGUE.read_text("utf-8")
    pattern = re.compile(rf"(name = {re.escape(json.dumps(name))}\n(?:(?!\[\[mutant).*\n)*?seed = )\d+")
    assert pattern.search(text), name
    CATALOGUE.write_text(pattern.sub(rf"\g<1>{seed}", text), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Find the first killing seed of each mutant, and print one line for each; the status says whether all have one."""
    parser = argparse.ArgumentParser(description="Find for each mutant the first seed that its rule finds it in.")
    parser.add_argument("names", nargs="*", help="parts of names; none for all")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many seeds are tried")
    parser.add_argument("--write", action="store_true", help="write them into mutants.toml")
    options = parser.parse_args(arguments)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_packages(Path(folder) / "copy")
        for mutant in MUTANTS:
            if options.names and not any(name in mutant.name for name in options.names):
                continue
            try:
                with planted(mutant, copy):
                    found = search(mutant, copy, 0, options.seeds)
            except LookupError as error:
                found = Found("", {}, str(error))
            killed = [seed for seed in found.seeds if is_killed(mutant, found, seed)]
            others = sorted({rule for violations in found.seeds.values() for rule in rules_of(violations)})
            seed = f"seed {killed[0]}" if killed else f"SURVIVED {len(found.seeds)} seeds {found.failure}"
            sys.stdout.write(f"{mutant.rule:4} {seed:10} {mutant.name} (seen: {', '.join(others) or 'nothing'})\n")
            sys.stdout.flush()
            survivors += not killed
            if killed and options.write:
                record_seed(mutant.name, killed[0])
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
