"""The order of the runs: all paths take turns, so noise on the machine affects all of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import runs
from bench.load import Wire
from bench.overhead.connections import connections, idle_peaks
from bench.overhead.index import microseconds_per_batch
from bench.overhead.report import COUNTED, Figures
from bench.overhead.workloads import BUILDERS, WAYS, stage_of
from bench.proxies.names import DIRECT, KROXYLICIOUS, PROXIES
from shoal.scenarios import memory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from bench.proxies.peer import Peer
    from bench.runs import Workload
    from bench.stage import Stage
    from shoal.scenarios.progress import Progress

__all__ = ["FORWARDING", "PARTS", "Schedule", "measure_idle"]

FORWARDING = ("fetch", "produce", "wrap", "unwrap", "small", "index")
PARTS = ("memory", *FORWARDING, "connections", "latency")
AT_ONCE = 16  # connections
WARM_UP_S = 1.0  # of each workload: Java compiles what is hot


def measure_idle(figures: Figures, way: str, peer: Peer, counts: Sequence[int]) -> None:
    """`peer` must have done nothing else."""
    peaks = idle_peaks(peer, *counts)
    figures.idle_mib[way] = peaks
    named = {"idle" if count == 1 else f"{count:,} idle connections": mib for count, mib in peaks.items()}
    figures.peak_mib[way] = named


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    stage: Stage
    peers: Mapping[str, Peer]
    progress: Progress
    rounds: int
    seconds: float  # of one run of forwarding or of new connections
    requests: int  # of one kind in one round
    figures: Figures = field(default_factory=Figures)

    def run(self, parts: Collection[str]) -> Figures:
        """Raises RuntimeError if a proxy did not do its work, OSError if it hung up or hangs."""
        proxies = [way for way in PROXIES if way in self.peers]
        self._forward([part for part in FORWARDING if part in parts])
        if "memory" in parts:
            for way in proxies:
                self.figures.peak_mib[way]["after the forwarding above"] = memory.peak_mib(self.peers[way].pid)
        if "connections" in parts:
            self._connect(proxies)
        if "index" in parts:
            self.progress.update("the index, batch by batch")
            self.figures.index_us = microseconds_per_batch()
        if "latency" in parts:
            self._latency()
        return self.figures

    def _forward(self, parts: Collection[str]) -> None:
        for work in (work for work in self._workloads(parts) if work.way == KROXYLICIOUS):
            runs.run(work, WARM_UP_S)
        for turn in range(self.rounds):
            for work in self._workloads(parts):
                found = runs.run(work, self.seconds)
                self.figures.forwarding[work.name][work.way].append(found)
                cost = found.cpu_us_per_request if work.name in COUNTED else found.cpu_s_per_gib
                unit = "CPU microseconds per request" if work.name in COUNTED else "CPU-s/GiB"
                proxy = "" if cost is None else f", proxy {cost:.2f} {unit}"
                self.progress.update(f"{self._round(turn)}: {work.name}, {work.peer.name}{proxy}")

    def _workloads(self, parts: Collection[str]) -> Iterator[Workload]:
        """Each once, although two parts may want it."""
        given = set()
        for work in (work for part in parts for work in BUILDERS[part](self.stage, self.peers)):
            if (work.name, work.way, work.peer.name) not in given:
                given.add((work.name, work.way, work.peer.name))
                yield work

    def _connect(self, proxies: Sequence[str]) -> None:
        for turn in range(self.rounds):
            for way in proxies:
                found = connections(self.peers[way], self.seconds, at_once=AT_ONCE)
                self.figures.connections[way].append(found)
                cost = f"{found.cpu_us:.0f} CPU microseconds each"
                self.progress.update(f"{self._round(turn)}: new connections, {way}: {cost}")

    def _latency(self) -> None:
        ways = [way for way in WAYS if way in self.peers]
        frames = {way: stage_of(way, self.stage).small_requests() for way in ways}
        with ExitStack() as stack:
            wires = {way: stack.enter_context(Wire(self.peers[way].address)) for way in ways}
            for wire in wires.values():
                runs.introduce(wire)
            for turn in range(self.rounds):
                for name in frames[DIRECT]:
                    self.progress.update(f"{self._round(turn)}: a lone {name}")
                    for way, wire in wires.items():
                        self.figures.lone[name][way].append(runs.lone(wire, frames[way][name], self.requests))

    def _round(self, turn: int) -> str:
        return f"round {turn + 1} of {self.rounds}"
