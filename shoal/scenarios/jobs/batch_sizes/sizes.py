"""Counts batches by group and by bins of size. Needs no Spark: see `fold.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from shoal.scenarios.jobs.columns.bins import bins_of
from shoal.scenarios.jobs.columns.groups import grouped, summed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COUNTED", "SUMS", "added", "counted"]

HEADER: Final = 61
"""Bytes of a batch before its records."""
_HOUR_NS: Final = 3_600_000_000_000
_NAMES: Final = ("cluster", "direction", "client", "topic")
SUMS: Final = ("batches", "records", "bytes", "known_bytes", "known_raw_bytes")

COUNTED: Final = pa.schema(
    [
        *((name, pa.string()) for name in _NAMES),
        ("partition", pa.int32()),
        ("codec", pa.string()),
        ("hour", pa.int64()),  # since 1970
        ("bytes_bin", pa.int32()),
        ("records_bin", pa.int32()),
        *((name, pa.int64()) for name in SUMS),
    ]
)
"""`known_bytes`, `known_raw_bytes`: compressed and raw size of the records in batches whose raw size is known."""


def counted(rows: pa.Table) -> pa.RecordBatch:
    """Counts of batches, with at least one batch; each column in one chunk."""
    column = {name: rows[name].chunk(0) for name in rows.column_names}
    sizes, records = (column[name].to_numpy(zero_copy_only=False) for name in ("batch_bytes", "records"))
    bins = {
        "hour": column["time_ns"].to_numpy() // _HOUR_NS,
        "bytes_bin": bins_of(sizes),
        "records_bin": bins_of(records),
    }
    groups = grouped([*(column[name] for name in (*_NAMES, "partition", "codec")), *bins.values()])
    raw = column["raw_bytes"]
    known = raw.is_valid().to_numpy(zero_copy_only=False)
    sums = {
        "batches": np.bincount(groups.codes, minlength=len(groups)),
        "records": summed(groups, records),
        "bytes": summed(groups, sizes),
        "known_bytes": summed(groups, np.where(known, sizes - HEADER, 0)),
        "known_raw_bytes": summed(groups, raw.fill_null(0).to_numpy(zero_copy_only=False)),
    }
    first = pa.array(groups.first)
    named = {name: column[name].take(first) for name in (*_NAMES, "partition", "codec")}
    found = {**named, **{name: pa.array(each[groups.first]) for name, each in bins.items()}, **sums}
    return pa.RecordBatch.from_arrays(
        [pa.array(found[field.name]).cast(field.type) for field in COUNTED], schema=COUNTED
    )


def added(counts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Each: as COUNTED. -> the same, with one row for each group."""
    keys = [name for name in COUNTED.names if name not in SUMS]
    table = pa.Table.from_batches(counts, COUNTED).group_by(keys, use_threads=False)
    sums = table.aggregate([(name, "sum") for name in SUMS])
    found: list[pa.RecordBatch] = sums.rename_columns({f"{name}_sum": name for name in SUMS}).cast(COUNTED).to_batches()
    return found
