"""The speed of the Spark jobs, and how their time grows: `python -m bench.spark --millions 1 10 30`.

Rows are synthetic (`captures.py`): Parquet, and for the cascade, which reads a stream, index files. All runs are in one
session on all cores, after a short warm-up; the time is that of the whole job, with its tables and its page. CPU: of
this process and all that it started. Memory: the peak resident size of the driver's Java during the run, within its
given heap. `--master 'local-cluster[2,1,1024]'`: two executors of one core each.
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

from bench.captures import MILLION, chosen_files, files
from bench.family import family_cpu_s
from shoal.scenarios.jobs.__main__ import run_in
from shoal.scenarios.jobs.arguments import parse
from shoal.scenarios.jobs.session import LOCAL_MASTER, session
from shoal.scenarios.memory import peak_mib, reset_peak
from shoal.scenarios.table import RULE, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MIRRORED = {"audit"}
STREAMED = {"cascade"}
ARGUMENTS = {"cascade": ["--no-recount"]}


def main() -> int:
    options = _options()
    spark = session("bench", master=options.master, settings={"spark.driver.memory": options.memory})
    spark.sparkContext.setLogLevel("ERROR")
    figures = [figure for job in options.jobs for figure in _measure(spark, job, options)]
    spark.stop()
    report = {"cores": os.cpu_count(), "master": options.master, "figures": figures}
    (options.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(_table(figures, options.memory))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description="Speed of the Spark jobs.")
    what = "rows per run, in millions (default 1 10)"
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10], metavar="N", help=what)
    jobs = ["batch-sizes", "audit", "coalescing", "cascade"]
    parser.add_argument("--jobs", nargs="+", default=jobs, metavar="JOB", help=f"default: {' '.join(jobs)}")
    parser.add_argument("--memory", default="2g", help="heap of the Java process (default 2g)")
    parser.add_argument("--master", default=LOCAL_MASTER, help=f"of Spark (default {LOCAL_MASTER})")
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark"), help="default: build/bench-spark")
    return parser.parse_args()


def _measure(spark: SparkSession, job: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    kind = "mirrored" if job in MIRRORED else "index" if job in STREAMED else "plain"
    data = options.out.absolute() / kind
    paths = files(data, max(options.millions), kind)
    _timed(spark, job, chosen_files(data, paths[:1]), options.out / job)
    for millions in sorted(options.millions):
        source = chosen_files(data, paths[:millions])
        figure = _timed(spark, job, source, options.out / job)
        print(f"{job}: {millions} M rows in {figure['seconds']} s, {figure['cpu_s']} s of CPU", file=sys.stderr)
        yield {"job": job, "rows": millions * MILLION, **figure}


def _timed(spark: SparkSession, job: str, source: Path, out: Path) -> dict[str, float]:
    java: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    shutil.rmtree(out, ignore_errors=True)
    reset_peak(java)
    started, cpu = time.monotonic(), family_cpu_s(os.getpid())
    run_in(spark, parse([job, str(source), str(out), *ARGUMENTS.get(job, [])]))
    seconds, cpu = time.monotonic() - started, family_cpu_s(os.getpid()) - cpu
    return {"seconds": round(seconds, 2), "cpu_s": round(cpu, 1), "peak_mib": round(peak_mib(java))}


def _table(figures: list[dict[str, Any]], memory: str) -> str:
    rows = [
        [
            figure["job"],
            f"{figure['rows'] / MILLION:.0f} M",
            f"{figure['seconds']:.1f}",
            f"{figure['rows'] / figure['seconds'] / MILLION:.2f} M",
            f"{figure['cpu_s']:.1f}",
            f"{figure['peak_mib']:,}",
        ]
        for figure in figures
    ]
    head = ["Job", "Rows", "Seconds", "Rows per second", "CPU seconds", f"Java, MiB (heap {memory})"]
    return render([head, RULE, *rows])


if __name__ == "__main__":
    sys.exit(main())
