"""The fixtures are current, in the package, and data alone."""

import json
from importlib.resources import files
from pathlib import Path

from tutti_replication.conformance import cases
from tutti_replication.conformance.authoring.write import fixtures, write

FOLDER = files(cases.__name__.rpartition(".")[0]).joinpath("fixtures")


def test_the_checked_in_fixtures_are_what_their_drafts_write() -> None:
    """Our choice: the JSON is reviewed as a diff, written by ``python -m tutti_replication.conformance.authoring``."""
    wanted = dict(fixtures())
    checked_in = {
        f"{folder}/{entry.name}": entry.read_text("utf-8")
        for folder in ("sink", "projection")
        for entry in FOLDER.joinpath(folder).iterdir()
    }
    assert checked_in.keys() == wanted.keys()
    for name, text in wanted.items():
        assert checked_in[name] == text, name


def test_each_fixture_is_plain_json_with_a_source() -> None:
    """Conformance: language-neutral JSON; each case says what it holds and where that stands."""
    count = 0
    for _, text in fixtures():
        document = json.loads(text)
        assert document["about"]
        assert document["source"]
        assert document.keys() in (
            {"name", "about", "source", "steps"},
            {"name", "about", "source", "seed", "mutations"},
        )
        count += 1
    assert count >= 90


def test_writing_removes_fixtures_that_are_no_more(tmp_path: Path) -> None:
    """Our choice: a renamed case leaves no old file behind."""
    (tmp_path / "sink").mkdir()
    (tmp_path / "sink" / "old.json").write_text("{}", encoding="utf-8")
    count = write(tmp_path)
    assert not (tmp_path / "sink" / "old.json").exists()
    assert len(list(tmp_path.rglob("*.json"))) == count
