"""Captured rows as records of a topic: what the cascade reads of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import Producer

from shoal.scenarios.jobs.cascade.combine import READS
from shoal.scenarios.jobs.columns.pieces import encoded, pieces
from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.source import IndexReaderBatch
from shoal.scenarios.jobs.source.splits import read_split
from shoal.scenarios.kafka.content.clients import client_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

__all__ = ["fill"]

_ROW = np.dtype([("captured", ">i8"), ("own", ">i8"), ("records", ">i4"), ("bytes", ">i4")])
"""`Row.decoded` in CascadeStreams.java."""
_FIELDS = dict(zip(_ROW.names or (), ("time_ns", "max_timestamp", "records", "batch_bytes"), strict=True))
_SOME = 20_000


def fill(bootstrap: str, topic: str, source: Path, partitions: int) -> None:
    """Keys are spread over the partitions by turns. Raises RuntimeError if a record was not stored."""
    producer = Producer(
        client_config(bootstrap, linger_ms=20, batch_size=500_000, compression_type="lz4", acks=1)
        | {"queue.buffering.max.messages": 1_000_000}
    )
    turns: dict[bytes, int] = {}
    for number, (key, value) in enumerate(_records(source)):
        place = turns.setdefault(key, len(turns) % partitions)
        producer.produce(topic, value, key, place)
        if number % _SOME == 0:
            producer.poll(0)
            while len(producer) > 20 * _SOME:
                producer.poll(0.01)
    if producer.flush(60):
        raise RuntimeError(f"{topic}: the broker did not take all rows")


def _records(source: Path) -> Iterator[tuple[bytes, bytes]]:
    options = Options.of({"path": str(source), "columns": ",".join(READS)})
    for part in IndexReaderBatch(options).partitions():
        for piece in pieces(read_split(part, options), _SOME):
            yield from _of(encoded(piece))


def _of(columns: dict[str, pa.Array]) -> Iterator[tuple[bytes, bytes]]:
    rows = np.empty(len(columns["topic"]), _ROW)
    for field, column in _FIELDS.items():
        rows[field] = columns[column].to_numpy()
    data, size = rows.tobytes(), _ROW.itemsize
    names = zip(columns["topic"].to_pylist(), columns["client"].to_pylist(), strict=True)
    for at, (topic, client) in enumerate(names):
        yield f"{topic}\t{client}".encode(), data[at * size : (at + 1) * size]
