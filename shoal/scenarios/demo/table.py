"""The printed table of the demo."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from shoal.scenarios.demo.report import MIRROR, PROXY, ROLES, SOURCE, TARGET, cpu_of, peak_of
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.scenarios.demo.report import DemoRun, FigureOf, Report
    from shoal.scenarios.spread import Spread

__all__ = ["as_range", "as_table", "times"]

_MB = 1_000_000


def as_table(report: Report) -> str:
    """Medians; with several rounds their ranges, too. The copies are described in the round of the median time."""
    runs = report.typical()
    wall, mirroring = attrgetter("wall_s"), attrgetter("mirroring_cpu_s")

    def compared(label: str, figure: FigureOf, digits: int = 1) -> Sequence[str]:
        measured = (number(found and found.median, digits) for found in report.figures(figure))
        return (label, *measured, *(times(found) for found in report.times_less(figure)))

    def ranges(label: str, figure: FigureOf) -> Sequence[str]:
        return (label, *map(as_range, [*report.figures(figure), *report.times_less(figure)]))

    def by_role(roles: Sequence[str], figure: Callable[[str], FigureOf]) -> list[Sequence[str]]:
        return [compared(f"  {role.replace('_', ' ')}", figure(role)) for role in roles]

    def listed(label: str, shown: Callable[[DemoRun], str]) -> Sequence[str]:
        return (label, *map(shown, runs))

    rounds = [
        (f"range of {len(report.rounds)} rounds",),
        ranges("  wall time, s", wall),
        ranges("  CPU of mirror and proxy", mirroring),
        ranges("  CPU of the target broker", cpu_of(TARGET)),
        RULE,
    ]
    return render(
        [
            ("", *(run.column for run in runs), *(ratio.heading for ratio in report.ratios)),
            RULE,
            compared("wall time, s", wall),
            listed("records per second", lambda run: number(report.source.records / run.wall_s, 0)),
            RULE,
            ("CPU seconds",),
            *by_role((MIRROR, PROXY), cpu_of),
            compared("  mirror and proxy", mirroring),
            *by_role((SOURCE, TARGET), cpu_of),
            compared("  all of them", lambda run: sum(run.cpu_s.values())),
            RULE,
            ("peak memory, MiB",),
            *by_role(ROLES, peak_of),
            RULE,
            *([compared("produce requests", attrgetter("requests"), 0), RULE] if report.counts_requests else []),
            *(rounds if len(report.rounds) > 1 else []),
            ("the copy",),
            ("  records as in the source", *(_equality(report.of(name)) for name in report.rounds[0])),
            listed("  batches", lambda run: number(run.copy.batches, 0)),
            listed("  size, MB", lambda run: number(run.copy.size / _MB)),
            listed("  compression", lambda run: ", ".join(run.copy.codecs)),
            RULE,
            ("envelopes left in any topic", *[""] * (len(runs) - 1), number(report.envelopes_left, 0)),
        ]
    )


def _equality(rounds: Sequence[DemoRun]) -> str:
    return f"{rounds[0].copy.records:,}" if all(run.equal for run in rounds) else "NOT EQUAL"


def times(found: Spread | None) -> str:
    return "-" if found is None else f"{found.median:.1f}x"


def as_range(found: Spread | None) -> str:
    return "-" if found is None else f"{number(found.low)} to {number(found.high)}"
