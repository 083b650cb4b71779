"""Times between the requests of a connection, within a piece of a file: without a sort or a shuffle of all rows.

A file has a connection's rows in the order of their answers, which is almost always that of their times. So gaps are
counted where rows are read: a *run* is the part of a connection in a piece of a file, sorted, with its gaps and both
ends. Runs of one connection that do not overlap are joined by their ends alone (`batch_sizes.count_gaps`); where two
overlap, that connection is sorted and counted again. Rejected: a window over all rows, which costs three times as much.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shoal.scenarios.jobs.columns.bins import MOST_BINS, bins_of
from shoal.scenarios.jobs.columns.groups import Groups, Numbers, grouped

__all__ = ["LINK", "RUN", "runs"]

LINK: Final = ("proxy", "connection", "cluster", "direction", "client")
_GAP: Final = pa.struct([("gap_bin", pa.int32()), ("requests", pa.int64())])
RUN: Final = pa.schema(
    [
        *((name, pa.int64() if name == "connection" else pa.string()) for name in LINK),
        *((name, pa.int64()) for name in ("first_ns", "first_request", "last_ns", "last_request")),
        ("gaps", pa.list_(_GAP)),
    ]
)
"""`gaps`: requests by bins of microseconds since the previous request, without the run's first one."""
_SHORT: Final = 1 << 16


def runs(rows: pa.Table) -> pa.RecordBatch:
    """Runs of batches, with at least one batch; each column in one chunk."""
    column = {name: rows[name].chunk(0) for name in rows.column_names}
    links = grouped([column[name] if name != "connection" else column[name].to_numpy() for name in LINK])
    times, requests = column["time_ns"].to_numpy(), column["request"].to_numpy()
    order = _order(links, times, requests)
    codes, times, requests = links.codes[order], times[order], requests[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = np.append(starts[1:], len(codes)) - 1
    named = [column[name].take(pa.array(links.first)) for name in LINK]
    found = [*named, *(pa.array(each[at]) for at in (starts, ends) for each in (times, requests))]
    found.append(_gaps(codes, times, requests, len(links)))
    return pa.RecordBatch.from_arrays(
        [each.cast(field.type) for each, field in zip(found, RUN, strict=True)], schema=RUN
    )


def _order(links: Groups, times: Numbers, requests: Numbers) -> Numbers:
    """By link, time and request. Rows are mostly in order within a link, and small numbers sort in linear time."""
    small = links.codes.astype(np.uint16) if len(links) <= _SHORT else links.codes
    order = np.argsort(small, kind="stable")
    codes, at, number = links.codes[order], np.diff(times[order]), np.diff(requests[order])
    falls = (np.diff(codes) == 0) & ((at < 0) | ((at == 0) & (number < 0)))
    return np.lexsort((requests, times, links.codes)) if falls.any() else order


def _gaps(codes: Numbers, times: Numbers, requests: Numbers, links: int) -> pa.Array:
    follows = (np.diff(codes) == 0) & (np.diff(requests) != 0)
    places = codes[1:][follows] * MOST_BINS + bins_of(np.diff(times)[follows], unit=1000) + 1
    found = pa.array(places).value_counts()  # in the order of appearance, so by link
    keys: npt.NDArray[Any] = found.field("values").to_numpy()
    offsets = np.concatenate(([0], np.cumsum(np.bincount(keys // MOST_BINS, minlength=links))))
    bins = pa.array(keys % MOST_BINS - 1).cast(pa.int32())
    pairs = pa.StructArray.from_arrays([bins, found.field("counts")], fields=list(_GAP))
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), pairs)
