"""The metrics of the processes (`process_*`): CPU time, memory and descriptors of the supervisor and all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import ProcessCollector
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric as Family

__all__ = ["Processes"]

_CPU: Final = "process_cpu_seconds"
_OF_SUPERVISOR: Final = ("process_start_time_seconds", "process_max_fds")


class Processes(Collector):
    """`workers`: the process ids of those that run. CPU time of ended ones is kept, as far as a scrape has seen it."""

    def __init__(self, workers: Callable[[], Iterable[int]]) -> None:
        self._workers = workers
        self._own = ProcessCollector(registry=None)
        self._cpu: dict[int, float] = {}  # by process id
        self._ended = 0.0  # CPU time of ended workers

    def collect(self) -> Iterator[Family]:
        running = set(self._workers())
        self._ended += sum(self._cpu.pop(pid) for pid in self._cpu.keys() - running)
        of_workers = [self._of(pid) for pid in running]
        for family in self._own.collect():
            (sample,) = family.samples
            value = sample.value
            if family.name == _CPU:
                value += self._ended + sum(self._cpu.values())
            elif family.name not in _OF_SUPERVISOR:
                value += sum(found.get(family.name, 0.0) for found in of_workers)
            family.samples = [sample._replace(value=value)]
            yield family

    def _of(self, pid: int) -> dict[str, float]:
        found = {
            family.name: family.samples[0].value
            for family in ProcessCollector(pid=lambda: pid, registry=None).collect()
        }
        if _CPU in found:
            self._cpu[pid] = found[_CPU]
        return found
