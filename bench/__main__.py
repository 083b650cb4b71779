"""`make bench`: proxy CPU per GiB, added latency and memory of Shoal, HAProxy and a direct connection, in one run."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench import runs
from bench.command import benchmark
from bench.index import microseconds_per_batch
from bench.load import Wire
from bench.peers import Peer, find_haproxy, running_haproxy, running_shoal
from bench.report import DIRECT, HAPROXY, SHOAL, Figures, as_json, as_tables
from bench.stage import Stage
from bench.workloads import BUILDERS, INDEX, UNWRAP, WAYS, WRAP
from shoal.scenarios import memory
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shoal.scenarios.progress import Progress

FORWARDING = ("fetch", "produce", "wrap", "unwrap", "index")
PARTS = ("memory", *FORWARDING, "latency")
BROKER = {"log.retention.check.interval.ms": "1000"}  # repeated produce runs must not fill the disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The order of the runs: direct, HAProxy and Shoal take turns, so noise on the machine affects all of them."""

    stage: Stage
    peers: Mapping[str, Peer]
    progress: Progress
    rounds: int
    seconds: float  # of one forwarding run
    requests: int  # of one kind in one round
    figures: Figures = field(default_factory=Figures)

    def run(self, parts: Collection[str]) -> Figures:
        """Raises RuntimeError if a proxy did not do its work, OSError if it hung up or hangs."""
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
            for work in (work for part in parts for work in BUILDERS[part](self.stage, self.peers)):
                found = runs.run(work, self.seconds)
                self.figures.forwarding[work.name][work.way].append(found)
                cost = found.cpu_s_per_gib
                proxy = "" if cost is None else f", proxy {cost:.2f} CPU-s/GiB"
                where = f"round {turn + 1} of {self.rounds}: {work.name}, {work.peer.name}"
                self.progress.update(f"{where}: {found.gib_per_s:.2f} GiB/s{proxy}")

    def _latency(self) -> None:
        ways = [way for way in WAYS if way in self.peers]
        with ExitStack() as stack:
            wires = {way: stack.enter_context(Wire(self.peers[way].address)) for way in ways}
            for wire in wires.values():
                runs.introduce(wire)
            for turn in range(self.rounds):
                for name, frame in self.stage.small_requests().items():
                    self.progress.update(f"round {turn + 1} of {self.rounds}: a lone {name}")
                    for way, wire in wires.items():
                        self.figures.lone[name][way].append(runs.lone(wire, frame, self.requests))


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS)
    arguments.add_argument("--rounds", type=int, default=5, help="interleaved rounds; medians are printed (default 5)")
    arguments.add_argument("--seconds", type=float, default=2.5, help="duration of each forwarding run (default 2.5)")
    arguments.add_argument(
        "--requests", type=int, default=400, help="single requests of each kind and round (default 400)"
    )
    arguments.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, metavar="PART", help=", ".join(PARTS))
    arguments.add_argument("--out", type=Path, default=BUILD / "bench", help="directory for report.json and logs")
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, object]:
    work: Path = options.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    async with AsyncExitStack() as stack:
        progress.say(f"starting a broker (Kafka {options.kafka}) and the proxies; logs are in {work}")
        spec = ClusterSpec(version=options.kafka, properties=BROKER, heap="1g", quick=False)
        cluster = await stack.enter_async_context(running_cluster(work / "kafka", spec))
        stage = await Stage.build(broker_of(cluster), topic_ids=options.kafka >= "4")
        schedule = Schedule(
            stage=stage,
            peers=await peers(stack, work, stage, progress),
            progress=progress,
            rounds=options.rounds,
            seconds=options.seconds,
            requests=options.requests,
        )
        figures = schedule.run(options.only)
        return as_json(figures, kafka=options.kafka, rounds=options.rounds, cores=os.cpu_count())


def broker_of(cluster: Cluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap.rpartition(":")
    return host, int(port)


async def peers(stack: AsyncExitStack, work: Path, stage: Stage, progress: Progress) -> dict[str, Peer]:
    found = {DIRECT: Peer(name=DIRECT, address=stage.broker)}
    try:
        running = running_haproxy(await find_haproxy(), work, stage.broker)
        found[HAPROXY] = await stack.enter_async_context(running)
    except SetupError as error:
        progress.say(f"without the yardstick: {error}")
    for way, mode in ((SHOAL, "plain"), (WRAP, "wrap"), (UNWRAP, "unwrap")):
        found[way] = await stack.enter_async_context(running_shoal(mode, work, stage.broker))
    found[INDEX] = await stack.enter_async_context(running_shoal("plain", work, stage.broker, index=True))
    return found


def main() -> int:
    options = parser().parse_args()
    return benchmark(options, measure, as_tables, f"Medians of {options.rounds} interleaved rounds.")


if __name__ == "__main__":
    sys.exit(main())
