"""More than anybody reads: what a flood does to the one who does not read it, and that nobody else feels it."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.testing import (
    Answer,
    AnswerLate,
    ForkOrder,
    ModelScript,
    Pause,
    Reply,
    Say,
    run_command,
)
from tutti_side import SideExpiredError
from tutti_side.contract import Gap, InteractionAnswer, SessionExpired
from tutti_side.runtime import QUEUE_EVENTS_MAX
from tutti_side.runtime.errors import InteractionAlreadyAnsweredError

Frame = dict[str, Any]
Listen = Callable[..., Any]

READ_BYTES = 65_536
"""As a pipe hands it over."""

UNREAD = 50_000
FLOOD = 200_000
HUGE_TEXT = "x" * 10_000_000


def delta(handle: Any, text: str) -> Frame:
    """A piece of text of the turn that runs in a session or Side."""
    binding = getattr(handle.scope, "binding", None)
    thread_id = handle.provider_session_id if binding is None else binding.provider_session_id
    where = {"threadId": thread_id, "turnId": handle.active_turn.id, "itemId": "msg_flood"}
    return {"method": "item/agentMessage/delta", "params": {**where, "delta": text}}


def once_after(wanted: Callable[[Frame], bool], frames: list[Frame]) -> Callable[[Frame], list[Frame]]:
    """For `Wire.between`: say all that, once, behind the first such message."""
    said: list[bool] = []

    def between(frame: Frame) -> list[Frame]:
        if said or not wanted(frame):
            return []
        said.append(True)
        return frames

    return between


async def test_a_fork_answered_behind_fifty_thousand_messages_that_nobody_reads_completes(
    autojump_clock: Any, bench: Any, listen: Listen
) -> None:
    """F7, R10, R12: and the parent's text, read afterwards, is whole; who did not read, has a gap."""
    made = bench(faults=(ForkOrder(order=("status", "response", "started"), times=1),))
    async with made.working() as (_, session):
        unread = session.events()
        turn = session.active_turn
        made.wire.read_bytes = READ_BYTES
        made.wire.between = once_after(
            lambda frame: frame.get("method") == "thread/status/changed", [delta(session, "word ")] * UNREAD
        )
        async with session.side() as side:
            frames = made.wire.received
            [answered] = [
                at
                for at, frame in enumerate(frames)
                if (frame.get("result") or {}).get("thread", {}).get("forkedFromId")
            ]
            assert sum(frame.get("method") == "item/agentMessage/delta" for frame in frames[:answered]) >= UNREAD
            assert (await side.ask("what?")).text == "s0 s1 "
        made.server.open_gate("parent")
        result = await turn.wait()
        assert result.answer.messages == ("p0 p1 p2 p3 ", "word " * UNREAD)
        async with trio.open_nursery() as nursery:
            late = listen(nursery, unread)
        assert type(late.events[-1]) is Gap
        assert len(late.events) <= QUEUE_EVENTS_MAX + 1
        assert late.sequences == list(range(late.sequences[0], late.sequences[0] + len(late.sequences)))


class Crowd:
    """A source and three Sides of it, each with a turn that runs; one of them is flooded."""

    def __init__(self, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = made
        self.sides: dict[str, Any] = {}
        self.delivered: list[tuple[str, int]] = []
        """Each delivery to a thread: which, and how many messages."""
        deliver = CodexThread.deliver

        def count(thread: CodexThread, messages: list[Any]) -> None:
            self.delivered.append((thread.thread_id, len(messages)))
            deliver(thread, messages)

        monkeypatch.setattr(CodexThread, "deliver", count)

    async def gather(self, session: Any) -> None:
        for name in ("flooded", "unheard", "attentive"):
            self.sides[name] = await session.open_side(side_id=name, subscribe=name != "unheard")
            await self.sides[name].send("hold on")
        await self.made.server.wait_gate_reached("held", 3)
        await trio.testing.wait_all_tasks_blocked()

    def flood(self, session: Any) -> list[Frame]:
        """Everybody says something all the time, and one of them far too much."""
        flooded, unheard, attentive = (self.sides[name] for name in ("flooded", "unheard", "attentive"))
        part = [delta(flooded, "f")] * 999 + [delta(session, "m"), delta(unheard, "u")]
        parts = itertools.repeat(part, FLOOD // 999 + 1)
        return [*itertools.chain.from_iterable(parts), delta(attentive, HUGE_TEXT)]

    async def let_loose(self, session: Any) -> None:
        """Have the server say it all, and read it to its end."""
        self.delivered.clear()
        self.made.wire.read_bytes = READ_BYTES
        self.made.wire.between = once_after(lambda frame: "method" not in frame, self.flood(session))
        await self.made.adapter._live[session.ref].connection.peer.request("thread/loaded/list", {})
        await trio.testing.wait_all_tasks_blocked()

    def deliveries(self, session: Any) -> list[int]:
        """How many messages each delivery to the others had."""
        flooded = self.sides["flooded"].scope.binding.provider_session_id
        others = {session.provider_session_id}
        others |= {side.scope.binding.provider_session_id for side in self.sides.values()} - {flooded}
        return [count for thread_id, count in self.delivered if thread_id in others and count]


async def test_a_side_that_nobody_reads_overflows_alone_and_the_others_get_what_they_would_get_without_it(
    autojump_clock: Any, bench: Any, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7, R10, R12, F36: reason, the terminal event, the release; the other two live on."""
    deliveries: list[list[int]] = []
    for is_read in (True, False):
        made = bench()
        crowd = Crowd(made, monkeypatch)
        async with trio.open_nursery() as nursery, made.working() as (host, session):
            await crowd.gather(session)
            flooded, unheard, attentive = (crowd.sides[name] for name in ("flooded", "unheard", "attentive"))
            stream = flooded.events()
            of_attentive = listen(nursery, attentive.events())
            heard = listen(nursery, stream) if is_read else None
            await crowd.let_loose(session)
            deliveries.append(crowd.deliveries(session))
            child = flooded.scope.binding.provider_session_id
            if heard is not None:
                assert flooded.is_open
                assert heard.text.count("f") >= FLOOD
            else:
                assert stream._queued_events <= QUEUE_EVENTS_MAX + 2  # the gap and the end
                heard = listen(nursery, stream)
                with pytest.raises(SideExpiredError) as caught:
                    await flooded.ask("what?")
                assert caught.value.reason == "overflow"
                await flooded.scope.gone.wait()
                await trio.testing.wait_all_tasks_blocked()
                assert heard.events[-1] == SessionExpired("overflow")
                assert type(heard.events[-2]) is Gap
                assert child not in made.subscribed
                released = [
                    frame["method"] for frame in made.wire.sent if (frame.get("params") or {}).get("threadId") == child
                ]
                assert released[-3:] == ["turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"]
            assert (unheard.is_open, attentive.is_open) == (True, True)
            assert of_attentive.text.endswith(HUGE_TEXT)
            assert unheard.active_turn.answer.text.count("u") == FLOOD // 999 + 1
            assert session.active_turn.answer.text.count("m") == FLOOD // 999 + 1
            held = {side: side.active_turn for side in (unheard, attentive)}
            made.server.open_gate("held")
            for side, turn in held.items():
                assert (await turn.wait()).status == "completed"
                assert (await side.ask("what?")).text == "s0 s1 "
                await side.close()
            await flooded.close()
            made.assert_only(host, session)
    with_reader, without = deliveries
    assert with_reader == without
    assert len(without) > FLOOD // 999


ASKS = Answer(
    replies=(
        Reply(steps=(run_command("touch x", justification="Allow it?"),)),
        Reply(steps=(Say(tokens=("answered",)),)),
    ),
    when="may I?",
)
RESPONDERS = 1_000


async def test_of_a_thousand_who_answer_at_once_one_is_heard(autojump_clock: Any, bench: Any) -> None:
    """R11, F28: one response on the wire, one success, 999 who are told that it was answered."""
    parent = Answer.of(Say(tokens=("p0 ",)), Pause(gate="parent"), when="refactor")
    made = bench(script=ModelScript(answers=(parent, ASKS)), faults=(AnswerLate(method="turn/start", after_s=0.1),))
    async with made.working() as (_, session), session.side() as side:
        turn = await side.send("may I?")
        await trio.testing.wait_all_tasks_blocked()
        [asked] = side.interactions
        outcomes: list[Any] = []

        async def answer(number: int) -> None:
            await trio.lowlevel.checkpoint()
            option = ("accept", "decline", "cancel")[number % 3]
            try:
                side.respond(asked.interaction_id, InteractionAnswer(option_id=option))
            except InteractionAlreadyAnsweredError:
                outcomes.append(None)
            else:
                outcomes.append(option)

        async with trio.open_nursery() as nursery:
            for number in range(RESPONDERS):
                nursery.start_soon(answer, number)
        await turn.wait()
        [heard] = [outcome for outcome in outcomes if outcome is not None]
        assert len(outcomes) == RESPONDERS
        sent = [frame for frame in made.wire.sent if "method" not in frame]
        assert sent == [{"id": 0, "result": {"decision": heard}}]
