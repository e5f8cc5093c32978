"""`tutti-side sink check` and `sink reset`, run as a person runs them."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tutti_replication.codec import encode_batch
from tutti_replication.conformance.cases import sink_cases
from tutti_replication.conformance.samples import session_upsert
from tutti_side.cli import _sink
from tutti_side.errors import TuttiSideError
from tutti_sinks import SqlSink, open_sql_sink


def run(*words: str) -> int:
    """Run the command as `main` does."""
    parser = argparse.ArgumentParser()
    _sink.register(parser.add_subparsers())
    args = parser.parse_args(["sink", *words])
    code: int = args.run(args)
    return code


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The URL of a database file that isn't there yet."""
    return f"sqlite:///{tmp_path / 'sink.sqlite'}"


def apply_one(database: str) -> None:
    """Use a projection."""
    with open_sql_sink(database) as sink:
        sink.apply(encode_batch([session_upsert("m1")]))


def test_check_runs_every_case_and_says_how_many(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each case, and the sum. Source: our choice."""
    assert run("check", "--database", database) == 0

    lines = capsys.readouterr().out.splitlines()
    cases = [case.name for case in sink_cases()]
    assert lines == [*(f"ok    {name}" for name in cases), f"{len(cases)} passed, 0 failed"]


def test_check_fails_when_a_case_fails(
    database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, and what differed. Source: our choice."""
    monkeypatch.setattr(SqlSink, "lookup", lambda *_, **__: None)

    assert run("check", "--database", database) == 1

    out = capsys.readouterr().out
    assert "is not there" in out
    assert ", 0 failed" not in out


def test_check_leaves_a_used_projection_alone(database: str) -> None:
    """Checking empties a projection, so it takes none that was used. Source: our choice."""
    apply_one(database)

    with pytest.raises(TuttiSideError, match="used before"):
        run("check", "--database", database)

    with open_sql_sink(database) as sink:
        assert sink.last_cursor() == 1


def test_reset_empties_a_projection_for_a_greater_epoch(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    """RW-equal-epoch: explicit and destructive."""
    apply_one(database)

    assert run("reset", "--epoch", "2", "--database", database) == 0

    assert "belongs to epoch 2" in capsys.readouterr().out
    with open_sql_sink(database, projection_epoch=2) as sink:
        assert sink.changes().items == []


def test_reset_refuses_an_epoch_that_clients_believe(database: str) -> None:
    """F43: nothing is deleted under an epoch whose acknowledgements are trusted."""
    apply_one(database)

    with pytest.raises(TuttiSideError, match="greater epoch"):
        run("reset", "--epoch", "1", "--database", database)

    with open_sql_sink(database) as sink:
        assert sink.last_cursor() == 1


@pytest.mark.parametrize("epoch", ["0", "-1", str(2**63), "one", "1.5", ""])
def test_reset_takes_a_whole_positive_epoch(database: str, epoch: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Source: our choice."""
    with pytest.raises(SystemExit) as end:
        run("reset", f"--epoch={epoch}", "--database", database)

    assert end.value.code == 2
    assert "--epoch: an epoch is between 1 and" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["", "nonsense", "oracle://user:secret@db/x", "mysql+mysqldb://user:secret@db/x"])
def test_a_bad_database_url_is_one_sentence_without_its_password(url: str) -> None:
    """Source: our choice."""
    with pytest.raises(TuttiSideError) as refused:
        run("check", "--database", url)

    assert "secret" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__cause__ is not None


def test_a_server_that_is_not_there_is_one_sentence_without_its_password() -> None:
    """Nothing listens on port 1. Source: our choice."""
    for scheme in ("mysql", "postgresql"):
        with pytest.raises(TuttiSideError) as refused:
            run("check", "--database", f"{scheme}://user:secret@127.0.0.1:1/sink")

        assert "secret" not in str(refused.value)
        assert "database" in str(refused.value)


def test_the_command_line_loads_no_database_library_until_it_is_needed() -> None:
    """`--help` must work without the sinks extra. R18's neighbour; source: our choice."""
    program = "import sys, tutti_side.cli._sink; sys.exit('sqlalchemy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
