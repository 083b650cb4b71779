"""What a broker's answer to a produced partition means for the batches in it (org.apache.kafka.common.protocol.Errors)."""

from dataclasses import dataclass

from shoal.protocol.shallow.unwrap import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE

__all__ = [
    "ALREADY_THERE",
    "CLUSTER_AUTHORIZATION_FAILED",
    "CUTTABLE",
    "DIVISIBLE",
    "INVALID_PRODUCER_EPOCH",
    "LOST_TRACK",
    "NEVER_APPENDED",
    "NOT_APPENDED",
    "OF_STAMPS",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "RECORD_LIST_TOO_LARGE",
    "REFUSED_FOR_GOOD",
    "TRY_AGAIN",
    "UNKNOWN_TOPIC_ID",
    "Outcome",
    "named",
]

TRY_AGAIN = 7  # REQUEST_TIMED_OUT: every producer retries it
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
TOPIC_AUTHORIZATION_FAILED = 29
CLUSTER_AUTHORIZATION_FAILED = 31
INVALID_TIMESTAMP = 32
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
UNKNOWN_PRODUCER_ID = 59
UNSUPPORTED_COMPRESSION_TYPE = 76
UNKNOWN_TOPIC_ID = 100  # retriable: the producer asks for metadata

# A repeated sequence that is too old for the broker to remember its offset (0.11, 1.0).
ALREADY_THERE = frozenset({DUPLICATE_SEQUENCE_NUMBER})
# The batch is cut in pieces.
CUTTABLE = frozenset({MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE})
# A set with one such batch in it is refused as a whole.
DIVISIBLE = CUTTABLE | {CORRUPT_MESSAGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD}
# A batch is refused for what it is, and no producer sends it again.
REFUSED_FOR_GOOD = frozenset({INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD})
# What the broker last appended is not what Shoal believes: acknowledged data was lost there, or its memory of the id.
LOST_TRACK = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID})
# Only a producer with an id hears these.
OF_STAMPS = LOST_TRACK | ALREADY_THERE | {INVALID_PRODUCER_EPOCH, CLUSTER_AUTHORIZATION_FAILED}
# The broker does not even look at the batch now, which says nothing about an earlier attempt to append it.
_NOT_NOW = frozenset({NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED})
# Never appended. (A batch that is refused for what it is was refused for it before; were the topic's settings changed in
# between, records might come twice, but none is lost.)
NEVER_APPENDED = DIVISIBLE | LOST_TRACK | {INVALID_PRODUCER_EPOCH, CLUSTER_AUTHORIZATION_FAILED}
# This attempt appended nothing. Not among them: what a broker may also answer afterwards, while it waits for the followers
# (NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT), or for any reason.
NOT_APPENDED = NEVER_APPENDED | _NOT_NOW


_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    CORRUPT_MESSAGE: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    6: "NOT_LEADER_OR_FOLLOWER",
    TRY_AGAIN: "REQUEST_TIMED_OUT",
    MESSAGE_TOO_LARGE: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    RECORD_LIST_TOO_LARGE: "RECORD_LIST_TOO_LARGE",
    NOT_ENOUGH_REPLICAS: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21: "INVALID_REQUIRED_ACKS",
    TOPIC_AUTHORIZATION_FAILED: "TOPIC_AUTHORIZATION_FAILED",
    CLUSTER_AUTHORIZATION_FAILED: "CLUSTER_AUTHORIZATION_FAILED",
    INVALID_TIMESTAMP: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    OUT_OF_ORDER_SEQUENCE_NUMBER: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    DUPLICATE_SEQUENCE_NUMBER: "DUPLICATE_SEQUENCE_NUMBER",
    INVALID_PRODUCER_EPOCH: "INVALID_PRODUCER_EPOCH",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    56: "KAFKA_STORAGE_ERROR",
    UNKNOWN_PRODUCER_ID: "UNKNOWN_PRODUCER_ID",
    UNSUPPORTED_COMPRESSION_TYPE: "UNSUPPORTED_COMPRESSION_TYPE",
    INVALID_RECORD: "INVALID_RECORD",
    UNKNOWN_TOPIC_ID: "UNKNOWN_TOPIC_ID",
}


def named(error_code: int) -> str:
    """For people: "6 NOT_LEADER_OR_FOLLOWER"."""
    return f"{error_code} {_NAMES.get(error_code, '')}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer for the mirror: an error code with its story for the log, or 0 and the base offset (-1: not known).

    `is_own`: the broker has said nothing that stands for all of it.
    """

    error_code: int
    base_offset: int = -1
    message: str | None = None
    is_own: bool = False
