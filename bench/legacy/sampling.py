"""Memory and CPU of a process while something runs."""

from __future__ import annotations

import os
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.scenarios import memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from shoal.scenarios.kafka.process import Process

__all__ = ["Cost", "TcpBuffers", "Watch", "live_heap_mib", "tcp_buffers_mib", "watching"]

INTERVAL_S = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")
_COLLECTED = re.compile(r"->(\d+)M\(")  # -Xlog:gc: "Pause Young (Normal) ... 51M->12M(256M)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one process for one phase. MiB: resident before it, peak resident (VmHWM), and peak anonymous memory, in
    samples."""

    cpu_s: float
    before_mib: float
    peak_mib: float
    anonymous_mib: float
    live_heap_mib: float | None = None  # of a JVM: the largest heap after a garbage collection


class Watch:
    """Watches a running process, from now on."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._printed = len(process.output())
        self._cpu_s = process.usage().cpu_s
        self._before = memory.resident_mib(process.pid)
        self._anonymous = 0.0
        memory.reset_peak(process.pid)
        self.sample()

    def sample(self) -> None:
        self._anonymous = max(self._anonymous, memory.anonymous_mib(self._process.pid))

    def cost(self) -> Cost:
        """Raises ProcessLookupError when it has ended."""
        return Cost(
            cpu_s=self._process.usage().cpu_s - self._cpu_s,
            before_mib=self._before,
            peak_mib=memory.peak_mib(self._process.pid),
            anonymous_mib=self._anonymous,
            live_heap_mib=live_heap_mib(self._process.output()[self._printed :]),
        )


class TcpBuffers:
    """Buffers of all sockets of this machine: bytes sent and not received are in no process's memory."""

    def __init__(self) -> None:
        self.most_mib = 0.0

    def sample(self) -> None:
        self.most_mib = max(self.most_mib, tcp_buffers_mib(Path("/proc/net/sockstat").read_text()))


def tcp_buffers_mib(sockstat: str) -> float:
    """The pages in `mem` of the TCP line (proc(5))."""
    (line,) = (line.split() for line in sockstat.splitlines() if line.startswith("TCP:"))
    return int(line[line.index("mem") + 1]) * _PAGE / (1 << 20)


def live_heap_mib(log: str) -> float | None:
    """None if no garbage collection was logged."""
    left = [int(mib) for mib in _COLLECTED.findall(log)]
    return float(max(left)) if left else None


@asynccontextmanager
async def watching(processes: Mapping[str, Process]) -> AsyncIterator[tuple[Mapping[str, Watch], TcpBuffers]]:
    """Watches by process name. `Watch.cost` reports a process that has ended. Exceptions of the block propagate
    unchanged."""
    watches = {name: Watch(process) for name, process in processes.items()}
    tcp = TcpBuffers()
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_sample, watches, tcp)
        try:
            yield watches, tcp
        except Exception as error:  # a nursery would raise an exception group
            failed = error
        nursery.cancel_scope.cancel()
    if failed:
        raise failed


async def _sample(watches: Mapping[str, Watch], tcp: TcpBuffers) -> None:
    with suppress(ProcessLookupError, FileNotFoundError):
        while True:
            await trio.sleep(INTERVAL_S)
            tcp.sample()
            for watch in watches.values():
                watch.sample()
