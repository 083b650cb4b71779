"""The alerts as Prometheus' rules, and as promtool's tests of them: YAML whose strings are written as in JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from tests.ops.monitoring.alerts import ALERTS
from tests.ops.monitoring.examples import EXAMPLES, HEALTHY, INSTANCE, JOB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.ops.monitoring.alerts import Alert
    from tests.ops.monitoring.examples import Example

__all__ = ["RULES_FILE", "WRITTEN_BY", "rules", "trials"]

WRITTEN_BY: Final = "Written by `python -m tests.ops.monitoring`"
RULES_FILE: Final = "shoal.rules.yaml"
_TEMPLATE: Final = re.compile(r"\{\{ \$(labels\.(?P<label>\w+)|value( \| (?P<filter>\w+))?) \}\}")


def rules() -> str:
    lines = [f"# {WRITTEN_BY}. What each alert means: docs/monitoring.md", "groups:", "  - name: shoal", "    rules:"]
    for alert in ALERTS:
        lines += _rule(alert)
    return "\n".join(lines) + "\n"


def _rule(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield "        expr: |-"
    yield from (f"          {line}" for line in alert.expression.splitlines())
    if alert.lasts:
        yield f"        for: {alert.lasts}"
    yield f"        labels: {{ severity: {alert.severity} }}"
    yield "        annotations:"
    yield from (f"          {key}: {_quoted(text)}" for key, text in _annotations(alert).items())


def _annotations(alert: Alert) -> dict[str, str]:
    return {
        "summary": alert.summary,
        "description": f"{alert.meaning} {alert.remedy}",
        "runbook_url": alert.runbook,
    }


def trials() -> str:
    lines = [
        f"# {WRITTEN_BY}. Run by `promtool test rules`",
        f"rule_files: [{RULES_FILE}]",
        "evaluation_interval: 1m",
        "tests:",
    ]
    for alert in ALERTS:
        lines += _trial(alert, EXAMPLES[alert.name])
    lines += [*_test("a healthy Shoal", HEALTHY)]
    for alert in ALERTS:
        for minute in (0, 30, 59):
            lines += _expect(alert, minute, None)
    return "\n".join(lines) + "\n"


def _trial(alert: Alert, example: Example) -> Iterator[str]:
    yield from _test(f"{alert.name} fires", example.fires)
    if example.before is not None:
        yield from _expect(alert, example.before, None)
    yield from _expect(alert, example.at, example)
    yield from _test(f"{alert.name} does not fire", example.quiet)
    for minute in (1, 5, 10, 20, 30):
        yield from _expect(alert, minute, None)


def _test(name: str, series: Mapping[str, str]) -> Iterator[str]:
    yield f"  - name: {name}"
    yield "    interval: 1m"
    yield "    input_series:"
    for selector, values in series.items():
        yield f"      - series: {_quoted(_of_instance(selector))}"
        yield f"        values: {_quoted(values)}"
    yield "    alert_rule_test:"


def _of_instance(selector: str) -> str:
    name, _, labels = selector.removesuffix("}").partition("{")
    parts = [f'job="{JOB}"', f'instance="{INSTANCE}"', *([labels] if labels else [])]
    return f"{name}{{{','.join(parts)}}}"


def _expect(alert: Alert, minute: int, example: Example | None) -> Iterator[str]:
    yield f"      - eval_time: {minute}m"
    yield f"        alertname: {alert.name}"
    if example is None:
        yield "        exp_alerts: []"
        return
    labels = {"job": JOB, "instance": INSTANCE, "severity": alert.severity, **example.labels}
    yield "        exp_alerts:"
    yield f"          - exp_labels: {{ {', '.join(f'{key}: {_quoted(text)}' for key, text in labels.items())} }}"
    yield "            exp_annotations:"
    for key, text in _annotations(alert).items():
        yield f"              {key}: {_quoted(_filled(text, labels, example.values))}"


def _filled(text: str, labels: Mapping[str, str], values: Mapping[str, str]) -> str:
    """As Prometheus fills in the template."""

    def found(match: re.Match[str]) -> str:
        return labels[match["label"]] if match["label"] else values[match["filter"] or ""]

    return _TEMPLATE.sub(found, text)


def _quoted(text: str) -> str:
    return json.dumps(text)
