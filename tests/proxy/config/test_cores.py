from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.config.cores import usable_cores

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, 8),
        ({"a/b": "max 100000"}, 8),
        ({"a/b": "350000 100000"}, 3),
        ({"a": "200000 100000", "a/b": "350000 100000"}, 2),  # a group above has less
        ({"a/b": "50000 100000"}, 1),
        ({"a/b": "9900000 100000"}, 8),
        ({"a/b": "nonsense"}, 8),
    ],
)
def test_a_quota_counts_whole_cores(quotas: dict[str, str], cores: int, tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    own.write_text("0::/a/b\n")
    for group, text in quotas.items():
        (root / group).mkdir(parents=True, exist_ok=True)
        (root / group / "cpu.max").write_text(f"{text}\n")
    assert usable_cores(own, root) == cores


def test_the_first_version_of_cgroups(tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    own.write_text("3:cpu,cpuacct:/a\n2:memory:/a\n")
    group = root / "cpu,cpuacct" / "a"
    group.mkdir(parents=True)
    (group / "cpu.cfs_period_us").write_text("100000\n")
    for quota, cores in ((400_000, 4), (-1, 8)):
        (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        assert usable_cores(own, root) == cores


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path) == 8
