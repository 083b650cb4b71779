"""The cost of each client's batches, from its histograms of sizes and gaps. Needs no Spark: a client has a few hundred
bins."""

from __future__ import annotations

from collections import defaultdict
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from shoal.scenarios.jobs.columns.bins import PER_DOUBLING, middle, share_bin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]

__all__ = ["CLIENTS", "FLOW", "SMALL", "clients"]

SMALL: Final = 16_384
"""Bytes: the producers' default `batch.size`. Smaller batches could have been larger with the defaults."""
FLOW: Final = ("cluster", "direction", "client")
_SMALL_BIN: Final = (SMALL.bit_length() - 1) * PER_DOUBLING

CLIENTS: Final = pa.schema(
    [
        *((name, pa.string()) for name in FLOW),
        *((name, pa.int64()) for name in ("batches", "records", "bytes", "small", "full_batches", "requests")),
        *((name, pa.float64()) for name in ("gap_p50_us", "requests_per_mb", "bytes_per_request")),
    ]
)
"""`small`: batches below SMALL bytes. `full_batches`: batches that the same bytes would need at SMALL bytes each."""


def clients(bins: Sequence[Row], gaps: Sequence[Row]) -> list[dict[str, Any]]:
    """By FLOW, as CLIENTS, most requests per MB first. `bins`: batches, records, bytes; `gaps`: requests; by FLOW and
    bin."""
    sizes, times = _by_flow(bins), _by_flow(gaps)
    rows = [dict(zip(FLOW, flow, strict=True)) | _costs(sizes[flow], times[flow]) for flow in sizes if flow in times]
    return sorted(rows, key=lambda row: (-row["requests_per_mb"], *(row[name] or "" for name in FLOW)))


def _by_flow(rows: Sequence[Row]) -> Mapping[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in FLOW)].append(row)
    return found


def _costs(bins: Sequence[Row], gaps: Sequence[Row]) -> dict[str, Any]:
    sums = {name: sum(row[name] for row in bins) for name in ("batches", "records", "bytes")}
    requests = sum(row["requests"] for row in gaps)
    half = share_bin(((row["gap_bin"], row["requests"]) for row in gaps if row["gap_bin"] is not None), 0.5)
    return {
        **sums,
        "small": sum(row["batches"] for row in bins if row["bytes_bin"] < _SMALL_BIN),
        "full_batches": ceil(sums["bytes"] / SMALL),
        "requests": requests,
        "gap_p50_us": None if half is None else middle(half),
        "requests_per_mb": requests / (sums["bytes"] / 1_000_000),
        "bytes_per_request": sums["bytes"] / requests,
    }
