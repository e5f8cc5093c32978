"""What becomes of a fake's lines on their way: in each test one fault always strikes, and no other does."""

import math
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from tutti_providers.codex.testing._simulated_faults import FAULT_POINTS, FaultDrawer, Weather
from tutti_providers.codex.testing._simulated_wire import LINE_BYTES_MAX, DrawnWire
from tutti_providers.codex.testing.fake_task import Write
from tutti_side.testing.simulation.records import Fault, Record


class Bench:
    """A wire with one fault, on a clock that stands still until it is moved."""

    def __init__(self, fault: str, *, seed: int = 0, rate: float = 1.0) -> None:
        self.now = 0.0
        self.records: list[Record] = []
        self.weather = Weather()
        self.drawer = FaultDrawer(random.Random(seed), self.weather, self.records.append, lambda: self.now)
        self.drawer.rates = dict.fromkeys(FAULT_POINTS, 0.0) | {fault: rate}
        self.weather.stormy = True
        self.wire = DrawnWire(self.drawer, 7, lambda request_id: {1: "a"}.get(request_id, ""), lambda size: None)

    @property
    def struck(self) -> list[tuple[str, str]]:
        return [(record.fault, record.child) for record in self.records if isinstance(record, Fault)]

    def put(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.wire.put(message, msgspec.json.encode(message) + b"\n")

    def take(self) -> list[Write]:
        return self.wire.take(self.now)

    def lines(self) -> list[bytes]:
        return b"".join(write.data for write in self.take()).splitlines()


def note(thread: str, number: int, method: str = "item/completed") -> dict[str, Any]:
    return {"method": method, "params": {"threadId": thread, "n": number}}


def numbers(lines: list[bytes], thread: str) -> list[int]:
    messages: list[Any] = [msgspec.json.decode(line) for line in lines]
    return [message["params"]["n"] for message in messages if message["params"]["threadId"] == thread]


def test_without_a_fault_and_in_the_calm_lines_go_out_as_they_are() -> None:
    """Our choice: a healed server is an ordinary one."""
    for bench in (Bench("split_write", rate=0.0), Bench("notification_twice"), Bench("garbage_frame")):
        bench.weather.heal()
        bench.put(note("a", 1), note("b", 2))

        assert len(bench.lines()) == 2
        assert bench.struck == []
        assert bench.take() == []


def test_threads_overtake_each_other_and_each_keeps_its_order() -> None:
    """R3, F3: within one thread nothing is reordered, answers about it included; all comes in the end."""
    overtaken = 0
    for seed in range(50):
        bench = Bench("threads_reordered", seed=seed)
        sent = [note("ab"[number % 2], number) for number in range(20)]
        out: list[bytes] = []
        for message in sent:
            bench.put(message)
            out += bench.lines()
            bench.now += 0.01
        while bench.wire.next_due() < math.inf:
            bench.now = bench.wire.next_due()
            out += bench.lines()

        assert numbers(out, "a") == list(range(0, 20, 2))
        assert numbers(out, "b") == list(range(1, 20, 2))
        overtaken += [msgspec.json.decode(line)["params"]["n"] for line in out] != list(range(20))
    assert overtaken > 25


def test_an_answer_waits_behind_the_thread_that_its_request_was_about() -> None:
    """R3: the end of a turn is not overtaken by what was answered after it."""
    bench = Bench("threads_reordered", rate=100.0)
    while not bench.struck:
        bench.put(note("a", 1))
    bench.take()
    bench.put({"id": 1, "result": {}})

    assert bench.lines() == []
    bench.now = bench.wire.next_due()
    assert bench.lines()[-1] == b'{"id":1,"result":{}}'


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (note("a", 1, "turn/completed"), "notification_twice"),
        (note("a", 1, "serverRequest/resolved"), "notification_twice"),
        (note("a", 1, "item/tool/requestUserInput") | {"id": 0}, "question_twice"),
    ],
)
def test_a_message_comes_twice(message: dict[str, Any], fault: str) -> None:
    """F9, F16."""
    counts = Counter(len(_sent(fault, seed, message)) for seed in range(40))

    assert set(counts) == {1, 2}


@pytest.mark.parametrize("message", [note("a", 1, "item/agentMessage/delta"), {"id": 1, "result": {}}])
def test_what_adds_text_or_answers_does_not_come_twice_here(message: dict[str, Any]) -> None:
    """Our choice: nobody could tell a repeated delta from more text; answers have a fault of their own."""
    for fault in ("notification_twice", "question_twice"):
        assert {len(_sent(fault, seed, message)) for seed in range(40)} == {1}


def _sent(fault: str, seed: int, message: dict[str, Any]) -> list[bytes]:
    bench = Bench(fault, seed=seed)
    bench.put(message)
    return bench.lines()


def test_garbage_is_whole_lines_and_none_of_it_is_a_message_that_means_something() -> None:
    """F12: what is no message, or has the wrong types, stands between lines that are untouched."""
    seen: set[bytes] = set()
    for seed in range(300):
        bench = Bench("garbage_frame", seed=seed)
        bench.put(note("a", 1))
        (data,) = (write.data for write in bench.take())
        assert data.endswith(b"\n")
        *garbage, last = data.splitlines()
        assert msgspec.json.decode(last) == note("a", 1)
        seen.update(garbage)

    assert len(seen) > 12


def test_an_overlong_line_is_longer_than_is_read() -> None:
    """F11."""
    lines = next(lines for seed in range(20) if len(lines := _sent("overlong_line", seed, note("a", 1))) > 1)

    assert len(lines[0]) > LINE_BYTES_MAX


def test_a_line_is_cut_at_any_byte_and_nothing_of_it_is_lost() -> None:
    """F11: the second half comes later."""
    line = msgspec.json.encode(note("ü", 1)) + b"\n"
    cuts: set[int] = set()
    for seed in range(2_000):
        bench = Bench("split_write", seed=seed)
        bench.put(note("ü", 1))
        writes = bench.take()
        assert b"".join(write.data for write in writes) == line
        if len(writes) == 2:
            cuts.add(len(writes[0].data))
            assert writes[1].pause_s > 0

    assert cuts == set(range(1, len(line)))


def test_a_process_dies_in_the_middle_of_a_line() -> None:
    """F14, R9: what was said up to there is read, and nothing after it is sent."""
    for seed in range(20):
        bench = Bench("lost_in_frame", seed=seed)
        bench.put(note("a", 1))
        (write,) = bench.take()
        if write.exit_status is not None:
            break
    assert len(write.data) < len(msgspec.json.encode(note("a", 1))) + 1
    assert bench.struck == [("lost_in_frame", "a")]
    bench.put(note("a", 2))
    assert bench.lines() == []


def test_a_process_dies_after_so_many_messages_once_it_storms() -> None:
    """R9: process loss at any step. The number is drawn when the connection opens, calm or not."""
    bench = next(bench for seed in range(20) if (bench := Bench("lost_after_sends", seed=seed)).wire.is_doomed)
    sent = 0
    while True:
        bench.put(note("a", sent))
        sent += 1
        (write,) = bench.take()
        if write.exit_status is not None:
            break
    assert 1 <= sent <= 300
    assert write.data
    assert bench.struck == [("lost_after_sends", "")]
