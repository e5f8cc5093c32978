"""Mutations per second through the replication contract, beside what nothing but decoding would cost.

    python benchmarks/replication.py [--json] [--seconds S] [--database URL]...

One batch of 500 mixed mutations, about 470 kB. Rows: ``decode+validate`` is what a sink does first (`admit_batch`);
``msgspec bare`` is a typed decoder of the same structs and nothing else; ``json bare`` is the standard library's
`json.loads`, which knows no types. Rows are measured in turns, several rounds, and the best round of each counts: noise
of the machine only ever slows down. ``sink sqlite`` is `SqlSink.apply` (decode, validate, lock, load, decide, write,
commit) and ``sqlite bare`` the driver's ``executemany`` of the very rows that this makes, into the same tables, in the
same transactions, and so for each empty database that ``--database`` names. With ``--json`` one object is printed
whose ``rows`` have ``name`` and ``mutations_per_s``.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from tutti_replication import ChangeBatch, Mutation, admit_batch, encode_batch
from tutti_replication.conformance.samples import (
    delete,
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.keys import SubmitClaimKey
from tutti_sinks import SqlSink, open_sql_sink
from tutti_sinks._plan import Plan, plan_batch, prepare
from tutti_sinks._schema import ENTITY, LEDGER, OBSERVED

MUTATIONS = 500
ROUNDS = 7
ROUND_BATCHES = 4
"""Batches in a round; long enough for a few commits, short enough to meet a quiet moment of the machine."""


T = TypeVar("T")

MakeBatch = Callable[[int], list[Mutation]]
"""From the number of the first mutation to 500 of them."""
TEXT = 'The test "test_ports" waits for a port that another test has taken → retry it.\nThen it passes. '


def an_id(kind: str, number: int) -> str:
    return f"{kind[:2]}-{number:08x}-{number * 7919:012x}"


def mixed_batch(first: int = 0) -> list[Mutation]:
    """Return 500 mutations as a busy device sends them: half of them messages."""
    mutations: list[Mutation] = []
    for number in range(first, first + MUTATIONS):
        mutation_id, turn_id = an_id("mutation", number), an_id("turn", number // 5)
        session_id, transaction_id = an_id("session", number // 50), an_id("transaction", number // 10)
        place: dict[str, Any] = {
            "workspace_id": an_id("workspace", 1),
            "device": an_id("device", 1),
            "transaction_id": transaction_id,
        }
        at = 1_760_000_000_000 + number
        match number % 10:
            case 0 if number % 50 == 0:
                mutation: Mutation = target_upsert(mutation_id, **place, target_id=an_id("target", number))
            case 0:
                claim = SubmitClaimKey(session_id, an_id("claim", number))
                mutation = delete(mutation_id, claim, **place)
            case 1:
                mutation = session_upsert(
                    mutation_id,
                    **place,
                    session_id=session_id,
                    title="Fix the flaky test",
                    model="gpt-5.5",
                    settings=Raw(b'{"effort":"high","sandbox":"workspace-write"}'),
                    updated_at_unix_ms=at,
                )
            case 2:
                mutation = turn_upsert(mutation_id, **place, session_id=session_id, turn_id=turn_id, **settled(at))
            case 3:
                mutation = turn_upsert(
                    mutation_id, **place, session_id=session_id, turn_id=turn_id, updated_at_unix_ms=at
                )
            case 4:
                mutation = interaction_upsert(
                    mutation_id,
                    **place,
                    session_id=session_id,
                    turn_id=turn_id,
                    request_id=an_id("request", number),
                    updated_at_unix_ms=at,
                )
            case _:
                mutation = message_upsert(
                    mutation_id,
                    **place,
                    session_id=session_id,
                    message_id=an_id("message", number),
                    turn_id=turn_id,
                    updated_at_unix_ms=at,
                    payload=Raw(msgspec.json.encode({"text": TEXT})),
                )
        mutations.append(mutation)
    return mutations


def contract_rows(data: bytes) -> dict[str, Callable[[], object]]:
    """Return what is measured, by row name."""
    bare = msgspec.json.Decoder(ChangeBatch)
    return {
        "decode+validate": lambda: admit_batch(data),
        "msgspec bare": lambda: bare.decode(data),
        "json bare": lambda: json.loads(data),
    }


def measure(rows: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Return mutations per second of each row: the best of several rounds, the rows in turns."""
    best = dict.fromkeys(rows, 0.0)
    for _ in range(ROUNDS):
        for name, work in rows.items():
            runs, started = 0, time.perf_counter()
            ends = started + seconds / ROUNDS
            while time.perf_counter() < ends:
                work()
                runs += 1
            best[name] = max(best[name], runs * MUTATIONS / (time.perf_counter() - started))
    return best


def measure_sinks(make_batch: MakeBatch, seconds: float, urls: list[str]) -> dict[str, float]:
    """Return mutations per second by row name; SQLite in a temporary folder, and each database of ``urls``."""
    speeds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for url in [f"sqlite:///{folder}/sink.sqlite", *urls]:
            with open_sql_sink(url) as sink:
                name = sink._engine.dialect.name
                speeds[f"sink {name}"], speeds[f"{name} bare"] = _measure(sink, make_batch, seconds)
    return speeds


def _measure(sink: SqlSink, make_batch: MakeBatch, seconds: float) -> tuple[float, float]:
    firsts = (number * MUTATIONS for number in count(1 + sink.last_cursor()))
    ends = time.perf_counter() + 2 * seconds
    ours = bare = 0.0
    while time.perf_counter() < ends or not bare:
        batches = [encode_batch(make_batch(next(firsts))) for _ in range(ROUND_BATCHES)]
        ours = max(ours, _speed(sink.apply, batches))
        bare = max(bare, _speed(lambda plan: _write(sink, plan), list(_plans(make_batch, firsts))))
    return ours, bare


def _speed(work: Callable[[T], object], arguments: list[T]) -> float:
    started = time.perf_counter()
    for argument in arguments:
        work(argument)
    return MUTATIONS * len(arguments) / (time.perf_counter() - started)


def _plans(make_batch: MakeBatch, firsts: Iterator[int]) -> Iterator[Plan]:
    for _ in range(ROUND_BATCHES):
        mutations = admit_batch(encode_batch(make_batch(next(firsts))))
        yield plan_batch(prepare(mutations), {}, {}, {}, 0)


def _write(sink: SqlSink, plan: Plan) -> None:
    connection = sink._engine.raw_connection()
    mark = "?" if sink._engine.dialect.paramstyle == "qmark" else "%s"
    cursor: Any = connection.cursor()
    if mark == "?":
        cursor.execute("BEGIN IMMEDIATE")
    for table, rows in (
        (LEDGER, plan.ledger),
        (ENTITY, list(plan.entities.values())),
        (OBSERVED, list(plan.observed.values())),
    ):
        names = table.columns.keys()
        cursor.executemany(
            f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join([mark] * len(names))})", rows
        )
    cursor.execute(f"UPDATE tutti_state SET last_cursor = last_cursor + {plan.last_cursor}")
    connection.commit()
    cursor.close()
    connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=2.0, help="per row")
    parser.add_argument("--database", action="append", default=[], metavar="URL", help="of an empty database as well")
    options = parser.parse_args()
    data = encode_batch(mixed_batch())
    speeds = measure(contract_rows(data), options.seconds)
    speeds |= measure_sinks(mixed_batch, options.seconds, options.database)
    rows = [{"name": name, "mutations_per_s": round(speed)} for name, speed in speeds.items()]
    if options.json:
        print(json.dumps({"batch_bytes": len(data), "batch_mutations": MUTATIONS, "rows": rows}))
    else:
        print(f"a batch of {MUTATIONS} mutations, {len(data) / 1000:.0f} kB")
        for name, speed in speeds.items():
            database = name.removeprefix("sink ").removesuffix(" bare")
            bare = f"{database} bare" if f"sink {database}" in speeds else "msgspec bare"
            print(f"{name:<18} {speed:>12,.0f} mutations/s {speed / speeds[bare]:>6.2f} of {bare}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
