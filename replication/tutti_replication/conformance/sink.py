"""Running the sink cases against a sink: the first difference ends the case and says where it was.

Source: activity replication specification ("`Sink` applies official mutations and reads the final projection").
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from tutti_replication.acknowledgement import ApplyResponse, summarize_acknowledgements
from tutti_replication.epoch import EpochMismatch
from tutti_replication.errors import AcknowledgementError
from tutti_replication.mutation import Mutation
from tutti_replication.ports import Authorizer
from tutti_replication.rejection import PermanentRejection

from .cases import (
    AbsentRow,
    Apply,
    ExpectedAnswer,
    ExpectedMismatch,
    ExpectedRejection,
    Lookup,
    Restart,
    SinkCase,
    StoredRow,
    respelled,
    sink_cases,
)
from .ports import ConformanceSink, OpenSink, StoredEntity
from .report import CaseReport, ConformanceError

__all__ = ["run_sink", "run_sink_case"]

_JSON: Final = msgspec.json.Encoder()


def run_sink(open_sink: OpenSink, cases: Iterable[SinkCase] | None = None) -> tuple[CaseReport, ...]:
    """Run every case, each on an emptied projection, and report on each.

    Args:
      open_sink: opens another handle on the same projection each time; see `ports.OpenSink`.
      cases: instead of all that ship.

    Returns:
      A report per case; an empty ``problem`` is a pass. Whatever a sink raises that is no answer is a problem.
    """
    reports: list[CaseReport] = []
    for case in sink_cases() if cases is None else cases:
        problem = ""
        try:
            run_sink_case(open_sink, case)
        except ConformanceError as error:
            problem = str(error)
        except Exception as error:
            problem = f"{case.name}: the sink raised {type(error).__name__}"
        reports.append(CaseReport(name=case.name, about=case.about, problem=problem))
    return tuple(reports)


def run_sink_case(open_sink: OpenSink, case: SinkCase) -> None:
    """Run one case on an emptied projection.

    Raises:
      ConformanceError: the first difference.
      Exception: whatever else the sink raised.
    """
    run = _Run(open_sink)
    run.handle("a").reset()
    try:
        for number, step in enumerate(case.steps, 1):
            problem = run.step(step)
            if problem:
                raise ConformanceError(case.name, number, problem)
    finally:
        run.close()


class _Run:
    """One case in progress: its open handles and the cursors it has seen."""

    def __init__(self, open_sink: OpenSink) -> None:
        self._open_sink = open_sink
        self._handles: dict[str, ConformanceSink] = {}
        self._cursors: dict[str, int] = {}

    def handle(self, writer: str) -> ConformanceSink:
        if writer not in self._handles:
            self._handles[writer] = self._open_sink()
        return self._handles[writer]

    def close(self) -> None:
        for handle in self._handles.values():
            close: Callable[[], object] | None = getattr(handle, "close", None)
            if close is not None:
                close()
        self._handles.clear()

    def step(self, step: Apply | Lookup | Restart) -> str:
        """Do one step; return what was wrong, or nothing."""
        if isinstance(step, Restart):
            self.close()
            return ""
        if isinstance(step, Lookup):
            found = self.handle("a").lookup(step.row.workspace_id, step.row.source_device_id, step.row.typed_key())
            return _compare_row(step, found)
        return self._apply(step)

    def _apply(self, step: Apply) -> str:
        expect = step.expect
        try:
            answer = self.handle(step.writer).apply(
                step.input.encoded(), authorize=_authorizer(step.permitted_workspaces)
            )
        except PermanentRejection as rejection:
            return _compare_rejection(expect, rejection)
        except EpochMismatch as mismatch:
            if not isinstance(expect, ExpectedMismatch):
                return f"answered an epoch mismatch ({step.about})"
            return _differ("epochs", (expect.expected, expect.actual), (mismatch.expected, mismatch.actual))
        if not isinstance(expect, ExpectedAnswer):
            return f"accepted what must be refused ({step.about})"
        return self._compare_answer(expect, answer)

    def _compare_answer(self, expect: ExpectedAnswer, answer: ApplyResponse) -> str:
        wanted = [(a.mutation_id, a.transaction_id, a.disposition) for a in expect.acknowledgements]
        got = [(a.mutation_id, a.transaction_id, a.disposition) for a in answer.acknowledgements]
        problem = _differ("acknowledgements", wanted, got)
        if problem:
            return problem
        for want, have in zip(expect.acknowledgements, answer.acknowledgements, strict=True):
            problem = self._compare_cursor(want.cursor, have.cursor, want.mutation_id)
            if problem:
                return problem
        try:
            summary = summarize_acknowledgements(answer.acknowledgements, epoch=expect.result.projection_epoch)
        except AcknowledgementError as error:
            return str(error)
        cursor = 0 if isinstance(expect.result.cursor, int) else self._cursors[expect.result.cursor]
        if (expect.result.accepted_count, cursor) != (summary.accepted_count, summary.cursor):
            return "the case contradicts itself: its result is no summary"
        return _differ("result that summarises the acknowledgements", summary, answer.result)

    def _compare_cursor(self, want: str | int, have: int, mutation_id: str) -> str:
        if isinstance(want, int):
            return _differ(f"cursor of {mutation_id!r}", want, have)
        known = self._cursors.get(want)
        if known is not None:
            return _differ(f"cursor of {mutation_id!r}", known, have)
        greatest = max(self._cursors.values(), default=0)
        if have <= greatest:
            return f"cursor of {mutation_id!r}: {have} is not greater than {greatest}, which was given before"
        self._cursors[want] = have
        return ""


def _authorizer(permitted: tuple[str, ...] | None) -> Authorizer | None:
    if permitted is None:
        return None

    def authorize(mutation: Mutation) -> bool:
        return mutation.workspace_id in permitted

    return authorize


def _compare_rejection(
    expect: ExpectedAnswer | ExpectedRejection | ExpectedMismatch, rejection: PermanentRejection
) -> str:
    if not isinstance(expect, ExpectedRejection):
        return f"answered a {rejection.kind} rejection of {rejection.mutation_id!r} ({rejection.rule.value})"
    problem = _differ(
        "rejection",
        (expect.rejection, expect.mutation_id, expect.transaction_id),
        (rejection.kind, rejection.mutation_id, rejection.transaction_id),
    )
    if not problem and expect.field:
        problem = _differ("rejected field", expect.field, rejection.field)
    return problem


def _compare_row(step: Lookup, found: StoredEntity | None) -> str:
    where = f"{step.row.entity_type} {'/'.join(step.row.key.values())}"
    if isinstance(step.expect, AbsentRow):
        return "" if found is None else f"{where} is there and should not be"
    if found is None:
        return f"{where} is not there"
    expect: StoredRow = step.expect
    want = expect.entity(step.row)
    for part, wanted, had in (
        ("snapshot", want.snapshot, found.snapshot),
        ("scope", want.scope, found.scope),
    ):
        wanted_fields, fields = _plain(wanted), _plain(had)
        for name in sorted(wanted_fields.keys() | fields.keys()):
            if wanted_fields.get(name) != fields.get(name):
                return f"{where}: {part}.{name} differs"
    name = respelled(found.snapshot, expect.verbatim)
    return f"{where}: snapshot.{name} is not kept verbatim" if name else ""


def _plain(struct: object) -> dict[str, str]:
    """Return field → value in one spelling, so that 1, 1.0 and true are three values."""
    fields: dict[str, Any] = json.loads(_JSON.encode(struct))
    return {name: json.dumps(value, sort_keys=True) for name, value in fields.items()}


def _differ(what: str, want: object, have: object) -> str:
    return "" if want == have else f"{what}: expected {want}, got {have}"
