"""The report of `shoal check`: every finding with its line, its reason and the correct line."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor.destinations import client_address
from shoal.proxy.cli.doctor.finding import Finding, Severity
from shoal.proxy.cli.doctor.properties import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.cli.doctor.check import Report
    from shoal.proxy.cli.doctor.properties import Entry

__all__ = ["render"]

_WIDTH = 118
_INDENT = " " * 16


def render(report: Report, name: str) -> str:
    """`name`: the file name as given on the command line."""
    lines = [_head(report, name), ""]
    for finding in report.findings:
        lines += _finding(finding, report)
        lines.append("")
    lines += _summary(report, name)
    return "\n".join(lines) + "\n"


def _head(report: Report, name: str) -> str:
    flows = ", ".join(flow.name for flow in report.flows) or "none of the flows"
    wrap, unwrap = client_address(report.shoal.wrap), client_address(report.shoal.unwrap)
    return f"{name}: {report.mirror.form.name}, checked {flows} against Shoal at {wrap} (source) and {unwrap} (target)"


def _finding(finding: Finding, report: Report) -> Iterator[str]:
    yield f"  {finding.severity.value:<14}{_place(finding.at)}"
    yield from textwrap.wrap(
        finding.why, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )
    for key, value in finding.write:
        yield f"{_INDENT}=> {_setting(key, value, report)}"
    for entry in finding.remove:
        yield f"{_INDENT}=> remove the line {entry.key}"


def _place(at: Entry | str) -> str:
    if isinstance(at, str):
        return at
    return f"line {at.line}: {at}" if at.line else str(at)


def _is_json(report: Report) -> bool:
    return report.mirror.form.is_connect


def _separator(report: Report) -> str:
    return ",\n" if _is_json(report) else "\n"


def _setting(key: str, value: str, report: Report) -> str:
    value = shown(key, value)
    return f"{json.dumps(key)}: {json.dumps(value)}" if _is_json(report) else f"{key} = {value}"


def _summary(report: Report, name: str) -> Iterator[str]:
    severe = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    written: dict[str, str] = {}
    for finding in severe:
        for key, value in finding.write:
            written.setdefault(key, value)
    if written:
        yield f"Set these lines in {name}:"
        yield ""
        yield textwrap.indent(_separator(report).join(_setting(*pair, report) for pair in written.items()), "    ")
        yield ""
    yield f"{_count(report)}. {_verdict(report)}"


def _count(report: Report) -> str:
    counts = {severity: sum(f.severity is severity for f in report.findings) for severity in Severity}
    parts = [f"{counts[Severity.MUST]} must change", f"{counts[Severity.SHOULD]} should change"]
    notes = counts[Severity.NOTE]
    return ", ".join([*parts, f"{notes} {'note' if notes == 1 else 'notes'}"])


def _verdict(report: Report) -> str:
    if report.must_change:
        return "Change these lines, then check again."
    return "This mirror can go through Shoal: start Shoal first, then the mirror."
