"""One id is one thing: a session's or a Side's, in either order."""

from pathlib import Path
from typing import Any

import pytest
import trio

from tutti_side import SessionConflictError, SessionExpiredError, SideConflictError, open_host
from tutti_side.contract import CanonicalRef, SessionId

BOUND_S = 5


async def test_a_live_sessions_id_is_taken_and_is_not_called_over(provider: Any) -> None:
    """Our choice: it said that the live session was over."""
    with trio.fail_after(BOUND_S):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".", session_id="main")
            for again in (host.start_session(cwd=".", session_id="main"), host.resume_session("main")):
                with pytest.raises(SessionConflictError, match="in use") as caught:
                    await again
                assert caught.value.session_id == "main"
            assert session.scope.state == "open"
            await session.close()
            with pytest.raises(SessionExpiredError, match="over"):
                await host.start_session(cwd=".", session_id="main")


async def test_no_session_gets_the_id_of_a_side_live_or_over(provider: Any) -> None:
    """R2, R8: the other order was refused already; a Side's id that a session takes would make the two one."""
    with trio.fail_after(BOUND_S):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".", session_id="main")
            async with session.side(side_id="aside"):
                with pytest.raises(SessionConflictError, match="a Side's"):
                    await host.start_session(cwd=".", session_id="aside")
            with pytest.raises(SessionConflictError, match="a Side's"):
                await host.start_session(cwd=".", session_id="aside")
            assert [ref.session for ref in provider.adapter.started] == ["main"]


async def test_no_side_gets_the_id_of_a_session_live_or_over(provider: Any) -> None:
    """R2: what is said of the one would be taken for the other's, also when that is over."""
    with trio.fail_after(BOUND_S):
        async with open_host(provider) as host:
            await host.start_session(cwd=".", session_id="main")
            other = await host.start_session(cwd=".", session_id="other")
            for _ in range(2):
                with pytest.raises(SideConflictError, match="a canonical session's id"):
                    await host.open_side("main", "other", "r")
                await other.close()
            assert provider.adapter.opened == []


async def test_no_side_is_branched_from_a_side_live_or_over(provider: Any) -> None:
    """R2, R5: it has no history; refused by its id alone, before any lock, and whatever is kept under that id."""
    provider.adapter.offers_history = True
    with trio.fail_after(BOUND_S):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".", session_id="main")
            assert session.scope.metadata is not None
            side = await session.open_side(side_id="aside")
            kept = CanonicalRef(session.ref.workspace, SessionId("aside"))
            await host.controller.durable.write_metadata(kept, session.scope.metadata)
            for _ in range(2):
                with pytest.raises(SideConflictError, match="would branch a Side"):
                    await host.open_side("aside", "s", "r")
                await side.close()
            assert [request.side.side for request in provider.adapter.opened] == ["aside"]


async def test_a_kept_session_is_not_resumed_under_an_id_that_has_become_a_sides(provider: Any) -> None:
    """R2: what was kept by an earlier process is known only when it is asked for."""
    with trio.fail_after(BOUND_S):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=".", session_id="main")
            kept = session.scope.metadata
            assert kept is not None
            async with session.side(side_id="kept") as side:
                ref = CanonicalRef(session.ref.workspace, SessionId("kept"))
                await host.controller.durable.write_metadata(ref, kept)
                with pytest.raises(SessionConflictError, match="a Side's"):
                    await host.resume_session("kept")
                assert side.is_open
            assert provider.adapter.resumed == []


async def test_a_directory_of_bytes_is_the_directory_that_it_names(provider: Any, tmp_path: Path) -> None:
    """Our choice, as in `os`: as bytes it reached the wire in base64, and the agent worked somewhere else."""
    with trio.fail_after(BOUND_S):
        async with open_host(provider) as host:
            session = await host.start_session(cwd=bytes(tmp_path))  # type: ignore[arg-type]
            assert session.scope.metadata is not None
            assert session.scope.metadata.cwd == str(tmp_path)
