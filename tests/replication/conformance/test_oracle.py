"""The oracle and the small builder pass the suites that they are here to prove."""

import pytest

from tutti_replication import EpochMismatch, PermanentRejection, encode_batch
from tutti_replication.conformance import (
    OracleLog,
    OracleSink,
    ProjectionCase,
    SinkCase,
    projection_cases,
    run_projection,
    run_projection_case,
    run_sink,
    run_sink_case,
    sink_cases,
)
from tutti_replication.conformance.memory_builder import MemoryBuilder
from tutti_replication.conformance.samples import session_upsert
from tutti_replication.keys import SessionKey


def test_the_oracle_passes_each_sink_case(sink_case: SinkCase) -> None:
    """Conformance: every sink case; R17."""
    log = OracleLog()
    run_sink_case(lambda: OracleSink(log), sink_case)


def test_the_small_builder_passes_each_projection_case(projection_case: ProjectionCase) -> None:
    """Conformance: builder cases run here against a small in-memory builder."""
    run_projection_case(MemoryBuilder(), projection_case)


def test_a_whole_run_reports_every_case_in_order() -> None:
    """Our choice: what `sink check` prints."""
    log = OracleLog()
    reports = run_sink(lambda: OracleSink(log))
    assert [report.name for report in reports] == [case.name for case in sink_cases()]
    assert all(report.passed and report.about for report in reports)
    built = run_projection(MemoryBuilder())
    assert [report.name for report in built] == [case.name for case in projection_cases()]
    assert all(report.passed for report in built)


@pytest.mark.parametrize(
    "name",
    [
        "retry_after_lost_response",
        "every_stale_kind_in_one_batch_and_later_mutations_go_on",
        "ordered_batch_goes_on_past_a_stale_session",
        "mutation_id_reused_with_another_workspace",
        "mutation_id_reused_with_another_source_device",
        "mutation_id_reused_with_another_entity_type",
        "mutation_id_reused_with_another_operation",
        "mutation_id_reused_with_another_key",
        "mutation_id_reused_in_one_batch",
        "schema_rejection_names_its_mutation",
        "upsert_of_runtimeOperation_is_rejected",
        "upsert_of_runtimeOperationEvent_is_rejected",
        "upsert_of_submitClaim_is_rejected",
        "batch_with_a_bad_last_mutation_writes_nothing",
        "session_deleted_stays_deleted",
        "session_deleted_before_it_was_there",
        "target_comes_back_when_created_later",
        "anchor_omitted_is_not_cleared",
        "anchor_asserted_later_is_stored",
        "anchor_contradicted_is_an_identity_rejection",
        "scopes_are_stored_and_read_back",
        "epoch_comes_before_everything_else",
        "message_before_its_session_raises_its_version",
        "message_after_its_session_raises_its_version",
        "cursors_increase_across_batches_writers_workspaces_and_restarts",
    ],
)
def test_the_cases_that_the_specification_asks_for_are_there(name: str) -> None:
    """Conformance: the list of sink cases; activity replication specification, conformance."""
    assert name in {case.name for case in sink_cases()}


def test_cases_have_names_that_read_as_test_ids() -> None:
    """Conformance: a pytest plugin with readable ids."""
    names = [case.name for case in sink_cases()] + [case.name for case in projection_cases()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)
    assert [str(case) for case in projection_cases()] == [case.name for case in projection_cases()]


def test_an_oracle_of_another_epoch_refuses_and_keeps_its_own() -> None:
    """Wire page, Details: a sink has its epoch."""
    sink = OracleSink(epoch=2)
    with pytest.raises(EpochMismatch):
        sink.apply(encode_batch([session_upsert("m")]))
    answer = sink.apply(encode_batch([session_upsert("m")], epoch=2))
    assert answer.result.projection_epoch == 2
    sink.reset()
    assert sink.lookup("workspace-1", "device-1", SessionKey("session-1")) is None


def test_an_oracle_asks_its_authoriser() -> None:
    """Wire page, What a sink decides, 2: the contract owns no room authorisation, the caller brings it."""
    sink = OracleSink()
    with pytest.raises(PermanentRejection) as caught:
        sink.apply(encode_batch([session_upsert("m")]), authorize=lambda mutation: False)
    assert caught.value.kind == "permission"
    assert sink.log.accepted == []
