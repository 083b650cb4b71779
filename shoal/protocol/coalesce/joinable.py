"""Whether a produce request may be joined with others, and with which.

Joined requests must be equal in every field that a request has only once (`LaneKey`), and none may harm the others. A
broker checks partitions separately, except for errors that fail the whole request: a transactional batch without a
transactional id (`KafkaApis.handleProduceRequest`); below 2.2, a record set that is not exactly one batch of magic 2,
for which it closes the connection; and below 3.0, a batch with a producer id if the principal may not write such
batches. So only requests that are clearly valid are joined, and those with producer ids only with each other. All
others pass unchanged over the client's own connection, and the broker decides whether they are valid.

Transactional requests are never joined: a transactional id has one producer, which has one connection to each broker.
"""

from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from shoal.protocol.messages.produce import plain_produce_length
from shoal.protocol.records.batch import CODEC_MASK, CONTROL, TRANSACTIONAL, BatchHeader, read_batch_header
from shoal.protocol.schema.headers import RequestHeader
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer, PartitionRef, Topic

__all__ = ["Joinable", "LaneKey", "PartitionBatch", "WhyAlone", "joinable_batch", "read_joinable"]

OLDEST: Final = 3
_ZSTD_FROM: Final = 7  # KIP-110
_ACKS: Final = frozenset({-1, 0, 1})
_LONGEST_TOPIC: Final = 249  # Topic.MAX_NAME_LENGTH. Names are kept; a client could choose longer ones


class WhyAlone(StrEnum):
    """Why a produce request is not joined: texts for the operator."""

    TRANSACTIONAL = "transactional"
    UNUSUAL = "not one ordinary batch for each partition"
    RETRY = "possible retry"
    LARGE = "large"
    OLD = "old version"
    TOO_MANY = "too many kinds of requests"
    SILENT = "acks=0 behind one that went alone"
    NAMELESS = "unknown topic id"
    BOOTSTRAP = "over a bootstrap port"
    AUTHENTICATED = "authenticated client"


class LaneKey(NamedTuple):
    """The fields that a produce request has once. `client_id`: None if there is none, or if it does not matter.
    `idempotent`: a batch has a producer id.
    """

    version: int
    acks: int
    timeout_ms: int
    client_id: str | None
    idempotent: bool = False


class PartitionBatch(NamedTuple):
    """The batch of one partition of a request; `content`: its element of the array PartitionData, unchanged."""

    target: PartitionRef
    content: bytes
    header: BatchHeader
    batch_at: int  # start of the batch in `content`

    @property
    def batch(self) -> memoryview:
        return memoryview(self.content)[self.batch_at : self.batch_at + self.header.size]

    @property
    def lone(self) -> bool:
        """Never in a set, because it has a producer id: if one batch of a set is a duplicate, a broker skips and
        acknowledges all of them (`UnifiedLog.analyzeAndValidateProducerState`)."""
        return self.header.producer_id >= 0


class Joinable(NamedTuple):
    key: LaneKey
    parts: list[PartitionBatch]

    def with_any_client_id(self) -> "Joinable":
        return self._replace(key=self.key._replace(client_id=None))


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
    """Read a whole Produce frame, v3 or later; the result does not refer to `frame`.

    Raises RemoteProtocolError if the frame is not a Produce request.
    """
    version = header.api_version
    transactional_id, acks, timeout_ms, rows = _REQUEST[version](frame, header.body, len(frame))
    if transactional_id is not None:
        return WhyAlone.TRANSACTIONAL
    if acks not in _ACKS or not rows or _says_more(frame, header, rows):
        return WhyAlone.UNUSUAL
    parts = []
    for row in rows:
        if len(row.topic) > _LONGEST_TOPIC:
            return WhyAlone.UNUSUAL
        batch = joinable_batch(frame, row.records, row.records_end, version)
        if isinstance(batch, WhyAlone):
            return batch
        content = bytes(frame[row.start : row.end])
        parts.append(PartitionBatch(PartitionRef(row.topic, row.partition), content, batch, row.records - row.start))
    if len({part.target for part in parts}) != len(parts):
        return WhyAlone.UNUSUAL
    idempotent = any(part.lone for part in parts)
    return Joinable(key=LaneKey(version, acks, timeout_ms, header.client_id, idempotent), parts=parts)


def joinable_batch(frame: Buffer, start: int, end: int, version: int) -> BatchHeader | WhyAlone:
    """The header of the only batch of a record set."""
    try:
        batch = read_batch_header(frame, start, end)
    except RemoteProtocolError:
        return WhyAlone.UNUSUAL
    why = _by_attributes(batch.attributes, version)
    if why is None and batch.size != end - start:
        return WhyAlone.UNUSUAL
    return batch if why is None else why


@lru_cache(maxsize=1024)
def _by_attributes(attributes: int, version: int) -> WhyAlone | None:
    if attributes & CODEC_MASK >= len(Codec):
        return WhyAlone.UNUSUAL
    if attributes & (TRANSACTIONAL | CONTROL):
        return WhyAlone.TRANSACTIONAL
    return WhyAlone.UNUSUAL if attributes & CODEC_MASK == Codec.ZSTD and version < _ZSTD_FROM else None


def _says_more(frame: Buffer, header: RequestHeader, rows: list[_Row]) -> bool:
    """Whether it has something that a joined request would lose, such as an unknown tagged field."""
    topics = [
        (topic, [row.end - row.start for row in group]) for topic, group in groupby(rows, key=lambda row: row.topic)
    ]
    return len(frame) != plain_produce_length(header.api_version, header.client_id, topics)
