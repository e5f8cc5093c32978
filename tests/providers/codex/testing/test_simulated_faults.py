"""The table of a simulation's faults, and how they are drawn."""

import random
from collections import Counter

import pytest

from tutti_providers.codex.testing._simulated_faults import FAULT_POINTS, DrawnFaults, FaultDrawer, Weather
from tutti_providers.codex.testing.app_server_faults import AnswerLate, CrashOn, NeverAnswer, Refuse
from tutti_side.testing.simulation.records import Fault, Record


class Bench:
    """Drawn faults of connection 5, of which only the named ones can strike."""

    def __init__(self, *names: str, seed: int = 0) -> None:
        self.records: list[Record] = []
        self.weather = Weather()
        self.drawer = FaultDrawer(random.Random(seed), self.weather, self.records.append, lambda: 1.5)
        self.drawer.rates = {name: (1.0 if name in names else 0.0) for name in FAULT_POINTS}
        self.weather.stormy = True
        self.faults = DrawnFaults(self.drawer, 5)


@pytest.mark.parametrize("name", FAULT_POINTS)
def test_every_fault_says_what_it_does_and_knows_how_it_strikes(name: str) -> None:
    """Our choice: the table is complete in itself."""
    point = FAULT_POINTS[name]

    assert point.says.endswith(".")
    assert point.rate > 0
    assert (point.kind is not None) == (point.draw is not None) == (point.on == "request")
    assert point.disturb is None or point.on == "moment"
    if point.draw is not None:
        assert isinstance(point.draw(random.Random(0), "thread/fork"), point.kind or ())


def test_a_fault_strikes_only_the_requests_it_is_about_and_is_recorded_with_their_thread() -> None:
    """F21: steps of a close fail, and others don't."""
    bench = Bench("close_unanswered")
    bench.faults.begin_request("thread/unsubscribe", {"threadId": "a"})
    taken = Counter(type(bench.faults.take(NeverAnswer, method)) for method in ("thread/fork", "turn/start") * 50)
    assert taken == {type(None): 100}
    struck = [bench.faults.take(NeverAnswer, "thread/unsubscribe") for _ in range(100)]

    assert 20 < sum(fault is not None for fault in struck) < 80
    assert bench.records[0] == Fault(at_s=1.5, fault="close_unanswered", connection=5, child="a")
    assert len(bench.records) == sum(fault is not None for fault in struck)
    assert bench.faults.take(CrashOn, "thread/unsubscribe") is None
    assert bench.faults.take(Refuse, "thread/unsubscribe") is None


def test_two_faults_of_one_kind_both_strike() -> None:
    """Our choice: a late answer and one that is too late are two faults."""
    bench = Bench("late_answer", "overdue_answer")
    lateness_s = {fault.after_s for _ in range(200) if (fault := bench.faults.take(AnswerLate, "thread/fork"))}

    assert 40.0 in lateness_s
    assert min(lateness_s) < 1
    assert {record.fault for record in bench.records if isinstance(record, Fault)} == {"late_answer", "overdue_answer"}


def test_in_the_calm_nothing_strikes() -> None:
    """Our choice: what converges does so under a server that is well."""
    bench = Bench(*FAULT_POINTS)
    bench.weather.heal()

    assert bench.drawer.draw_moment() is None
    assert not any(bench.drawer.strikes(name) for name in FAULT_POINTS)
    assert bench.faults.take(NeverAnswer, "thread/fork") is None


def test_a_run_is_about_some_faults_and_spares_others() -> None:
    """Our choice: each run draws a factor for each, and equal seeds draw the same."""
    runs = [FaultDrawer(random.Random(seed), Weather(), lambda record: None, lambda: 0.0).rates for seed in (1, 1, 2)]

    assert runs[0] == runs[1] != runs[2]
    for rates in runs:
        factors = {round(rates[name] / point.rate, 3) for name, point in FAULT_POINTS.items()}
        assert factors == {0.0, 0.3, 1.0, 4.0}


def test_what_happens_at_a_moment_is_one_of_those_faults() -> None:
    """Our choice: weights, and never one of another occasion."""
    bench = Bench("frozen", "thread_dropped", "late_answer")

    assert {bench.drawer.draw_moment() for _ in range(100)} == {"frozen", "thread_dropped"}
