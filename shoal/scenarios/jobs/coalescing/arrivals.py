"""Captured produce requests of one broker as arrays, and which of them the coalescer would have joined.

`protocol/coalesce/joinable.py` and `proxy/coalesce/path.py` define which requests are not joined. Known here, per
batch: transactional, control, an old version, zstd below v7, above 64 KiB, on a bootstrap port, from a client that
authenticates (`flags`, from `gather.py`); and from history: possible retries
(`protocol/coalesce/sequences.py`), and what a connection sends within 15 seconds after an error answer. If one batch of
a request is not joined, the request is not.

Not known: timeouts (requests that differ in them are joined here), a producer's last sequence before the capture or the
time slice (assumed known), errors without an answer (a connection that broke), and throttle times of joined requests,
in which a lane waits (KIP-219): a quota counts them for the client id that the lane sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from shoal.scenarios.jobs.coalescing.compiled import compiled
from shoal.scenarios.jobs.columns.groups import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    from collections.abc import Mapping

__all__ = ["ARRIVAL", "COLUMNS", "IS_ALONE", "IS_ERROR", "IS_LONE", "Arrivals", "read_arrivals"]

ARRIVAL: Final = np.dtype(
    [
        ("time_ns", "<i8"),
        ("latency_ns", "<i8"),  # -1: not known
        ("source", "<i8"),  # connection
        ("request", "<i8"),  # unique over all connections, and in their order
        ("client", "<i8"),
        ("kind", "<i4"),  # must be equal within a request: version and acks
        ("target", "<i8"),  # topic and partition
        ("size", "<i4"),
        ("producer", "<i8"),  # id, epoch and target; 0: none
        ("sequence", "<i4"),
        ("records", "<i4"),
        ("flags", "<i4"),
    ]
)
"""A batch. Strings are hashed to numbers."""
COLUMNS: Final = ARRIVAL.names or ()
IS_ALONE, IS_LONE, IS_ERROR = 1, 2, 4
_SETTLE_NS: Final = 15_000_000_000  # proxy/coalesce/path.py: _SETTLE_SECONDS
_SEQUENCES: Final = 1 << 31
_USUAL_NS: Final = 1_000_000  # when no latency is known
_NEVER: Final = 1 << 62


class Arrivals(NamedTuple):
    """In the order of time. `first`: whether a batch begins a request. `alone`: its whole request is not joined."""

    times: Longs
    latencies: Longs
    sizes: Longs
    targets: Longs  # from 0, without gaps
    target_count: int
    sources: Longs
    clients: Longs
    kinds: Longs
    lone: Flags
    first: Flags
    alone: Flags


def read_arrivals(columns: Mapping[str, NDArray[Any]]) -> Arrivals:
    order = np.lexsort((columns["request"], columns["time_ns"]))
    ordered = {name: np.ascontiguousarray(columns[name][order]) for name in COLUMNS}
    first = _beginnings(ordered["request"])
    numbers = np.cumsum(first) - 1
    targets = dense(ordered["target"])
    flags = ordered["flags"]
    alone = (flags & IS_ALONE) != 0
    alone |= _perhaps_retries(ordered)
    by_request = np.zeros(int(first.sum()), np.bool_)
    by_request[numbers[alone]] = True
    _after_errors(ordered, first, by_request)
    return Arrivals(
        times=ordered["time_ns"],
        latencies=_known(ordered["latency_ns"]),
        sizes=ordered["size"].astype(np.int64),
        targets=targets,
        target_count=int(targets.max(initial=-1)) + 1,
        sources=ordered["source"],
        clients=ordered["client"],
        kinds=ordered["kind"].astype(np.int64),
        lone=(flags & IS_LONE) != 0,
        first=first,
        alone=by_request[numbers],
    )


def _beginnings(requests: Longs) -> Flags:
    first = np.ones(len(requests), np.bool_)
    first[1:] = requests[1:] != requests[:-1]
    return first


def _known(latencies: Longs) -> Longs:
    """An unknown latency (acks=0, or no captured answer) is estimated from the others."""
    known = latencies >= 0
    usual = int(np.median(latencies[known])) if known.any() else _USUAL_NS
    return np.where(known, latencies, usual)


def _perhaps_retries(ordered: Mapping[str, NDArray[Any]]) -> Flags:
    """Batches whose sequence does not follow the last one of their producer and partition."""
    numbers = np.where(ordered["producer"] == 0, -1, dense(ordered["producer"]))
    found = np.zeros(len(numbers), np.bool_)
    following = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int64)
    _follow(numbers, ordered["sequence"].astype(np.int64), ordered["records"].astype(np.int64), following, found)
    return found


@compiled
def _follow(producers: Longs, sequences: Longs, records: Longs, following: Longs, found: Flags) -> None:
    for row in range(len(producers)):
        producer = producers[row]
        if producer < 0:
            continue
        due = following[producer]
        found[row] = due >= 0 and sequences[row] != due
        after = (sequences[row] + records[row]) % _SEQUENCES
        if due < 0 or 0 < (after - due) % _SEQUENCES < _SEQUENCES // 2:
            following[producer] = after


def _after_errors(ordered: Mapping[str, NDArray[Any]], first: Flags, alone: Flags) -> None:
    errors = (ordered["flags"] & IS_ERROR) != 0
    if not errors.any():
        return
    failed = np.where(errors, ordered["time_ns"] + np.maximum(ordered["latency_ns"], 0), _NEVER)
    sources = dense(ordered["source"])
    _settle(sources, ordered["time_ns"], failed, first, np.full(int(sources.max()) + 1, _NEVER, np.int64), alone)


@compiled
def _settle(sources: Longs, times: Longs, failed: Longs, first: Flags, last: Longs, alone: Flags) -> None:
    """`last`: of a connection, the time of its last error answer."""
    request = -1
    for row in range(len(times)):
        source, time = sources[row], times[row]
        if first[row]:
            request += 1
            if last[source] <= time < last[source] + _SETTLE_NS:
                alone[request] = True
        if failed[row] != _NEVER:
            last[source] = failed[row]
