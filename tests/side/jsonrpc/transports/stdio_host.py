"""Run as a host that will be killed: says ``opening``, opens a child, says who is who in one JSON line, waits.

Arguments: ``plain``, or ``forked`` (the host has forked a process that holds a copy of every descriptor); the command.
"""

import json
import os
import signal
import sys

import trio

from tutti_side.jsonrpc.transports.stdio import open_stdio


async def main() -> None:
    mode, *command = sys.argv[1:]
    os.write(1, b"opening\n")
    async with open_stdio(command, env=dict(os.environ)) as child:
        await child.receive_some(100)
        copy = 0
        if mode == "forked":
            copy = os.fork()
            if copy == 0:
                while True:
                    signal.pause()
        who = {"guard": child.guard_pid, "child": child.pid, "copy": copy}
        os.write(1, json.dumps(who).encode() + b"\n")
        await trio.sleep_forever()


trio.run(main)
