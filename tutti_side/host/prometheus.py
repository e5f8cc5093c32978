"""Metrics for Prometheus: ``open_host(..., metrics=PrometheusMetrics())``. Needs the extra ``prometheus``.

What is counted, by the names that the program uses; Prometheus sees them as ``tutti_<name>``, counters with ``_total``
and durations with ``_seconds``:

====================== ========= ================== ===================================================================
name                   kind      labels             what
====================== ========= ================== ===================================================================
side_opens             counter   outcome            Calls that open a Side: each counts as ``attempted``, and as one of
                                                    ``accepted``, ``unsupported``, ``failed``, ``expired``, ``refused``
                                                    (another open, a close or the host's stop is in its way, or the id
                                                    belongs to something else) or ``cancelled``. A call that joins an
                                                    open counts like any other.
side_opens_by_source   counter   source             Sides whose source was found: ``active`` (in a turn), ``idle``, or
                                                    ``historical`` (no connection of ours holds it).
side_open_phase        histogram phase, provider    Seconds of each step of an open: ``total`` for those committed;
                                                    ``initialize``, ``fork``, ``inject`` where a provider has them.
side_events            counter   fate               Events of Sides that were ``buffered`` until the commit, and those
                                                    ``discarded``: never committed, or later than the Side's end.
side_ends              counter   reason             Sides that were open and are over: ``closed``, ``lost``,
                                                    ``overflow``, ``source_deleted``, ``host_stopped``.
live_sides             gauge                        Sides that are open or closing.
dropped_frames         counter   cause, provider    Frames that were no messages, messages that reached nobody; counted
                                                    when their connection ends.
crashed_connections    counter   provider           Connections that an error of ours ended; always a bug.
failed_closes          counter   provider           Closes that a provider failed at, or that exceeded their bound.
cleanups               counter   outcome            What would not close: ``closed`` by a retry, or ``forced``.
durable_writes_refused counter   operation          A Side that reached something durable; always a bug.
unknown_metrics        counter                      Names, of a provider's own, that this table does not have.
====================== ========= ================== ===================================================================
"""

from typing import TYPE_CHECKING

from tutti_side.host.errors import MissingExtraError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["METRICS", "PrometheusMetrics"]

METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "side_opens": ("counter", ("outcome",)),
    "side_opens_by_source": ("counter", ("source",)),
    "side_open_phase": ("histogram", ("phase", "provider")),
    "side_events": ("counter", ("fate",)),
    "side_ends": ("counter", ("reason",)),
    "live_sides": ("gauge", ()),
    "dropped_frames": ("counter", ("cause", "provider")),
    "crashed_connections": ("counter", ("provider",)),
    "failed_closes": ("counter", ("provider",)),
    "cleanups": ("counter", ("outcome",)),
    "durable_writes_refused": ("counter", ("operation",)),
    "unknown_metrics": ("counter", ()),
}
"""Name → kind and labels. The sets are fixed: a label that is missing is empty, one too many is left out."""

PHASE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
"""An open over a warm connection takes tens of milliseconds, a cold start a second; 20 s is when it is aborted."""


class PrometheusMetrics:
    """Implements `tutti_side.contract.Metrics`; one for each host, since it says how many Sides are live in it.

    Args:
      registry: where its metrics are registered; the default one of `prometheus_client` if left out.

    Raises:
      MissingExtraError: `prometheus_client` is not installed.
      ValueError: the registry has metrics of these names already.
    """

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise MissingExtraError("prometheus_client", "prometheus") from error
        registry = prometheus_client.REGISTRY if registry is None else registry
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}
        for name, (kind, labels) in METRICS.items():
            full, help_text = f"tutti_{name}", f"{name} of tutti-side"
            if kind == "counter":
                self._counters[name] = prometheus_client.Counter(full, help_text, labels, registry=registry)
            elif kind == "gauge":
                self._gauges[name] = prometheus_client.Gauge(full, help_text, labels, registry=registry)
            else:
                self._histograms[name] = prometheus_client.Histogram(
                    f"{full}_seconds", help_text, labels, buckets=PHASE_BUCKETS_S, registry=registry
                )

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        """Add to a counter; see `tutti_side.contract.Metrics`."""
        counter = self._counters.get(name)
        if counter is None:
            self._counters["unknown_metrics"].inc()
        else:
            (counter.labels(**_fixed(name, labels)) if METRICS[name][1] else counter).inc(value)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Note one duration; see `tutti_side.contract.Metrics`."""
        histogram = self._histograms.get(name)
        if histogram is None:
            self._counters["unknown_metrics"].inc()
        else:
            (histogram.labels(**_fixed(name, labels)) if METRICS[name][1] else histogram).observe(seconds)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Note what a number is now; see `tutti_side.contract.Metrics`."""
        gauge = self._gauges.get(name)
        if gauge is None:
            self._counters["unknown_metrics"].inc()
        else:
            (gauge.labels(**_fixed(name, labels)) if METRICS[name][1] else gauge).set(value)


def _fixed(name: str, labels: dict[str, str]) -> dict[str, str]:
    """Return exactly the labels that the table has."""
    return {label: labels.get(label, "") for label in METRICS[name][1]}
