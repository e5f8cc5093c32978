"""More input for a turn that runs, and modes, through a host over a script."""

import pytest
import trio
import trio.testing

from tutti_providers.scripted import Call, Echo, Fail, Say, Script, Turn, Wait, scripted
from tutti_side import InvalidContentError, OperationUnsupportedError, SideExpiredError, open_host
from tutti_side.contract import CommandAdapter, ExecTurn, TextContent, TurnNotActiveError

SCRIPT = Script(
    turns=(
        Turn(when="work", steps=(Say(("half ",)), Wait(gate="g"), Say(("whole",)))),
        Turn(when="lose", steps=(Fail("no"),)),
        Turn(steps=(Echo(),)),
    )
)


@pytest.mark.parametrize("where", ["session", "side"])
async def test_more_input_is_answered_in_the_same_turn_after_what_it_was_doing(where: str) -> None:
    """Specification: steer is an operation of its own."""
    provider = scripted(SCRIPT)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        holder = session if where == "session" else await session.open_side()
        turn = await holder.send("work")
        await provider.wait_reached("g")
        await turn.steer("and this")
        await turn.steer([TextContent("and that")])
        assert holder.active_turn is not None
        assert holder.active_turn.id == turn.id
        provider.gate("g").set()
        messages = (await turn.wait()).answer.messages
        assert messages[:2] == ("half ", "whole")
        assert [text.split(" (")[0] for text in messages[2:]] == ["You said: and this", "You said: and that"]
        assert [call.operation for call in provider.calls].count("exec") == 1


async def test_a_turn_that_is_over_takes_no_input_and_the_next_one_does_not_get_it() -> None:
    """Specification: exact turn; typed error."""
    provider = scripted(SCRIPT)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        first = await session.send("hello")
        await first.wait()
        second = await session.send("work")
        await provider.wait_reached("g")
        with pytest.raises(TurnNotActiveError) as raised:
            await first.steer("too late")
        assert raised.value.turn_id == first.id
        provider.gate("g").set()
        assert (await second.wait()).answer.messages == ("half ", "whole")
        assert "steer" not in {call.operation for call in provider.calls}


async def test_input_that_fails_the_turn_fails_it() -> None:
    """Our choice: what the script says to more input is played like any other step."""
    provider = scripted(SCRIPT)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        turn = await session.send("work")
        await provider.wait_reached("g")
        await turn.steer("lose")
        provider.gate("g").set()
        assert (await turn.wait()).status == "failed"
        assert (await session.ask("hello")).text == "You said: hello"


async def test_wrong_content_or_a_closed_side_is_refused_before_anything_is_sent() -> None:
    """Our choice: as for a send."""
    provider = scripted(SCRIPT)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side()
        turn = await side.send("work")
        await provider.wait_reached("g")
        with pytest.raises(InvalidContentError):
            await turn.steer("")
        await side.close()
        with pytest.raises(SideExpiredError):
            await turn.steer("more")
        assert "steer" not in {call.operation for call in provider.calls}


async def test_a_turns_mode_reaches_the_provider_and_is_none_by_default() -> None:
    """Our choice: an option of send and ask, for sessions and Sides alike."""
    provider = scripted(SCRIPT)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side(side_id="s", request_id="r")
        for holder in (session, side):
            await holder.ask("hello", mode="plan")
            await (await holder.send("hello")).wait()
        await (await host.send_side(session.ref.session, "s", "r", "hello", mode="plan")).wait()
        assert [mode_of(call) for call in provider.calls if call.operation == "exec"] == [
            *("plan", None) * 2,
            "plan",
        ]


def mode_of(call: Call) -> str | None:
    assert isinstance(call.request, ExecTurn)
    return call.request.mode


async def test_a_provider_without_commands_or_steering_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: what is not offered is refused by name, and nothing is sent."""
    provider = scripted(SCRIPT)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        with pytest.raises(OperationUnsupportedError) as raised:
            await session.end_commands()
        assert (raised.value.provider, raised.value.operation) == ("scripted", "end_commands")
        monkeypatch.setattr("tutti_side.runtime.turn_handle.SteeringAdapter", CommandAdapter)
        turn = await session.send("work")
        await provider.wait_reached("g")
        with pytest.raises(OperationUnsupportedError) as raised:
            await turn.steer("more")
        assert raised.value.operation == "steer"


async def test_a_connection_that_is_lost_while_input_is_given_is_the_sessions_end() -> None:
    """R9."""
    provider = scripted(SCRIPT)
    async with open_host(provider) as host:
        session = await host.start_session(cwd=".")
        side = await session.open_side()
        turn = await side.send("work")
        await provider.wait_reached("g")
        failures: list[BaseException] = []

        async def steer() -> None:
            try:
                await turn.steer("more")
            except SideExpiredError as error:
                failures.append(error)

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(steer)
                await trio.testing.wait_all_tasks_blocked()
                session.scope.adapter.drop()  # type: ignore[attr-defined]
            with pytest.raises(SideExpiredError):
                await turn.steer("more")
