"""The board as a picture, from what a Prometheus has: as Grafana would show it, in plainer clothes."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from matplotlib.figure import Figure

from tests.ops.monitoring.board import ROWS, expression
from tests.ops.monitoring.expressions import without_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.ops.monitoring.board import Panel
    from tests.ops.monitoring.prometheus import Prometheus, Series, Span

__all__ = ["draw", "shown"]

_INCH: Final = 0.62  # of a column of 24
_HEIGHTS: Final = {"stat": 1.1, "timeseries": 2.5}  # inches
_TITLE: Final = 0.45
_PER_SECOND: Final = {"Bps": "B/s", "reqps": "/s", "cps": "/s"}
_MOST_NAMES: Final = 8  # of a legend


async def draw(prometheus: Prometheus, span: Span, path: Path) -> Path:
    rows = [(row.title, list(_lines(row.panels))) for row in ROWS]
    height = sum(_TITLE + sum(_HEIGHTS[line[0].kind] for line in lines) for _, lines in rows)
    width = 24 * _INCH
    figure = Figure(figsize=(width, height), dpi=110, facecolor="#f4f5f5")
    top = height
    for title, lines in rows:
        figure.text(0.008, (top - 0.32) / height, title, fontsize=12, weight="bold")
        top -= _TITLE
        for line in lines:
            tall, left = _HEIGHTS[line[0].kind], 0
            for panel in line:
                box = (left / 24, (top - tall) / height, panel.width / 24, tall / height)
                await _panel(figure, panel, box, prometheus, span)
                left += panel.width
            top -= tall
    figure.savefig(path)
    return path


def _lines(panels: Sequence[Panel]) -> Iterator[list[Panel]]:
    """The panels that are beside each other."""
    line: list[Panel] = []
    for panel in panels:
        if sum(one.width for one in line) + panel.width > 24:
            yield line
            line = []
        line.append(panel)
    yield line


async def _panel(
    figure: Figure, panel: Panel, box: tuple[float, float, float, float], prometheus: Prometheus, span: Span
) -> None:
    found = [
        (_legend(query.legend, series.labels), series)
        for query in panel.queries
        for series in await prometheus.over(without_variables(expression(query)), span)
    ]
    left, bottom, width, height = box
    if panel.kind == "stat":
        axes = figure.add_axes((left + 0.003, bottom + 0.0012, width - 0.006, height - 0.0024))
        _figure(axes, panel, found)
    else:
        axes = figure.add_axes((left + 0.035, bottom + height * 0.14, width - 0.045, height * 0.66))
        _curves(axes, panel, found, span)


def _figure(axes: Any, panel: Panel, found: list[tuple[str, Series]]) -> None:
    axes.set(xticks=[], yticks=[])
    axes.text(0.03, 0.8, panel.title, fontsize=8, va="center", transform=axes.transAxes)
    if panel.title == "Version":
        text = ", ".join(name for name, _ in found)
    else:
        text = shown(found[0][1].points[-1][1], panel.unit) if found else "no data"
    axes.text(0.5, 0.36, text, fontsize=19, ha="center", va="center", color=_colour(panel, found))


def _colour(panel: Panel, found: list[tuple[str, Series]]) -> str:
    if panel.steps is None or not found:
        return "#37872d"
    steps, value = panel.steps, found[0][1].points[-1][1]
    sign = 1 if steps.upward else -1
    at_fault = sign * value >= sign * steps.critical if steps.upward else value < steps.critical
    doubtful = value >= steps.warning if steps.upward else value < steps.warning
    return "#c4162a" if at_fault else "#e0752d" if doubtful else "#37872d"


def _curves(axes: Any, panel: Panel, found: list[tuple[str, Series]], span: Span) -> None:
    axes.set_title(panel.title, fontsize=8.5, loc="left", pad=4)
    axes.tick_params(labelsize=6.5)
    axes.grid(visible=True, linewidth=0.3)
    found.sort(key=lambda item: -max(value for _, value in item[1].points))  # the largest are in the legend
    named = [(name, *_line(one, span)) for name, one in found]
    if panel.stacked:
        _stack(axes, named)
    else:
        for name, times, values in named:
            axes.plot(times, values, linewidth=1.1, label=name)
    axes.set_xlim(0, span.end - span.start)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: shown(value, panel.unit))
    axes.xaxis.set_major_formatter(
        lambda seconds, _: datetime.fromtimestamp(span.start + seconds, UTC).strftime("%H:%M:%S")
    )
    handles, names = axes.get_legend_handles_labels()
    if names:
        axes.legend(handles[:_MOST_NAMES], names[:_MOST_NAMES], fontsize=5.5, loc="upper left", framealpha=0.6)


def _line(series: Series, span: Span) -> tuple[list[float], list[float]]:
    """Seconds and values; a line is broken where samples are missing."""
    times, values = list[float](), list[float]()
    for at, value in series.points:
        if times and at - span.start > times[-1] + 2 * span.step:
            times.append(times[-1] + span.step)
            values.append(math.nan)
        times.append(at - span.start)
        values.append(value)
    return times, values


def _stack(axes: Any, named: list[tuple[str, list[float], list[float]]]) -> None:
    """Series may begin later than others."""
    every = sorted({at for _, times, _ in named for at in times})
    base = dict.fromkeys(every, 0.0)
    for name, times, values in named:
        known = {at: value for at, value in zip(times, values, strict=True) if not math.isnan(value)}
        top = {at: low + known.get(at, 0.0) for at, low in base.items()}
        axes.fill_between(every, list(base.values()), list(top.values()), alpha=0.55, linewidth=0.4, label=name)
        base = top


def _legend(template: str, labels: Any) -> str:
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def shown(value: float, unit: str) -> str:
    """As Grafana would write it, nearly."""
    if math.isnan(value):
        return "-"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return _seconds(value)
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{_PER_SECOND.get(unit, 'B' if unit == 'bytes' else '')}".rstrip()
    return f"{value:.3g} {_PER_SECOND.get(unit, 'B' if unit == 'bytes' else '')}".rstrip()


def _seconds(value: float) -> str:
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value * 1e6:.3g} µs" if value else "0"
