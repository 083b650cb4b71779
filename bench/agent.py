"""Ordinary produce requests to a broker with the agent and to one without, side by side: python -m bench.agent

Both brokers run throughout and get the same load alternately, so that noise affects both. The figures are medians of
the rounds: records per second by ProducerPerformance, and the broker's CPU time, which also shows a loss that spare CPU
would hide.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node, running_cluster
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.kafka.java.jars import DEFAULT_VERSION
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.table import RULE, number, render

_RATE = re.compile(r"([\d.]+) records/sec")


class Load(NamedTuple):
    """Values of 100 bytes. `producer`: properties of the Java producer; all use acks=all and idempotence."""

    records: int
    producer: Mapping[str, str]


LOADS = {
    "usual batches": Load(2_000_000, {"linger.ms": "5"}),
    "zstd batches": Load(1_000_000, {"linger.ms": "5", "compression.type": "zstd"}),
    "small batches": Load(300_000, {"batch.size": "1000", "linger.ms": "0"}),
}


@dataclass(slots=True, kw_only=True)
class Figures:
    rates: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


async def produce(cluster: Cluster, load: Load, version: str) -> tuple[float, float]:
    """Records per second, and CPU seconds of the broker."""
    node: Node = cluster.nodes[1]
    before = node.process.usage()
    properties = [f"{key}={value}" for key, value in {**load.producer, "bootstrap.servers": cluster.bootstrap}.items()]
    arguments = ("--topic", "load", "--num-records", str(load.records), "--record-size", "100", "--throughput", "-1")
    text = await run_tool("ProducerPerformance", *arguments, "--producer-props", *properties, version=version)
    return float(_RATE.findall(text)[-1]), node.process.usage().since(before).cpu_s


async def measure(work: Path, version: str, rounds: int) -> dict[str, dict[str, Figures]]:
    specs = {name: ClusterSpec(version=version, agent=name == "agent", quick=False) for name in ("stock", "agent")}
    async with (
        running_cluster(work / "stock", specs["stock"]) as stock,
        running_cluster(work / "agent", specs["agent"]) as agent,
    ):
        sides = {"stock": stock, "agent": agent}
        for cluster in sides.values():
            await Topics(cluster.bootstrap).create("load", 4, config={"retention.bytes": "100000000"})
        found = {name: {side: Figures() for side in sides} for name in LOADS}
        for name, load in LOADS.items():
            for round_ in range(-1, rounds):  # the first warms up
                for side, cluster in _in_turn(sides, round_):
                    rate, cpu_s = await produce(cluster, load, version)
                    if round_ >= 0:
                        found[name][side].rates.append(rate)
                        found[name][side].cpu_s.append(cpu_s)
        return found


def _in_turn(sides: Mapping[str, Cluster], round_: int) -> Sequence[tuple[str, Cluster]]:
    items = list(sides.items())
    return items if round_ % 2 else items[::-1]


def tell(version: str, found: Mapping[str, Mapping[str, Figures]]) -> str:
    head = ["", "records/s stock", "agent", "agent/stock", "broker CPU-s stock", "agent", "agent/stock"]
    rows = [head, RULE, *([name, *_cells(sides)] for name, sides in found.items())]
    return f"Kafka {version}, median of the rounds\n{render(rows)}"


def _cells(sides: Mapping[str, Figures]) -> Iterator[str]:
    for kind, digits in (("rates", 0), ("cpu_s", 2)):
        stock, agent = (median(getattr(sides[side], kind)) for side in ("stock", "agent"))
        yield from (number(stock, digits), number(agent, digits), number(agent / stock, 3))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help=f"version of the brokers (default {DEFAULT_VERSION})")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds; medians are printed (default 5)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-agent-") as work:
        found = trio.run(measure, Path(work), options.kafka, options.rounds)
    print(tell(options.kafka, found))
    if options.json:
        plain = {
            name: {side: {"rates": run.rates, "cpu_s": run.cpu_s} for side, run in sides.items()}
            for name, sides in found.items()
        }
        options.json.write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    try:
        main()
    except HarnessError as error:
        sys.exit(f"error: {error}")
