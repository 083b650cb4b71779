"""Charts of a few hundred aggregated points, for `report.py`: matplotlib without a display or global state.

Each function returns a Figure with labelled axes. Spark aggregates raw rows first.
"""

from __future__ import annotations

from math import floor, log, log10
from typing import TYPE_CHECKING, Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["COLOURS", "bars", "bytes_label", "count_label", "histogram", "lines", "microseconds_label"]

COLOURS: Final = ("#17677f", "#d1782b", "#6d8f3c", "#8a4f9e", "#b3453f", "#4f6d9e", "#8c7a4b", "#5b6775")
_INK, _DIM, _LINE = "#1d2733", "#5b6775", "#d9dfe6"
_WIDTH: Final = 9.0
_CHARACTER: Final = 0.011  # width of a mark's character, as a part of the axis
_DECADES: Final = 30  # ratio of the largest to the smallest value above which a linear axis would hide small ones
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "shoal"
mpl.rcParams["font.size"] = 10
mpl.rcParams["font.family"] = "sans-serif"


def histogram(
    series: Mapping[str, Mapping[int, float]],
    *,
    per_doubling: int,
    label: str,
    counted: str,
    form: FuncFormatter,
    base: int = 10,
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """`series`: by name, bin number -> count; overlaid, over a logarithmic axis. `marks`: named values on it.

    `base`: of the axis' labels, 2 or 10.
    """
    figure, axes = _figure(3.4)
    numbers = range(*_span([number for counts in series.values() for number in counts]))
    edges = [2 ** (number / per_doubling) for number in (*numbers, numbers.stop)]
    below = [0.0] * len(numbers)
    for colour, (name, counts) in zip(_cycle(len(series)), series.items(), strict=False):
        above = [bottom + counts.get(number, 0) for bottom, number in zip(below, numbers, strict=True)]
        axes.stairs(above, edges, baseline=below, fill=True, color=colour, label=_short(name), linewidth=0)
        below = above
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_locator(LogLocator(base=4 if base == 2 else 10))
    axes.xaxis.set_major_formatter(form)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(count_label)
    axes.set_ylim(bottom=0)
    _marks(axes, marks or {})
    _labels(axes, label, counted, legend=len(series) > 1)
    return figure


def bars(values: Mapping[str, float], *, label: str, form: FuncFormatter, log: bool = False) -> Figure:
    """One horizontal bar per name, from the top down. `log`: a logarithmic axis, for values that are decades apart."""
    figure, axes = _figure(0.9 + 0.34 * max(len(values), 1))
    names = list(values)
    places = range(len(names), 0, -1)
    drawn = axes.barh(list(places), list(values.values()), 0.7, color=COLOURS[0])
    axes.set_yticks(list(places), [_short(name) for name in names])
    positive = [value for value in values.values() if value > 0]
    if log and positive and max(positive) >= _DECADES * min(positive):
        axes.set_xscale("log")
        axes.set_xlim(10 ** floor(log10(min(positive)) - 0.01), max(positive) * 2)
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(form)
    axes.bar_label(drawn, [form(value) for value in values.values()], padding=4, color=_DIM, fontsize=9)
    axes.margins(x=0.12)
    _labels(axes, label, "", legend=False, grid="x")
    axes.tick_params(axis="y", length=0)
    return figure


def lines(
    series: Mapping[str, tuple[Sequence[object], Sequence[float]]],
    *,
    label: str,
    counted: str,
    form: FuncFormatter | None = None,
    log: bool = False,
    step: bool = False,
) -> Figure:
    """`series`: by name, x (numbers, or times of UTC) and y."""
    figure, axes = _figure(3.4)
    for colour, (name, (x, y)) in zip(_cycle(len(series)), series.items(), strict=False):
        draw_style = "steps-post" if step else "default"
        marker = "o" if len(x) < 40 else None
        look = {"drawstyle": draw_style, "marker": marker, "markersize": 3.5}
        axes.plot(x, y, color=colour, label=_short(name), **look)  # type: ignore[arg-type]
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if not any(value for _, y in series.values() for value in y):
            axes.set_ylim(-1, 1)
    axes.yaxis.set_major_formatter(form or count_label)
    _labels(axes, label, counted, legend=len(series) > 1)
    return figure


def _span(numbers: Sequence[int]) -> tuple[int, int]:
    """From the first number to one past the last."""
    return (min(numbers), max(numbers) + 1) if numbers else (0, 1)


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _cycle(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _marks(axes: Axes, marks: Mapping[str, float]) -> None:
    """Names of values that are close to each other are stacked."""
    first, last = axes.get_xlim()
    row, right = 0, 0.0
    for name, value in sorted(marks.items(), key=lambda mark: mark[1]):
        place_of = log(value / first) / log(last / first) if 0 < first < last and value > 0 else 0.0
        half = _CHARACTER * len(name) / 2
        row = row + 1 if place_of - half < right else 0
        right = place_of + half
        axes.axvline(value, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)))
        place = (value, 1.01 + 0.07 * row)
        axes.annotate(
            name, place, xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=8.5, color=_INK
        )


def _labels(axes: Axes, x: str, y: str, *, legend: bool, grid: str = "y") -> None:
    axes.set_xlabel(x, color=_DIM)
    axes.set_ylabel(y, color=_DIM)
    axes.grid(axis=grid, color=_LINE, linewidth=0.7)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_LINE)
    axes.tick_params(colors=_DIM, which="both")
    if legend:
        axes.figure.legend(loc="outside right upper", frameon=False, fontsize=9)


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:19] + "..." + name[-18:]


def _scaled(value: float, units: Sequence[str], step: float) -> str:
    scale = 0
    while abs(value) >= step and scale + 1 < len(units):
        value, scale = value / step, scale + 1
    return f"{value:,.0f}{units[scale]}" if abs(value) >= 100 else f"{value:.3g}{units[scale]}"


bytes_label: Final = FuncFormatter(lambda value, _=None: _scaled(value, (" B", " KiB", " MiB", " GiB", " TiB"), 1024))
count_label: Final = FuncFormatter(lambda value, _=None: _scaled(value, ("", " k", " M", " G", " T"), 1000))
microseconds_label: Final = FuncFormatter(
    lambda value, _=None: _scaled(value, (" us", " ms", " s", " ks", " Ms"), 1000)
)
