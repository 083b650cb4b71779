"""docs/monitoring.md: prose, and below a mark one section for each alert, written from the table of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.ops.monitoring.alerts import ALERTS
from tests.ops.monitoring.rules import WRITTEN_BY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ops.monitoring.alerts import Alert

__all__ = ["written"]

_MARK: Final = f"<!-- Below this line: {WRITTEN_BY[0].lower()}{WRITTEN_BY[1:]} -->\n"


def written(guide: str) -> str:
    """The guide with its sections as they must be now."""
    prose, mark, _ = guide.partition(_MARK)
    assert mark, "the guide has no mark"
    lines = [prose + mark, "| alert | severity | fires |", "|---|---|---|"]
    lines += [f"| [{one.name}](#{one.name.lower()}) | {one.severity} | {_when(one)} |" for one in ALERTS]
    for alert in ALERTS:
        lines += _section(alert)
    return "\n".join(lines) + "\n"


def _when(alert: Alert) -> str:
    return f"after {alert.lasts}" if alert.lasts else "at once"


def _section(alert: Alert) -> Iterator[str]:
    yield f"\n### {alert.name}\n"
    yield f"{_without_templates(alert.meaning)}\n"
    yield f"*The way out:* {alert.remedy}"
    if alert.see:
        yield "See " + ", ".join(f"[{text}]({page})" for text, page in alert.see.items()) + "."
    yield f"\n```promql\n{alert.expression}\n```"


def _without_templates(text: str) -> str:
    """`{{ $labels.listener }}` -> `listener` in italics; the value is what the expression gives."""
    for part in ("labels.", "value"):
        while (start := text.find("{{ $" + part)) >= 0:
            inner, _, rest = text[start + 4 :].partition(" }}")
            name = inner.partition(" ")[0].removeprefix("labels.")
            text = f"{text[:start]}*{name}*{rest}"
    return text
