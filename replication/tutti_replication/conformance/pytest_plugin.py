"""A pytest plugin: a test that asks for ``sink_case`` or ``projection_case`` runs once per case, named like the case.

In a ``conftest.py``: ``pytest_plugins = ["tutti_replication.conformance.pytest_plugin"]``, or ``-p`` with its name.
Then::

    def test_my_sink(sink_case, tmp_path):
        run_sink_case(lambda: MySink(tmp_path / "projection.db"), sink_case)

The only module of the contract that needs pytest; nothing imports it but pytest.
"""

import pytest

from .cases import projection_cases, sink_cases

__all__ = ["pytest_generate_tests"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test its cases."""
    if "sink_case" in metafunc.fixturenames:
        metafunc.parametrize("sink_case", sink_cases(), ids=str)
    if "projection_case" in metafunc.fixturenames:
        metafunc.parametrize("projection_case", projection_cases(), ids=str)
