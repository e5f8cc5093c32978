"""The runners find what is wrong: each deliberately wrong implementation fails, and the report says in what."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from tutti_replication import (
    ApplyResponse,
    Authorizer,
    EpochMismatch,
    PermanentRejection,
    Rule,
    admit_batch,
    encode_batch,
)
from tutti_replication.conformance import (
    CanonicalEntity,
    CaseReport,
    ConformanceError,
    OracleLog,
    OracleSink,
    StoredEntity,
    run_projection,
    run_sink,
    run_sink_case,
    sink_cases,
)
from tutti_replication.conformance.memory_builder import MemoryBuilder
from tutti_replication.keys import EntityKey, TurnKey
from tutti_replication.structs import SessionScope, SessionSnapshot

Replace = msgspec.structs.replace


class WrongTransaction(OracleSink):
    """Answers a duplicate with the original's transaction id."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        answer = super().apply(batch, authorize=authorize)
        return Replace(
            answer, acknowledgements=tuple(Replace(a, transaction_id="transaction-1") for a in answer.acknowledgements)
        )


class NoSummary(OracleSink):
    """Counts only what it wrote."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        answer = super().apply(batch, authorize=authorize)
        written = sum(a.disposition == "applied" for a in answer.acknowledgements)
        return Replace(answer, result=Replace(answer.result, accepted_count=written))


class LastCursor(OracleSink):
    """Answers the last acknowledgement's cursor instead of the greatest."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        answer = super().apply(batch, authorize=authorize)
        return Replace(answer, result=Replace(answer.result, cursor=answer.acknowledgements[-1].cursor))


class LostScope(OracleSink):
    """Forgets whether a session is public."""

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        found = super().lookup(workspace_id, source_device_id, key)
        if found is None or not isinstance(found.scope, SessionScope):
            return found
        return StoredEntity(found.snapshot, Replace(found.scope, visibility="members"))


class LostAnchor(OracleSink):
    """Clears an anchor that is omitted."""

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        found = super().lookup(workspace_id, source_device_id, key)
        if found is None or not isinstance(key, TurnKey):
            return found
        return StoredEntity(Replace(found.snapshot, identity_anchor_turn_id=None), found.scope)


class SpelledAnew(OracleSink):
    """Keeps an object's meaning, but not its characters."""

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        found = super().lookup(workspace_id, source_device_id, key)
        payload = getattr(found.snapshot, "payload", None) if found else None
        if found is None or payload is None:
            return found
        squeezed = msgspec.json.encode(msgspec.json.decode(bytes(payload)))
        return StoredEntity(Replace(found.snapshot, payload=msgspec.Raw(squeezed)), found.scope)


class ObservedForgotten(OracleSink):
    """Shows the uploaded message version only."""

    def lookup(self, workspace_id: str, source_device_id: str, key: EntityKey) -> StoredEntity | None:
        found = super().lookup(workspace_id, source_device_id, key)
        if found is None or not isinstance(found.snapshot, SessionSnapshot):
            return found
        return StoredEntity(Replace(found.snapshot, message_version=0), found.scope)


class HalfWritten(OracleSink):
    """Keeps what it had applied before it found the offender."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        try:
            return super().apply(batch, authorize=authorize)
        except PermanentRejection as rejection:
            if rejection.kind == "identity":
                for mutation in admit_batch(batch):
                    if mutation.mutation_id not in ("m1", rejection.mutation_id):
                        super().apply(encode_batch([mutation]))
            raise


class Nameless(OracleSink):
    """Rejects without saying whom."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        try:
            return super().apply(batch, authorize=authorize)
        except PermanentRejection as rejection:
            raise PermanentRejection(rejection.kind, "", "", rule=rejection.rule) from None


class WrongKind(OracleSink):
    """Calls everything a schema rejection."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        try:
            return super().apply(batch, authorize=authorize)
        except PermanentRejection as rejection:
            raise PermanentRejection(
                "schema", rejection.mutation_id, rejection.transaction_id, rule=Rule.WRONG_TYPE
            ) from None


class EpochSwapped(OracleSink):
    """Confuses the two epochs."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        try:
            return super().apply(batch, authorize=authorize)
        except EpochMismatch as mismatch:
            raise EpochMismatch(mismatch.actual, mismatch.expected) from None


class CursorAgain(OracleSink):
    """Numbers each batch from 1."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        answer = super().apply(batch, authorize=authorize)
        cursors = [a.cursor for a in answer.acknowledgements if a.cursor]
        least = min(cursors, default=1) - 1
        return Replace(
            answer,
            result=Replace(answer.result, cursor=max(cursors, default=0) - least if cursors else 0),
            acknowledgements=tuple(
                Replace(a, cursor=a.cursor - least if a.cursor else 0) for a in answer.acknowledgements
            ),
        )


class Permissive(OracleSink):
    """Asks nobody."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        return super().apply(batch)


class Amnesiac(OracleSink):
    """Loses everything in a restart."""

    def close(self) -> None:
        self.log.accepted = []


class Crashing(OracleSink):
    """Raises what is no answer."""

    def apply(self, batch: bytes, *, authorize: Authorizer | None = None) -> ApplyResponse:
        raise OSError("gone")


WRONG_SINKS: list[tuple[type[OracleSink], str]] = [
    (WrongTransaction, "acknowledgements"),
    (NoSummary, "result that summarises"),
    (LastCursor, "result that summarises"),
    (LostScope, "scope.visibility differs"),
    (LostAnchor, "snapshot.identityAnchorTurnId differs"),
    (SpelledAnew, "not kept verbatim"),
    (ObservedForgotten, "snapshot.messageVersion differs"),
    (HalfWritten, "is there and should not be"),
    (Nameless, "rejection: expected"),
    (WrongKind, "rejection: expected ('identity'"),
    (EpochSwapped, "epochs: expected"),
    (CursorAgain, "which was given before"),
    (Permissive, "accepted what must be refused"),
    (Amnesiac, "is not there"),
    (Crashing, "the sink raised OSError"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG_SINKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_sink_fails_and_the_report_says_in_what(wrong: type[OracleSink], said: str) -> None:
    """Conformance: the runners themselves are tested to fail."""
    log = OracleLog()
    reports = run_sink(lambda: wrong(log))
    assert any(said in report.problem for report in reports), [report.problem for report in reports]


def test_a_difference_is_raised_with_case_and_step() -> None:
    """Our choice: one case by itself raises."""
    (case,) = [case for case in sink_cases() if case.name == "retry_after_lost_response"]
    log = OracleLog()
    with pytest.raises(ConformanceError) as caught:
        run_sink_case(lambda: WrongTransaction(log), case)
    assert (caught.value.case, caught.value.step) == ("retry_after_lost_response", 2)


def test_every_handle_is_closed_also_when_a_case_fails() -> None:
    """`OpenSink`: a handle with a close method is closed by the runner."""
    opened: list[OracleSink] = []
    closed: list[OracleSink] = []

    class Closing(Nameless):
        def __init__(self, log: OracleLog) -> None:
            super().__init__(log)
            opened.append(self)

        def close(self) -> None:
            closed.append(self)

    log = OracleLog()
    reports = run_sink(lambda: Closing(log))
    assert any(not report.passed for report in reports)
    assert opened == closed
    assert len(opened) > len(reports)


class ChangedId(MemoryBuilder):
    """Makes new ids for the same change."""

    def build(self) -> bytes:
        data = super().build()
        self._waiting = [mutation.replace(b'"mutation-', b'"mutation-x') for mutation in self._waiting]
        return data


class ChangedContent(MemoryBuilder):
    """Builds from what is there now, under the old ids."""

    def build(self) -> bytes:
        data = super().build()
        self._waiting = [m.replace(b'"updatedAtUnixMs":100', b'"updatedAtUnixMs":101') for m in self._waiting]
        return data


class ChangedSpelling(MemoryBuilder):
    """Sends other bytes that mean the same."""

    def build(self) -> bytes:
        data = super().build()
        self._waiting = [mutation + b" " for mutation in self._waiting]
        return data


class OneId(MemoryBuilder):
    """Gives all changes of a transaction one id."""

    def build(self) -> bytes:
        return super().build().replace(b'"mutation-', b'"').replace(b'Id":"2"', b'Id":"3"')


class SeedOrder(MemoryBuilder):
    """Sends in the order of the seeds."""

    def seed(self, entities: Sequence[CanonicalEntity]) -> None:
        for entity in entities:
            super().seed([entity])


class ChildrenFirst(MemoryBuilder):
    """Sends the kinds in order, but each kind backwards."""

    def seed(self, entities: Sequence[CanonicalEntity]) -> None:
        super().seed(entities)
        self._waiting = sorted(reversed(self._waiting), key=lambda data: _KINDS.index(_kind(data)))


_KINDS = ["agentTarget", "session", "turn", "interaction", "message"]


def _kind(data: bytes) -> str:
    kind: str = msgspec.json.decode(data)["entityType"]
    return kind


class LosesScope(MemoryBuilder):
    """Says of every session that members only may see it."""

    def build(self) -> bytes:
        return super().build().replace(b'"public"', b'"members"')


class LosesOne(MemoryBuilder):
    """Forgets the last entity."""

    def seed(self, entities: Sequence[CanonicalEntity]) -> None:
        super().seed(entities)
        self._waiting = self._waiting[:-1] or self._waiting


class Zeroes(MemoryBuilder):
    """Rounds a large integer as a float would."""

    def build(self) -> bytes:
        return super().build().replace(b"9007199254740993", b"9007199254740992")


class Respells(MemoryBuilder):
    """Rewrites the numbers of an object."""

    def build(self) -> bytes:
        return super().build().replace(b"1e3", b"1000")


class Squeezes(MemoryBuilder):
    """Drops the white space of an object."""

    def build(self) -> bytes:
        return super().build().replace(b'{ "z":1, ', b'{"z":1,')


class NoBatch(MemoryBuilder):
    """Builds what no sink would take."""

    def build(self) -> bytes:
        return b"{}"


class Raising(MemoryBuilder):
    """Raises."""

    def build(self) -> bytes:
        raise OSError("gone")


WRONG_BUILDERS: list[tuple[Callable[[], MemoryBuilder], str]] = [
    (ChangedId, "other mutation ids"),
    (ChangedContent, "the same mutation ids and other content"),
    (ChangedSpelling, "spelled in other bytes"),
    (OneId, "the same id"),
    (SeedOrder, "comes after an entity of a later kind"),
    (ChildrenFirst, "comes before what it refers to"),
    (LosesScope, "scope.visibility differs"),
    (LosesOne, "is not in the batch"),
    (Zeroes, "snapshot.updatedAtUnixMs differs"),
    (Respells, "snapshot.payload differs"),
    (Squeezes, "snapshot.payload is not copied verbatim"),
    (NoBatch, "no valid batch"),
    (Raising, "the builder raised OSError"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG_BUILDERS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_wrong_builder_fails_and_the_report_says_in_what(wrong: Callable[[], MemoryBuilder], said: str) -> None:
    """Conformance: the runners themselves are tested to fail; F35: a retry under another id happens twice."""
    reports: tuple[CaseReport, ...] = run_projection(wrong())
    assert any(said in report.problem for report in reports), [report.problem for report in reports]
