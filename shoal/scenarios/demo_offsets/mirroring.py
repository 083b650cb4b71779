"""MirrorMaker 2 behind `shoal mirror`, and what these and the brokers use: CPU, memory, time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from shoal.scenarios import memory
from shoal.scenarios.demo.report import MIRROR, PROXY, SOURCE, TARGET
from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.mirror import running_mirror
from shoal.scenarios.running.shoal_mirror import running_shoal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from shoal.scenarios.demo_offsets.plan import Plan
    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.process import Process

__all__ = ["Measured", "Meter", "Roles", "check_running", "running_mirroring"]

Roles = dict[str, list["Process"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    wall_s: float
    cpu_s: Mapping[str, float]  # by role
    peak_mib: Mapping[str, float]  # by role


@asynccontextmanager
async def running_mirroring(plan: Plan, source: Cluster, target: Cluster) -> AsyncIterator[Roles]:
    """Raises NotReady when Shoal does not start; the mirror may take some seconds more."""
    work = plan.work / "mirror"
    async with (
        running_shoal(work, source.bootstrap, target.bootstrap, plan.shoal_options()) as shoal,
        running_mirror(work, plan.mirror(source, target, shoal)) as mirror,
    ):
        yield {
            MIRROR: [mirror.process],
            PROXY: [shoal.process],
            SOURCE: [node.process for node in source.nodes.values()],
            TARGET: [node.process for node in target.nodes.values()],
        }


def check_running(roles: Roles) -> None:
    """Raises NotReady, with the end of its log, when a process has ended."""
    for process in (process for processes in roles.values() for process in processes):
        if not process.running:
            raise NotReady(f"{process.name} ended with {process.exit_code}\n{process.tail()}")


class Meter:
    """Measures from its creation on."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._start = trio.current_time()
        self._before = {role: _cpu_s(processes) for role, processes in roles.items()}
        for processes in roles.values():
            for process in processes:
                memory.reset_peak(process.pid)

    def read(self) -> Measured:
        """Raises ProcessLookupError when a process has ended."""
        return Measured(
            wall_s=trio.current_time() - self._start,
            cpu_s={role: _cpu_s(processes) - self._before[role] for role, processes in self._roles.items()},
            peak_mib={role: _peak_mib(processes) for role, processes in self._roles.items()},
        )


def _cpu_s(processes: Sequence[Process]) -> float:
    return sum(process.usage().cpu_s for process in processes)


def _peak_mib(processes: Sequence[Process]) -> float:
    return sum(process.usage().peak_mib for process in processes)
