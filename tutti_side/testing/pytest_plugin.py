"""A pytest plugin: what a run of the conformance kit says at its end, and assertions that show what they compared.

In the ``conftest.py`` at the root of the tests: ``pytest_plugins = ["tutti_side.testing.pytest_plugin"]``, or ``-p``
with its name. Then, for each suite that ran::

    kit NAME: 78 passed, 0 failed, 1 excluded
      test_the_case: why this adapter can't do it

The kit runs without it too. The only module of this package that needs pytest; nothing imports it but pytest.
"""

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

__all__ = ["pytest_runtest_makereport", "pytest_terminal_summary"]

pytest.register_assert_rewrite("tutti_side.testing.adapter_suite")

SUITE, EXCLUDED = "tutti_side.kit", "tutti_side.kit.excluded"
"""Properties of a report; they are passed on by plugins that run tests in several processes."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on the report of a case which suite it belongs to, and what that excludes."""
    report = yield
    suite: Any = getattr(item, "cls", None)
    if getattr(getattr(item, "obj", None), "kit_case", False):
        report.user_properties.append((SUITE, suite.kit_name or suite.__name__))
        report.user_properties.append((EXCLUDED, dict(suite.excluded)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how each suite came out, and what it excludes."""
    counts: dict[str, Counter[str]] = {}
    excluded: dict[str, dict[str, str]] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            properties: dict[str, Any] = dict(getattr(report, "user_properties", ()))
            if SUITE in properties:
                name = str(properties[SUITE])
                counts.setdefault(name, Counter())["passed" if outcome == "passed" else "failed"] += 1
                excluded.setdefault(name, {}).update(properties[EXCLUDED])
    for name, count in sorted(counts.items()):
        left_out = excluded[name]
        terminalreporter.line(
            f"kit {name}: {count['passed']} passed, {count['failed']} failed, {len(left_out)} excluded"
        )
        for case, reason in left_out.items():
            terminalreporter.line(f"  {case}: {reason}")
