"""The cascade beside Kafka Streams: the same counters, and the CPU time of each."""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq
import trio

from bench.captures import MILLION, chosen_files, files
from bench.cascade_peer.streams import PROGRAMS, argv, streams_classes
from bench.cascade_peer.topic import fill
from bench.command import benchmark
from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.jars import BUILD
from shoal.scenarios.kafka.process import Process, until
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.scenarios.progress import Progress

CASCADE = "shoal spark cascade"
ALL = (CASCADE, *PROGRAMS)
PARTITIONS = 2
WITHIN_S = 900
COLUMNS = ("level", "window", "topic", "client", "records", "bytes", "batches", "restamped")
Counters = set[tuple[str, ...]]


class Program(NamedTuple):
    """`argv`, `counters`: given its directory."""

    argv: Callable[[Path], Sequence[str]]
    counters: Callable[[Path], Counters]


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench.cascade_peer", description=__doc__)
    arguments.add_argument("--millions", type=int, nargs="+", default=[1, 10], metavar="N", help="rows (default 1 10)")
    arguments.add_argument("--rounds", type=int, default=1, help="medians are printed (default 1)")
    arguments.add_argument("--programs", nargs="+", default=ALL, choices=ALL, metavar="NAME", help="run only these")
    arguments.add_argument(
        "--out", type=Path, default=BUILD / "bench-cascade-peer", help="directory for report.json and logs"
    )
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    data, work = (options.out.absolute() / name for name in ("index", "work"))
    shutil.rmtree(work, ignore_errors=True)
    lib = await streams_classes()
    paths = files(data, max(options.millions), "index")
    figures = []
    async with running_cluster(work / "kafka", ClusterSpec(heap="1g", quick=False)) as cluster:
        for millions in options.millions:
            source, topic = chosen_files(data, paths[:millions]), f"rows-{millions}"
            progress.say(f"writing {millions} million rows to a topic")
            await Topics(cluster.bootstrap).create(topic, PARTITIONS)
            await trio.to_thread.run_sync(fill, cluster.bootstrap, topic, source, PARTITIONS)
            settings = {"bootstrap.servers": cluster.bootstrap, "shoal.topic": topic}
            programs = _programs(source, lib, {**settings, "shoal.rows": str(millions * MILLION)})
            known: dict[str, Counters] = {}
            for turn, name in enumerate([*options.programs] * options.rounds):
                progress.say(f"{millions} M rows: {name} (load {os.getloadavg()[0]:.1f})")
                here = work / f"{topic}-{turn}"
                figures.append({"program": name, "millions": millions, **await _used(programs[name], here)})
                known[name] = programs[name].counters(here)
                _require_equal(known)
    return {"cores": os.cpu_count(), "load": os.getloadavg(), "figures": figures}


def _programs(source: Path, lib: Path, settings: Mapping[str, str]) -> dict[str, Program]:
    streams = {name: Program(partial(argv, lib, {**settings, **own}), _of_streams) for name, own in PROGRAMS.items()}
    return {CASCADE: Program(partial(_cascade, source), _of_cascade), **streams}


def _cascade(source: Path, here: Path) -> Sequence[str]:
    return [sys.executable, "-m", "shoal", "spark", "cascade", str(source), str(here / "out"), "--no-recount"]


async def _used(program: Program, here: Path) -> dict[str, float]:
    """Raises RuntimeError if it fails, NotReady if it does not end."""
    report = here / "used.json"
    counting = [sys.executable, "-m", "bench.family", str(report), *program.argv(here)]
    process = Process(counting, log=here / "log", name=here.name)
    await until(lambda: not process.running, within=WITHIN_S, what=f"the end of {here.name}")
    used: dict[str, float] = json.loads(report.read_text())
    if used.pop("exit_code") or process.exit_code:
        raise RuntimeError(f"{here.name} failed:\n{process.tail()}")
    return used


def _of_cascade(here: Path) -> Counters:
    columns = pq.read_table(here / "out" / "counters.parquet", columns=list(COLUMNS))
    return {tuple(map(str, row.values())) for row in columns.to_pylist()}


def _of_streams(here: Path) -> Counters:
    with (here / "counters").open(newline="") as lines:
        return set(map(tuple, csv.reader(lines, delimiter="\t")))


def _require_equal(known: Mapping[str, Counters]) -> None:
    """Raises RuntimeError."""
    first, *others = known
    for other in others:
        if known[first] != known[other]:
            different = sorted(known[first] ^ known[other])
            raise RuntimeError(f"{first} and {other} differ in {len(different)} counters: {different[:4]} ...")


def as_tables(report: Mapping[str, Any]) -> str:
    """With two numbers of rows or more, also the CPU of another million between the first and the last."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for figure in report["figures"]:
        runs = found.setdefault(figure["program"], {}).setdefault(figure["millions"], [])
        runs.append((figure["cpu_s"], figure["seconds"]))
    sizes = sorted({figure["millions"] for figure in report["figures"]})
    head = ["", *(f"{size} M: {what}" for size in sizes for what in ("CPU s", "s")), "CPU s per further million"]
    return render([head, RULE, *([name, *_cells(found[name], sizes)] for name in found)])


def _cells(runs: Mapping[int, Sequence[tuple[float, float]]], sizes: Sequence[int]) -> Sequence[str]:
    medians = [tuple(median(values) for values in zip(*runs[size], strict=True)) for size in sizes]
    cells = [number(value) for pair in medians for value in pair]
    between = sizes[-1] - sizes[0]
    return [*cells, number((medians[-1][0] - medians[0][0]) / between, 2) if between else "-"]


def main() -> int:
    return benchmark(parser().parse_args(), measure, as_tables, "All programs have the same counters.")


if __name__ == "__main__":
    sys.exit(main())
