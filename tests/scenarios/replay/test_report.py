"""A replay's figures on a full disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.scenarios.replay.report import write_figures
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("room", [0, 4096])
def test_figures_are_written_whole_or_not_at_all(tmp_path: Path, room: int) -> None:
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        path = disk.path / "report.json"
        path.write_text("those of before")
        disk.fill(leave=room)
        with pytest.raises(
            OperatorError, match=r"--out: .*report.json cannot be written: No space left on device: make room"
        ):
            write_figures(path, list(range(10_000)))
        assert path.read_text() == "those of before"
        assert sorted(one.name for one in disk.path.iterdir()) == ["filler", "report.json"]
        disk.empty()
        write_figures(path, {"a": 1})
        assert json.loads(path.read_text()) == {"a": 1}
