"""`batch-sizes`: the tables `counts`, `gaps`, `sizes`, `clients`, and what people read of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from shoal.scenarios.jobs.batch_sizes import FOLDING, clients, count_batches, count_gaps, sizes
from shoal.scenarios.jobs.batch_sizes_report import Found, batch_sizes_report
from shoal.scenarios.jobs.folding import fold_files
from shoal.scenarios.jobs.reading import read_faults, read_index
from shoal.scenarios.jobs.report import write_report
from shoal.scenarios.jobs.tables import fault_facts, kept, listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from shoal.scenarios.jobs.report import Listed
    from shoal.scenarios.jobs.task import Task

__all__ = ["run"]


def run(task: Task) -> int:
    folded = fold_files(task.spark, task.source, task.options, FOLDING).persist()
    counts = kept(count_batches(folded), task.out, "counts")
    with ThreadPoolExecutor() as at_once:  # all are small, and one alone leaves most of the cores idle
        all_sizes = at_once.submit(lambda: listed(kept(sizes(counts), task.out, "sizes"), F.desc("batches")))
        by_clients = at_once.submit(_clients, task, folded, counts)
        bins, topics = at_once.submit(_bins, counts), at_once.submit(_topics, counts)
        faults = at_once.submit(lambda: fault_facts(read_faults(task.spark, task.source)))
    gaps, found_clients = by_clients.result()
    found = Found(
        bins=bins.result(),
        gaps=gaps.rows,
        clients=found_clients,
        sizes=all_sizes.result(),
        topics=topics.result(),
        faults=faults.result(),
    )
    folded.unpersist()
    print(write_report(batch_sizes_report(found), task.out))
    return 0


def _clients(task: Task, folded: DataFrame, counts: DataFrame) -> tuple[Listed, Listed]:
    """The tables `gaps` and `clients`."""
    rows = read_index(task.spark, task.source, {**task.options, "columns": ",".join(FOLDING.columns)})
    gaps = kept(count_gaps(folded, rows), task.out, "gaps")
    return listed(gaps), listed(kept(clients(counts, gaps), task.out, "clients"), F.desc("requests_per_mb"))


def _bins(counts: DataFrame) -> list[dict[str, object]]:
    """What the histograms show: partitions, codecs and hours added up."""
    group = ("direction", "client", "bytes_bin", "records_bin")
    summed = counts.groupBy(*group).agg(*(F.sum(name).alias(name) for name in ("batches", "records", "bytes")))
    rows: list[dict[str, object]] = summed.toArrow().to_pylist()
    return rows


def _topics(counts: DataFrame) -> list[dict[str, object]]:
    """The topics with the smallest batches, by the number of batches."""
    produced = counts.where(F.col("direction") == "produced").groupBy("client", "topic", "codec")
    sums = ("batches", "records", "bytes", "known_bytes", "known_raw_bytes")
    summed = produced.agg(*(F.sum(name).alias(name) for name in sums)).withColumns(
        {
            "bytes_per_batch": F.col("bytes") / F.col("batches"),
            "records_per_batch": F.col("records") / F.col("batches"),
            "ratio": F.when(F.col("known_raw_bytes") > 0, F.col("known_bytes") / F.col("known_raw_bytes")),
        }
    )
    rows: list[dict[str, object]] = summed.orderBy("bytes_per_batch").limit(25).toArrow().to_pylist()
    return rows
