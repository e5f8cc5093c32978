"""`tutti-side doctor`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tutti_side.cli import main

Install = Callable[..., None]

GOOD = """
from tutti_side.contract.capabilities import SideCapabilities
from tutti_side.contract.diagnosis import Diagnosis, Fact

ALL = SideCapabilities(
    supported=True, active_source_turn=True, ephemeral=True, hide_inherited_turns=True, model_boundary_injected=True
)

class Provider:
    def __init__(self, diagnosis):
        self.diagnosis = diagnosis

    async def diagnose(self):
        return self.diagnosis

def good(binary=None):
    facts = (Fact(name="binary", value=str(binary or "/opt/good")), Fact(name="found through", value="PATH"))
    return Provider(Diagnosis(
        provider="good", found=True, facts=facts, version="1.2.3", supported=True, capabilities=ALL))

def old():
    return Provider(Diagnosis(
        provider="old", found=True, version="0.1.0", reason="version 0.1.0 is not proven",
        capabilities=SideCapabilities.unsupported("version 0.1.0 is not proven")))

def absent():
    return Provider(Diagnosis(provider="absent", found=False, reason="no binary found: looked here and there"))

def broken():
    return Provider(Diagnosis(
        provider="broken", found=True, reason="ended with exit status 1",
        startup_output=("\\x1b[31mError: bad home\\x1b[0m", "\\x1b]0;title\\x07second")))

def partial():
    return Provider(Diagnosis(
        provider="partial", found=True, version="2", supported=True,
        capabilities=SideCapabilities(supported=True, ephemeral=True, reason="an older protocol")))
"""


def test_a_proven_runtime_is_shown_with_where_which_and_what(
    install_provider: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """Required: which binary, which version, which capabilities are attested."""
    install_provider(GOOD, good="good")
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "good: found",
        "  binary: /opt/good",
        "  found through: PATH",
        "  version: 1.2.3, proven",
        "  Sides: yes",
        "    yes  can branch at all",
        "    yes  can branch while a turn runs",
        "    yes  the branch leaves nothing durable",
        "    yes  inherited turns are not the Side's",
        "    yes  the model is told where the inherited context ends",
    ]


def test_an_unproven_version_offers_no_side_says_why_and_is_an_exit_code_of_one(
    install_provider: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """F38, R15: not attested is not offered."""
    install_provider(GOOD, old="old")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "  version: 0.1.0, not proven\n  Sides: no\n" in out
    assert out.count("    no   ") == 5
    assert out.endswith("  why: version 0.1.0 is not proven\n")


def test_what_is_missing_of_the_five_facts_is_named_one_by_one(
    install_provider: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """R15: a Side needs all five."""
    install_provider(GOOD, partial="partial")
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "    yes  can branch at all" in lines
    assert "    no   can branch while a turn runs" in lines
    assert lines[-1] == "  why: an older protocol"


def test_a_missing_runtime_is_an_answer_and_not_an_error(
    install_provider: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """Required: the sentence says where was looked and how to get one."""
    install_provider(GOOD, absent="absent")
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "absent: not found\n  why: no binary found: looked here and there\n"
    assert captured.err == ""


def test_the_last_lines_of_a_failed_start_are_shown_without_what_a_terminal_would_act_on(
    install_provider: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """T19: they alone say why; they come from somebody else."""
    install_provider(GOOD, broken="broken")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "  its last lines on stderr:\n    Error: bad home\n    second\n" in out
    assert "\x1b" not in out


def test_one_runtime_without_sides_is_enough_to_fail_and_all_are_shown_in_order(
    install_provider: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our choice: a provider that needs no installation must not hide one that is missing."""
    install_provider(GOOD, old="old", good="good", absent="absent", lost="nothing_there")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    heads = [line for line in out.splitlines() if not line.startswith(" ")]
    assert heads == ["absent: not found", "good: found", "lost: not found", "old: found"]
    assert "the provider 'lost' is installed but can't be loaded" in out


def test_without_any_provider_it_says_so(install_provider: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Our choice: silence would look like health."""
    install_provider(GOOD)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "tutti-side: no provider is installed\n"


def test_json_is_one_object_a_line_with_all_that_is_known(
    install_provider: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our choice: for programs; the same exit code."""
    install_provider(GOOD, good="good", old="old")
    assert main(["doctor", "--json"]) == 1
    good, old = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (good["provider"], good["version"], good["supported"]) == ("good", "1.2.3", True)
    assert good["facts"][0] == {"name": "binary", "value": "/opt/good"}
    assert good["capabilities"]["model_boundary_injected"] is True
    assert (old["supported"], old["capabilities"]["reason"]) == (False, "version 0.1.0 is not proven")


def test_the_given_binary_goes_to_codex_alone(install_provider: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Our choice: the option names one provider's binary."""
    install_provider(GOOD, codex="good", other="good")
    assert main(["doctor", "--codex-bin", "/my/codex"]) == 0
    out = capsys.readouterr().out
    assert out.count("binary: /my/codex") == 1
    assert out.count("binary: /opt/good") == 1


def doctor(*words: str, env: dict[str, str]) -> tuple[int, list[Any]]:
    """Run the installed command in a process of its own and return its exit code and its objects."""
    command = [str(Path(sys.executable).with_name("tutti-side")), "doctor", "--json", *words]
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
    assert done.stderr == b""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.codex
@pytest.mark.process
def test_the_installed_codex_is_found_asked_and_attested(tmp_path: Path) -> None:
    """Required, against the real binary."""
    home = tmp_path / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(home)}
    code, diagnoses = doctor(env=env)
    codex = next(d for d in diagnoses if d["provider"] == "codex")
    assert code == 0
    assert (codex["found"], codex["version"], codex["supported"]) == (True, "0.163.0", True)
    assert {f["name"]: f["value"] for f in codex["facts"]}["found through"] == "wheel"


@pytest.mark.codex
@pytest.mark.process
def test_a_given_binary_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    """Required: who names a binary gets that one or a sentence."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    code, diagnoses = doctor("--codex-bin", str(tmp_path / "nothing"), env=env)
    codex = next(d for d in diagnoses if d["provider"] == "codex")
    assert code == 1
    assert not codex["found"]
    assert "does not exist" in codex["reason"]
