"""Rows of the table and a snapshot -> metric families of `prometheus_client`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from shoal.proxy.admin.metrics.table import METRICS
from shoal.proxy.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric as Family

    from shoal.proxy.admin.metrics.metric import Metric, Snapshot

__all__ = ["ShoalCollector", "family"]


class ShoalCollector(Collector):
    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """The snapshot is taken at the first step."""
        snapshot = self._snapshot()
        for metric in METRICS:
            yield family(metric, snapshot)


def family(metric: Metric, snapshot: Snapshot) -> Family:
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in metric.read(snapshot):
            assert isinstance(value, Histogram)
            bounds = [*map(floatToGoString, value.bounds), "+Inf"]
            counts = zip(bounds, value.cumulative(), strict=True)
            histograms.add_metric(labels, list(counts), value.sum)
        return histograms
    if metric.kind == "counter":
        made: Family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.read(snapshot):
        made.add_metric(labels, value)  # type: ignore[attr-defined]
    return made
