"""Batches -> increments, where they are read: a few rows per topic, client and minute instead of ten thousand batches.

Each task also sends a beat to each bucket: all of them need the progress of the capture clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from shoal.scenarios.jobs.cascade.cells import COUNTERS
from shoal.scenarios.jobs.columns.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["AHEAD_SECONDS", "INCREMENT", "READS", "combine", "combining"]

READS: Final = ["topic", "client", "records", "batch_bytes", "time_ns", "max_timestamp", "direction", "control"]
AHEAD_SECONDS: Final = 3600
"""A batch this much newer than its capture, or without a time, counts at its capture time."""
INCREMENT: Final = "beat int, topic string, client string, window long, captured long, " + ", ".join(
    f"{name} long" for name in COUNTERS
)
"""Sums of a topic and client in a window of the first level. `beat`: a bucket's number; then only `captured` counts."""
_TOGETHER: Final = 500_000
_SCHEMA: Final = pa.schema(
    [
        ("beat", pa.int32()),
        ("topic", pa.string()),
        ("client", pa.string()),
        ("window", pa.int64()),
        ("captured", pa.int64()),
        *((name, pa.int64()) for name in COUNTERS),
    ]
)


def combining(seconds: int, buckets: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For one task."""

    def combined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        newest = None
        for table in pieces(batches, _TOGETHER):
            sums = combine(table, seconds)
            newest = max(filter(None, [newest, pc.max(sums["captured"]).as_py()]), default=None)
            yield from sums.to_batches()
        if newest is not None:
            yield _beats(newest, buckets)

    return combined


def combine(table: pa.Table, seconds: int) -> pa.Table:
    """Columns `topic`, `client`, `records`, `batch_bytes`, `time_ns`, `max_timestamp`; windows of `seconds`."""
    captured = pc.divide(table["time_ns"], 1_000_000_000)
    own = pc.divide(table["max_timestamp"], 1000)
    true = pc.fill_null(pc.and_(pc.greater(own, 0), pc.less(pc.subtract(own, captured), AHEAD_SECONDS)), False)
    times = pc.if_else(true, own, captured)
    each = pa.table(
        {
            "topic": table["topic"],
            "client": table["client"],
            "window": pc.multiply(pc.divide(times, seconds), seconds),
            "captured": captured,
            "records": pc.cast(table["records"], pa.int64()),
            "bytes": pc.cast(table["batch_bytes"], pa.int64()),
            "restamped": pc.cast(pc.invert(true), pa.int64()),
        }
    )
    sums = [("records", "sum"), ("bytes", "sum"), ("restamped", "sum"), ("captured", "max"), ([], "count_all")]
    found = each.group_by(["topic", "client", "window"]).aggregate(sums)
    columns = {
        "beat": pa.nulls(len(found), pa.int32()),
        **{name: found[name] for name in ("topic", "client", "window")},
        "captured": found["captured_max"],
        "batches": found["count_all"],
        **{name: found[f"{name}_sum"] for name in ("records", "bytes", "restamped")},
    }
    return pa.table([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)


def _beats(newest: int, buckets: int) -> pa.RecordBatch:
    """Zeros instead of nulls, with which pandas would make all counters floats, and inexact."""
    nothing = {
        field.name: pa.array(["" if pa.types.is_string(field.type) else 0] * buckets, field.type) for field in _SCHEMA
    }
    beats = {"beat": pa.array(range(buckets), pa.int32()), "captured": pa.array([newest] * buckets, pa.int64())}
    return pa.RecordBatch.from_pydict({**nothing, **beats}, schema=_SCHEMA)
