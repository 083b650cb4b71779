"""The end of a job: its page, and a summary on the terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shoal.scenarios.jobs.source.span import time_span
from shoal.scenarios.report.write import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.scenarios.jobs.task import Task
    from shoal.scenarios.report.report import Report

__all__ = ["finish"]

_NS = 1_000_000_000


def finish(task: Task, report: Report) -> None:
    """Write the page, and print the report's facts and the page's path."""
    page = write_report(replace(report, origin=tuple(_origin(task))), task.out)
    width = max((len(fact.name) for fact in report.facts), default=0)
    for fact in report.facts:
        print(f"{fact.name:<{width}}  {fact.value}")
    print(page)


def _origin(task: Task) -> Iterator[str]:
    yield f"Input: {task.source}"
    if (span := time_span(task.source)) is not None:
        first, last = (datetime.fromtimestamp(time / _NS, UTC) for time in span)
        yield f"Captured: {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    chosen = [f"{name} {task.options[name]}" for name in ("from", "to", "topics") if name in task.options]
    if chosen:
        yield f"Rows: {', '.join(chosen)}"
