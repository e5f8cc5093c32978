"""What the provider asks: requested once, resolved once, answered once; declined where nobody can answer."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tutti_providers.scripted import Ask, Drop, Opening, OwnTurn, Say, Script, Turn, Wait, scripted
from tutti_providers.scripted.script import Step
from tutti_side import open_host
from tutti_side.contract import (
    ExecTurn,
    InteractionAnswer,
    InteractionId,
    InteractionOption,
    InteractionQuestion,
    InteractionRequested,
    InteractionResolved,
    InvalidAnswerError,
    StartSession,
    TextContent,
    TurnCanceled,
    TurnCompleted,
)
from tutti_side.runtime import (
    InteractionAlreadyAnsweredError,
    InteractionInvalidError,
    InteractionNotLiveError,
    SideExpiredError,
)

YES = InteractionAnswer(option_id="accept")
APPROVE = Ask(
    title="rm -rf build",
    detail="to start afresh",
    answers={"accept": (Say(("removed",)),), "decline": (Say(("kept",)),)},
    then=(Say(("stopped",)),),
)


async def asked(handle: Any) -> Any:
    """Return what is asked, once it is."""
    await trio.testing.wait_all_tasks_blocked()
    [interaction] = handle.interactions
    return interaction


@pytest.mark.parametrize(("option", "said"), [("accept", "removed"), ("decline", "kept"), ("cancel", "stopped")])
async def test_an_approval_goes_on_as_it_was_answered(option: str, said: str) -> None:
    """Contract: one of the options; R11."""
    async with open_host(scripted(Script(fallback=(APPROVE,)))) as host:
        session = await host.start_session(cwd=".")
        events = session.events()
        turn = await session.send("clean")
        interaction = await asked(session)
        assert (interaction.kind, interaction.title, interaction.detail) == ("approval", APPROVE.title, APPROVE.detail)
        assert interaction.turn_id == turn.id
        session.respond(interaction.interaction_id, InteractionAnswer(option_id=option))
        assert (await turn.wait()).answer.text == said
        with pytest.raises(InteractionAlreadyAnsweredError):
            session.respond(interaction.interaction_id, YES)
        await session.close()
        seen = [event async for batch in events for event in batch.events]
    resolved = [event for event in seen if isinstance(event, InteractionResolved)]
    assert resolved == [InteractionResolved(interaction.interaction_id, "answered")]


async def test_questions_and_plans_are_answered_in_their_own_way() -> None:
    """Contract: answers by question id; an option of the plan."""
    steps = (
        Ask(kind="question", title="?", questions=(InteractionQuestion("q", "Which?"),), then=(Say(("thanks",)),)),
        Ask(kind="plan", title="plan", options=(InteractionOption("go", "Go"),), answers={"go": (Say(("going",)),)}),
    )
    async with open_host(scripted(Script(fallback=steps))) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("x")
        question = await asked(session)
        assert [one.id for one in question.questions] == ["q"]
        session.respond(question.interaction_id, InteractionAnswer(answers={"q": ("this",)}))
        plan = await asked(session)
        assert plan.kind == "plan"
        session.respond(plan.interaction_id, InteractionAnswer(option_id="go"))
        assert (await turn.wait()).answer.messages == ("thanks", "going")


async def test_an_answer_that_does_not_fit_leaves_it_open() -> None:
    """Contract: `InvalidAnswerError`; nothing was sent."""
    async with open_host(scripted(Script(fallback=(APPROVE,)))) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("x")
        interaction = await asked(session)
        with pytest.raises(InteractionInvalidError) as caught:
            session.respond(interaction.interaction_id, InteractionAnswer(option_id="maybe"))
        assert isinstance(caught.value.__cause__, InvalidAnswerError)
        assert session.interactions == (interaction,)
        session.respond(interaction.interaction_id, YES)
        assert (await turn.wait()).answer.text == "removed"


async def test_a_side_and_its_source_answer_only_what_they_were_asked() -> None:
    """F29: an approval of a Side is never the parent's, nor the reverse."""
    async with open_host(scripted(Script(fallback=(APPROVE,)))) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("x")
        async with session.side() as side:
            side_turn = await side.send("y")
            await trio.testing.wait_all_tasks_blocked()
            [ours], [theirs] = side.interactions, session.interactions
            for handle, foreign in ((side, theirs), (session, ours)):
                with pytest.raises(InteractionInvalidError):
                    handle.respond(foreign.interaction_id, YES)
            side.respond(ours.interaction_id, InteractionAnswer(option_id="decline"))
            assert (await side_turn.wait()).answer.text == "kept"
            assert session.interactions == (theirs,)
        session.respond(theirs.interaction_id, YES)
        assert (await turn.wait()).answer.text == "removed"


async def test_what_the_provider_takes_back_is_superseded_and_the_turn_goes_on(autojump_clock: MockClock) -> None:
    """F28: no answer goes out after it was resolved."""
    ask = Ask(title="?", taken_back_after_s=10, then=(Say(("answered",)),))
    async with open_host(scripted(Script(fallback=(ask, Say(("went on",)), Wait(gate="g"))))) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("x")
        interaction = await asked(session)
        await trio.sleep(11)
        assert session.interactions == ()
        assert turn.is_active
        assert turn.answer.messages == ("went on",)
        with pytest.raises(InteractionNotLiveError):
            session.respond(interaction.interaction_id, YES)


async def test_a_question_nobody_waits_for_is_superseded_with_its_turn() -> None:
    """Contract: each interaction is resolved exactly once, before its turn's end."""
    provider = scripted(Script(fallback=(Ask(title="?", is_waiting=False),)))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with session.events() as events:
            await session.ask("x")
            await session.close()
            seen = [event async for batch in events for event in batch.events]
    kinds = [type(event) for event in seen]
    assert kinds.count(InteractionRequested) == kinds.count(InteractionResolved) == 1
    assert kinds.index(InteractionResolved) < kinds.index(TurnCompleted)


@pytest.mark.parametrize("steps", [(APPROVE, Say(("after",))), (APPROVE,)], ids=["more to come", "asked last"])
async def test_a_close_declines_what_is_asked_and_then_interrupts(steps: tuple[Step, ...]) -> None:
    """R11; architecture §4: decline first, then interrupt. The answer's steps are never played."""
    provider = scripted(Script(fallback=steps))
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side(subscribe=True)
        await side.send("x")
        interaction = await asked(side)
        events = side.events()
        await side.close()
        seen = [event async for batch in events for event in batch.events]
        assert [type(event).__name__ for event in seen] == [
            "SessionStarted",
            "TurnStarted",
            "InteractionRequested",
            "InteractionResolved",
            "TurnCanceled",
            "SessionClosed",
        ]
        assert seen[3] == InteractionResolved(interaction.interaction_id, "superseded")
        with pytest.raises(SideExpiredError):
            side.respond(interaction.interaction_id, YES)


async def test_a_close_declines_at_once_even_when_its_interrupt_is_ignored(lab: Any) -> None:
    """R11, F21: a pending request would survive; the stubborn turn goes on without its answer."""
    script = Script(turns=(Turn(steps=(APPROVE, Say(("after",))), is_stubborn=True),))
    async with scripted(script).open() as adapter:
        ref, sink = lab.session(), lab.recorder()
        await adapter.start(StartSession(ref=ref, cwd="/"), sink)
        await adapter.exec(ref, ExecTurn(content=(TextContent("x"),)))
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(4):
            await adapter.close(ref)
        assert lab.kinds(sink.events)[-4:] == ["InteractionResolved", "MessageDelta", "MessageUpdated", "TurnCompleted"]


async def test_a_lost_connection_resolves_what_was_asked_before_the_end(lab: Any) -> None:
    """R9, R11: exactly once, also on loss."""
    script = Script(turns=(Turn(when="ask", steps=(APPROVE,)), Turn(when="die", steps=(Drop(),))))
    async with open_host(scripted(script)) as host:
        session = await host.start_session(cwd=".")
        other = await host.start_session(cwd=".")
        with session.events() as events:
            await session.send("ask")
            await asked(session)
            await other.send("die")
            seen = [event async for batch in events for event in batch.events]
    assert lab.kinds(seen) == ["TurnStarted", "InteractionRequested", "InteractionResolved", "SessionExpired"]


async def test_an_interrupt_supersedes_what_its_turn_asked() -> None:
    """F28."""
    async with open_host(scripted(Script(fallback=(APPROVE,)))) as host:
        session = await host.start_session(cwd=".")
        with session.events() as events:
            turn = await session.send("x")
            interaction = await asked(session)
            await turn.cancel()
            assert (await turn.wait()).status == "canceled"
            with pytest.raises(InteractionNotLiveError):
                session.respond(interaction.interaction_id, YES)
            await session.close()
            seen = [event async for batch in events for event in batch.events]
    assert [type(event) for event in seen[-3:-1]] == [InteractionResolved, TurnCanceled]


async def test_what_a_child_asks_before_its_open_is_answered_can_be_answered_afterwards() -> None:
    """F3: early events of a child, an interaction among them, are not lost and not the parent's."""
    script = Script(opens=(Opening(steps=(OwnTurn((APPROVE,)),)),))
    async with open_host(scripted(script)) as host:
        session = await host.start_session(cwd=".")
        async with session.side() as side:
            [interaction] = side.interactions
            assert session.interactions == ()
            assert side.active_turn is not None
            turn = side.active_turn
            side.respond(interaction.interaction_id, InteractionAnswer(option_id="decline"))
            assert (await turn.wait()).answer.text == "kept"


async def test_an_answer_after_the_provider_has_let_go_is_told_so(lab: Any) -> None:
    """Contract: `respond` returns False when it is not pending at the provider any more."""
    async with scripted(Script(fallback=(APPROVE,))).open() as adapter:
        ref, sink = lab.session(), lab.recorder()
        await adapter.start(StartSession(ref=ref, cwd="/"), sink)
        assert adapter.respond(ref, InteractionId("unknown"), YES) is False
        turn = await adapter.exec(ref, ExecTurn(content=(TextContent("x"),)))
        await trio.testing.wait_all_tasks_blocked()
        [requested] = [event for event in sink.events if isinstance(event, InteractionRequested)]
        await adapter.cancel(ref, turn)
        await trio.testing.wait_all_tasks_blocked()
        assert adapter.respond(ref, requested.interaction_id, YES) is False
