"""The speed of the Spark jobs, and how their time grows: `python -m bench.spark --millions 1 10 30`.

Rows are synthetic, and compacted as by `shoal capture compact`: Parquet, zstd, a file per million; the cascade, which
reads a stream, gets index files. All runs are in one session on all cores, after a short warm-up; the time is that of
the whole job, with its tables and its page. With `audit` all jobs run with Java's second compiler. Memory: Java's peak
resident size during the run, within its given heap.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.rows import NameTable
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.__main__ import run_in
from shoal.scenarios.jobs.arguments import parse
from shoal.scenarios.jobs.session import LOCAL_MASTER, WITHOUT_C2, session
from shoal.scenarios.jobs.task import JOBS
from shoal.scenarios.memory import peak_mib, reset_peak
from shoal.scenarios.table import RULE, render
from tests.support.captures.synthetic import Chunk, Traffic, chunks
from tests.support.captures.synthetic_files import index_bytes
from tests.support.captures.synthetic_mirror import mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MILLION = 1_000_000
MIRRORED = {"audit"}
STREAMED = {"cascade"}
ARGUMENTS = {"cascade": ["--no-recount"]}
PER_SECOND = 2_500  # rows, in the time of the capture


def main() -> int:
    options = _options()
    java = {} if any(JOBS[job].in_java for job in options.jobs) else WITHOUT_C2
    spark = session("bench", master=LOCAL_MASTER, settings={**java, "spark.driver.memory": options.memory})
    spark.sparkContext.setLogLevel("ERROR")
    figures = [figure for job in options.jobs for figure in _measure(spark, job, options)]
    spark.stop()
    (options.out / "report.json").write_text(json.dumps({"cores": os.cpu_count(), "figures": figures}, indent=1) + "\n")
    print(_table(figures, options.memory))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description="Speed of the Spark jobs.")
    what = "rows per run, in millions (default 1 10)"
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10], metavar="N", help=what)
    jobs = ["batch-sizes", "audit", "coalescing", "cascade"]
    parser.add_argument("--jobs", nargs="+", default=jobs, metavar="JOB", help=f"default: {' '.join(jobs)}")
    parser.add_argument("--memory", default="2g", help="heap of the Java process (default 2g)")
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark"), help="default: build/bench-spark")
    return parser.parse_args()


def _measure(spark: SparkSession, job: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    kind = "mirrored" if job in MIRRORED else "index" if job in STREAMED else "plain"
    data = options.out.absolute() / kind
    files = _files(data, max(options.millions), kind)
    _timed(spark, job, _chosen(data, files[:1]), options.out / job)
    for millions in sorted(options.millions):
        source = _chosen(data, files[:millions])
        seconds, peak = _timed(spark, job, source, options.out / job)
        print(f"{job}: {millions} M rows in {seconds:.1f} s", file=sys.stderr)
        yield {"job": job, "rows": millions * MILLION, "seconds": round(seconds, 2), "peak_mib": round(peak)}


def _timed(spark: SparkSession, job: str, source: Path, out: Path) -> tuple[float, float]:
    java: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    shutil.rmtree(out, ignore_errors=True)
    reset_peak(java)
    started = time.monotonic()
    run_in(spark, parse([job, str(source), str(out), *ARGUMENTS.get(job, [])]))
    return time.monotonic() - started, peak_mib(java)


def _files(directory: Path, count: int, kind: str) -> list[Path]:
    """A million rows each; existing files are reused, unless one is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    name = "shoal-00c0ffee-{:08d}.kxb" if kind == "index" else "{:03d}.parquet"
    paths = [directory / name.format(number) for number in range(count)]
    if not all(path.exists() for path in paths):
        seconds = count * MILLION / PER_SECOND
        size = MILLION // 2 if kind == "mirrored" else MILLION
        made = chunks(Traffic(rows=count * size, seconds=seconds, partitions=48), size)
        for path, chunk in zip(paths, made, strict=True):
            _write(path, chunk, kind)
    return paths


def _write(path: Path, chunk: Chunk, kind: str) -> None:
    if kind == "index":
        path.write_bytes(b"".join(index_bytes(chunk.rows, chunk.names)))
    else:
        pq.write_table(_decoded(mirrored(chunk).both if kind == "mirrored" else chunk), path, compression="zstd")


def _decoded(chunk: Chunk) -> pa.Table:
    decoder = Decoder(chosen(), NameTable(dict(enumerate(chunk.names, 1))), "00c0ffee")
    parts = np.array_split(chunk.rows, max(1, len(chunk.rows) // 100_000))
    return pa.Table.from_batches([decoder.decode(part) for part in parts])


def _chosen(directory: Path, files: list[Path]) -> Path:
    """A directory with these files only."""
    chosen_files = directory / f"first-{len(files)}"
    chosen_files.mkdir(exist_ok=True)
    for path in files:
        link = chosen_files / path.name
        link.unlink(missing_ok=True)
        link.hardlink_to(path)
    return chosen_files


def _table(figures: list[dict[str, Any]], memory: str) -> str:
    rows = [
        [
            figure["job"],
            f"{figure['rows'] / MILLION:.0f} M",
            f"{figure['seconds']:.1f}",
            f"{figure['rows'] / figure['seconds'] / MILLION:.2f} M",
            f"{figure['peak_mib']:,}",
        ]
        for figure in figures
    ]
    return render([["Job", "Rows", "Seconds", "Rows per second", f"Java, MiB (heap {memory})"], RULE, *rows])


if __name__ == "__main__":
    sys.exit(main())
