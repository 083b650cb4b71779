"""The site's table of contents has every guide; `make docs` checks the links."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = "cli.md"


def test_every_guide_is_in_the_table_of_contents_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    folder = ROOT / "docs"
    assert sorted(listed) == sorted([str(path.relative_to(folder)) for path in folder.rglob("*.md")] + [GENERATED])
