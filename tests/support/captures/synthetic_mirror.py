"""A mirror's copy of synthetic traffic: the batches as it fetches them and as they reach the target, with optional
faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from shoal.protocol.capture.index.columns import Direction, Handling
from tests.support.captures.synthetic import ROW, Chunk, running

if TYPE_CHECKING:
    from tests.support.captures.synthetic import Array

__all__ = ["Faults", "Mirrored", "mirrored", "same_offsets"]

_MS: Final = 1_000_000
_FETCH, _FETCH_VERSION, _NO_ACKS, _NOT_KNOWN = 1, 13, -2, -32768
_FETCHER, _PRODUCER = 9001, 9002  # connections
_STRIDE: Final = 1024
_NO_GAP: Final = -2  # of a fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Numbers of batches. None of them is the last of its partition, so none can pass for what is still on its way."""

    missing: int = 0
    doubled: int = 0
    reordered: int = 0  # each is appended after its successor
    retried: int = 0  # sent twice with one sequence, appended once


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """`fetched` and `target` are in the order of time. Fields named after faults have those batches' source rows."""

    fetched: Chunk
    target: Chunk
    missing: Array
    doubled: Array
    reordered: Array
    retried: Array

    @property
    def both(self) -> Chunk:
        rows = np.concatenate([self.fetched.rows, self.target.rows]).astype(ROW)
        return Chunk(rows=rows[np.argsort(rows["time_ns"], kind="stable")], names=self.fetched.names)


def mirrored(source: Chunk, faults: Faults | None = None, *, wrapped: bool = True, seed: int = 1) -> Mirrored:
    """`source`: produced batches. Not `wrapped`: the mirror decompresses, and joins each two batches of a partition to
    one."""
    faults = faults or Faults()
    names = (*source.names, "mirror", "target")
    mirror, target = len(source.names) + 1, len(source.names) + 2
    missing, doubled, reordered, retried = _choose(source.rows, faults, seed)
    copied = source.rows[_order(source.rows, missing, doubled, reordered)]
    copied = _produced(copied if wrapped else _joined(copied), mirror, target, wrapped)
    copied = _with_retries(copied, source.rows[retried])
    return Mirrored(
        fetched=Chunk(rows=_fetched(source.rows, mirror, wrapped), names=names),
        target=Chunk(rows=copied, names=names),
        missing=source.rows[missing],
        doubled=source.rows[doubled],
        reordered=source.rows[reordered],
        retried=source.rows[retried],
    )


def same_offsets(copy: Mirrored) -> Mirrored:
    """The copy is a mirror topic: each batch is fenced, and at its source's offset."""
    rows = copy.target.rows.copy()
    rows["handling"], rows["log_offset"] = Handling.FENCED, rows["source_first"]
    rows["base_offset"], rows["partition_leader_epoch"] = rows["source_first"], _NO_GAP
    rows["producer_id"], rows["producer_epoch"], rows["base_sequence"] = -1, -1, -1
    return replace(copy, target=Chunk(rows=rows, names=copy.target.names))


def _key(rows: Array) -> Array:
    return np.asarray(rows["topic"].astype(np.int64) * _STRIDE + rows["partition"])


def _successors(rows: Array) -> Array:
    """The place of each row's next one of the same partition; -1 for the last."""
    key = _key(rows)
    order = np.argsort(key, kind="stable")
    following = np.append(order[1:], -1)
    same = np.append(np.diff(key[order]) == 0, False)
    result = np.full(len(rows), -1)
    result[order[same]] = following[same]
    return result


def _choose(rows: Array, faults: Faults, seed: int) -> list[Array]:
    """Places of the rows with each fault. No two of them touch: neither a row nor its successor is taken twice."""
    successor = _successors(rows)
    counts = (faults.missing, faults.doubled, faults.reordered, faults.retried)
    taken: set[int] = set()
    chosen: list[int] = []
    for place in np.random.default_rng(seed).permutation(len(rows)).tolist():
        if len(chosen) == sum(counts):
            break
        near = {place, int(successor[place])}
        if -1 not in near and not near & taken:
            taken |= near
            chosen.append(place)
    if len(chosen) < sum(counts):
        raise ValueError(f"{len(rows)} rows are too few for {sum(counts)} faults")
    return [np.array(part, np.int64) for part in np.split(np.array(chosen, np.int64), np.cumsum(counts)[:-1])]


def _order(rows: Array, missing: Array, doubled: Array, reordered: Array) -> Array:
    """The source rows in the order in which the target gets them."""
    order = np.arange(len(rows))
    later = _successors(rows)[reordered]
    order[reordered], order[later] = later, reordered
    times = np.ones(len(rows), np.int64)
    times[np.isin(order, missing)] = 0
    times[np.isin(order, doubled)] = 2
    return np.repeat(order, times)


def _fetched(rows: Array, mirror: int, wrapped: bool) -> Array:
    rows = rows.copy()
    rows["time_ns"] += 8 * _MS
    rows["direction"], rows["handling"] = Direction.FETCHED, Handling.WRAPPED if wrapped else Handling.RAW
    rows["api_key"], rows["api_version"], rows["acks"] = _FETCH, _FETCH_VERSION, _NO_ACKS
    rows["client"], rows["connection"], rows["base_offset"] = mirror, _FETCHER, rows["log_offset"]
    rows["request"] = np.arange(len(rows)) // 50 + 1
    return rows


def _produced(rows: Array, mirror: int, target: int, wrapped: bool) -> Array:
    rows = rows.copy()
    if wrapped:
        rows["source_topic"], rows["source_partition"] = rows["topic"], rows["partition"]
        rows["source_first"] = rows["log_offset"]
        rows["source_last"] = rows["log_offset"] + rows["last_offset_delta"]
    key, records = _key(rows), rows["record_count"].astype(np.int64)
    first = np.full(int(key.max(initial=0)) + 1, 1 << 62)
    np.minimum.at(first, key, rows["log_offset"])  # later chunks continue at the end of the previous one
    rows["base_sequence"] = running(key, records, first.copy()) % (1 << 31)
    rows["log_offset"] = running(key, records, first)
    rows["producer_id"], rows["producer_epoch"] = 77, 0
    rows["time_ns"] = np.maximum.accumulate(rows["time_ns"]) + 20 * _MS
    rows["client"], rows["cluster"], rows["connection"] = mirror, target, _PRODUCER
    rows["handling"] = Handling.UNWRAPPED if wrapped else Handling.RAW
    rows["request"] = np.arange(len(rows)) // 50 + 1
    return rows


def _joined(rows: Array) -> Array:
    """Each two successive batches of a partition become one, at the place of the second."""
    key = _key(rows)
    order = np.argsort(key, kind="stable")
    place = running(key, np.ones(len(rows), np.int64), np.zeros(int(key.max(initial=0)) + 1, np.int64))
    successor = _successors(rows)
    first = order[(place[order] % 2 == 0) & (successor[order] >= 0)]
    second = successor[first]
    joined = rows.copy()
    for column in ("record_count", "batch_length", "raw_bytes"):
        joined[column][second] += rows[column][first]
    joined["last_offset_delta"] = joined["record_count"] - 1
    joined["base_timestamp"][second] = np.minimum(rows["base_timestamp"][first], rows["base_timestamp"][second])
    joined["max_timestamp"][second] = np.maximum(rows["max_timestamp"][first], rows["max_timestamp"][second])
    return np.delete(joined, first)


def _with_retries(rows: Array, retried: Array) -> Array:
    """The first attempt had no answer."""
    if not len(retried):
        return rows
    wanted = {(int(row["topic"]), int(row["partition"]), int(row["log_offset"])) for row in retried}
    keys = zip(rows["topic"].tolist(), rows["partition"].tolist(), rows["source_first"].tolist(), strict=True)
    twice = np.array([key in wanted for key in keys])
    result = np.repeat(rows, np.where(twice, 2, 1))
    first = np.flatnonzero(np.repeat(twice, np.where(twice, 2, 1)))[::2]
    for column, nothing in (("error", _NOT_KNOWN), ("log_offset", -1), ("latency_ns", -1), ("response_bytes", -1)):
        result[column][first] = nothing
    return result
