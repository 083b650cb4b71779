"""The order of the runs: direct, HAProxy and Shoal take turns, so that noise on the machine affects all of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import runs, workloads
from bench.index import microseconds_per_batch
from bench.load import Wire
from bench.report import HAPROXY, SHOAL, Figures
from shoal.scenarios import memory

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bench.peers import Peer
    from bench.stage import Stage
    from shoal.scenarios.progress import Progress

__all__ = ["PARTS", "Schedule"]

FORWARDING = ("fetch", "produce", "wrap", "unwrap", "index")
PARTS = ("memory", *FORWARDING, "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    stage: Stage
    peers: Mapping[str, Peer]
    progress: Progress
    rounds: int
    seconds: float  # of one forwarding run
    requests: int  # of one kind in one round
    figures: Figures = field(default_factory=Figures)

    def run(self, parts: Collection[str]) -> Figures:
        """Raises RuntimeError when a proxy did not do its work, OSError when it hung up or hangs."""
        proxies = [way for way in (HAPROXY, SHOAL) if way in self.peers and "memory" in parts]
        for way in proxies:
            self._idle(way)
        self._forward([part for part in FORWARDING if part in parts])
        for way in proxies:
            self.figures.peak_mib[way]["after the forwarding above"] = memory.peak_mib(self.peers[way].pid)
        if "index" in parts:
            self.progress.update("the index, batch by batch")
            self.figures.index_us = microseconds_per_batch()
        if "latency" in parts:
            self._latency()
        return self.figures

    def _idle(self, way: str) -> None:
        self.progress.update(f"memory: {way}, {runs.IDLE_CONNECTIONS:,} idle connections")
        alone, crowded = runs.idle_peaks(self.peers[way])
        self.figures.peak_mib[way] = {"idle": alone, f"{runs.IDLE_CONNECTIONS:,} idle connections": crowded}

    def _forward(self, parts: Collection[str]) -> None:
        for turn in range(self.rounds):
            for work in (work for part in parts for work in workloads.BUILDERS[part](self.stage, self.peers)):
                found = runs.run(work, self.seconds)
                self.figures.forwarding[work.name][work.way].append(found)
                cost = found.cpu_s_per_gib
                proxy = "" if cost is None else f", proxy {cost:.2f} CPU-s/GiB"
                where = f"round {turn + 1} of {self.rounds}: {work.name}, {work.peer.name}"
                self.progress.update(f"{where}: {found.gib_per_s:.2f} GiB/s{proxy}")

    def _latency(self) -> None:
        ways = [way for way in workloads.WAYS if way in self.peers]
        with ExitStack() as stack:
            wires = {way: stack.enter_context(Wire(self.peers[way].address)) for way in ways}
            for wire in wires.values():
                runs.introduce(wire)
            for turn in range(self.rounds):
                for name, frame in self.stage.small_requests().items():
                    self.progress.update(f"round {turn + 1} of {self.rounds}: a lone {name}")
                    for way, wire in wires.items():
                        self.figures.lone[name][way].append(runs.lone(wire, frame, self.requests))
