"""Cases: canonical sessions, without which there are no Sides: started, refused, resumed."""

from tutti_side.contract import InvalidSettingsError
from tutti_side.testing.adapter_suite._case import CaseGroup, case
from tutti_side.testing.adapter_suite._hearing import refused
from tutti_side.testing.adapter_suite._stage import Stage
from tutti_side.testing.adapter_suite.bed import SAID, SAY

__all__ = ["SessionCases"]


class NobodysSettings:
    """Settings of no provider."""


class SessionCases(CaseGroup):
    """Sessions."""

    @case
    async def test_settings_of_another_provider_are_refused_and_nothing_is_started(self, stage: Stage) -> None:
        """Contract, `StartSession.settings`: the provider's own struct, or None; R6."""
        with refused(InvalidSettingsError):
            await stage.host.start_session(cwd=stage.bed.workspace, settings=NobodysSettings())
        assert stage.host.statistics().sessions == 1
        assert stage.bed.loaded() == 1

    @case
    async def test_a_closed_session_resumes_with_what_was_said_in_it(self, stage: Stage) -> None:
        """Contract, `Adapter.resume`: a session that the provider has persisted."""
        await stage.parent.ask(f"{SAY} kit-before")
        await stage.parent.close()
        assert stage.bed.loaded() == 0
        session = await stage.host.resume_session(stage.parent.ref.session)
        await stage.is_well(session)
        assert "kit-before" in stage.bed.told_model()
        assert session.provider_session_id == stage.parent.provider_session_id

    @case
    async def test_a_resumed_session_is_branched_as_any_other(self, stage: Stage) -> None:
        """Contract, `OpenSide.history`: a connection of ours holds it live again."""
        await stage.parent.close()
        session = await stage.host.resume_session(stage.parent.ref.session)
        await stage.is_well(session)
        async with session.side() as side:
            await stage.is_well(side)
            assert SAID in stage.bed.told_model()
        await stage.is_well(session)
        assert stage.bed.loaded() == 1

    @case
    async def test_two_sessions_hear_each_its_own(self, stage: Stage) -> None:
        """R1: for canonical sessions, too."""
        turn = await stage.hold_parent()
        other, _ = await stage.start_parent()
        side = await other.open_side()
        await stage.is_well(side)
        await stage.is_well(other)
        await stage.finish(turn)
        assert stage.heard.turns == {turn.id}
        await other.close()
        assert stage.heard.ends == []
