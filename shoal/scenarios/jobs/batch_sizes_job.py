"""`batch-sizes`: the tables `counts`, `gaps`, `sizes`, `clients`, and what people read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from shoal.scenarios.jobs.batch_sizes import COLUMNS, clients, count_batches, count_gaps, sizes
from shoal.scenarios.jobs.batch_sizes_report import Found, batch_sizes_report
from shoal.scenarios.jobs.reading import read_faults, read_index
from shoal.scenarios.jobs.report import write_report
from shoal.scenarios.jobs.tables import fault_facts, kept, listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from shoal.scenarios.jobs.task import Task

__all__ = ["run"]


def run(task: Task) -> int:
    rows = read_index(task.spark, task.source, {**task.options, "columns": ",".join(COLUMNS)})
    counts = kept(count_batches(rows), task.out, "counts")
    gaps = kept(count_gaps(rows), task.out, "gaps")
    found = Found(
        bins=_bins(counts),
        gaps=listed(gaps).rows,
        clients=listed(kept(clients(counts, gaps), task.out, "clients"), F.desc("requests_per_mb")),
        sizes=listed(kept(sizes(counts), task.out, "sizes"), F.desc("batches")),
        topics=_topics(counts),
        faults=fault_facts(read_faults(task.spark, task.source)),
    )
    print(write_report(batch_sizes_report(found), task.out))
    return 0


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
