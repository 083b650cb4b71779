"""Writes the files: `python -m tests.ops.monitoring`."""

from __future__ import annotations

from tests.ops.monitoring.files import wanted

for path, text in wanted().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
