"""`make bench-coalesce`: the broker's savings when the requests of 200 producers are joined, and the added latency."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.coalesce.crowd import Load
from bench.coalesce.report import DIRECT, as_tables
from bench.coalesce.runs import Way, run
from bench.command import benchmark
from bench.proxies.peer import running_shoal
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS

if TYPE_CHECKING:
    from shoal.scenarios.progress import Progress

TOPIC = "crowd"
PARTITIONS = 200
LINGER_MS = 10
COALESCING = """
coalesce = true
[listener.coalescing]
ignore-client-ids = true
linger = {linger}
"""


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench.coalesce", description=__doc__)
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS)
    arguments.add_argument("--low", type=float, default=100, help="low load, records per second (default 100)")
    arguments.add_argument("--high", type=float, default=3000, help="high load, records per second (default 3000)")
    arguments.add_argument("--seconds", type=float, default=10, help="duration of each run (default 10)")
    arguments.add_argument(
        "--producers", type=int, default=200, help="number, half librdkafka and half Java (default 200)"
    )
    arguments.add_argument("--ways", nargs="+", metavar="WAY", help="run only these")
    arguments.add_argument(
        "--out", type=Path, default=BUILD / "bench-coalesce", help="directory for report.json and logs"
    )
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, object]:
    work: Path = options.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    async with AsyncExitStack() as stack:
        progress.say(f"starting a broker (Kafka {options.kafka}) and three Shoals; logs are in {work}")
        spec = ClusterSpec(version=options.kafka, jmx=True, heap="1g", quick=False)
        cluster = await stack.enter_async_context(running_cluster(work / "kafka", spec))
        ways = [way for way in await _ways(stack, work, cluster) if not options.ways or way.name in options.ways]
        half = options.producers // 2
        loads = [
            Load(name=f"{name}, {rate:,.0f}/s", rate=rate, seconds=options.seconds, librdkafka=half, java=half)
            for name, rate in (("low", options.low), ("high", options.high))
        ]
        progress.say("warming up the broker")
        await Topics(cluster.bootstrap).create(TOPIC, PARTITIONS)
        await run(ways[-1], loads[-1], cluster, TOPIC, work / "warm-up")
        figures: dict[str, dict[str, object]] = {}
        for load in loads:
            for at, way in enumerate(ways):
                progress.say(f"{load.name}: {way.name}")
                found = await run(way, load, cluster, TOPIC, work / f"{load.rate:.0f}-{at}")
                figures.setdefault(load.name, {})[way.name] = found.as_json()
        return {
            "kafka": options.kafka,
            "cores": os.cpu_count(),
            "producers": {"librdkafka": half, "java": half},
            "partitions": PARTITIONS,
            "seconds": options.seconds,
            "loads": figures,
        }


async def _ways(stack: AsyncExitStack, work: Path, cluster: Cluster) -> list[Way]:
    host, _, port = cluster.bootstrap.rpartition(":")
    broker = host, int(port)
    ways = [Way(name=DIRECT, bootstrap=cluster.bootstrap)]
    listeners = {
        "Shoal, plain": "",
        "Shoal, coalesce": COALESCING.format(linger=0),
        f"Shoal, coalesce, linger {LINGER_MS} ms": COALESCING.format(linger=LINGER_MS / 1000),
    }
    for number, (name, more) in enumerate(listeners.items()):
        peer = await stack.enter_async_context(running_shoal("plain", work / f"shoal-{number}", broker, more))
        ways.append(Way(name=name, bootstrap=f"{peer.address[0]}:{peer.address[1]}", shoal=peer.process))
    return ways


def main() -> int:
    options = parser().parse_args()
    return benchmark(options, measure, as_tables, "Every record was there once and in its producer's order.")


if __name__ == "__main__":
    sys.exit(main())
