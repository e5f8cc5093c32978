"""Deliberate faults in a copy of the SQL sink: each must be noticed by the conformance suite or by a random history.

A fault is an anchored replacement: when its anchor is no longer there exactly once, its test fails and the fault has
to be written anew.
"""

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import tutti_sinks
from tutti_replication.conformance.histories import HistoryMismatchError, run_history
from tutti_replication.conformance.sink import run_sink

HISTORIES = 150
"""The healthy sink passes ten thousand; each fault here is found within these."""


class Mutant(NamedTuple):
    """A fault: in which file, what is there, what takes its place."""

    name: str
    file: str
    anchor: str
    fault: str


MUTANTS = [
    Mutant(
        "a-reused-id-is-a-duplicate",
        "_apply.py",
        "if known.identity_key == identity_key else _ID_REUSED",
        "",
    ),
    Mutant("a-known-id-is-forgotten", "_apply.py", "if known is not None:", "if False:"),
    Mutant(
        "a-tombstone-forgets-when-its-target-was-created",
        "_apply.py",
        "created_at_ms=stored.created_at_ms if stored else 0",
        "created_at_ms=0",
    ),
    Mutant(
        "a-target-comes-back-without-being-newer",
        "_apply.py",
        "incoming.created_at_ms > stored.created_at_ms",
        "incoming.created_at_ms >= stored.created_at_ms",
    ),
    Mutant("anything-comes-back", "_apply.py", "isinstance(mutation, TargetUpsert) and incoming", "incoming"),
    Mutant("nothing-comes-back", "_apply.py", "isinstance(mutation, TargetUpsert) and incoming", "False and incoming"),
    Mutant("a-settled-turn-is-reopened", "_apply.py", "return stored.closed", "return False"),
    Mutant(
        "settling-needs-a-newer-time",
        "_apply.py",
        "if incoming.closed != stored.closed:",
        "if stored.closed and not incoming.closed:",
    ),
    Mutant(
        "a-superseded-interaction-counts-as-pending",
        "_apply.py",
        "mutation.snapshot.status != INTERACTION_PENDING",
        "mutation.snapshot.status == 'answered'",
    ),
    Mutant("versions-do-not-count", "_apply.py", "if incoming.version != stored.version:", "if False:"),
    Mutant(
        "a-higher-version-must-also-be-newer",
        "_apply.py",
        "if incoming.version != stored.version:",
        "if incoming.version < stored.version:",
    ),
    Mutant("equal-is-stale", "_apply.py", "incoming.updated_at_ms < stored", "incoming.updated_at_ms <= stored"),
    Mutant("an-older-snapshot-overwrites", "_apply.py", "if _is_stale(incoming, stored):", "if False:"),
    Mutant(
        "anchors-are-judged-before-staleness",
        "_apply.py",
        "if _is_stale(incoming, stored):",
        "if incoming.anchor in (None, stored.anchor) and _is_stale(incoming, stored):",
    ),
    Mutant(
        "an-omitted-anchor-clears", "_apply.py", "msgspec.structs.replace(incoming, anchor=stored.anchor)", "incoming"
    ),
    Mutant("an-anchor-changes", "_apply.py", "return _ANCHOR_CHANGED", "return Write(incoming)"),
    Mutant(
        "a-batch-does-not-know-its-own-ids",
        "_plan.py",
        "known[one.mutation_key] = Known(one.identity_key, cursor)",
        "pass",
    ),
    Mutant("a-batch-does-not-see-its-own-writes", "_plan.py", "stored[one.entity_key] = decision.stored", "pass"),
    Mutant(
        "a-duplicate-gets-a-new-cursor",
        "_plan.py",
        "cursor = DUPLICATE, decision.cursor",
        "cursor = DUPLICATE, last_cursor",
    ),
    Mutant(
        "a-stale-one-gets-a-cursor",
        "_plan.py",
        "disposition: Disposition = STALE\n        cursor = 0",
        "disposition: Disposition = STALE\n        cursor = last_cursor",
    ),
    Mutant(
        "the-last-message-decides-the-observed-version",
        "_plan.py",
        "max(before.version, message.snapshot.version)",
        "message.snapshot.version",
    ),
    Mutant(
        "the-last-message-decides-the-observed-time",
        "_plan.py",
        "max(before.time_ms, message.snapshot.updated_at_unix_ms)",
        "message.snapshot.updated_at_unix_ms",
    ),
    Mutant(
        "sessions-of-two-workspaces-are-one",
        "_plan.py",
        "parents.get((workspace, inside))",
        "parents.get((next(iter(parents), ('',))[0], inside))",
    ),
    Mutant(
        "the-stored-anchor-is-not-in-the-snapshot",
        "_plan.py",
        "mutation.snapshot.identity_anchor_turn_id != stored.anchor:",
        "False:",
    ),
    Mutant("children-of-a-deleted-session-are-shown", "_read.py", "_SESSION.c.deleted == true()", "false()"),
    Mutant(
        "a-session-does-not-show-what-its-messages-said",
        "_read.py",
        "max(snapshot.message_version, row.observed_version)",
        "snapshot.message_version",
    ),
    Mutant("the-counter-is-not-stored", "sql.py", '{"cursor": plan.last_cursor}', '{"cursor": last_cursor}'),
    Mutant("a-ledger-is-not-kept", "sql.py", "_insert(connection, LEDGER, plan.ledger)", "pass"),
    Mutant("what-was-observed-is-not-loaded", "sql.py", "if sessions else ()", "if False else ()"),
]


@pytest.fixture
def copy_of_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Mutant | None], ModuleType]]:
    """Import a copy of the package, with a fault or as it is, under another name."""
    name = f"copied_{abs(hash(tmp_path))}"
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(mutant: Mutant | None) -> ModuleType:
        folder = tmp_path / name
        shutil.copytree(Path(tutti_sinks.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            source = (folder / mutant.file).read_text("utf-8")
            assert source.count(mutant.anchor) == 1, f"the anchor of {mutant.name} is not there exactly once"
            (folder / mutant.file).write_text(source.replace(mutant.anchor, mutant.fault), "utf-8")
        return importlib.import_module(name)

    yield make
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def problem_of(package: Any, bed_of: Callable[[Any], Any]) -> str | None:
    """Run the suite, then histories; return the first thing that is wrong."""
    with package.open_conformance_sink("sqlite://") as open_sink:
        failed = [report.problem for report in run_sink(open_sink) if not report.passed]
    if failed:
        return failed[0]
    bed = bed_of(package)
    for seed in range(HISTORIES):
        try:
            bed.empty()
            run_history(seed, bed)
        except HistoryMismatchError as error:
            return str(error)
        except Exception as error:
            return f"history {seed}: {type(error).__name__}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_is_noticed(
    mutant: Mutant, copy_of_the_sink: Callable[[Mutant | None], ModuleType], bed_of: Callable[[Any], Any]
) -> None:
    """The suite and the histories are worth what they catch. Source: our choice."""
    assert problem_of(copy_of_the_sink(mutant), bed_of) is not None, f"{mutant.name} survived"


@pytest.mark.slow
def test_a_copy_without_a_fault_passes(
    copy_of_the_sink: Callable[[Mutant | None], ModuleType], bed_of: Callable[[Any], Any]
) -> None:
    """So that it is the fault that is noticed, not the copying. Source: our choice."""
    assert problem_of(copy_of_the_sink(None), bed_of) is None
