"""The effect of coalescing on captured produce requests, for many policies in one shuffle.

    rows -> arrivals (12 numbers a batch) -> by broker and time slice, in Python: predict -> summed by policy and broker

A broker's arrivals are divided into slices of some minutes, which limits the memory of a worker and keeps the cores
busy; at each boundary all waiting requests count as answered. Rows of a coalescing listener are joined already: they
are left out (`handling`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from shoal.scenarios.jobs.coalescing.arrivals import COLUMNS, IS_ALONE, IS_ERROR, IS_LONE, read_arrivals
from shoal.scenarios.jobs.coalescing.latencies import PLACES
from shoal.scenarios.jobs.coalescing.prediction import Prediction, predict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from shoal.scenarios.jobs.coalescing.policies import Policy

__all__ = ["READS", "SLICE_SECONDS", "arrivals", "authenticated", "groups", "predictions", "summed"]

READS: Final = [
    "time_ns",
    "latency_ns",
    "proxy",
    "connection",
    "request",
    "client",
    "listener",
    "cluster",
    "node",
    "kind",
    "direction",
    "handling",
    "api_key",
    "api_version",
    "topic",
    "partition",
    "records",
    "batch_bytes",
    "codec",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "transactional",
    "control",
    "acks",
    "error",
    "request_bytes",
]
"""All columns of a captured row that this job reads."""
SLICE_SECONDS: Final = 600
_LARGEST: Final = 64 * 1024  # proxy/coalesce/path.py: LARGEST_REQUEST
_OLDEST, _ZSTD_FROM = 3, 7  # joinable.py
_SASL: Final = (17, 36)
_BROKER: Final = ("cluster", "listener", "proxy", "node")
_SUMS: Final = ("captured", "requests", "alone", "batches", "bytes", "added_ns")
_PREDICTED: Final = "group long, policy string, " + ", ".join(f"{name} long" for name in _SUMS) + ", added array<long>"


def authenticated(rows: DataFrame) -> DataFrame:
    """Connections whose clients, not Shoal, log in at the broker: `proxy`, `connection`."""
    by_client = F.col("api_key").isin(*_SASL) & (F.coalesce("handling", F.lit("")) != "own")
    return rows.where(by_client).select("proxy", "connection").distinct()


def _sent(rows: DataFrame, slice_seconds: int) -> DataFrame:
    """Client batches with their `group`: a number for broker and time slice. Sorting by five columns takes half of the
    time."""
    sent = (F.col("kind") == "batch") & (F.col("direction") == "produced")
    slice_of_time = F.expr(f"time_ns div {slice_seconds * 1_000_000_000}")
    grouped = F.xxhash64(*_BROKER, slice_of_time)
    return rows.where(sent & ~F.col("handling").isin("coalesced", "own")).withColumn("group", grouped)


def groups(rows: DataFrame, slice_seconds: int = SLICE_SECONDS) -> DataFrame:
    """The broker of each `group`."""
    return _sent(rows, slice_seconds).select("group", *_BROKER).distinct()


def arrivals(rows: DataFrame, slice_seconds: int = SLICE_SECONDS) -> DataFrame:
    """A row for each batch that a client sent: its `group`, and the COLUMNS of `arrivals.py`."""
    batches = _sent(rows, slice_seconds)
    known = batches.join(
        F.broadcast(authenticated(rows).withColumn("sasl", F.lit(True))), ["proxy", "connection"], "left"
    )
    numbers = _numbers()
    return known.select(
        "group",
        *(numbers[name].cast(kind).alias(name) for name, kind in COLUMNS.items()),
    )


def _numbers() -> dict[str, Column]:
    producer = F.xxhash64("producer_id", "producer_epoch", "topic", "partition")
    return {
        "time_ns": F.col("time_ns"),
        "latency_ns": F.coalesce("latency_ns", F.lit(-1)),
        "source": F.col("connection"),
        "request": F.xxhash64("connection", "request"),
        "client": F.xxhash64("client"),
        "kind": F.col("api_version") * 8 + F.coalesce("acks", F.lit(2)),
        "target": F.xxhash64("topic", "partition"),
        "size": F.col("batch_bytes"),
        "producer": F.when(F.col("producer_id") >= 0, producer).otherwise(0),
        "sequence": F.coalesce("base_sequence", F.lit(0)),
        "records": F.col("records"),
        "flags": _flags(),
    }


def _flags() -> Column:
    alone = (
        F.col("transactional")
        | F.col("control")
        | (F.col("api_version") < _OLDEST)
        | F.col("node").isNull()
        | F.coalesce("sasl", F.lit(False))
        | (F.coalesce("request_bytes", "batch_bytes") > _LARGEST)
        | (F.coalesce(F.col("codec") == "zstd", F.lit(False)) & (F.col("api_version") < _ZSTD_FROM))
    )
    parts = {IS_ALONE: alone, IS_LONE: F.col("producer_id") >= 0, IS_ERROR: F.col("error") != 0}
    flags = F.lit(0)
    for flag, condition in parts.items():
        flags = flags + F.when(F.coalesce(condition, F.lit(False)), flag).otherwise(0)
    return flags


def predictions(arriving: DataFrame, policies: Sequence[Policy], *, by_joiner: bool = False) -> DataFrame:
    """Predicted requests by group and policy. All policies use one shuffle. `by_joiner`: see `predict`."""
    return arriving.groupBy("group").applyInArrow(_predicting(tuple(policies), by_joiner), _PREDICTED)


def _predicting(policies: tuple[Policy, ...], by_joiner: bool) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    def predicting(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        columns = {name: table.column(name).to_numpy() for name in COLUMNS}
        found = predict(read_arrivals(columns), policies, by_joiner=by_joiner)
        return pa.Table.from_pylist([_row(key[0].as_py(), prediction) for prediction in found], schema=_SCHEMA)

    return predicting


_SCHEMA: Final = pa.schema(
    [
        ("group", pa.int64()),
        ("policy", pa.string()),
        *((name, pa.int64()) for name in _SUMS),
        ("added", pa.list_(pa.int64())),
    ]
)


def _row(group: int, prediction: Prediction) -> dict[str, object]:
    sums = {name: getattr(prediction, name) for name in _SUMS}
    return {"group": group, "policy": prediction.policy.name, **sums, "added": prediction.added.tolist()}


def summed(predicted: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """Sums by policy (and `by`, some of cluster, listener, proxy and node)."""
    adding = (
        f"aggregate(collect_list(added), array_repeat(0L, {PLACES}), (sum, one) -> zip_with(sum, one, (a, b) -> a + b))"
    )
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return predicted.groupBy(*by, "policy").agg(*sums, F.expr(adding).alias("added"))
