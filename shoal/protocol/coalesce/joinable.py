"""May this produce request be joined with others, and with which?

The requests of one joined request must be alike in everything that stands once in a request (`LaneKey`), and none may
be able to hurt the others. A broker judges partitions one by one, except for what would fail the whole request: a
transactional batch without a transactional id (`KafkaApis.handleProduceRequest`), and, below 2.2, a record set that is
not exactly one batch of magic 2, for which it closes the connection. So only what is plainly in order is joined. The
rest travels as it came, over the client's own connection: it is not refused, and whether it is wrong is for the broker
to say.

Transactional requests are never joined: a transactional id has one producer, which has one connection to each broker.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple

from shoal.protocol.messages.produce import plain_produce_length
from shoal.protocol.records.batch import BatchHeader, read_batch_header
from shoal.protocol.schema.headers import RequestHeader
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer, PartitionRef, Topic

__all__ = ["Joinable", "LaneKey", "PartitionBatch", "WhyAlone", "read_joinable"]

OLDEST: Final = 3
_ZSTD_FROM: Final = 7  # KIP-110
_ACKS: Final = frozenset({-1, 0, 1})


class WhyAlone(StrEnum):
    """In the operator's words."""

    TRANSACTIONAL = "transactional"
    UNUSUAL = "not one ordinary batch for each partition"


class LaneKey(NamedTuple):
    """What stands once in a produce request. `client_id`: None where it makes no difference, or where there is none."""

    version: int
    acks: int
    timeout_ms: int
    client_id: str | None


class PartitionBatch(NamedTuple):
    """The batch of one partition of a request: `content` is its element of the array PartitionData, byte for byte."""

    target: PartitionRef
    content: bytes
    header: BatchHeader
    batch_at: int  # where in `content` the batch begins

    @property
    def batch(self) -> memoryview:
        return memoryview(self.content)[self.batch_at : self.batch_at + self.header.size]

    @property
    def lone(self) -> bool:
        """Never beside another batch of its partition. A duplicate among several makes a broker skip all of them, and
        acknowledge them (`UnifiedLog.analyzeAndValidateProducerState`): batches with a producer id stay out of sets."""
        return self.header.producer_id >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Joinable:
    key: LaneKey
    parts: list[PartitionBatch]

    def with_any_client_id(self) -> "Joinable":
        return replace(self, key=self.key._replace(client_id=None))


class _Row(NamedTuple):
    topic: Topic
    partition: int
    start: int
    end: int
    records: int
    records_end: int


_REQUEST = Walkers(
    MESSAGES["ProduceRequest"],
    ("TransactionalId", "Acks", "TimeoutMs"),
    Rows(
        "TopicData.PartitionData", ("Name | TopicId", "Index", "start *", "end *", "start Records", "end Records"), _Row
    ),
    oldest=OLDEST,
)


def read_joinable(frame: Buffer, header: RequestHeader) -> Joinable | WhyAlone:
    """Reads a whole Produce frame, v3 or later; the result does not refer to `frame`.

    Raises RemoteProtocolError for a frame that is no Produce request.
    """
    version = header.api_version
    transactional_id, acks, timeout_ms, rows = _REQUEST[version](frame, header.body, len(frame))
    if transactional_id is not None:
        return WhyAlone.TRANSACTIONAL
    if acks not in _ACKS or not rows or _says_more(frame, header, rows):
        return WhyAlone.UNUSUAL
    parts = []
    for row in rows:
        batch = _only_batch(frame, row, version)
        if isinstance(batch, WhyAlone):
            return batch
        content = bytes(frame[row.start : row.end])
        parts.append(PartitionBatch(PartitionRef(row.topic, row.partition), content, batch, row.records - row.start))
    if len({part.target for part in parts}) != len(parts):
        return WhyAlone.UNUSUAL
    return Joinable(key=LaneKey(version, acks, timeout_ms, header.client_id), parts=parts)


def _only_batch(frame: Buffer, row: _Row, version: int) -> BatchHeader | WhyAlone:
    try:
        batch = read_batch_header(frame, row.records, row.records_end)
        codec = batch.codec
    except RemoteProtocolError:
        return WhyAlone.UNUSUAL
    if batch.is_transactional or batch.is_control:
        return WhyAlone.TRANSACTIONAL
    whole = batch.size == row.records_end - row.records
    return batch if whole and (codec is not Codec.ZSTD or version >= _ZSTD_FROM) else WhyAlone.UNUSUAL


def _says_more(frame: Buffer, header: RequestHeader, rows: list[_Row]) -> bool:
    """Whether there is anything that a joined request would not say, such as an unknown tagged field."""
    topics = [
        (topic, [row.end - row.start for row in group]) for topic, group in groupby(rows, key=lambda row: row.topic)
    ]
    return len(frame) != plain_produce_length(header.api_version, header.client_id, topics)
