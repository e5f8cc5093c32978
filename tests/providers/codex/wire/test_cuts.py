"""Cancel after the k-th step of any task, for every k, in what a user calls.

Afterwards the clock runs on, and nothing may be left: no route, lease, lock, subscription or pooled message; the same
host opens another Side and asks it. The adapter's own calls are in `test_cuts_adapter`; more ends of the server, and
those of the host, in `test_cuts_ends`.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from tutti_providers.codex.testing import AnswerLate, ForkOrder
from tutti_side import SessionHandle, SideExpiredError, SideHandle, TurnHandle, TuttiSideError
from tutti_side.testing.cuts import Cut, cut_at_every_step

LATE = (
    ForkOrder(order=("starting", "request", "response", "started")),
    AnswerLate(method="thread/fork", after_s=0.5),
    AnswerLate(method="thread/inject_items", after_s=0.5),
    AnswerLate(method="thread/start", after_s=0.5),
    AnswerLate(method="turn/start", after_s=0.5),
    AnswerLate(method="turn/interrupt", after_s=0.5),
    AnswerLate(method="thread/unsubscribe", after_s=0.5),
)
"""Every answer takes its time, so that the cut also falls while one is awaited."""

SETTLED_S = 200.0
"""Longer than everything that still has to happen after a cut."""

Call = Callable[[Any, Any, SessionHandle], Awaitable[Any]]


async def open_and_keep(made: Any, host: Any, session: SessionHandle) -> Any:
    return await session.open_side(subscribe=True)


async def use_a_side(made: Any, host: Any, session: SessionHandle) -> Any:
    async with session.side() as side:
        assert (await side.ask("what?")).text == "s0 s1 "


async def leave_a_side_in_its_turn(made: Any, host: Any, session: SessionHandle) -> Any:
    async with session.side() as side:
        await side.send("hold on")


async def ask_in_vain(made: Any, host: Any, session: SessionHandle) -> Any:
    async with session.side() as side:
        with trio.move_on_after(2):
            await side.ask("hold on")
        assert (await side.ask("what?")).text == "s0 s1 "


async def send_and_cancel(made: Any, host: Any, session: SessionHandle) -> Any:
    async with session.side() as side:
        turn = await side.send("hold on")
        await turn.cancel()
        assert (await turn.wait()).status == "canceled"


async def open_and_close(made: Any, host: Any, session: SessionHandle) -> Any:
    side = await session.open_side()
    await side.close()


async def start_and_close_a_session(made: Any, host: Any, session: SessionHandle) -> Any:
    second = await host.start_session(cwd="/project")
    try:
        await second.send("hold on")
        await second.close()
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await second.close()  # a cancelled close may have left it open
        raise


async def start_a_session(made: Any, host: Any, session: SessionHandle) -> Any:
    return await host.start_session(cwd="/project")


async def send_to_the_session(made: Any, host: Any, session: SessionHandle) -> Any:
    return await session.send("hold on")


IN_A_TURN = [
    open_and_keep,
    use_a_side,
    leave_a_side_in_its_turn,
    ask_in_vain,
    send_and_cancel,
    open_and_close,
    start_and_close_a_session,
    start_a_session,
]


async def release(result: Any) -> None:
    """Close what the call returned in the instant of the cut."""
    if isinstance(result, SideHandle | SessionHandle):
        await result.close()
    elif isinstance(result, TurnHandle):
        await result.cancel()
        await result.wait()


async def cut_once(made: Any, cut: Cut, call: Call, *, in_a_turn: bool = True) -> None:
    """Make the call, cut it, check what is left."""
    result: Any = None
    async with made.host() as host:
        if in_a_turn:
            session = await made.start_working(host)
        else:
            session = await host.start_session(cwd="/project")
        busy = session.active_turn
        with cut.cancelling():
            result = await call(made, host, session)
        assert len(made.servers) == 1
        await trio.sleep(SETTLED_S)
        await release(result)
        await trio.sleep(1)
        await trio.sleep(SETTLED_S)

        made.assert_only(host, session)
        assert session.active_turn is busy or session.active_turn.id == busy.id
        loose = [thread.id for thread in made.machine.threads.values() if thread.turn is not None]
        assert loose == ([session.provider_session_id] if in_a_turn else [])
        if not in_a_turn:
            await session.ask("what?")
        async with session.side() as side:
            assert (await side.ask("what?")).text == "s0 s1 "


@pytest.mark.parametrize("call", IN_A_TURN, ids=lambda call: call.__name__)
async def test_a_cancel_after_any_step_of_any_task_leaves_nothing(autojump_clock: Any, bench: Any, call: Call) -> None:
    """R14, R6, R4, R11, F18, F33: cancelled at the k-th step, for every k until the call ends uncut."""
    report = await cut_at_every_step(lambda cut: cut_once(bench(faults=LATE, tool_servers=("docs",)), cut, call))

    assert report.cuts > 11, "the cuts did not reach the wire"


async def test_a_session_s_turn_whose_sender_is_cancelled_at_any_step_does_not_run_on(
    autojump_clock: Any, bench: Any
) -> None:
    """R14, F33: not sent, or interrupted."""
    report = await cut_at_every_step(
        lambda cut: cut_once(bench(faults=LATE), cut, send_to_the_session, in_a_turn=False)
    )

    assert report.cuts > 9


async def test_the_start_of_the_first_session_cut_at_any_step_leaves_no_connection(
    autojump_clock: Any, bench: Any
) -> None:
    """R14, R6, F31, F32: while its process starts, while it says who it is, while the thread is made."""

    async def once(cut: Cut) -> None:
        made = bench(faults=LATE)
        async with made.host() as host:
            session = None
            with cut.cancelling():
                session = await host.start_session(cwd="/project")
            await trio.sleep(SETTLED_S)
            await release(session)
            await trio.testing.wait_all_tasks_blocked()
            made.assert_only(host)
            made.assert_only(host, await made.start_working(host))

    report = await cut_at_every_step(once)

    assert report.cuts > 28


async def live_a_whole_life(made: Any) -> None:
    async with made.host() as host:
        session = await made.start_working(host)
        async with session.side() as side:
            assert (await side.ask("what?")).text == "s0 s1 "
            await side.send("hold on")
            await session.open_side()


async def test_a_host_cut_at_any_step_of_its_life_leaves_no_connection_and_no_task(
    autojump_clock: Any, bench: Any
) -> None:
    """R13, R14, F32: also while it opens and while it closes; as itself, not as a group."""

    async def once(cut: Cut) -> None:
        made = bench(faults=LATE, tool_servers=("docs",))
        tasks = trio.lowlevel.current_statistics().tasks_living
        # A Side that the cut closed first says so to the block; that error, too, leaves as itself.
        with cut.cancelling(), suppress(SideExpiredError):
            await live_a_whole_life(made)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert made.running == 0

    report = await cut_at_every_step(once)

    assert report.cuts > 98


@pytest.mark.parametrize("status", [0, 101, -9], ids=["exit 0", "panic", "killed"])
async def test_the_servers_end_at_any_step_of_an_open_is_a_typed_error_and_leaves_nothing(
    autojump_clock: Any, bench: Any, status: int
) -> None:
    """R6, R8, R9, F14: the end of the process with a fork in flight; a session after it has a fresh process."""

    async def once(cut: Cut) -> None:
        made = bench(faults=LATE, tool_servers=("docs",))
        async with made.host() as host:
            session = await made.start_working(host)
            errors: list[TuttiSideError] = []
            with cut.striking(lambda: made.servers[0].crash(status)):
                try:
                    await use_a_side(made, host, session)
                except TuttiSideError as error:
                    errors.append(error)
            await trio.sleep(SETTLED_S)
            if cut.has_struck:
                assert await session.wait_ended() == "lost"
                made.assert_only(host)
                session = await made.start_working(host)
            else:
                assert errors == []
            made.assert_only(host, session)
            async with session.side() as side:
                assert (await side.ask("what?")).text == "s0 s1 "

    report = await cut_at_every_step(once)

    assert report.cuts > 48
