"""The meaning of a broker's answer to a produced partition for its batches, the mirror, and Shoal.

The error codes are in sets. A `Finding` is a result of an answer other than the fate of its batches; `schedule` returns
it as a value, and the proxy folds it into counters, proofs, producer ids and the log. `Outcome` is the mirror's answer.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.refused import SourceRange
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import TopicPartition

__all__ = [
    "ALREADY_THERE",
    "CUTTABLE",
    "DIVISIBLE",
    "LOST_TRACK",
    "NEVER_APPENDED",
    "NOT_APPENDED",
    "OF_STAMPS",
    "REFUSED_FOR_GOOD",
    "TRY_AGAIN",
    "BatchRefused",
    "CopyGrown",
    "CopyMisplaced",
    "CopyStopped",
    "EnvelopeAppended",
    "Finding",
    "GapIgnored",
    "OffsetsAppended",
    "Outcome",
    "PartitionFailed",
    "ProducerIdStale",
    "RecordSetAppended",
    "SetRefused",
    "StampsRefused",
]

TRY_AGAIN = ErrorCode.REQUEST_TIMED_OUT  # every producer retries it

# A duplicate sequence that is so old that the broker no longer knows its offset (0.11, 1.0).
ALREADY_THERE = frozenset({ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
# The batch is cut in pieces.
CUTTABLE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# A set with one such batch is refused as a whole.
DIVISIBLE = CUTTABLE | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_RECORD,
}
# A batch is refused because of its content, and producers do not retry it.
REFUSED_FOR_GOOD = frozenset(
    {ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD}
)
# The broker's last sequence is not the one that Shoal expects: it lost acknowledged data, or its state of the id.
LOST_TRACK = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
# Only a producer with an id gets these.
OF_STAMPS = LOST_TRACK | ALREADY_THERE | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
# The broker has not processed the batch this time, which says nothing about an earlier attempt to append it.
_NOT_NOW = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
# Never appended. (A batch that is refused because of its content was also refused earlier, unless it has become too
# old; if the topic's settings changed in between, records may be appended twice, but none is lost.)
NEVER_APPENDED = DIVISIBLE | LOST_TRACK | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
# This attempt appended nothing. Not included: errors that a broker may also return after appending, while it waits for
# the followers (NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT), or for any
# reason.
NOT_APPENDED = NEVER_APPENDED | _NOT_NOW


class RecordSetAppended(NamedTuple):
    """The broker appended this, of a partition with envelopes, as so many record sets."""

    partition: TopicPartition
    batches: int
    records: int
    size: int
    record_sets: int = 1


@dataclass(frozen=True, slots=True)
class PartitionFailed:
    """The broker returned an error for one record set."""

    partition: TopicPartition
    error_code: int


class EnvelopeAppended(NamedTuple):
    """An envelope is completely appended. `first` and `last`: target offsets of its records; -1: unknown."""

    partition: TopicPartition
    key: EnvelopeKey
    first: int
    last: int

    @property
    def has_offsets(self) -> bool:
        return self.first >= 0 and self.last >= 0


class OffsetsAppended(NamedTuple):
    """`records` of an envelope, without a hole at the source, have these offsets there and at the target."""

    partition: TopicPartition
    key: EnvelopeKey
    source_first: int
    target_first: int
    records: int


@dataclass(frozen=True, slots=True)
class BatchRefused:
    """The broker refuses a batch of an envelope permanently; `source` is its range in the source partition."""

    partition: TopicPartition
    source: SourceRange


@dataclass(frozen=True, slots=True)
class SetRefused:
    """The broker refused a set of batches, and then accepted each of them alone."""

    partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class StampsRefused:
    """The broker does not let this client use a producer id."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerIdStale:
    """The sender needs another producer id in this partition."""

    partition: TopicPartition
    sender: Hashable


@dataclass(frozen=True, slots=True)
class GapIgnored:
    """The broker appended a record set after a gap: it does not check sequences."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class CopyGrown:
    """A mirror topic has everything up to the end of this envelope."""

    partition: TopicPartition
    key: EnvelopeKey


@dataclass(frozen=True, slots=True)
class CopyStopped:
    """The broker refuses, until an operator changes something, what a mirror topic must get next."""

    partition: TopicPartition
    key: EnvelopeKey
    error_code: int


@dataclass(frozen=True, slots=True)
class CopyMisplaced:
    """An envelope for a mirror topic does not follow what the topic has: something before it is missing."""

    partition: TopicPartition
    key: EnvelopeKey


Finding = (
    RecordSetAppended
    | CopyGrown
    | CopyStopped
    | CopyMisplaced
    | PartitionFailed
    | EnvelopeAppended
    | OffsetsAppended
    | BatchRefused
    | SetRefused
    | StampsRefused
    | ProducerIdStale
    | GapIgnored
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The mirror's answer: an error code with a message for the log, or 0 and the base offset (-1: unknown).

    `is_own`: the error is Shoal's, because no single answer of the broker applies to the whole partition.
    """

    error_code: int
    base_offset: int = -1
    message: str | None = None
    is_own: bool = False
