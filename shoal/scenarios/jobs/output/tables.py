"""The output tables of a job: complete in Parquet, and the excerpt that a report shows."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import acero
from pyspark.sql import functions as F

from shoal.scenarios.report.report import Fact, Listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

__all__ = ["fault_facts", "kept", "listed", "summed", "written"]

MAX_LISTED: Final = 10_000


def kept(table: DataFrame, out: Path, name: str) -> DataFrame:
    """Write `out/NAME.parquet` and return it as read from there, so that nothing is computed twice."""
    path = str(out / f"{name}.parquet")
    table.write.mode("overwrite").parquet(path)
    return table.sparkSession.read.schema(table.schema).parquet(path)  # without a schema Spark runs a job to find one


def written(table: pa.Table, out: Path, name: str) -> None:
    """`kept` for a table in memory."""
    path = out / f"{name}.parquet"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    pq.write_table(table, path / "part-00000.parquet")


def summed(out: Path, name: str, keys: Sequence[str], sums: Sequence[str]) -> pa.Table:
    """Sums by `keys` over a written table: some milliseconds, and no more memory than the result needs."""
    rows = ds.dataset(out / f"{name}.parquet", format="parquet")
    scan = acero.Declaration(
        "scan", acero.ScanNodeOptions(rows, columns={key: ds.field(key) for key in (*keys, *sums)})
    )
    adding = acero.AggregateNodeOptions([(key, "hash_sum", None, key) for key in sums], keys=list(keys))
    return acero.Declaration.from_sequence([scan, acero.Declaration("aggregate", adding)]).to_table()


def listed(table: DataFrame, *order: Any, limit: int = MAX_LISTED) -> Listed:
    """The first rows in this order. They are counted only if there are more."""
    ordered = table.orderBy(*order) if order else table
    rows = ordered.limit(limit).toArrow().to_pylist()
    return Listed(total=len(rows) if len(rows) < limit else table.count(), rows=rows)


def fault_facts(faults: DataFrame) -> list[Fact]:
    """A report's facts about damaged or incomplete captures. `faults`: of `options.FAULTS`."""
    amounts = faults.groupBy("what", "proxy").agg(F.count("*").alias("n"), F.max("amount").alias("most")).collect()
    damaged = sum(row["n"] for row in amounts if row["what"] == "damaged")
    dropped = sum(row["most"] for row in amounts if row["what"] == "dropped")
    facts = []
    if damaged:
        facts.append(Fact.count("Damaged blocks, not read", damaged, bad=True))
    if dropped:
        facts.append(Fact.count("Rows that proxies could not write", dropped, bad=True))
    return facts
