"""`make bench`: CPU, added latency and memory of Shoal, other proxies and a direct connection, in one run."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.command import benchmark, warn_if_busy
from bench.overhead import baseline
from bench.overhead.report import Figures, as_json, as_tables
from bench.overhead.schedule import PARTS, Schedule, measure_idle
from bench.overhead.workloads import INDEX, UNWRAP, WRAP
from bench.proxies.configs import BrokerAddresses
from bench.proxies.descriptors import raise_limit
from bench.proxies.materials import Materials
from bench.proxies.names import DIRECT, PROXIES, SHOAL
from bench.proxies.peer import Peer, running_shoal
from bench.proxies.placements import Placement
from bench.proxies.start import PLAINTEXT, Proxy, Scene, start
from bench.stage import Stage
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.spread import Spread

if TYPE_CHECKING:
    from shoal.scenarios.progress import Progress

BROKER = {"log.retention.check.interval.ms": "1000"}  # repeated produce runs must not fill the disk
SOME, MANY = 1_000, 10_000  # idle connections


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS)
    arguments.add_argument("--rounds", type=int, default=5, help="interleaved rounds; medians are printed (default 5)")
    arguments.add_argument("--seconds", type=float, default=0.75, help="duration of each forwarding run (default 0.75)")
    arguments.add_argument(
        "--requests", type=int, default=400, help="single requests of each kind and round (default 400)"
    )
    arguments.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, metavar="PART", help=", ".join(PARTS))
    arguments.add_argument("--write-baseline", action="store_true", help=f"keep the ratios in {baseline.BASELINE.name}")
    arguments.add_argument("--out", type=Path, default=BUILD / "bench", help="directory for report.json and logs")
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, object]:
    work: Path = options.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    warn_if_busy(progress)
    held = raise_limit(MANY)
    if held < MANY:
        progress.say(f"{held:,} idle connections instead of {MANY:,}: the hard limit of open files allows no more")
    async with AsyncExitStack() as stack:
        progress.say(f"starting a broker (Kafka {options.kafka}) and the proxies; logs are in {work}")
        spec = ClusterSpec(version=options.kafka, properties=BROKER, heap="1g", quick=False)
        cluster = await stack.enter_async_context(running_cluster(work / "kafka", spec))
        stage = await Stage.build(broker_of(cluster), topic_ids=options.kafka >= "4")
        scene = Scene(
            work=work,
            broker=BrokerAddresses(plain=stage.broker),
            materials=Materials.make(work / "materials"),
            wanted=PLAINTEXT,
            maxconn=held + 10,
        )
        figures = Figures()
        if "memory" in options.only:
            await idle(figures, scene, (1, SOME, held), progress)
        schedule = Schedule(
            stage=stage,
            peers=await peers(stack, scene, figures, progress),
            progress=progress,
            rounds=options.rounds,
            seconds=options.seconds,
            requests=options.requests,
            figures=figures,
        )
        schedule.run(options.only)
    about = {"kafka": options.kafka, "python": platform.python_version(), "cores": os.cpu_count()}
    ratios = baseline.compared(figures)
    before = baseline.read()
    if options.write_baseline:
        baseline.write(ratios, about)
    return as_json(figures, **about, rounds=options.rounds) | {
        "idle_connections": {"wanted": MANY, "held": held},
        "ratios": {name: spread._asdict() for name, spread in ratios.items()},
        "baseline": {name: spread._asdict() for name, spread in before.items()},
    }


def broker_of(cluster: Cluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap.rpartition(":")
    return host, int(port)


async def idle(figures: Figures, scene: Scene, counts: tuple[int, ...], progress: Progress) -> None:
    """A process of each proxy for the idle connections alone: what they leave behind would distort the rest."""
    for way in PROXIES:
        async with AsyncExitStack() as stack:
            started = await start(way, stack, scene)
            if isinstance(started, Proxy):
                progress.update(f"memory: {way}, up to {counts[-1]:,} idle connections")
                measure_idle(figures, way, started.peers[Placement.PLAIN], counts)


async def peers(stack: AsyncExitStack, scene: Scene, figures: Figures, progress: Progress) -> dict[str, Peer]:
    found = {DIRECT: Peer(name=DIRECT, address=scene.broker.plain)}
    for way in (way for way in PROXIES if way != SHOAL):
        started = await start(way, stack, scene)
        if isinstance(started, Proxy):
            found[way] = started.peers[Placement.PLAIN]
        else:
            figures.absent[way] = started
            progress.say(f"without {way}: {started}")
    shoal = partial(running_shoal, work=scene.work, broker=scene.broker.plain)
    for way, mode in ((SHOAL, "plain"), (WRAP, "wrap"), (UNWRAP, "unwrap")):
        found[way] = await stack.enter_async_context(shoal(mode))
    found[INDEX] = await stack.enter_async_context(shoal("plain", index=True))
    return found


def tables(report: dict[str, Any]) -> str:
    now, before = ({name: Spread(**spread) for name, spread in report[of].items()} for of in ("ratios", "baseline"))
    return "\n\n".join([as_tables(report), baseline.verdict_table(now, before)])


def main() -> int:
    options = parser().parse_args()
    return benchmark(options, measure, tables, f"Medians of {options.rounds} interleaved rounds.")


if __name__ == "__main__":
    sys.exit(main())
