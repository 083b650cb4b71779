"""The figures of both sides and the ratio of each round, by workload, as JSON and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.scenarios.spread import Spread, known_median, ratios
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COMMIT", "CPU_GIB", "CPU_US", "P50", "THIS", "Measured", "as_json", "as_tables", "verdict"]

THIS, COMMIT = "this", "commit"
CPU_GIB, CPU_US, P50 = "CPU s/GiB", "CPU us each", "us"
_SAME = Spread(1, 1, 1)
_FEWEST = 5  # rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`values`: by side, one per round."""

    part: str
    unit: str
    values: dict[str, list[float | None]]

    def ratios(self) -> list[float]:
        return ratios(self.values[THIS], self.values[COMMIT])


def as_json(found: Mapping[str, Measured], left_out: Mapping[str, str], **about: object) -> dict[str, Any]:
    """A workload without a ratio in any round has none in the report."""
    return {
        **about,
        "workloads": {
            name: {
                "unit": measured.unit,
                **{side: known_median(measured.values[side]) for side in (THIS, COMMIT)},
                "ratio": Spread.of(each)._asdict() if (each := measured.ratios()) else None,
                "rounds": len(each),
            }
            for name, measured in found.items()
        },
        "left_out": dict(left_out),
    }


def verdict(ratio: Spread, rounds: int) -> str:
    """What costs less or more beyond the spread, and by more than noise. Fewer rounds than five agree by chance."""
    if rounds < _FEWEST:
        return ""
    if ratio.above(_SAME):
        return "slower"
    return "faster" if _SAME.above(ratio) else ""


def as_tables(report: Mapping[str, Any]) -> str:
    heading = [f"{report['this']} against {report['commit']}", "", "commit", "this tree", "ratio", "from", "to"]
    rows = [[*heading, ""], RULE]
    for name, found in report["workloads"].items():
        figures = [found["unit"], number(found[COMMIT], 2), number(found[THIS], 2)]
        ratio = Spread(**found["ratio"]) if found["ratio"] else None
        spread = (
            [*(number(value, 3) for value in ratio), verdict(ratio, found["rounds"])]
            if ratio
            else ["-"] * len(Spread._fields)
        )
        rows.append([name, *figures, *spread])
    left_out = [f"left out: {part}: {reason}" for part, reason in report["left_out"].items()]
    return "\n".join([render(rows), *left_out])
