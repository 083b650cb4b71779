"""An index may end anywhere, with its process; unreadable bytes before the end are a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.capture.index.blocks import BlockType, encode_object

from .index import damaged

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = encode_object(BlockType.START, {"version": 1, "filler": "x" * 100})


def test_a_file_that_was_cut_off_is_whole_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "shoal-1.kxb").write_bytes(BLOCK + BLOCK[:-7])
    assert damaged(tmp_path) == []


def test_damage_is_found(tmp_path: Path) -> None:
    torn = BLOCK[:20] + bytes([BLOCK[20] ^ 1]) + BLOCK[21:]
    (tmp_path / "shoal-1.kxb").write_bytes(BLOCK + torn + BLOCK)
    assert len(damaged(tmp_path)) == 1
