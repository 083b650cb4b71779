"""The cores that this process may use: those of its CPU affinity, and as many as the quotas of its cgroups allow.

A container with a limit of 2 CPUs sees all cores of its machine, and is stopped for the rest of each period when it has
used up its quota. So `workers = "auto"` counts whole cores of the quota.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["usable_cores"]

_OWN = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def usable_cores(own: Path = _OWN, root: Path = _ROOT) -> int:
    """At least 1. `own`, `root`: where the kernel shows the cgroups."""
    return max(1, int(min([len(os.sched_getaffinity(0)), *_quotas(own, root)])))


def _quotas(own: Path, root: Path) -> Iterator[float]:
    """Quotas of the process's group and of those above it, in cores; cgroups of both versions."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        tree = root / controllers if controllers else root
        group = tree / path.strip("/")
        for place in (group, *group.parents):
            if place.is_relative_to(tree):
                yield from _of_v1(place) if controllers else _of_v2(place)


def _of_v2(group: Path) -> Iterator[float]:
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text().split()
        if quota != "max":
            yield int(quota) / int(period)


def _of_v1(group: Path) -> Iterator[float]:
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota = int((group / "cpu.cfs_quota_us").read_text())
        if quota > 0:
            yield quota / int((group / "cpu.cfs_period_us").read_text())
