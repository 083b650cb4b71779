"""Outcomes for people: a table with a line per case, and below it each fact that does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.scenarios.replay.facts import CheckedFact
    from shoal.scenarios.replay.runner import Outcome

__all__ = ["as_json", "as_lines", "as_table"]

_SIGNS = {True: "ok", False: "FAILED", None: "-"}


def as_lines(outcome: Outcome) -> str:
    """All facts of one case."""
    return "\n".join(_line(verdict) for verdict in outcome.verdicts)


def _line(verdict: CheckedFact) -> str:
    return f"  {_SIGNS[verdict.holds]:<7} {verdict.fact}: {verdict.text}"


def as_table(outcomes: Sequence[Outcome]) -> str:
    rows: list[Sequence[str]] = [["scenario", "facts", "not measured", "failed", "seconds", "verdict"], RULE]
    for outcome in outcomes:
        counts = [sum(verdict.holds is holds for verdict in outcome.verdicts) for holds in (True, None, False)]
        verdict = "ok" if outcome.good else "FAILED"
        rows.append([outcome.case.name, *map(str, counts), number(outcome.seconds), verdict])
    failed = [
        f"{outcome.case.name}: {verdict.fact}: {verdict.text}"
        for outcome in outcomes
        for verdict in outcome.verdicts
        if verdict.holds is False
    ]
    return "\n".join([render(rows), *(["", "facts that do not hold:", *failed] if failed else [])])


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        outcome.case.name: {
            "good": outcome.good,
            "seconds": round(outcome.seconds, 1),
            "facts": [
                {"fact": verdict.fact, "holds": verdict.holds, "told": verdict.text} for verdict in outcome.verdicts
            ],
        }
        for outcome in outcomes
    }
