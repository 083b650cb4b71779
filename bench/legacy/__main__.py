"""`make bench-legacy`: the cost of old consumers for Kafka 3.9.1, which converts by itself, and for Kafka 4.3.0 behind
Shoal."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from bench.command import benchmark
from bench.legacy.report import BOUND, BROKER, SHOAL, as_tables
from bench.legacy.runs import Crowd, Way, fast, slow
from bench.legacy.stage import kinds, stage
from bench.proxies.peer import running_shoal
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.java.jars import BUILD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bench.legacy.stage import Kind
    from bench.load import Address
    from shoal.scenarios.progress import Progress

OLD, NEW = "3.9.1", "4.3.0"
DIRECT, UNBOUND = "Kafka 3.9.1 alone", "Shoal, bound lifted"
CLUSTERS = {OLD: (DIRECT,), NEW: (BOUND, UNBOUND)}
WAYS = [name for names in CLUSTERS.values() for name in names]
LISTENERS = {
    BOUND: "legacy = true\n",
    UNBOUND: 'legacy = true\n[listener.legacy-options]\nbudget-bytes = "64GiB"\n',
}
HEAPS = {
    OLD: "4g",
    NEW: "1g",
}  # kafka-server-start.sh sets 1 GiB: too little for a broker that converts for so many consumers
ROUNDS = 2
FINISH = 16


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench.legacy", description=__doc__)
    arguments.add_argument("--consumers", type=int, default=500, help="number of slow consumers (default 500)")
    arguments.add_argument("--bite", type=int, default=4096, help="bytes per second of each (default 4096)")
    arguments.add_argument("--seconds", type=float, default=50, help="duration of the slow consumers (default 50)")
    arguments.add_argument("--batches", type=int, default=24, help="batches per topic, 1 MB each (default 24)")
    what = f"run only these of {', '.join(map(repr, WAYS))}"
    arguments.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, metavar="WAY", help=what)
    arguments.add_argument("--only", choices=("slow", "fast"), help="run only these consumers")
    what = "heap of the brokers (default: 4g for Kafka 3.9.1, which converts, and 1g, Kafka's default)"
    arguments.add_argument("--heap", help=what)
    arguments.add_argument(
        "--out", type=Path, default=BUILD / "bench-legacy", help="directory for report.json and logs"
    )
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, object]:
    work: Path = options.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    progress.say(f"building {options.batches} batches of each codec; logs are in {work}")
    sets = await trio.to_thread.run_sync(_sets, options.batches)
    ways: dict[str, object] = {}
    for version, names in CLUSTERS.items():
        wanted = [name for name in names if name in options.ways]
        if wanted:
            async with _cluster(version, options.heap or HEAPS[version], work / f"kafka-{version}", sets) as cluster:
                for name in wanted:
                    async with _way(name, cluster, work) as way:
                        ways[name] = await _both(way, options, progress, work)
    crowd = asdict(_crowd(options))
    return {"cores": os.cpu_count(), "heap": options.heap or HEAPS, "crowd": crowd, "ways": ways}


def _sets(batches: int) -> dict[Kind, list[bytes]]:
    return {kind: list(kind.build()) for kind in kinds(batches).values()}


@asynccontextmanager
async def _cluster(version: str, heap: str, work: Path, sets: Mapping[Kind, list[bytes]]) -> AsyncIterator[Cluster]:
    spec = ClusterSpec(version=version, heap=heap, quick=False, jvm_options=("-Xlog:gc",))
    async with running_cluster(work, spec) as cluster:
        await stage(cluster.bootstrap, _address(cluster), sets)
        yield cluster


@asynccontextmanager
async def _way(name: str, cluster: Cluster, work: Path) -> AsyncIterator[Way]:
    broker, address = cluster.nodes[1].process, _address(cluster)
    if name == DIRECT:
        yield Way(name=name, address=address, processes={BROKER: broker})
        return
    async with running_shoal("plain", work / name, address, LISTENERS[name]) as peer:
        assert peer.process
        yield Way(name=name, address=peer.address, processes={BROKER: broker, SHOAL: peer.process})


async def _both(way: Way, options: argparse.Namespace, progress: Progress, work: Path) -> dict[str, object]:
    """The fast one first: otherwise the memory of the slow consumers would count as its own."""
    found: dict[str, object] = {}
    if options.only != "slow" and way.name != UNBOUND:
        progress.say(f"{way.name}: a fast consumer")
        found["fast"] = {kind.codec: await fast(way, kind, ROUNDS) for kind in kinds(options.batches).values()}
    if options.only != "fast":
        progress.say(f"{way.name}: {options.consumers} slow consumers for {options.seconds:g} s")
        found["slow"] = await slow(way, _crowd(options), work)
    return found


def _crowd(options: argparse.Namespace) -> Crowd:
    return Crowd(
        consumers=options.consumers,
        bite=options.bite,
        seconds=options.seconds,
        batches=options.batches,
        finish=min(FINISH, options.consumers),
    )


def _address(cluster: Cluster) -> Address:
    host, _, port = cluster.bootstrap.rpartition(":")
    return host, int(port)


def main() -> int:
    options = parser().parse_args()
    return benchmark(options, measure, as_tables, "Every message that came was whole, correct and in its place.")


if __name__ == "__main__":
    sys.exit(main())
