"""Shoal's capture index: its files are readable after any kill or full disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.capture.index.blocks import Damaged, read_blocks

if TYPE_CHECKING:
    from pathlib import Path


def damaged(directory: Path) -> list[str]:
    """Unreadable places. A file may end in the middle of a block: its process was killed."""
    return [
        f"damaged index: {path.name}: {block}"
        for path in sorted(directory.glob("*.kxb"))
        for block in read_blocks(path.read_bytes())
        if isinstance(block, Damaged)
    ]
