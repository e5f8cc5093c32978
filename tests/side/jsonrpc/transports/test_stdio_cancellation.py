"""A cancel at every step of a child's life, whoever's task makes the step.

`CUTS` names what the cuts must have fallen into; `tests/side/test_cuts_complete.py` reads it.
"""

from typing import Any

import pytest
import trio

from tutti_side.jsonrpc.transports.stdio import open_stdio
from tutti_side.testing.cuts import Cut, cut_at_every_step

pytestmark = pytest.mark.process

Lab = Any
BOUND_S = 60.0

SAID = bytes(range(256)) * 2_000
"""More than both pipes hold, so that the write waits for the reader."""

CUTS = {
    "open": ("open_stdio",),
    "close": ("StdioTransport.aclose",),
    "read": ("StdioTransport.receive_some",),
    "write": ("StdioTransport.send_all",),
    "wait for the exit": ("StdioTransport.wait_exit",),
}


@pytest.mark.usefixtures("open_fds")
async def test_a_cancel_after_any_step_of_opening_leaves_nothing(lab: Lab) -> None:
    """R14, F31, F32: after the k-th step of any task, for every k; no process, no descriptor, no zombie."""

    async def once(cut: Cut) -> None:
        with cut.cancelling():
            async with open_stdio(["cat"], env=lab.env) as child:
                assert child.started
        assert lab.alive() == []
        assert lab.zombies() == []

    report = await cut_at_every_step(once, run_s=BOUND_S)

    assert report.cuts > 8  # opening takes some steps, and all of them were cut
    assert report.inside >= set(CUTS["open"])


@pytest.mark.usefixtures("open_fds")
async def test_a_cancel_after_any_step_of_closing_leaves_nothing(lab: Lab) -> None:
    """R14: the close of a cancelled block is the same close, bounded and complete."""

    async def once(cut: Cut) -> None:
        async with open_stdio(["cat"], env=lab.env) as child:
            with cut.cancelling():
                await child.aclose()
            assert lab.alive() == []

    report = await cut_at_every_step(once, run_s=BOUND_S)

    assert report.cuts >= 5
    assert report.inside >= set(CUTS["close"])


@pytest.mark.usefixtures("open_fds")
async def test_nothing_is_lost_of_what_a_cut_reader_was_about_to_get(lab: Lab) -> None:
    """R14; `Transport.receive_some`: a cancelled read loses nothing."""

    async def once(cut: Cut) -> None:
        got = bytearray()
        async with open_stdio(["cat"], env=lab.env) as child:

            async def write() -> None:
                await child.send_all(SAID)

            async def read() -> None:
                while len(got) < len(SAID):
                    got.extend(await child.receive_some(50_000))

            async with trio.open_nursery() as nursery:
                with cut.cancelling() as scope:
                    nursery.start_soon(write)
                    await read()
                if scope.cancelled_caught:
                    await read()
            assert got == SAID

    report = await cut_at_every_step(once, run_s=BOUND_S)

    assert report.inside >= set(CUTS["read"])


@pytest.mark.usefixtures("open_fds")
async def test_a_cut_writer_has_sent_a_beginning(lab: Lab) -> None:
    """R14; `Transport.send_all`: in order, and then the stream is good for closing."""

    async def once(cut: Cut) -> None:
        got = bytearray()
        async with open_stdio(["cat"], env=lab.env) as child, trio.open_nursery() as nursery:

            async def read() -> None:
                while len(got) < len(SAID):
                    got.extend(await child.receive_some(50_000))

            nursery.start_soon(read)
            with cut.cancelling() as scope:
                await child.send_all(SAID)
            if scope.cancelled_caught:
                nursery.cancel_scope.cancel()
        assert SAID.startswith(got)
        assert scope.cancelled_caught or got == SAID
        assert lab.alive() == []

    report = await cut_at_every_step(once, run_s=BOUND_S)

    assert report.inside >= set(CUTS["write"])


@pytest.mark.usefixtures("open_fds")
async def test_a_cut_wait_for_the_exit_is_harmless(lab: Lab) -> None:
    """R14; `Transport.wait_exit`."""

    async def once(cut: Cut) -> None:
        async with open_stdio(["sh", "-c", "echo word >&2; exit 3"], env=lab.env) as child:
            with cut.cancelling():
                await child.wait_exit()
            while await child.receive_some(100):
                pass
            exit = await child.wait_exit()
            assert (exit.status, exit.stderr_tail) == (3, ("word",))

    report = await cut_at_every_step(once, run_s=BOUND_S)

    assert report.inside >= set(CUTS["wait for the exit"])
