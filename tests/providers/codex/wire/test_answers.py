"""An answer of the server with a wrong type anywhere in it ends as a typed error, or does no harm."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import trio

from tutti_providers.codex import ConnectionStatistics
from tutti_side import AgentHost, SessionHandle
from tutti_side.errors import TuttiSideError

JUNK: tuple[Any, ...] = (None, 0, "", [], {"a": 1}, "\ud800")
TASK, HELD = "refactor", "hold on"

Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a JSON value, itself first."""
    yield path
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from paths(inner, (*path, key))


class Bender:
    """Puts something else at one place of each answer to one method."""

    def __init__(self, wire: Any, method: str) -> None:
        self.seen: set[Path] = set()
        self.path: Path | None = None
        self.junk: Any = None
        self.method = method
        self.wire = wire
        wire.between = self.bend

    def bend(self, frame: dict[str, Any]) -> list[dict[str, Any]]:
        """Bend `frame` in place; say nothing more."""
        asked = {request["id"] for request in self.wire.requests(self.method)}
        if "result" in frame and "method" not in frame and frame["id"] in asked:
            self.seen.update(paths(frame["result"]))
            if self.path is not None:
                inner, key = frame, "result"
                for step in self.path:
                    inner, key = inner[key], step  # type: ignore[assignment]
                with suppress(LookupError):
                    inner[key] = json.loads(json.dumps(self.junk))
        return []


async def use(host: AgentHost, working: SessionHandle) -> None:
    """Do everything that sends a request; each step may fail in a typed way, and nothing else."""
    with suppress(TuttiSideError):
        session = await host.start_session(cwd="/project")
        with suppress(TuttiSideError):
            turn = await session.send(TASK)
            await turn.cancel()
        await session.close()
    with suppress(TuttiSideError):
        side = await working.open_side()
        with suppress(TuttiSideError):
            await side.send(HELD)
        await side.close()


@pytest.mark.parametrize(
    "method",
    [
        "thread/start",
        "turn/start",
        "turn/interrupt",
        "thread/fork",
        "thread/inject_items",
        "thread/backgroundTerminals/clean",
        "thread/unsubscribe",
    ],
)
async def test_a_wrong_type_anywhere_in_an_answer_is_a_typed_error_or_harmless(
    bench: Any, autojump_clock: trio.testing.MockClock, method: str
) -> None:
    """R9, and garbage: `suppress` lets nothing but our errors pass, and the host and its session live on."""
    one = bench()
    async with one.working() as (host, working):
        bender = Bender(one.wire, method)
        await use(host, working)
        genuine = sorted(bender.seen, key=str)
        assert genuine

        for path in genuine:
            for junk in JUNK:
                bender.path, bender.junk = path, junk
                await use(host, working)

        bender.path = None
        async with working.side() as side:
            assert (await side.ask("what?")).text == "s0 s1 "
        statistics: ConnectionStatistics = one.connection
        assert statistics.router.route_failures == statistics.peer.router_failures == 0
        assert working.active_turn is not None
