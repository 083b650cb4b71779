"""Outcomes as text: a table with a line per case, then each fact that does not hold; figures as a file."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shoal.proxy.config.problems import OperatorError
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.scenarios.replay.facts import CheckedFact
    from shoal.scenarios.replay.runner import Outcome

__all__ = ["as_json", "as_lines", "as_table", "write_figures"]

_SIGNS = {True: "ok", False: "FAILED", None: "-"}


def as_lines(outcome: Outcome) -> str:
    """All facts of one case."""
    return "\n".join(_line(fact) for fact in outcome.facts)


def _line(fact: CheckedFact) -> str:
    return f"  {_SIGNS[fact.holds]:<7} {fact.name}: {fact.text}"


def as_table(outcomes: Sequence[Outcome]) -> str:
    rows: list[Sequence[str]] = [["scenario", "facts", "not measured", "failed", "seconds", "verdict"], RULE]
    for outcome in outcomes:
        counts = [sum(fact.holds is holds for fact in outcome.facts) for holds in (True, None, False)]
        verdict = "ok" if outcome.good else "FAILED"
        rows.append([outcome.case.name, *map(str, counts), number(outcome.seconds), verdict])
    failed = [
        f"{outcome.case.name}: {fact.name}: {fact.text}"
        for outcome in outcomes
        for fact in outcome.facts
        if fact.holds is False
    ]
    return "\n".join([render(rows), *(["", "facts that do not hold:", *failed] if failed else [])])


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        outcome.case.name: {
            "good": outcome.good,
            "seconds": round(outcome.seconds, 1),
            "facts": [{"fact": fact.name, "holds": fact.holds, "told": fact.text} for fact in outcome.facts],
        }
        for outcome in outcomes
    }


def write_figures(path: Path, figures: object) -> None:
    """Written completely or not at all; print the figures first. Raises OperatorError."""
    hidden = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_text(json.dumps(figures, indent=1) + "\n")
        hidden.replace(path)
    except OSError as error:
        with suppress(OSError):
            hidden.unlink()
        what = f"{path} cannot be written: {error.strerror}: make room, or choose another directory"
        raise OperatorError.of("--out", what) from None
