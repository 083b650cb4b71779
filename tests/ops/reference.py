"""docs/metrics.md, written from the table of metrics: `python -m tests.ops.reference`."""

from __future__ import annotations

from pathlib import Path

from shoal.proxy.admin.metrics.table import SECTIONS

__all__ = ["GUIDE", "written"]

GUIDE = Path(__file__).parents[2] / "docs" / "metrics.md"
_MARK = "<!-- Below this line: written by `python -m tests.ops.reference` -->\n"


def written(guide: str) -> str:
    """The guide with its tables as they must be now."""
    prose, mark, _ = guide.partition(_MARK)
    lines = [prose + mark]
    for title, metrics in SECTIONS.items():
        lines += [f"## {title}\n", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    GUIDE.write_text(written(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
