"""The effect of coalescing on captured produce requests, for many policies in one shuffle.

    rows -> packed arrivals (gather.py) -> by broker and time slice, in Python: predict -> summed by policy and broker

A broker's arrivals are divided into slices of some minutes, which limits the memory of a worker and keeps the cores
busy; at each boundary all waiting requests count as answered. Rows of a coalescing listener are joined already: they
are left out (`handling`).
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from shoal.scenarios.jobs.coalescing.arrivals import read_arrivals
from shoal.scenarios.jobs.coalescing.gather import BROKER, LOGIN, LOGIN_READS, PACKED, READS, logins, pack, unpacked
from shoal.scenarios.jobs.coalescing.latencies import PLACES
from shoal.scenarios.jobs.coalescing.prediction import Prediction, predict
from shoal.scenarios.jobs.folding import Folding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from shoal.scenarios.jobs.coalescing.policies import Policy

__all__ = ["LOGINS", "SLICE_SECONDS", "packing", "predictions", "summed"]

SLICE_SECONDS: Final = 600
_SUMS: Final = ("captured", "requests", "alone", "batches", "bytes", "added_ns")
_PREDICTED: Final = pa.schema(
    [
        *(PACKED.field(name) for name in BROKER),
        ("policy", pa.string()),
        *((name, pa.int64()) for name in _SUMS),
        ("added", pa.list_(pa.int64())),
    ]
)

LOGINS: Final = Folding(columns=LOGIN_READS, fold=logins, schema=from_arrow_schema(LOGIN))


def packing(logged_in: DataFrame, slice_seconds: int = SLICE_SECONDS) -> Folding:
    """`logged_in`: rows folded by LOGINS."""
    connections: dict[str, list[int]] = defaultdict(list)
    for row in logged_in.distinct().collect():
        connections[row["proxy"]].append(row["connection"])
    found = {proxy: np.array(numbers, np.int64) for proxy, numbers in connections.items()}
    return Folding(columns=READS, fold=partial(pack, found, slice_seconds), schema=from_arrow_schema(PACKED))


def predictions(packed: DataFrame, policies: Sequence[Policy], *, by_joiner: bool = False) -> DataFrame:
    """Predicted requests by policy, broker and slice. `packed`: folded by `packing`. `by_joiner`: see `predict`."""
    return packed.groupBy(*BROKER, "slice").applyInArrow(
        _predicting(tuple(policies), by_joiner), from_arrow_schema(_PREDICTED)
    )


def _predicting(policies: tuple[Policy, ...], by_joiner: bool) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    def predicting(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        broker = {name: part.as_py() for name, part in zip(BROKER, key, strict=False)}
        found = predict(read_arrivals(unpacked(table["arrivals"])), policies, by_joiner=by_joiner)
        return pa.Table.from_pylist([broker | _row(prediction) for prediction in found], schema=_PREDICTED)

    return predicting


def _row(prediction: Prediction) -> dict[str, object]:
    sums = {name: getattr(prediction, name) for name in _SUMS}
    return {"policy": prediction.policy.name, **sums, "added": prediction.added.tolist()}


def summed(predicted: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """Sums by policy (and `by`, some of cluster, listener, proxy and node)."""
    adding = (
        f"aggregate(collect_list(added), array_repeat(0L, {PLACES}), (sum, one) -> zip_with(sum, one, (a, b) -> a + b))"
    )
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return predicted.groupBy(*by, "policy").agg(*sums, F.expr(adding).alias("added"))
