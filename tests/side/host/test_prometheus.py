"""What a host counts, as Prometheus sees it."""

import ast
import pathlib
import sys
from typing import Any

import prometheus_client
import pytest
import trio.testing

from tutti_side import OpenFailedError, SideUnsupportedError, open_host
from tutti_side.contract import SideCapabilities
from tutti_side.host import MissingExtraError, PrometheusMetrics, prometheus
from tutti_side.host.prometheus import METRICS

CALLS = {"count": "counter", "observe": "histogram", "gauge": "gauge"}


@pytest.fixture
def registry() -> prometheus_client.CollectorRegistry:
    return prometheus_client.CollectorRegistry()


async def test_a_host_is_seen_by_prometheus(provider: Any, registry: prometheus_client.CollectorRegistry) -> None:
    """Required: opens, their latency by phase, kinds of source, live Sides, ends."""
    seen = registry.get_sample_value
    async with open_host(provider, metrics=PrometheusMetrics(registry)) as host:
        session = await host.start_session(cwd=".")
        await session.send("q")
        async with session.side():
            assert seen("tutti_live_sides") == 1
        provider.adapter.open_error = ValueError()
        with pytest.raises(OpenFailedError):
            await session.open_side()
        provider.adapter.promised = SideCapabilities.unsupported("no")
        with pytest.raises(SideUnsupportedError):
            await session.open_side()
    outcomes = {"attempted": 3, "accepted": 1, "failed": 1, "unsupported": 1}
    assert {name: seen("tutti_side_opens_total", {"outcome": name}) for name in outcomes} == outcomes
    assert seen("tutti_side_opens_by_source_total", {"source": "active"}) == 3
    assert seen("tutti_side_open_phase_seconds_count", {"phase": "total", "provider": "held"}) == 1
    assert seen("tutti_side_ends_total", {"reason": "closed"}) == 1
    assert seen("tutti_live_sides") == 0


def test_labels_are_exactly_those_of_the_table(registry: prometheus_client.CollectorRegistry) -> None:
    """Our choice: a provider can't widen a label set, and one that says less is still counted."""
    metrics = PrometheusMetrics(registry)
    metrics.count("side_opens", 2, outcome="accepted", provider="p")
    metrics.observe("side_open_phase", 0.2, phase="fork")
    metrics.gauge("live_sides", 3, provider="p")
    assert registry.get_sample_value("tutti_side_opens_total", {"outcome": "accepted"}) == 2
    assert registry.get_sample_value("tutti_side_open_phase_seconds_sum", {"phase": "fork", "provider": ""}) == 0.2
    assert registry.get_sample_value("tutti_live_sides") == 3


def test_a_name_that_the_table_lacks_is_counted_as_such(registry: prometheus_client.CollectorRegistry) -> None:
    """Our choice: it is called in the reader, where a raised error would end a connection."""
    metrics = PrometheusMetrics(registry)
    metrics.count("mine", 7, a="b")
    metrics.observe("mine", 1.0)
    metrics.gauge("mine", 1.0)
    metrics.gauge("side_opens", 1.0)
    assert registry.get_sample_value("tutti_unknown_metrics_total") == 4


def test_a_missing_package_is_a_sentence_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our choice: the package is an option, and loaded when it is wanted."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tutti-side\[prometheus\]'") as caught:
        PrometheusMetrics()
    assert caught.value.extra == "prometheus"


def test_one_registry_takes_one_host(registry: prometheus_client.CollectorRegistry) -> None:
    """Our choice: two would overwrite each other's number of live Sides."""
    PrometheusMetrics(registry)
    with pytest.raises(ValueError, match="tutti_side_opens"):
        PrometheusMetrics(registry)


def counted_in_the_tree(root: pathlib.Path) -> dict[str, tuple[str, set[str]]]:
    """Return each name that our code counts, with its kind and its labels."""
    found: dict[str, tuple[str, set[str]]] = {}
    for path in [*(root / "tutti_side").rglob("*.py"), *(root / "providers").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS):
                continue
            if not (node.args and isinstance(node.args[0], ast.Constant) and "metrics" in ast.unparse(node.func.value)):
                continue
            labels = {keyword.arg or "" for keyword in node.keywords}
            kind, known = found.get(str(node.args[0].value), (CALLS[node.func.attr], set[str]()))
            found[str(node.args[0].value)] = (kind, known | labels)
    return found


def test_the_table_has_what_the_program_counts_and_nothing_else(root: pathlib.Path) -> None:
    """Required: names stand in one table, in the docstring too."""
    found = counted_in_the_tree(root)
    assert set(found) | {"unknown_metrics"} == set(METRICS)
    for name, (kind, labels) in found.items():
        assert METRICS[name][0] == kind
        assert labels <= set(METRICS[name][1]), name
    documented = {line.split()[0] for line in (prometheus.__doc__ or "").splitlines() if line.strip()}
    assert set(METRICS) <= documented


async def test_what_a_provider_counts_carries_its_name(
    provider: Any, registry: prometheus_client.CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: open latency by phase and by provider."""
    given: list[Any] = []
    opens = provider.open

    def open_with(ports: Any) -> Any:
        given.append(ports)
        return opens(ports)

    monkeypatch.setattr(provider, "open", open_with)
    async with open_host(provider, metrics=PrometheusMetrics(registry)):
        given[0].metrics.observe("side_open_phase", 0.5, phase="fork")
        given[0].metrics.count("failed_closes")
        given[0].metrics.gauge("live_sides", 2)
        await trio.testing.wait_all_tasks_blocked()
    sample = registry.get_sample_value
    assert sample("tutti_side_open_phase_seconds_sum", {"phase": "fork", "provider": "held"}) == 0.5
    assert sample("tutti_failed_closes_total", {"provider": "held"}) == 1
    assert sample("tutti_live_sides") == 2
