"""The schema of captured rows, as every job sees them: one row per record batch, and one per request without records.

Times `*_ns` are Unix time in nanoseconds by the clock of the proxy; timestamps are Kafka's, in milliseconds. Null is "not known" or
"there is none"; columns that are never null are marked. What the numbers come from: `shoal/protocol/capture/columns.py`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, StructField, StructType

__all__ = ["ROW", "projection"]

_LONG, _INT, _STRING, _BOOLEAN = LongType(), IntegerType(), StringType(), BooleanType()


def _always(name: str, kind: DataType) -> StructField:
    return StructField(name, kind, nullable=False)


def _maybe(name: str, kind: DataType) -> StructField:
    return StructField(name, kind, nullable=True)


ROW: Final = StructType(
    [
        _always("time_ns", _LONG),
        _maybe("latency_ns", _LONG),
        _always("proxy", _STRING),
        _always("connection", _LONG),
        _always("request", _LONG),
        _always("client", _STRING),
        _always("software", _STRING),
        _always("listener", _STRING),
        _always("cluster", _STRING),
        _maybe("node", _INT),
        _always("kind", _STRING),  # batch, request
        _always("direction", _STRING),  # produced, fetched, other
        _always("handling", _STRING),  # passed, raw, wrapped, unwrapped, coalesced, own
        _maybe("reason", _STRING),
        _always("api_key", _INT),
        _always("api_version", _INT),
        _maybe("topic", _STRING),
        _maybe("partition", _INT),
        _maybe("base_offset", _LONG),
        _maybe("last_offset", _LONG),
        _always("records", _INT),
        _always("batch_bytes", _INT),
        _maybe("raw_bytes", _INT),
        _maybe("codec", _STRING),  # none, gzip, snappy, lz4, zstd
        _maybe("base_timestamp", _LONG),
        _maybe("max_timestamp", _LONG),
        _maybe("timestamp_type", _STRING),  # create, append
        _maybe("producer_id", _LONG),
        _maybe("producer_epoch", _INT),
        _maybe("base_sequence", _INT),
        _always("transactional", _BOOLEAN),
        _always("control", _BOOLEAN),
        _maybe("acks", _INT),
        _maybe("error", _INT),
        _always("throttle_ms", _INT),
        _maybe("request_bytes", _INT),
        _maybe("response_bytes", _INT),
        _maybe("has_keys", _BOOLEAN),
        _maybe("source_topic", _STRING),
        _maybe("source_partition", _INT),
        _maybe("source_first", _LONG),
        _maybe("source_last", _LONG),
    ]
)


def projection(columns: str | None) -> StructType:
    """The part of ROW with `columns` (a list with commas), in that order; None is all. Raises ValueError, which lists the unknown."""
    if columns is None:
        return ROW
    names = [name.strip() for name in columns.split(",")]
    if unknown := [name for name in names if name not in ROW.names]:
        raise ValueError(f"no such column: {', '.join(unknown)}; there are: {', '.join(ROW.names)}")
    return StructType([ROW[name] for name in names])
