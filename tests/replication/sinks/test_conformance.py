"""The conformance suite over SQLite in a file and in memory, MariaDB and PostgreSQL."""

import pytest

from tutti_replication.codec import encode_batch
from tutti_replication.conformance.cases import SinkCase, sink_cases
from tutti_replication.conformance.samples import session_upsert
from tutti_replication.conformance.sink import run_sink, run_sink_case
from tutti_sinks import SinkNotEmptyError, open_sql_sink
from tutti_sinks.conformance import open_conformance_sink

CASES = tuple(sink_cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sqlite_in_memory_passes(case: SinkCase) -> None:
    """Each case by name. RW-sink-*, RW-equal-*, F41, F42, F45."""
    with open_conformance_sink("sqlite://") as open_sink:
        run_sink_case(open_sink, case)


def test_every_database_passes_every_case(database_url: str) -> None:
    """RW-sink-*, RW-equal-*, F41, F42, F45: one projection, emptied before each case; no case is left out."""
    with open_conformance_sink(database_url) as open_sink:
        reports = run_sink(open_sink)

    assert [report.problem for report in reports if not report.passed] == []
    assert [report.name for report in reports] == [case.name for case in CASES]
    assert len(reports) > 0


def test_a_projection_that_was_used_is_not_emptied(database_url: str) -> None:
    """A check of the wrong database must cost nothing. Source: our choice."""
    with open_sql_sink(database_url) as sink:
        sink.apply(encode_batch([session_upsert("m1")]))

    with pytest.raises(SinkNotEmptyError), open_conformance_sink(database_url):
        pass

    with open_sql_sink(database_url) as sink:
        assert len(sink.changes().items) == 1


def test_a_checked_projection_is_left_as_new(database_url: str) -> None:
    """So that it can be used, or checked again. Source: our choice."""
    for _ in range(2):
        with open_conformance_sink(database_url) as open_sink:
            run_sink_case(open_sink, CASES[0])

    with open_sql_sink(database_url) as sink:
        assert (sink.last_cursor(), sink.changes().items) == (0, [])
