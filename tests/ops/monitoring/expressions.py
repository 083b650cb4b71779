"""What a PromQL expression reads: names of metrics, and the labels that it selects by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import promql_parser

from shoal.proxy.admin.metrics.table import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["VARIABLES", "Selector", "exposed", "selectors", "without_variables"]

_BY_PROMETHEUS: Final = ("up",)  # and not by Shoal
_OF_THE_PROCESS: Final = (  # by the ProcessCollector of prometheus_client
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
)
_OF_EVERY_SERIES: Final = {"job", "instance"}
_CHILDREN: Final = ("lhs", "rhs", "expr", "vector_selector", "args", "param")
VARIABLES: Final = {  # of the board, and values as Grafana would put in their place
    "$__rate_interval": "20s",
    "$__range": "1h",
    "$job": ".*",
    "$instance": ".*",
    "$listener": ".*",
}


class Selector(NamedTuple):
    metric: str
    labels: frozenset[str]


def without_variables(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def selectors(expression: str) -> set[Selector]:
    """Raises ValueError if it is not PromQL."""
    return set(_selectors(promql_parser.parse(without_variables(expression))))


def _selectors(node: object) -> Iterator[Selector]:
    if isinstance(node, promql_parser.VectorSelector):
        assert node.name is not None, "a selector without a name"
        yield Selector(node.name, frozenset(matcher.name for matcher in node.matchers.matchers))
        return
    for child in _CHILDREN:
        part = getattr(node, child, None)
        for one in part if isinstance(part, list) else [part]:
            if one is not None:
                yield from _selectors(one)


def exposed() -> dict[str, set[str]]:
    """The labels of each series that Prometheus has of a Shoal, by its name."""
    found = {name: _OF_EVERY_SERIES for name in (*_BY_PROMETHEUS, *_OF_THE_PROCESS)}
    for metric in METRICS:
        labels = _OF_EVERY_SERIES.union(metric.labels)
        if metric.kind == "histogram":
            found[f"{metric.name}_bucket"] = labels | {"le"}
            found[f"{metric.name}_count"] = found[f"{metric.name}_sum"] = labels
        else:
            found[metric.name] = labels
    return found
