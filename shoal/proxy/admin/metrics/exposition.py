"""Rows of the table and a snapshot -> the text of /metrics.

The text is that of `prometheus_client`: it writes the head of each metric, and each series once. What a series begins
with (its name and labels) is kept, and a scrape adds the numbers. That is a fifth of the library's time per sample,
which matters with a scrape each second (tests.ops.monitoring measures it).
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from shoal.proxy.admin.metrics.table import METRICS
from shoal.proxy.statistics import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric as Family

    from shoal.proxy.admin.metrics.metric import Metric, Number, Snapshot, Values

    Encode = Callable[[Collector], bytes]
    Labels = tuple[str, ...]
    Begins = tuple[str, ...]  # of the lines of one series; a histogram has many

__all__ = ["Exposition", "family"]

_SLICE: Final = 64  # lines
_LARGE: Final = 1_000_000  # from here on, the library writes an exponent
_EOF: Final = "# EOF\n"


class Exposition:
    """In one format. `encode`: the library's."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._heads = {metric.name: self._text(family(metric, ())) for metric in METRICS}
        self._begins: dict[str, dict[Labels, Begins]] = {}  # by metric, of the series in the last scrape

    def pieces(self, snapshot: Snapshot) -> Iterator[str]:
        """Some lines at a time. The histograms of a snapshot are live: each is read at once."""
        for metric in METRICS:
            yield self._heads[metric.name]
            known = self._begins.get(metric.name, {})
            used: dict[Labels, Begins] = {}
            lines: list[str] = []
            for labels, value in metric.read(snapshot):
                begins = used[labels] = known.get(labels) or self._begins_of(metric, labels, value)
                if isinstance(value, Histogram):
                    lines += map(add, begins, _numbers(value))
                else:
                    lines.append(f"{begins[0]}{floatToGoString(value)}\n")
                if len(lines) >= _SLICE:
                    yield "".join(lines)
                    lines.clear()
            yield "".join(lines)
            self._begins[metric.name] = used

    def others(self, collector: Collector) -> str:
        """Metrics of the library's own collectors."""
        return self._encode(collector).decode().removesuffix(_EOF)

    def _begins_of(self, metric: Metric, labels: Labels, value: Number) -> Begins:
        lines = self._text(family(metric, [(labels, value)])).removesuffix("\n").split("\n")
        return tuple(f"{line.rpartition(' ')[0]} " for line in lines if not line.startswith("#"))

    def _text(self, made: Family) -> str:
        return self.others(_Of(made))


class _Of(Collector):
    def __init__(self, made: Family) -> None:
        self._made = made

    def collect(self) -> Iterable[Family]:
        return (self._made,)


def _numbers(histogram: Histogram) -> list[str]:
    """In the order of the library's lines, with their ends."""
    counts = [f"{count}.0\n" if count < _LARGE else f"{floatToGoString(count)}\n" for count in histogram.cumulative()]
    return [*counts, counts[-1], f"{floatToGoString(histogram.sum)}\n"]


def family(metric: Metric, values: Values) -> Family:
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in values:
            assert isinstance(value, Histogram)
            bounds = [*map(floatToGoString, value.bounds), "+Inf"]
            counts = zip(bounds, value.cumulative(), strict=True)
            histograms.add_metric(labels, list(counts), value.sum)
        return histograms
    if metric.kind == "counter":
        made: Family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values:
        made.add_metric(labels, value)  # type: ignore[attr-defined]
    return made
