"""Sums over the written tables, for the report: some milliseconds each, without a query of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import acero

from shoal.scenarios.jobs.cascade.processor import FLOW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["counters_by_level", "records_by_client", "sums_by_level"]

_TYPES: Final = {
    **{"int": pa.int32(), "long": pa.int64(), "double": pa.float64()},
    **{"string": pa.string(), "boolean": pa.bool_()},
}
_SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, FLOW.split(", "))])
_ALL: Final = ds.field("level").is_valid()
_LISTED: Final = 100_000


def sums_by_level(out: Path) -> list[dict[str, Any]]:
    """Changes emitted, late ones, orphans, and sums of the diffs."""
    sums = {"told": _ALL, "late": ds.field("late"), "orphans": ds.field("orphan")}
    sums |= {name: ds.field(f"{name}_diff") for name in ("records", "restamped")}
    rows: list[dict[str, Any]] = _summed(out / "flows", ["level"], sums).sort_by("level").to_pylist()
    return rows


def counters_by_level(out: Path) -> dict[int, int]:
    return {row["level"]: row["counters"] for row in _summed(_counters(out), ["level"], {"counters": _ALL}).to_pylist()}


def records_by_client(out: Path, level: int) -> list[dict[str, Any]]:
    """The first windows of this level."""
    sums = {"records": ds.field("records")}
    found = _summed(_counters(out), ["window", "client"], sums, ds.field("level") == level)
    rows: list[dict[str, Any]] = found.sort_by("window").slice(0, _LISTED).to_pylist()
    return rows


def _counters(out: Path) -> Path:
    return out / "counters.parquet"


def _summed(
    path: Path, keys: Sequence[str], sums: Mapping[str, ds.Expression], where: ds.Expression = _ALL
) -> pa.Table:
    """No more memory than the result needs. The columns are of FLOW."""
    rows = ds.dataset(path, schema=_SCHEMA, format="parquet")
    columns = [*(ds.field(key) for key in keys), *(sums[name].cast(pa.int64()) for name in sums)]
    steps = [
        acero.Declaration("scan", acero.ScanNodeOptions(rows, filter=where)),
        acero.Declaration("filter", acero.FilterNodeOptions(where)),
        acero.Declaration("project", acero.ProjectNodeOptions(columns, [*keys, *sums])),
        acero.Declaration(
            "aggregate",
            acero.AggregateNodeOptions([(name, "hash_sum", None, name) for name in sums], keys=list(keys)),
        ),
    ]
    return acero.Declaration.from_sequence(steps).to_table()
