"""The runs: each measures one thing once; the caller interleaves them over several rounds."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bench.load import Volume, forward, round_trips, steady
from bench.stage import CLIENT
from tests.support import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.load import Wire
    from bench.proxies.peer import Peer

__all__ = [
    "GIB",
    "Forwarding",
    "Lone",
    "Workload",
    "cpu_s",
    "lone",
    "percentile",
    "run",
]

GIB = 1 << 30
WARM_UP = 50  # uncounted requests on each new connection
_FIRST = 4  # the same, where connections are many


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    way: str  # the column of the report
    peer: Peer
    frames: Sequence[bytes]
    in_flight: int
    counted: Callable[[Volume], int]  # which bytes count as forwarded
    end_offset: Callable[[], int] | None = None  # of the topic that is written to
    records: int = 0  # appended by one round
    rounds: int = 0  # exactly so many, however long they take; 0: as many as there is time for
    connections: int = 1
    rate: float = 0  # requests per second of all connections; 0: as fast as answers arrive


class Forwarding(NamedTuple):
    """One run of one workload. `cpu_s` of the proxy is None without one."""

    cpu_s: float | None
    gib: float
    seconds: float
    requests: int = 0

    def plus(self, more: Forwarding) -> Forwarding:
        """Both runs as one. Without a proxy in one of them there is no CPU time."""
        cpu = None if self.cpu_s is None or more.cpu_s is None else self.cpu_s + more.cpu_s
        return Forwarding(cpu, self.gib + more.gib, self.seconds + more.seconds, self.requests + more.requests)

    @property
    def requests_per_s(self) -> float | None:
        return self.requests / self.seconds if self.requests else None

    @property
    def cpu_us_per_request(self) -> float | None:
        return None if self.cpu_s is None or not self.requests else self.cpu_s / self.requests * 1e6

    @property
    def cpu_s_per_gib(self) -> float | None:
        return None if self.cpu_s is None else self.cpu_s / self.gib

    @property
    def gib_per_s(self) -> float:
        return self.gib / self.seconds


class Lone(NamedTuple):
    """Microseconds of a lone request."""

    p50: float
    p99: float


def run(work: Workload, seconds: float) -> Forwarding:
    """Raises RuntimeError if the broker did not append exactly what was sent."""
    with ExitStack() as stack:
        wires = [stack.enter_context(work.peer.connect()) for _ in range(work.connections)]
        for wire in wires:
            introduce(wire)
        if work.rate:
            steady(wires, work.frames, rate=work.rate, least=_FIRST * len(wires))
        before = work.end_offset() if work.end_offset else 0
        cpu = cpu_s(work.peer)
        if work.rate:
            volume = steady(wires, work.frames, rate=work.rate, least=work.rounds)
        else:
            seconds = 0 if work.rounds else seconds
            volume = forward(wires[0], work.frames, in_flight=work.in_flight, seconds=seconds, least=work.rounds or 1)
        spent = None if cpu is None else (cpu_s(work.peer) or 0.0) - cpu
    if work.end_offset:
        _check_appended(work, work.end_offset() - before, volume.rounds * work.records)
    requests = volume.rounds * len(work.frames)
    return Forwarding(cpu_s=spent, gib=work.counted(volume) / GIB, seconds=volume.seconds, requests=requests)


def introduce(wire: Wire) -> None:
    """A client's first requests; a listener learns topic ids from the metadata."""
    for hello in (frames.api_versions(CLIENT), frames.metadata(CLIENT)):
        wire.send(hello)
        wire.drain()


def lone(wire: Wire, frame: bytes, count: int) -> Lone:
    round_trips(wire, frame, WARM_UP)
    times = sorted(round_trips(wire, frame, count))
    return Lone(p50=percentile(times, 50) / 1_000, p99=percentile(times, 99) / 1_000)


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Nearest rank. Raises IndexError if empty."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def cpu_s(peer: Peer) -> float | None:
    """CPU seconds of all threads of a proxy, by its CPU clock: /proc counts in ticks of 10 ms. None: the broker."""
    return None if peer.process is None else time.clock_gettime(_cpu_clock(peer.pid))


def _cpu_clock(pid: int) -> int:
    """As clock_getcpuclockid(3) makes it on Linux: a clock of a process, of what the scheduler counts."""
    return (~pid << 3) | 2


def _check_appended(work: Workload, appended: int, wanted: int) -> None:
    if appended != wanted:
        raise RuntimeError(f"{work.name} through {work.peer.name}: {appended:,} records appended instead of {wanted:,}")
