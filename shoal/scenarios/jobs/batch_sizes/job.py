"""`batch-sizes`: the tables `counts`, `gaps`, `sizes`, `clients`, and their page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from shoal.scenarios.jobs.batch_sizes.analysis import FOLDING, count_batches, count_gaps, sizes
from shoal.scenarios.jobs.batch_sizes.costs import CLIENTS, FLOW, clients
from shoal.scenarios.jobs.batch_sizes.report import BatchSizesTables, batch_sizes_report
from shoal.scenarios.jobs.batch_sizes.sizes import SUMS
from shoal.scenarios.jobs.folding import fold_files
from shoal.scenarios.jobs.output.finish import finish
from shoal.scenarios.jobs.output.tables import fault_facts, kept, listed, summed, written
from shoal.scenarios.jobs.source.reading import read_faults, read_index
from shoal.scenarios.report.report import Listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from shoal.scenarios.jobs.task import Task

__all__ = ["run"]

_TOPICS = 25


def run(task: Task) -> int:
    folded = fold_files(task.spark, task.source, task.options, FOLDING).persist()
    with ThreadPoolExecutor() as at_once:  # all queries are small: one alone leaves most cores idle
        gaps = at_once.submit(_gaps, task, folded)
        counts = kept(count_batches(folded), task.out, "counts")
        all_sizes = at_once.submit(lambda: listed(kept(sizes(counts), task.out, "sizes"), F.desc("batches")))
        faults = at_once.submit(lambda: fault_facts(read_faults(task.spark, task.source)))
        bins = summed(task.out, "counts", [*FLOW, "bytes_bin", "records_bin"], SUMS[:3]).to_pylist()
        found_clients = clients(bins, gaps.result())
        written(pa.Table.from_pylist(found_clients, schema=CLIENTS), task.out, "clients")
        found = BatchSizesTables(
            bins=bins,
            gaps=gaps.result(),
            clients=Listed(total=len(found_clients), rows=found_clients),
            sizes=all_sizes,
            topics=_topics(task),
            faults=faults.result(),
        )
        finish(task, batch_sizes_report(found))
    folded.unpersist()
    return 0


def _gaps(task: Task, folded: DataFrame) -> list[dict[str, Any]]:
    rows = read_index(task.spark, task.source, {**task.options, "columns": ",".join(FOLDING.columns)})
    gaps = count_gaps(folded, rows)
    written(gaps, task.out, "gaps")
    found: list[dict[str, Any]] = gaps.to_pylist()
    return found


def _topics(task: Task) -> list[dict[str, Any]]:
    """The topics with the smallest batches, by the number of batches."""
    found = summed(task.out, "counts", ["direction", "client", "topic", "codec"], SUMS)
    produced = found.filter(pc.equal(found["direction"], "produced"))
    produced = produced.append_column("bytes_per_batch", _quotient(produced, "bytes", "batches"))
    rows: list[dict[str, Any]] = produced.sort_by("bytes_per_batch")[:_TOPICS].to_pylist()
    return [_topic(row) for row in rows]


def _topic(row: dict[str, Any]) -> dict[str, Any]:
    raw = row["known_raw_bytes"]
    return {
        **row,
        "records_per_batch": row["records"] / row["batches"],
        "ratio": row["known_bytes"] / raw if raw else None,
    }


def _quotient(table: pa.Table, above: str, below: str) -> pa.ChunkedArray:
    return pc.divide(table[above].cast(pa.float64()), table[below].cast(pa.float64()))
