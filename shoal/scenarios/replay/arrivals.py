"""The traffic to replay: produce requests with their arrival times, without their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.wire.types import TopicPartition

if TYPE_CHECKING:
    from shoal.protocol.wire.compression import Codec

__all__ = ["ALL", "NEWEST_PRODUCE", "Arrival", "ArrivedBatch"]

ALL = -1  # acks
NEWEST_PRODUCE = 12  # the last version that identifies topics by name


class ArrivedBatch(NamedTuple):
    """One record batch. `size` includes the header; `raw_size`: the uncompressed size of its records, None if not
    known."""

    topic: str
    partition: int
    records: int
    size: int
    raw_size: int | None
    codec: Codec

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Arrival(NamedTuple):
    """`at`: seconds since the beginning. `connection`: any number that identifies a client connection."""

    at: float
    connection: int
    client_id: str | None
    version: int
    acks: int
    parts: tuple[ArrivedBatch, ...]
