"""Cases: nothing of a Side is kept anywhere, by the host or by its provider, and nobody resumes it."""

from collections.abc import Sequence

from tutti_side.contract import (
    CanonicalRef,
    EndReason,
    Event,
    ResumeSession,
    SessionId,
    SourceMetadata,
    TurnCompleted,
)
from tutti_side.errors import TuttiSideError
from tutti_side.runtime import SideExpiredError
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._hearing import refused
from tutti_side.testing.adapter_suite._stage import Stage
from tutti_side.testing.adapter_suite.bed import SAY

__all__ = ["TransienceCases"]

MARK = "kit-mark-7f3a"
"""Stands in what a Side is asked, and nowhere else."""


class NobodysSink:
    """Takes what should never come."""

    def emit(self, events: Sequence[Event], size_bytes: int) -> None:
        """Drop it."""

    def end(self, reason: EndReason) -> None:
        """Drop it."""


class TransienceCases(CaseGroup):
    """A Side that leaves nothing."""

    @case
    async def test_nothing_of_a_side_reaches_its_parents_subscribers(self, stage: Stage) -> None:
        """R1; specification: send gives transient events only, and they are the Side's."""
        turn = await stage.hold_parent()
        side, _ = await stage.open_side()
        asked = await side.send(SAY)
        await asked.wait()
        await side.close()
        await stage.finish(turn)
        await stage.heard.wait_for(TurnCompleted)
        assert stage.heard.turns == {turn.id}

    @case
    async def test_nothing_of_a_side_is_reported_or_kept_by_the_host(self, stage: Stage) -> None:
        """R2; specification: no canonical writes, no durable reporting."""
        side, _ = await stage.open_side()
        turn = await side.send(f"{SAY} {MARK}", client_submit_id="kit-submit")
        await turn.wait()
        await side.close()
        await stage.is_well(stage.parent)
        assert {activity.ref for activity in stage.reporter.recorded} == {stage.parent.ref}
        assert {ref for ref, _ in stage.metadata.written} == {stage.parent.ref}
        written = f"{list(stage.reporter.recorded)} {stage.metadata.written}"
        assert all(word not in written for word in (MARK, side.id, turn.id, "kit-submit"))

    @case
    async def test_nothing_that_a_side_was_asked_is_in_what_the_provider_keeps(self, stage: Stage) -> None:
        """R2; specification, comparison with Session Fork: the branch is ephemeral."""
        side, _ = await stage.open_side()
        await side.ask(f"{SAY} {MARK}")
        assert MARK not in stage.bed.kept()
        await side.close()
        await stage.parent.ask(f"{SAY} once more")
        assert "once more" in stage.bed.kept(), "the bed's `kept` does not show what is kept of a session"
        assert MARK not in stage.bed.kept()

    @case
    async def test_the_parents_next_turn_knows_nothing_of_the_side(self, stage: Stage) -> None:
        """R7: closing a Side, and what was asked in it, changes nothing of the parent."""
        side, _ = await stage.open_side()
        await side.ask(f"{SAY} {MARK}")
        assert MARK in stage.bed.told_model()
        await side.close()
        await stage.parent.ask(f"{SAY} once more")
        assert "once more" in stage.bed.told_model()
        assert MARK not in stage.bed.told_model()

    @case
    async def test_a_side_is_not_resumable_at_its_provider(self, stage: Stage) -> None:
        """R8; specification: a Side is never resumed as a canonical session."""
        side, _ = await stage.open_side()
        await stage.is_well(side)
        await side.close()
        child = stage.seam.opened[side.scope.ref].provider_session_id
        metadata = SourceMetadata(provider=stage.adapter.name, provider_session_id=child, cwd=str(stage.bed.workspace))
        as_session = CanonicalRef(stage.parent.ref.workspace, SessionId("kit-resumed"))
        with refused(TuttiSideError):
            await stage.adapter.resume(ResumeSession(ref=as_session, metadata=metadata), NobodysSink())
        assert stage.adapter.liveness(as_session) == "unknown"
        await stage.is_well(stage.parent)

    @case
    async def test_a_closed_side_is_over_for_good(self, stage: Stage) -> None:
        """R8: its id is never opened again, and the provider is not even asked."""
        side, _ = await stage.open_side("kit-side", "kit-request")
        await side.close()
        with refused(SideExpiredError) as caught:
            await stage.parent.open_side(side_id="kit-side", request_id="kit-request")
        assert caught.error.reason == "closed"
        with refused(SideExpiredError):
            await side.send(SAY)
        assert len(stage.seam.calls_of("open_side")) == 1
        assert stage.adapter.liveness(side.scope.ref) != "live"
