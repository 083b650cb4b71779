from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.cluster.state_files import put_away

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_put_away_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "source.gaps"
    path.write_text("x")
    what, kept_as = put_away(path, "it is empty")
    assert kept_as is not None
    assert what == f"discarded {path} (it is empty), kept as {kept_as}"
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [(kept_as, "x")]


def test_what_cannot_be_renamed_is_reported_so(tmp_path: Path) -> None:
    path = tmp_path / "source.gaps"
    found = put_away(path, "it is empty")
    assert found == (f"discarded {path} (it is empty), which cannot be renamed (No such file or directory)", None)
