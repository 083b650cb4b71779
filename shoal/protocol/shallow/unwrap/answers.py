"""What a broker's answer to a produced partition means for the batches in it."""

from dataclasses import dataclass

from shoal.protocol.wire.error_codes import ErrorCode

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
    "Outcome",
]

TRY_AGAIN = ErrorCode.REQUEST_TIMED_OUT  # every producer retries it

# A repeated sequence that is too old for the broker to remember its offset (0.11, 1.0).
ALREADY_THERE = frozenset({ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
# The batch is cut in pieces.
CUTTABLE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# A set with one such batch in it is refused as a whole.
DIVISIBLE = CUTTABLE | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_RECORD,
}
# A batch is refused for what it is, and no producer sends it again.
REFUSED_FOR_GOOD = frozenset(
    {ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD}
)
# What the broker last appended is not what Shoal believes: acknowledged data was lost there, or its memory of the id.
LOST_TRACK = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
# Only a producer with an id hears these.
OF_STAMPS = LOST_TRACK | ALREADY_THERE | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
# The broker does not even look at the batch now, which says nothing about an earlier attempt to append it.
_NOT_NOW = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
# Never appended. (A batch that is refused for what it is was refused for it before, unless it has become too old; were the topic's
# settings changed in between, records might come twice, but none is lost.)
NEVER_APPENDED = DIVISIBLE | LOST_TRACK | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
# This attempt appended nothing. Not among them: what a broker may also answer afterwards, while it waits for the followers
# (NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT), or for any reason.
NOT_APPENDED = NEVER_APPENDED | _NOT_NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer for the mirror: an error code with its story for the log, or 0 and the base offset (-1: not known).

    `is_own`: the broker has said nothing that stands for all of it.
    """

    error_code: int
    base_offset: int = -1
    message: str | None = None
    is_own: bool = False
