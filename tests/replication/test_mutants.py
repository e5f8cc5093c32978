"""The tests of the contract, tested: each deliberate fault in a copy of the package makes one of them fail."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tutti_replication

PACKAGE = Path(tutti_replication.__file__).parent
HERE = Path(__file__).parent
MUTANTS: list[dict[str, str]] = tomllib.loads(HERE.joinpath("mutants_validation.toml").read_text("utf-8"))["mutant"]
JUDGES = ("test_codec.py", "test_validation.py", "test_keys.py", "test_acknowledgement.py", "test_admission.py")
PROBE = "import tutti_replication; print(tutti_replication.__file__)"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the package, in a folder of its own."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "tutti_replication", ignore=shutil.ignore_patterns("__pycache__")))


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE.parent.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def judge(copy: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests that a fault in the contract must fail, against the copy, until the first failure."""
    names = [str(HERE.joinpath(name).relative_to(HERE.parent.parent)) for name in JUDGES]
    return run(copy, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", *names)


@pytest.mark.slow
@pytest.mark.process
def test_the_untouched_copy_passes(copy: Path) -> None:
    """Our choice: a mutant that dies of the copying proves nothing."""
    assert run(copy, "-c", PROBE).stdout.strip() == str(copy / "__init__.py")
    judged = judge(copy)
    assert judged.returncode == 0, judged.stdout


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"].replace(" ", "_"))
def test_a_fault_in_the_contract_fails_some_test(mutant: dict[str, str], copy: Path) -> None:
    """Our choice: at least 12 mutants in validation and `_apply`, all killed."""
    path = copy / mutant["file"]
    text = path.read_text("utf-8")
    assert text.count(mutant["old"]) == 1, f"the anchor stands {text.count(mutant['old'])} times in {mutant['file']}"
    path.write_text(text.replace(mutant["old"], mutant["new"]), encoding="utf-8")
    judged = judge(copy)
    assert judged.returncode == 1, f"survived: {judged.stdout[-500:]}"
    assert " failed" in judged.stdout
