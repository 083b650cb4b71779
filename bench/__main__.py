"""`make bench`: proxy CPU per GiB, added latency and memory of Shoal, HAProxy and a direct connection, in one run."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.command import benchmark
from bench.peers import Peer, find_haproxy, running_haproxy, running_shoal
from bench.report import DIRECT, HAPROXY, SHOAL, as_json, as_tables
from bench.schedule import PARTS, Schedule
from bench.stage import Stage
from bench.workloads import INDEX, UNWRAP, WRAP
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS

if TYPE_CHECKING:
    from shoal.scenarios.progress import Progress

BROKER = {"log.retention.check.interval.ms": "1000"}  # repeated produce runs must not fill the disk


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
