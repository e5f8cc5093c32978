"""Run as a host that will be killed: the turns of a session and of a Side run, then one JSON line says who is who.

Arguments: ``plain``, or ``forked`` (the host has forked a process that holds a copy of every descriptor); a directory
to work in. ``CODEX_HOME`` and the rest of the environment are as the binary gets them.
"""

import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import Any

import trio

import tutti_providers.codex
from tutti_providers.codex import codex
from tutti_side import open_host
from tutti_side.jsonrpc.transports.stdio import open_stdio


async def main() -> None:
    mode, workspace = sys.argv[1:]
    started: list[Any] = []

    @asynccontextmanager
    async def open_and_tell(command: list[str], **options: Any) -> Any:
        async with open_stdio(command, **options) as transport:
            started.append(transport)
            yield transport

    tutti_providers.codex.open_stdio = open_and_tell  # type: ignore[attr-defined,assignment]
    async with open_host(codex(extra_environ={"TUTTI_TEST_LAB": os.environ["TUTTI_TEST_LAB"]})) as host:
        session = await host.start_session(cwd=workspace)
        await session.send("Run it")
        async with session.side() as side:
            await side.send("What does it do?")
            copy = 0
            if mode == "forked":
                copy = os.fork()
                if copy == 0:
                    while True:
                        signal.pause()
            [transport] = started
            who = {"guard": transport.guard_pid, "child": transport.pid, "copy": copy}
            os.write(1, json.dumps(who).encode() + b"\n")
            await trio.sleep_forever()


trio.run(main)
