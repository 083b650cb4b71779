"""`make bench-compare`: what a change costs. Shoal of this tree and of a commit, in turns."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.__main__ import BROKER, broker_of
from bench.command import benchmark, warn_if_busy
from bench.compare.commit import checked_out, extracted
from bench.compare.report import COMMIT, THIS, as_json, as_tables
from bench.compare.sides import start_side
from bench.compare.turns import PARTS, Turns
from bench.proxies.names import DIRECT
from bench.proxies.peer import Peer
from bench.stage import Stage
from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS

if TYPE_CHECKING:
    from shoal.scenarios.progress import Progress


_INDEX = {"none": (), "this": (THIS,), "both": (THIS, COMMIT)}


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    arguments.add_argument("commit", nargs="?", default="HEAD", help="default HEAD: uncommitted changes, or the noise")
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS)
    arguments.add_argument("--rounds", type=int, default=5, help="a ratio each (default 5)")
    arguments.add_argument("--seconds", type=float, default=1, help="duration of each run (default 1)")
    arguments.add_argument(
        "--requests", type=int, default=400, help="single requests of each kind and round (default 400)"
    )
    arguments.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, metavar="PART", help=", ".join(PARTS))
    arguments.add_argument("--index", choices=_INDEX, default="none", help="which side writes a traffic index")
    arguments.add_argument("--out", type=Path, default=BUILD / "compare", help="directory for report.json and logs")
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, object]:
    work: Path = options.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    warn_if_busy(progress)
    this, commit = checked_out(), await extracted(options.commit, options.out)
    progress.say(f"{commit.name} is in {commit.path}{', from an earlier run' if commit.reused else ''}; it stays there")
    async with AsyncExitStack() as stack:
        progress.say(f"starting a broker (Kafka {options.kafka}); logs are in {work}")
        spec = ClusterSpec(version=options.kafka, properties=BROKER, heap="1g", quick=False)
        cluster = await stack.enter_async_context(running_cluster(work / "kafka", spec))
        stage = await Stage.build(broker_of(cluster), topic_ids=options.kafka >= "4")
        turns = Turns(
            stage=stage,
            direct=Peer(name=DIRECT, address=stage.broker),
            progress=progress,
            rounds=options.rounds,
            seconds=options.seconds,
            requests=options.requests,
        )
        for turn in range(options.rounds):
            async with AsyncExitStack() as round_stack:
                shoals = partial(
                    start_side,
                    stack=round_stack,
                    work=work / f"round-{turn + 1}",
                    broker=stage.broker,
                    parts=options.only,
                )
                sides = {
                    name: await shoals(name, tree, index=name in _INDEX[options.index])
                    for name, tree in ((THIS, this), (COMMIT, commit))
                }
                turns.take(turn, sides[THIS], sides[COMMIT], options.only)
    about = {"kafka": options.kafka, "python": platform.python_version(), "cores": os.cpu_count()}
    return as_json(turns.found, turns.left_out, this=this.name, commit=commit.name, **about)


def main() -> int:
    options = parser().parse_args()
    return benchmark(options, measure, as_tables, f"Ratios of {options.rounds} rounds: above 1, this tree costs more.")


if __name__ == "__main__":
    sys.exit(main())
