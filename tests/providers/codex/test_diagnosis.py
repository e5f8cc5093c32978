"""What `doctor` is told of Codex: nothing that is wrong with it is an error, each is a sentence."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from tutti_providers.codex import _diagnosis, _launch
from tutti_providers.codex._diagnosis import diagnose_codex
from tutti_side.contract.diagnosis import Diagnosis
from tutti_side.testing.processes import marked_processes


@pytest.fixture(autouse=True)
def no_process_left(tmp_path: Path) -> Iterator[None]:
    """F31: whatever was started for the answer is gone with it."""
    yield
    assert marked_processes(f"HOME={tmp_path}") == []


def environ(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def facts(diagnosis: Diagnosis) -> dict[str, str]:
    return {fact.name: fact.value for fact in diagnosis.facts}


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.codex
@pytest.mark.process
async def test_the_real_binary_is_found_asked_and_attested(tmp_path: Path) -> None:
    """Required; R15: the wheel's binary attests all five facts."""
    with trio.fail_after(60):
        diagnosis = await diagnose_codex(environ=environ(tmp_path), codex_home=tmp_path)
    assert diagnosis.reason is None
    assert (diagnosis.found, diagnosis.version, diagnosis.supported) == (True, "0.163.0", True)
    assert diagnosis.capabilities.missing() == ()
    assert facts(diagnosis)["found through"] == "wheel"
    assert facts(diagnosis)["home"] == str(tmp_path)


@pytest.mark.codex
@pytest.mark.process
async def test_a_home_that_is_missing_keeps_the_real_binary_from_starting_and_its_own_words_say_so(
    tmp_path: Path,
) -> None:
    """T19: exit status 1, nothing on stdout, the reason on stderr alone."""
    with trio.fail_after(60):
        diagnosis = await diagnose_codex(environ=environ(tmp_path), codex_home=tmp_path / "nowhere")
    assert diagnosis.found
    assert not diagnosis.supported
    assert "exit status 1" in (diagnosis.reason or "")
    assert any("CODEX_HOME" in line for line in diagnosis.startup_output)
    assert "nowhere" not in repr(diagnosis) + str(diagnosis.reason)
    assert len(diagnosis.capabilities.missing()) == 5


@pytest.mark.codex
@pytest.mark.process
async def test_a_configuration_that_the_real_binary_refuses_is_a_failed_start_too(tmp_path: Path) -> None:
    """T19; PROTOCOL: `approval_policy = "untrusted"` makes it exit before the first answer."""
    (tmp_path / "config.toml").write_text('approval_policy = "untrusted"\n')
    with trio.fail_after(60):
        diagnosis = await diagnose_codex(environ=environ(tmp_path), codex_home=tmp_path)
    assert not diagnosis.supported
    assert "ended with exit status" in (diagnosis.reason or "")
    assert any("approval_policy" in line for line in diagnosis.startup_output)


@pytest.mark.process
@pytest.mark.parametrize(("platform", "told"), [("linux", False), ("darwin", True)])
async def test_where_a_descendant_can_escape_the_guard_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, told: bool
) -> None:
    """R13 is proven on Linux alone; elsewhere a person is told what can be left."""
    monkeypatch.setattr(_diagnosis, "sys", SimpleNamespace(platform=platform))
    program = script(tmp_path / "codex", "#!/bin/sh\nexit 3\n")
    with trio.fail_after(60):
        diagnosis = await diagnose_codex(program, environ=environ(tmp_path), codex_home=tmp_path)
    assert ("leftovers" in facts(diagnosis)) == told


async def test_without_a_binary_it_says_where_was_looked_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: a clear error naming all four places."""
    monkeypatch.setattr(_launch, "WHEEL_MODULE", "no_such_module_at_all")
    diagnosis = await diagnose_codex(environ={"PATH": str(tmp_path)})
    assert not diagnosis.found
    assert "CODEX_BIN" in (diagnosis.reason or "")
    assert diagnosis.facts == ()
    assert diagnosis.capabilities.reason == diagnosis.reason


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "says", "output"),
    [
        ("no program at all", "cannot execute", ()),
        ("#!/bin/sh\nexit 3\n", "exit status 3", ()),
        ("#!/bin/sh\necho first >&2; echo last >&2; kill -9 $$\n", "exit status -9", ("first", "last")),
        ('#!/bin/sh\nread l; echo \'{"id":1,"result":7}\'; read l; echo bye >&2\n', "unexpected form", ("bye",)),
        (
            '#!/bin/sh\nread l; echo \'{"id":1,"error":{"code":-1,"message":"no"}}\'; read l\n',
            "it refused `initialize`: no",
            (),
        ),
        (
            '#!/bin/sh\necho banner; read l; echo \'{"id":1,"result":{"userAgent":"curl/8"}}\'; read l\n',
            "our client name",
            (),
        ),
    ],
)
async def test_a_program_that_is_no_app_server_is_one_sentence(
    tmp_path: Path, text: str, says: str, output: tuple[str, ...]
) -> None:
    """R9, F12, F31, T19: bad input of all kinds is one clear answer, and no process is left."""
    program = script(tmp_path / "codex", text)
    with trio.fail_after(60):
        diagnosis = await diagnose_codex(program, environ=environ(tmp_path), codex_home=tmp_path)
    assert diagnosis.found
    assert says in (diagnosis.reason or "")
    assert diagnosis.startup_output == output
    assert not diagnosis.supported
    assert not diagnosis.capabilities


@pytest.mark.process
async def test_an_old_version_is_named_and_offers_nothing(tmp_path: Path) -> None:
    """F38, T20: 0.100 would write a durable fork, so it is never asked for one."""
    answer = '{"id":1,"result":{"userAgent":"tutti-side/0.100.0 (Debian) xterm"}}'
    program = script(tmp_path / "codex", f"#!/bin/sh\nread l; echo '{answer}'; read l; read l\n")
    with trio.fail_after(60):
        diagnosis = await diagnose_codex(program, environ=environ(tmp_path), codex_home=tmp_path)
    assert (diagnosis.version, diagnosis.supported) == ("0.100.0", False)
    assert "0.163.0" in (diagnosis.reason or "")
    assert "tutti-side[codex]" in (diagnosis.reason or "")
    assert facts(diagnosis)["found through"] == "argument"
