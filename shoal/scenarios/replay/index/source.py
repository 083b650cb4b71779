"""Reads an index (`*.kxb`) as arrivals: when a produce request arrived, on which connection, and its batch sizes.

The index has no records: they are synthetic (synthetic_batches.py). Left out, and counted: requests that are not a
client's produce request, transactions (which cannot be repeated without their other requests), and old batch formats.
Producer ids are not sent again: their sequences would not fit. Several batches of one partition become consecutive
requests, since brokers accept several in one request only when proven to.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shoal.protocol.wire.compression import Codec
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.capture.index import IndexReader
from shoal.scenarios.replay.arrivals import NEWEST_PRODUCE, Arrival, ArrivedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["Recorded", "read_index"]

_OLDEST_PRODUCE = 3
_SECOND = 1_000_000_000
_LONGEST_TOPIC = 249
_CODECS = {codec.name.lower(): codec for codec in Codec}
_ORDER = ("time_ns", "proxy", "connection", "request", "row")
_COLUMNS = (
    *_ORDER[:-1],
    "client",
    "api_version",
    "acks",
    "topic",
    "partition",
    "records",
    "batch_bytes",
    "raw_bytes",
    "codec",
    "kind",
    "direction",
    "handling",
    "transactional",
)


class _Row(NamedTuple):
    time_ns: int
    proxy: str
    connection: int
    request: int
    client: str
    api_version: int
    acks: int | None
    topic: str
    partition: int
    records: int
    batch_bytes: int
    raw_bytes: int | None
    codec: str

    @property
    def of(self) -> tuple[int, str, int, int]:
        """The request that this batch belongs to."""
        return self.time_ns, self.proxy, self.connection, self.request


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """`partitions`: topic name in the replay -> number needed. `left_out`: rows, by reason. `damaged`: places in
    files."""

    rows: pa.Table
    prefix: str
    partitions: dict[str, int]
    left_out: Counter[str]
    damaged: int
    batches: int
    requests: int
    seconds: float
    first_ns: int = field(default=0)

    def arrivals(self) -> Iterator[Arrival]:
        """Arrivals in the order of time."""
        connections: dict[tuple[str, int], int] = {}
        parts: list[_Row] = []
        for row in self._sorted():
            if parts and parts[0].of != row.of:
                yield from self._request(parts, connections)
                parts = []
            parts.append(row)
        if parts:
            yield from self._request(parts, connections)

    def _sorted(self) -> Iterator[_Row]:
        for batch in self.rows.to_batches(max_chunksize=65_536):
            yield from map(_Row, *(batch.column(name).to_pylist() for name in _Row._fields))

    def _request(self, rows: list[_Row], connections: dict[tuple[str, int], int]) -> Iterator[Arrival]:
        first = rows[0]
        number = connections.setdefault((first.proxy, first.connection), len(connections))
        for parts in _without_sets(rows):
            yield Arrival(
                at=(first.time_ns - self.first_ns) / _SECOND,
                connection=number,
                client_id=first.client,
                version=min(max(first.api_version, _OLDEST_PRODUCE), NEWEST_PRODUCE),
                acks=-1 if first.acks is None else first.acks,
                parts=tuple(map(self._part, parts)),
            )

    def _part(self, row: _Row) -> ArrivedBatch:
        topic = topic_name(self.prefix, row.topic)
        return ArrivedBatch(topic, row.partition, row.records, row.batch_bytes, row.raw_bytes, _CODECS[row.codec])


def topic_name(prefix: str, topic: str) -> str:
    """A name that brokers accept, whether or not the capture has the topic's name."""
    return (prefix + re.sub("[^A-Za-z0-9._-]", "_", topic))[:_LONGEST_TOPIC]


def _without_sets(rows: list[_Row]) -> list[list[_Row]]:
    """Split a request's batches so that no partition is twice in a list; each partition's order is kept."""
    lists: list[list[_Row]] = []
    used: Counter[tuple[str, int]] = Counter()
    for row in rows:
        at = used[row.topic, row.partition]
        used[row.topic, row.partition] += 1
        if at == len(lists):
            lists.append([])
        lists[at].append(row)
    return lists


def read_index(path: Path, prefix: str) -> Recorded:
    """Read a file, or all files of a directory. Raises OSError, UnreadableFile."""
    left_out: Counter[str] = Counter()
    pieces: list[Any] = []
    damaged = 0
    for file in capture_files(path):
        for found in record_batches(IndexReader(path=file.path), _COLUMNS):
            if isinstance(found, pa.RecordBatch):
                pieces.append(_wanted(pa.Table.from_batches([found]), left_out))
            else:
                damaged += 1
    rows = _in_order(pa.concat_tables(pieces)) if pieces else None
    if rows is None or not rows.num_rows:
        empty = pa.table({name: [] for name in _Row._fields})
        return Recorded(
            rows=empty,
            prefix=prefix,
            partitions={},
            left_out=left_out,
            damaged=damaged,
            batches=0,
            requests=0,
            seconds=0.0,
        )
    times = rows.column("time_ns")
    requests = rows.select(list(_ORDER[:-1])).group_by(list(_ORDER[:-1])).aggregate([]).num_rows
    return Recorded(
        rows=rows,
        prefix=prefix,
        partitions=_partitions(rows, prefix),
        left_out=left_out,
        damaged=damaged,
        batches=rows.num_rows,
        requests=requests,
        seconds=(times[-1].as_py() - times[0].as_py()) / _SECOND,
        first_ns=times[0].as_py(),
    )


def _wanted(table: Any, left_out: Counter[str]) -> Any:
    for why, holds in _CONDITIONS.items():
        before = table.num_rows
        table = table.append_column("keep", holds(table)).filter(pc.field("keep")).drop_columns(["keep"])
        left_out[why] += before - table.num_rows
    return table


def _from_client(table: Any) -> Any:
    return pc.and_(pc.equal(table["direction"], "produced"), pc.not_equal(table["handling"], "own"))


_CONDITIONS: Mapping[str, Callable[[Any], Any]] = {
    "not produced by a client": _from_client,
    "without records": lambda table: pc.equal(table["kind"], "batch"),
    "old format": lambda table: pc.and_(pc.is_valid(table["codec"]), pc.greater(table["records"], 0)),
    "transactional": lambda table: pc.invert(table["transactional"]),
}


def _in_order(table: Any) -> Any:
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    return numbered.sort_by([(name, "ascending") for name in _ORDER]).select(list(_Row._fields))


def _partitions(rows: Any, prefix: str) -> dict[str, int]:
    last = rows.group_by("topic").aggregate([("partition", "max")]).to_pylist()
    found: Counter[str] = Counter()
    for row in last:
        name = topic_name(prefix, row["topic"])
        found[name] = max(found[name], row["partition_max"] + 1)
    return dict(found)
