"""How fast a delta travels from the app-server's pipe to a consumer, beside other clients; one run, the same server.

A fake app-server streams pre-rendered deltas over one or many threads as fast as the pipe takes them. Each client
decodes every line, routes it by thread and turn, and hands it, typed, to a consumer. Time runs from before the first
turn is started until every consumer has seen its turn's end; all deltas are counted.

    python benchmarks/router.py [--json] [--messages 50000] [--threads 1,64] [--repeats 5] [--clients NAME,…]

Each measurement is a process of its own, so that no client runs in another one's heap; repeats are interleaved, so that
a noisy minute hits all of them. The official client is in the dependency group `benchmarks`, which the nox session
installs; without it its rows are left out, and the output says how to install it without the binary that it brings.
"""

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from tutti_providers.codex import codex
from tutti_providers.codex.testing import write_fake_binary
from tutti_providers.codex.testing.fake_process import STORM_VARIABLE
from tutti_side import open_host
from tutti_side.contract import EventBatch, MessageDelta, TurnCompleted
from tutti_side.runtime import SessionHandle
from tutti_side.runtime.event_hub import Subscription

WARM_UP_MESSAGES = 2_000
"""Deltas of the storm before the one that is measured: imports, first calls, code specialised by the interpreter."""

BOUND_S = 120
"""A measurement that takes longer hangs."""

OFFICIAL = "openai_codex"
HOW_TO_INSTALL = "not installed: pip install pydantic packaging && pip install --no-deps openai-codex"


class Storm:
    """One storm: what a client is measured with."""

    def __init__(self, binary: Path, messages: int, threads: int) -> None:
        self.binary = binary
        self.messages = messages
        self.threads = threads
        self.environ = {STORM_VARIABLE: f"{messages},{threads}"}


class Stopwatch:
    """Wall and CPU seconds of this process, the fake app-server's not included."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._began = (0.0, 0.0)

    def start(self) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def stop(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.wall_s, self.cpu_s = wall - self._began[0], cpu - self._began[1]


# The clients: each runs one storm, and returns how many deltas arrived ------------------------------------------------


def run_tutti_side(storm: Storm, watch: Stopwatch) -> int:
    """The product, as an application uses it: a host, sessions, turns, a consumer task for each session."""
    counts: list[int] = []

    async def consume(events: Subscription) -> None:
        count, expected = 0, None
        async for batch in events:
            assert expected in (None, batch.first_sequence)
            expected = batch.first_sequence + len(batch.events)
            count += count_deltas(batch)
            if type(batch.events[-1]) is TurnCompleted:
                break
        counts.append(count)

    async def main() -> None:
        provider = codex(storm.binary, extra_environ=storm.environ)
        async with open_host(provider) as host:
            sessions = [await host.start_session(cwd="/") for _ in range(storm.threads)]
            subscriptions = [session.events() for session in sessions]
            watch.start()
            async with trio.open_nursery() as nursery:
                for session, events in zip(sessions, subscriptions, strict=True):
                    nursery.start_soon(consume, events)
                    nursery.start_soon(send, session)
            watch.stop()

    async def send(session: SessionHandle) -> None:
        await session.send("go")

    trio.run(main)
    return sum(counts)


def count_deltas(batch: EventBatch) -> int:
    """Look at each event, as a consumer does."""
    count = 0
    for event in batch.events:
        if type(event) is MessageDelta and event.text:
            count += 1
    return count


class _BareParams(msgspec.Struct, rename="camel", gc=False):
    thread_id: str = ""
    turn_id: str = ""
    item_id: str = ""
    delta: str = ""


class _BareThread(msgspec.Struct):
    id: str


class _BareResult(msgspec.Struct):
    thread: _BareThread | None = None


class _BareMessage(msgspec.Struct, gc=False):
    method: str = ""
    id: int | None = None
    params: _BareParams | None = None
    result: _BareResult | None = None


def run_bare(storm: Storm, watch: Stopwatch) -> int:
    """The floor: receive, split, decode to a struct, count. No route, no consumer, no bound, nothing ever fails."""
    decode = msgspec.json.Decoder(_BareMessage).decode
    count = 0

    async def main() -> None:
        nonlocal count
        process = await trio.lowlevel.open_process(
            [str(storm.binary), "app-server", "--listen", "stdio://"],
            env={**os.environ, **storm.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        async def ask(number: int, method: str, params: dict[str, object]) -> None:
            await stdin.send_all(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")

        rest = b""
        wanted = {number: "thread/start" for number in range(1, storm.threads + 1)}
        threads: list[str] = []
        client = {"name": "bare", "version": "1"}
        await ask(0, "initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
        for number in wanted:
            await ask(number, "thread/start", {"cwd": "/"})
        while len(threads) < storm.threads:
            *lines, rest = (rest + await stdout.receive_some(65536)).split(b"\n")
            for line in lines:
                message = decode(line)
                if message.id in wanted and message.result is not None and message.result.thread is not None:
                    threads.append(message.result.thread.id)
        watch.start()
        for number, thread_id in enumerate(threads, 1000):
            await ask(number, "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]})
        ended = 0
        while ended < storm.threads:
            *lines, rest = (rest + await stdout.receive_some(65536)).split(b"\n")
            for line in lines:
                message = decode(line)
                if message.method == "item/agentMessage/delta":
                    count += 1
                elif message.method == "turn/completed":
                    ended += 1
        watch.stop()
        await stdin.aclose()
        await process.wait()

    trio.run(main)
    return count


def run_official_sync(storm: Storm, watch: Stopwatch) -> int:
    """The official client, one OS thread for each turn, as its documentation has it."""
    official: Any = importlib.import_module(OFFICIAL)
    counts: list[int] = []

    def consume(turn: Any) -> None:
        counts.append(sum(event.method == "item/agentMessage/delta" for event in turn.stream()))

    config = official.CodexConfig(codex_bin=str(storm.binary), env=storm.environ)
    with official.Codex(config) as client:
        threads = [client.thread_start() for _ in range(storm.threads)]
        watch.start()
        turns = [thread.turn("go") for thread in threads]
        workers = [threading.Thread(target=consume, args=(turn,)) for turn in turns]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        watch.stop()
    return sum(counts)


def run_official_async(storm: Storm, watch: Stopwatch) -> int:
    """The official asyncio client, one task for each turn."""
    official: Any = importlib.import_module(OFFICIAL)

    async def consume(turn: Any) -> int:
        count = 0
        async for event in turn.stream():
            count += event.method == "item/agentMessage/delta"
        return count

    async def main() -> int:
        config = official.CodexConfig(codex_bin=str(storm.binary), env=storm.environ)
        async with official.AsyncCodex(config) as client:
            threads = [await client.thread_start() for _ in range(storm.threads)]
            watch.start()
            turns = [await thread.turn("go") for thread in threads]
            counts = await asyncio.gather(*[consume(turn) for turn in turns])
            watch.stop()
            return sum(counts)

    return asyncio.run(main())


CLIENTS: dict[str, Callable[[Storm, Stopwatch], int]] = {
    "tutti-side": run_tutti_side,
    "bare": run_bare,
    "openai-codex sync": run_official_sync,
    "openai-codex async": run_official_async,
}


# One measurement, in its own process ----------------------------------------------------------------------------------


def measure(client: str, binary: Path, messages: int, threads: int) -> dict[str, float]:
    """Run a warm-up and one storm; return rates."""
    watch = Stopwatch()
    for size in (min(messages, WARM_UP_MESSAGES), messages):
        arrived = CLIENTS[client](Storm(binary, size, threads), watch)
        if arrived != size:
            raise SystemExit(f"{client}: {arrived} of {size} deltas arrived")
    return {"msg_per_s": messages / watch.wall_s, "cpu_us_per_msg": watch.cpu_s / messages * 1e6}


def measure_apart(client: str, binary: Path, messages: int, threads: int) -> dict[str, float]:
    """Do the same in a new process."""
    command = [sys.executable, __file__, "--worker", client, str(binary), str(messages), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
    if done.returncode:
        raise SystemExit(f"{client}, {threads} threads, failed:\n{done.stderr}")
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


# The whole run --------------------------------------------------------------------------------------------------------


def run(clients: list[str], threads: list[int], messages: int, repeats: int) -> dict[str, Any]:
    """Measure everything, interleaved; return the object that ``--json`` prints."""
    left_out = {name: HOW_TO_INSTALL for name in clients if name.startswith("openai") and not has_official()}
    cells = [(name, count) for count in threads for name in clients if name not in left_out]
    measured: dict[tuple[str, int], list[dict[str, float]]] = {cell: [] for cell in cells}
    with tempfile.TemporaryDirectory() as directory:
        binary = write_fake_binary(Path(directory) / "codex")
        for _ in range(repeats):
            for name, count in cells:
                measured[name, count].append(measure_apart(name, binary, messages, count))
    rows = [{"client": name, "threads": count, **summary(measured[name, count])} for name, count in cells]
    return {"benchmark": "router", "messages": messages, "repeats": repeats, "rows": rows, "left_out": left_out}


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians, and the best rate: what the machine gives when nobody else is on it."""
    rates = [run["msg_per_s"] for run in runs]
    costs = [run["cpu_us_per_msg"] for run in runs]
    return {
        "msg_per_s": round(statistics.median(rates)),
        "cpu_us_per_msg": round(statistics.median(costs), 3),
        "best_msg_per_s": round(max(rates)),
        "best_cpu_us_per_msg": round(min(costs), 3),
    }


def has_official() -> bool:
    """Return whether the official client can be imported."""
    return importlib.util.find_spec(OFFICIAL) is not None


def print_table(result: dict[str, Any]) -> None:
    """Print the rows for a person."""
    print(f"{result['messages']} deltas, median (best) of {result['repeats']}; CPU of the client's process only\n")
    print(f"{'client':20} {'threads':>7} {'messages/s':>22} {'CPU µs/message':>20}")
    for row in result["rows"]:
        rate = f"{row['msg_per_s']:,} ({row['best_msg_per_s']:,})"
        cost = f"{row['cpu_us_per_msg']:.2f} ({row['best_cpu_us_per_msg']:.2f})"
        print(f"{row['client']:20} {row['threads']:7} {rate:>22} {cost:>20}")
    for name, reason in result["left_out"].items():
        print(f"{name:20} left out: {reason}")


def main() -> None:
    """Read the arguments and run."""
    if sys.argv[1:2] == ["--worker"]:
        client, binary, messages, threads = sys.argv[2:]
        print(json.dumps(measure(client, Path(binary), int(messages), int(threads))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one object instead of a table")
    parser.add_argument("--messages", type=int, default=50_000, help="deltas of a storm")
    parser.add_argument("--threads", default="1,64", help="over how many threads: a list")
    parser.add_argument("--repeats", type=int, default=5, help="how often each row is measured")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="which rows: a list")
    options = parser.parse_args()
    clients = options.clients.split(",")
    if unknown := set(clients) - set(CLIENTS):
        parser.error(f"unknown clients: {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    result = run(clients, [int(count) for count in options.threads.split(",")], options.messages, options.repeats)
    if options.json:
        print(json.dumps(result))
    else:
        print_table(result)


if __name__ == "__main__":
    main()
