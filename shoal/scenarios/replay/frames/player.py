"""Sends captured requests again: each over its connection, in order and in time, to the partition's current leader.

A consumer's fetch offsets belong to another log. The replay starts at the captured offset if the partition has it,
otherwise at the partition's first record, and continues after the records that it receives, as the consumer did.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.protocol.messages.fetch import read_fetch_response
from shoal.protocol.messages.metadata import encode_metadata_request
from shoal.protocol.messages.produce import encode_partition, encode_plain_produce
from shoal.protocol.records.batch import read_batch_header
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.wire.error_codes import error_name
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.replay.frames.requests import AsItWas, FetchAgain, MetadataAgain, ProduceAgain
from shoal.scenarios.replay.sending.connections import Connections, DueRequest, open_connections
from shoal.scenarios.replay.sending.statistics import ReplayStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.scenarios.kafka.content.topics import OffsetRange
    from shoal.scenarios.replay.clock import Clock
    from shoal.scenarios.replay.frames.ledger import RawLedger
    from shoal.scenarios.replay.frames.requests import RawBatch, Redo
    from shoal.scenarios.replay.sending.wire import Address

__all__ = ["FetchStatistics", "RawPlayer", "ReplayTarget"]

_SECOND = 1_000_000_000
_CORRELATION_AT = slice(8, 12)
_PARTITION_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """The cluster of the replay. Its topics are those of the capture, prefixed with `prefix`."""

    bootstrap: Address
    leaders: Mapping[TopicPartition, Address]
    spans: Mapping[str, Mapping[int, OffsetRange]]
    prefix: str


@dataclass(slots=True, kw_only=True)
class FetchStatistics:
    requests: int = 0
    records: int = 0
    size: int = 0  # bytes of batches
    others: Counter[str] = field(default_factory=Counter)  # requests of other APIs


class RawPlayer:
    """`ledger` records every batch that is sent."""

    def __init__(self, where: ReplayTarget, ledger: RawLedger) -> None:
        self.where = where
        self.ledger = ledger
        self.played = ReplayStatistics()
        self.fetched = FetchStatistics()
        self._positions: dict[tuple[int, TopicPartition], int] = {}

    async def play(self, redos: Iterable[Redo], first_ns: int, clock: Clock) -> None:
        """Returns when all is answered. Raises TrafficFailed if an answer is a minute late after the last request."""
        async with open_connections(self.played) as connections:
            for redo in redos:
                late = await clock.until((redo.time_ns - first_ns) / _SECOND)
                await self._put(connections, redo, late, clock.speed)
        self.played.seconds = clock.elapsed()

    async def _put(self, connections: Connections, redo: Redo, late: float, speed: float) -> None:
        what, connection = redo.what, redo.connection
        if isinstance(what, ProduceAgain):
            for address, batches in self._batches_by_leader(what).items():
                answered = partial(self.played.produced, what.version) if what.acks else None
                frame = partial(self._produce, what, connection, batches)
                await connections.put(connection, address, DueRequest(frame, len(batches), answered), late)
        elif isinstance(what, FetchAgain):
            for address, offsets in self._offsets_by_leader(what).items():
                frame = partial(self._fetch, what, connection, offsets, int(what.max_wait_ms / speed))
                answered = partial(self._fetch_answered, what.version, connection)
                await connections.put(connection, address, DueRequest(frame, 0, answered), late)
        else:
            frame = partial(self._metadata, what) if isinstance(what, MetadataAgain) else partial(_as_it_was, what)
            self.fetched.others["Metadata" if isinstance(what, MetadataAgain) else "ApiVersions"] += 1
            await connections.put(
                connection, self.where.bootstrap, DueRequest(frame, 0, lambda frame, seconds: None), late
            )

    def _batches_by_leader(self, what: ProduceAgain) -> dict[Address, list[RawBatch]]:
        found: dict[Address, list[RawBatch]] = {}
        for batch in what.batches:
            named = batch._replace(partition=self._replayed(batch.partition))
            found.setdefault(self.where.leaders[named.partition], []).append(named)
        return found

    def _offsets_by_leader(self, what: FetchAgain) -> dict[Address, dict[TopicPartition, int]]:
        found: dict[Address, dict[TopicPartition, int]] = {}
        for captured, offset in what.partitions.items():
            partition = self._replayed(captured)
            found.setdefault(self.where.leaders[partition], {})[partition] = offset
        return found

    def _replayed(self, captured: TopicPartition) -> TopicPartition:
        return captured._replace(topic=self.where.prefix + captured.topic)

    def _produce(self, what: ProduceAgain, connection: int, batches: list[RawBatch], correlation_id: int) -> bytes:
        topics: dict[str, dict[int, list[bytes]]] = {}
        for batch in batches:
            topic, number = batch.partition
            topics.setdefault(topic, {}).setdefault(number, []).append(batch.data)
            self.ledger.sent(batch, connection)
            self.played.sent(batch.records, len(batch.data), len(batch.data))
        self.played.requests += 1
        elements = [
            (topic, [encode_partition(what.version, number, data) for number, data in partitions.items()])
            for topic, partitions in topics.items()
        ]
        return encode_plain_produce(what.version, correlation_id, what.client_id, what.acks, what.timeout_ms, elements)

    def _fetch(
        self,
        what: FetchAgain,
        connection: int,
        offsets: Mapping[TopicPartition, int],
        max_wait: int,
        correlation_id: int,
    ) -> bytes:
        topics: dict[str, list[dict[str, Any]]] = {}
        for partition, offset in offsets.items():
            at = self._positions.setdefault((connection, partition), self._begin(partition, offset))
            topics.setdefault(partition.topic, []).append(_asked(partition.partition, at))
        self.fetched.requests += 1
        values = {
            "ReplicaId": -1,
            "MaxWaitMs": max_wait,
            "MinBytes": what.min_bytes,
            "MaxBytes": what.max_bytes,
            "IsolationLevel": what.isolation_level,
            "SessionEpoch": -1,
            "Topics": [{"Topic": topic, "Partitions": partitions} for topic, partitions in topics.items()],
        }
        return request_frame(ApiKey.FETCH, what.version, correlation_id, what.client_id, values)

    def _begin(self, partition: TopicPartition, captured: int) -> int:
        span = self.where.spans[partition.topic][partition.partition]
        return captured if span.begin <= captured <= span.end else span.begin

    def _fetch_answered(self, version: int, connection: int, frame: bytes, seconds: float) -> None:
        for partition in read_fetch_response(frame, version).partitions:
            if partition.error_code:
                self.played.errors[f"Fetch: {error_name(partition.error_code)}"] += 1
                continue
            for span in split(frame, partition.start, partition.end).spans:
                header = read_batch_header(frame, span.start, span.end)
                key = connection, TopicPartition(str(partition.topic), partition.partition)
                if header.last_offset >= self._positions[key]:
                    self._positions[key] = header.last_offset + 1
                    self.fetched.records += header.record_count
                    self.fetched.size += header.size

    def _metadata(self, what: MetadataAgain, correlation_id: int) -> bytes:
        topics = None if what.topics is None else [self.where.prefix + name for name in what.topics]
        return encode_metadata_request(what.version, correlation_id, what.client_id, topics)


def _asked(partition: int, offset: int) -> dict[str, Any]:
    return {
        "Partition": partition,
        "CurrentLeaderEpoch": -1,
        "FetchOffset": offset,
        "LastFetchedEpoch": -1,
        "LogStartOffset": -1,
        "PartitionMaxBytes": _PARTITION_BYTES,
    }


def _as_it_was(what: AsItWas, correlation_id: int) -> bytes:
    frame = bytearray(what.frame)
    frame[_CORRELATION_AT] = correlation_id.to_bytes(4, "big")
    return bytes(frame)
