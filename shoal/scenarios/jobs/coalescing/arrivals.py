"""Captured produce requests of one broker as arrays, and which of them the coalescer would have joined.

`protocol/coalesce/joinable.py` and `proxy/coalesce/path.py` define which requests are not joined. Known here, per
batch: transactional, control, an old version, zstd below v7, above 64 KiB, on a bootstrap port, from a client that
authenticates (`_FLAGS`, computed before the shuffle); and from history: possible retries
(`protocol/coalesce/sequences.py`), and what a connection sends within 15 seconds after an error answer. If one batch of
a request is not joined, the request is not.

Not known: timeouts (requests that differ in them are joined here), a producer's last sequence before the capture or the
time slice (assumed known), and errors without an answer (a connection that broke).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from shoal.scenarios.jobs.coalescing.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    from collections.abc import Mapping

__all__ = ["COLUMNS", "IS_ALONE", "IS_ERROR", "IS_LONE", "Arrivals", "read_arrivals"]

COLUMNS: Final = {
    "time_ns": "long",
    "latency_ns": "long",  # -1: not known
    "source": "long",  # connection
    "request": "long",  # unique over all connections
    "client": "long",
    "kind": "long",  # must be equal within a request: version and acks
    "target": "long",  # topic and partition
    "size": "int",
    "producer": "long",  # id, epoch and target; 0: none
    "sequence": "int",
    "records": "int",
    "flags": "int",
}
"""The columns of each batch: names and Spark types. Strings are hashed to numbers."""
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
    names, targets = np.unique(ordered["target"], return_inverse=True)
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
        targets=targets.astype(np.int64),
        target_count=len(names),
        sources=ordered["source"],
        clients=ordered["client"],
        kinds=ordered["kind"],
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
    names, numbers = np.unique(ordered["producer"], return_inverse=True)
    found = np.zeros(len(numbers), np.bool_)
    following = np.full(len(names), -1, np.int64)
    none = int(np.searchsorted(names, 0)) if 0 in names else -1
    _follow(numbers.astype(np.int64), ordered["sequence"].astype(np.int64), ordered["records"], following, none, found)
    return found


@compiled
def _follow(producers: Longs, sequences: Longs, records: Longs, following: Longs, none: int, found: Flags) -> None:
    for row in range(len(producers)):
        producer = producers[row]
        if producer == none:
            continue
        due = following[producer]
        found[row] = due >= 0 and sequences[row] != due
        after = (sequences[row] + records[row]) % _SEQUENCES
        if due < 0 or 0 < (after - due) % _SEQUENCES < _SEQUENCES // 2:
            following[producer] = after


def _after_errors(ordered: Mapping[str, NDArray[Any]], first: Flags, alone: Flags) -> None:
    names, sources = np.unique(ordered["source"], return_inverse=True)
    errors = (ordered["flags"] & IS_ERROR) != 0
    if not errors.any():
        return
    failed = np.where(errors, ordered["time_ns"] + np.maximum(ordered["latency_ns"], 0), _NEVER)
    _settle(sources.astype(np.int64), ordered["time_ns"], failed, first, np.full(len(names), _NEVER, np.int64), alone)


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
