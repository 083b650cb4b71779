"""Synthetic traffic: millions of index rows, for tests and benchmarks of their readers.

The same seed gives the same rows. Each chunk is a slice of time, so any number of rows needs the memory of one chunk;
offsets, sequences and request numbers continue from chunk to chunk, as brokers and clients count them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from shoal.protocol.capture.index.columns import HEADER_SIZE, ROW_SIZE, Direction, Handling, Kind
from shoal.scenarios.capture.rows import row_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CLIENTS", "ROW", "Array", "Chunk", "Client", "Traffic", "chunks", "running"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ROW: Final = row_dtype(ROW_SIZE)
_PRODUCE, _PRODUCE_VERSION = 0, 11
_MS, _SECOND = 1_000_000, 1_000_000_000
_NOT_IN_LENGTH = 12
_LZ4: Final = 3  # does not state the raw size
_STRIDE: Final = 1024
_SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`weight`: its share of all requests. `ratio`: compressed size of its records to their raw size.

    `bursts`: (period in seconds, the share of it in which everything is sent). `runaway`: (from, to, factor): between
    these shares of the time it sends `factor` times its weight.
    """

    name: str
    topic: str
    weight: float
    records: float
    record_bytes: int
    batches: int = 1  # in a request, each for another partition
    connections: int = 1
    codec: int = 0
    ratio: float = 1.0
    acks: int = -1
    software: str = "apache-kafka-java/4.3.0"
    bursts: tuple[float, float] | None = None
    runaway: tuple[float, float, float] | None = None


CLIENTS: Final = (
    Client(name="orders-service", topic="orders", weight=38, records=1, record_bytes=310, connections=12),
    Client(name="billing", topic="invoices", weight=20, records=2, record_bytes=540, connections=4, codec=1, ratio=0.6),
    Client(
        name="telemetry-agent",
        topic="telemetry",
        weight=18,
        records=12,
        record_bytes=90,
        connections=24,
        codec=3,
        ratio=0.45,
        bursts=(60, 0.15),
        software="librdkafka/2.16.1",
    ),
    Client(
        name="clickstream",
        topic="clicks",
        weight=14,
        records=180,
        record_bytes=260,
        batches=4,
        connections=6,
        codec=4,
        ratio=0.22,
    ),
    Client(
        name="etl-loader", topic="warehouse", weight=2, records=2500, record_bytes=200, batches=6, codec=4, ratio=0.18
    ),
    Client(
        name="legacy-cron",
        topic="audit-log",
        weight=3,
        records=1,
        record_bytes=120,
        acks=1,
        bursts=(3600, 0.01),
        software="sarama/1.43",
    ),
    Client(
        name="runaway", topic="orders", weight=0.5, records=1, record_bytes=210, codec=2, runaway=(0.6, 0.62, 400.0)
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    rows: int
    seconds: float = 3600.0
    partitions: int = 24  # of each topic; at most _STRIDE
    seed: int = 1
    start_ns: int = 1_750_000_000 * _SECOND
    cluster: str = "source"
    listener: str = "plain"
    clients: tuple[Client, ...] = CLIENTS

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(client.topic for client in self.clients))

    @property
    def names(self) -> tuple[str, ...]:
        """A name's number is its place here, from 1."""
        software = (client.software for client in self.clients)
        all_names = (*(client.name for client in self.clients), *software, self.listener, self.cluster, *self.topics)
        return tuple(dict.fromkeys(all_names))

    def number(self, name: str) -> int:
        return self.names.index(name) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    rows: Array  # of ROW, in the order of time
    names: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Counters:
    """Counters that continue from chunk to chunk: the next number of each."""

    requests: Array  # by connection
    offsets: Array  # by topic and partition
    sequences: Array  # by connection and partition


def chunks(traffic: Traffic, size: int = 1_000_000) -> Iterator[Chunk]:
    """`size`: rows of a chunk, except the last one."""
    rng = np.random.default_rng(traffic.seed)
    connections = sum(client.connections for client in traffic.clients) + 1
    counters = _Counters(
        requests=np.ones(connections, np.int64),
        offsets=np.zeros(len(traffic.topics) * _STRIDE, np.int64),
        sequences=np.zeros(connections * _STRIDE, np.int64),
    )
    for first in range(0, traffic.rows, size):
        last = min(first + size, traffic.rows)
        share, client = _requests(traffic, rng, last - first, (first / traffic.rows, last / traffic.rows))
        rows = _rows(traffic, rng, counters, last - first, share, client)
        yield Chunk(rows=rows, names=traffic.names)


def _each(traffic: Traffic, attribute: str) -> Array:
    return np.array([getattr(client, attribute) for client in traffic.clients])


def _requests(traffic: Traffic, rng: np.random.Generator, count: int, span: tuple[float, float]) -> tuple[Array, Array]:
    """When (as a share of the time) and by whom; just enough for `count` rows."""
    share = rng.uniform(*span, count)
    client = _choose(traffic, rng, share)
    enough = int(np.searchsorted(np.cumsum(_each(traffic, "batches")[client]), count)) + 1
    share, client = share[:enough], client[:enough]
    share = _in_bursts(traffic, share, client, span[0])
    order = np.argsort(share, kind="stable")
    return share[order], client[order]


def _choose(traffic: Traffic, rng: np.random.Generator, share: Array) -> Array:
    weights = np.tile(_each(traffic, "weight").astype(float), (len(share), 1))
    for number, client in enumerate(traffic.clients):
        if client.runaway is not None:
            start, end, factor = client.runaway
            weights[(share >= start) & (share < end), number] *= factor
    steps = np.cumsum(weights, axis=1)
    drawn = rng.uniform(size=len(share)) * steps[:, -1]
    return np.asarray((drawn[:, None] >= steps).sum(axis=1))


def _in_bursts(traffic: Traffic, share: Array, client: Array, earliest: float) -> Array:
    """Each period's requests are pressed into its first part; none becomes earlier than its chunk."""
    share = share.copy()
    for number, each in enumerate(traffic.clients):
        if each.bursts is not None:
            period, part = each.bursts[0] / traffic.seconds, each.bursts[1]
            mine = client == number
            start = np.maximum(np.floor(share[mine] / period) * period, earliest)
            share[mine] = start + (share[mine] - start) * part
    return share


def _rows(
    traffic: Traffic, rng: np.random.Generator, counters: _Counters, count: int, share: Array, client: Array
) -> Array:
    width = _each(traffic, "batches")[client]
    request = np.repeat(np.arange(len(client)), width)[:count]
    place = (np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width))[:count]
    connection = _connections(traffic, rng, client)
    rows = np.zeros(count, ROW)
    rows["time_ns"] = (traffic.start_ns + share * traffic.seconds * _SECOND).astype(np.int64)[request]
    rows["latency_ns"] = (rng.lognormal(0.7, 0.6, len(client)) * _MS).astype(np.int64)[request]
    rows["connection"] = connection[request]
    rows["request"] = running(connection, np.ones(len(client), np.int64), counters.requests)[request]
    rows["partition"] = (rng.integers(0, traffic.partitions, len(client))[request] + place) % traffic.partitions
    who = client[request]
    _fill_constants(rows, traffic, who)
    _fill_batches(rows, traffic, rng, who)
    _fill_counts(rows, traffic, who, counters)
    rows["request_bytes"] = (np.bincount(request, weights=rows["batch_length"] + _NOT_IN_LENGTH) + 90)[request]
    rows["response_bytes"] = (60 + 40 * np.bincount(request))[request]
    return rows


def _connections(traffic: Traffic, rng: np.random.Generator, client: Array) -> Array:
    own = _each(traffic, "connections")
    return 1 + (np.cumsum(own) - own)[client] + rng.integers(0, own[client])


def _fill_constants(rows: Array, traffic: Traffic, who: Array) -> None:
    for column in ("name", "software", "topic"):
        numbers = np.array([traffic.number(getattr(client, column)) for client in traffic.clients])
        rows["client" if column == "name" else column] = numbers[who]
    rows["listener"], rows["cluster"] = traffic.number(traffic.listener), traffic.number(traffic.cluster)
    rows["source_partition"], rows["source_first"], rows["source_last"] = -1, -1, -1
    rows["node"], rows["api_key"], rows["api_version"] = 1, _PRODUCE, _PRODUCE_VERSION
    rows["acks"] = _each(traffic, "acks")[who]
    rows["kind"], rows["direction"], rows["handling"] = Kind.BATCH, Direction.PRODUCED, Handling.PASSED
    rows["has_keys"], rows["magic"], rows["partition_leader_epoch"] = -1, 2, -1


def _fill_batches(rows: Array, traffic: Traffic, rng: np.random.Generator, who: Array) -> None:
    mean = _each(traffic, "records")[who]
    records = np.where(mean > 1, np.maximum(1, rng.normal(mean, mean * 0.4)), 1).astype(np.int64)
    raw = (records * _each(traffic, "record_bytes")[who] * rng.uniform(0.8, 1.2, len(rows))).astype(np.int64)
    codec = _each(traffic, "codec")[who]
    size = np.maximum(1, raw * _each(traffic, "ratio")[who]).astype(np.int64)
    rows["attributes"], rows["record_count"], rows["last_offset_delta"] = codec, records, records - 1
    rows["batch_length"] = HEADER_SIZE - _NOT_IN_LENGTH + size
    rows["raw_bytes"] = np.where(codec == _LZ4, -1, raw)
    newest = rows["time_ns"] // _MS - rng.integers(1, 20, len(rows))
    rows["max_timestamp"], rows["base_timestamp"] = newest, newest - np.minimum(records // 4, 500)
    rows["crc"] = rng.integers(0, 1 << 32, len(rows))


def _fill_counts(rows: Array, traffic: Traffic, who: Array, counters: _Counters) -> None:
    topic = np.array([traffic.topics.index(client.topic) for client in traffic.clients])[who]
    partition = rows["partition"].astype(np.int64)
    records = rows["record_count"].astype(np.int64)
    rows["log_offset"] = running(topic * _STRIDE + partition, records, counters.offsets)
    producer = rows["connection"].astype(np.int64)
    rows["producer_id"] = 1000 + producer
    rows["base_sequence"] = running(producer * _STRIDE + partition, records, counters.sequences) % _SEQUENCES


def running(keys: Array, steps: Array, following: Array) -> Array:
    """For each element the sum of the steps before it that have its key, from `following[key]` on, which goes on by
    them all."""
    order = np.argsort(keys, kind="stable")
    key, step = keys[order], steps[order]
    before = np.cumsum(step) - step
    first = np.flatnonzero(np.diff(key, prepend=-1))
    lengths = np.diff(np.append(first, len(key)))
    result = np.empty(len(keys), np.int64)
    result[order] = before - np.repeat(before[first], lengths) + following[key]
    following += np.bincount(keys, weights=steps, minlength=len(following)).astype(np.int64)
    return result
