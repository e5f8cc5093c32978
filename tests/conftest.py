"""What every test can use, and the watch over SPEC.toml.

The watch looks at the run itself: in a full run (all of tests/, nothing deselected) a test that SPEC.toml names has to
be collected and must not be skipped or expected to fail. Otherwise the run fails, with a line that says which.
"""

import collections
import dataclasses
import functools
import pathlib
import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tutti_side.testing.pytest_plugin"]

# A busy machine fails no test: no wall time is judged here.
settings.register_profile(
    "no wall time",
    parent=settings(),
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("no wall time")

SPEC_FILE = pathlib.Path(__file__).with_name("SPEC.toml")


def without_case(node_id: str) -> str:
    """Return the node id without the brackets of a parametrized case."""
    return node_id.partition("[")[0]


@dataclasses.dataclass
class SpecWatch:
    """SPEC.toml beside what this run has seen."""

    config: pytest.Config
    collected: set[str] = dataclasses.field(default_factory=set)
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    """Node id to ``skipped`` or ``xfailed``."""

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """The whole of SPEC.toml."""
        return tomllib.loads(SPEC_FILE.read_text("utf-8"))

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The entries of SPEC.toml, in its order."""
        entries: list[dict[str, Any]] = self.document["entry"]
        return entries

    @property
    def is_full_run(self) -> bool:
        """Whether all of tests/ runs, so that a test that is missing is missing for good."""
        option = self.config.option
        narrowed = [option.keyword, option.markexpr, option.deselect, option.ignore, option.ignore_glob]
        return self.config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(
            [*narrowed, option.collectonly]
        )

    @property
    def is_shown(self) -> bool:
        """Whether this run is about the specification at all."""
        return self.is_full_run or any(node_id.startswith("tests/test_spec.py") for node_id in self.collected)

    def missing(self) -> list[str]:
        """Return a line for each named test that was not collected."""
        known = self.collected | {without_case(node_id) for node_id in self.collected}
        return [
            f"{entry['id']} names {name}, which is not collected"
            for entry in self.entries
            for name in entry["tests"]
            if name not in known
        ]

    def skipped(self) -> list[str]:
        """Return a line for each named test that was skipped or expected to fail."""
        return [
            f"{entry['id']} names {name}, of which {node_id} was {how}"
            for entry in self.entries
            for name in entry["tests"]
            for node_id, how in sorted(self.left_out.items())
            if name in (node_id, without_case(node_id))
        ]

    def open_by_owner(self) -> str:
        """Return one line: how many entries no test holds yet, by owner."""
        open_entries = collections.Counter(entry["owner"] for entry in self.entries if not entry["tests"])
        held = len(self.entries) - open_entries.total()
        still = ", ".join(f"{owner} {count}" for owner, count in sorted(open_entries.items())) or "none"
        return f"SPEC.toml: {len(self.entries)} entries, {held} held by tests; open: {still}"


WATCH = pytest.StashKey[SpecWatch]()


def pytest_configure(config: pytest.Config) -> None:
    """Start the watch."""
    config.stash[WATCH] = SpecWatch(config)
    config.pluginmanager.register(_Recorder(config.stash[WATCH]), "spec-watch")


class _Recorder:
    """Hooks that need the watch but get no config from pytest."""

    def __init__(self, watch: SpecWatch) -> None:
        self._watch = watch

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what did not really run."""
        if hasattr(report, "wasxfail"):
            self._watch.left_out[report.nodeid] = "xfailed"
        elif report.skipped:
            self._watch.left_out[report.nodeid] = "skipped"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Remember what will run."""
    session.config.stash[WATCH].collected.update(item.nodeid for item in session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a full run in which a test named in SPEC.toml did not run."""
    watch = session.config.stash[WATCH]
    if exitstatus == pytest.ExitCode.OK and watch.is_full_run and (watch.missing() or watch.skipped()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many entries are open, and which named tests did not run."""
    watch = config.stash[WATCH]
    if not watch.is_shown:
        return
    terminalreporter.section("specification")
    if watch.is_full_run:
        for line in [*watch.missing(), *watch.skipped()]:
            terminalreporter.line(f"FAILED {line}", red=True)
    terminalreporter.line(watch.open_by_owner())


@pytest.fixture
def spec_watch(pytestconfig: pytest.Config) -> SpecWatch:
    """SPEC.toml beside what this run has seen so far."""
    return pytestconfig.stash[WATCH]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The root of the tree."""
    return SPEC_FILE.parents[1]
