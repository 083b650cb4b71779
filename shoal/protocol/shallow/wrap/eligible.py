"""What is never wrapped: it is sent raw, and the mirror copies it as it does without Shoal.

One rule per line, with its reason; the first that applies counts. If none applies, a stock broker can append the batch
unchanged except its stamps (`LogValidator`, `UnifiedLog`), and a consumer can get it whole.
"""

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from operator import add, lt, sub
from typing import NamedTuple

from shoal.protocol.records.batch import TRANSACTIONAL, BatchHeader
from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.records.scan import Fields, ScannedSet
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import LocalProtocolError

__all__ = ["MAX_OFFSET", "Measure", "Reason", "Topics", "are_plain", "is_plain", "raw_reason"]

MAX_OFFSET = (1 << 63) - 2  # so that the next one is an int64, too


class Reason(StrEnum):
    """Why something is raw, for the operator."""

    # a batch
    INSIDE = "the mirror starts inside the batch"
    HOLES = "compaction left holes in the batch"
    CONTROL = "control batch (transaction marker)"
    LOG_APPEND_TIME = "the topic has LogAppendTime"
    DELETE_HORIZON = "the cleaner has set a delete horizon"
    OLD_MAGIC = "message format older than v2"
    EMPTY = "empty batch"
    CODEC = "unknown codec"
    TOO_LARGE = "batch over the run limit"
    BAD_CRC = "bad CRC (left to the mirror to complain about)"
    FIRST = "first batch after a start or seek"
    REFUSED = "the target refused the batch before"
    # a partition, a topic
    SMALL = "batches below min-batch-bytes"
    DAMAGED = "unreadable record set"
    INTERNAL_TOPIC = "internal topic"
    DEEP_TOPIC = "listed in deep-topics"
    UNKNOWN_TOPIC = "topic id not known yet"
    UNKNOWN_OFFSET = "fetch offset not known"
    LARGE_ANSWER = "answer larger than what is held"
    # a flow
    UNKNOWN_CLUSTER = "not known yet whether source and target are two clusters"
    NO_EVIDENCE = "no evidence yet that the mirror produces through Shoal"


class Measure(NamedTuple):
    """Limits for a batch: the first offset that the consumer has not seen, and the bytes that an envelope may carry."""

    fetch_offset: int
    payload_limit: int


_RULES: tuple[tuple[Reason, Callable[[BatchHeader, Measure], bool]], ...] = (
    # A consumer skips the records before its position; a mirror would copy them again (KIP-712, first-batch trimming).
    (Reason.INSIDE, lambda batch, measure: batch.base_offset < measure.fetch_offset),
    # LogValidator: "Clients are not allowed to write control records". Consumers need the markers themselves.
    (Reason.CONTROL, lambda batch, _: batch.is_control),
    # LogValidator: a batch must have records. This one has none, so the consumer itself skips it.
    (Reason.EMPTY, lambda batch, _: batch.record_count == 0),
    # LogValidator: "Inconsistent batch offset range and count".
    (Reason.HOLES, lambda batch, _: batch.record_count != batch.last_offset_delta + 1),
    # INVALID_TIMESTAMP, or (3.6+) the producers' original times would return instead of what a mirror copies.
    (Reason.LOG_APPEND_TIME, lambda batch, _: batch.is_log_append_time),
    # Then baseTimestamp is not a timestamp (KIP-534).
    (Reason.DELETE_HORIZON, lambda batch, _: batch.has_delete_horizon),
    (Reason.CODEC, lambda batch, _: batch.attributes & 0x07 > Codec.ZSTD),
    # max.request.size applies to the whole envelope; above it, RecordTooLargeException ends the mirror's task.
    (Reason.TOO_LARGE, lambda batch, measure: batch.size > measure.payload_limit),
)

# Attributes to which no rule applies: a known codec, transactional or not.
_PLAIN_ATTRIBUTES = frozenset(codec | bit for codec in Codec for bit in (0, TRANSACTIONAL))
_CODECS = frozenset(Codec)  # and no other bit


def are_plain(scanned: ScannedSet, measure: Measure, *, committed: bool) -> bool:
    """A fast check: no rule applies to any batch, offsets ascend, and (`committed`) no batch is transactional.

    True for nearly every record set. If false, the rules decide batch by batch.
    """
    if not (scanned.is_v2 and scanned.headers):
        return False
    bases, lengths, _, _, _, attributes, deltas, _, _, _, _, _, counts = zip(*scanned.headers, strict=True)
    lasts = list(map(add, bases, deltas))
    return (
        bases[0] >= measure.fetch_offset >= 0
        and set(attributes) <= (_CODECS if committed else _PLAIN_ATTRIBUTES)
        and max(lengths) + LOG_OVERHEAD <= measure.payload_limit
        and min(counts) > 0
        and set(map(sub, counts, deltas)) == {1}
        and all(map(lt, lasts, bases[1:]))
        and lasts[-1] <= MAX_OFFSET
    )


def is_plain(fields: Fields, measure: Measure) -> bool:
    """`are_plain` for one batch, without the order. Implies that its offsets and counts are not negative."""
    return (
        fields[0] >= measure[0] >= 0  # base offset
        and 0 < fields[12] == fields[6] + 1  # record count, last offset delta
        and fields[5] in _PLAIN_ATTRIBUTES
        and fields[1] + LOG_OVERHEAD <= measure[1]  # batch length
    )


DELIVERS_NOTHING = frozenset({Reason.CONTROL, Reason.EMPTY})


def raw_reason(batch: BatchHeader, measure: Measure) -> Reason | None:
    """Why the batch (magic 2) must be raw; None: it may be wrapped. Its CRC is not checked."""
    for reason, applies in _RULES:
        if applies(batch, measure):
            return reason
    return None


_INTERNAL = re.compile(r"^__|^\.|[.-]internal$")  # ReplicationPolicy.isInternalTopic

MAX_REMEMBERED_TOPICS = 10_000  # cached names; above it the cache is cleared


class Topics:
    """Topics that are never wrapped: internal ones, and those in which a `deep-topics` pattern is found (`search`)."""

    def __init__(self, deep: Iterable[str] = (), *, most: int = MAX_REMEMBERED_TOPICS) -> None:
        self._most = most
        self._verdicts: dict[str, Reason | None] = {}
        try:
            self._deep = [re.compile(pattern) for pattern in deep]
        except re.error as error:
            raise LocalProtocolError(f"deep-topics: {error.pattern!r} is no regular expression: {error}") from error

    def raw_reason(self, topic: str) -> Reason | None:
        if topic not in self._verdicts:
            if len(self._verdicts) >= self._most:
                self._verdicts.clear()
            self._verdicts[topic] = self._judge(topic)
        return self._verdicts[topic]

    def _judge(self, topic: str) -> Reason | None:
        if _INTERNAL.search(topic):
            return Reason.INTERNAL_TOPIC
        return Reason.DEEP_TOPIC if any(pattern.search(topic) for pattern in self._deep) else None
