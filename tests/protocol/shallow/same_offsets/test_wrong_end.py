"""The log does not end where Shoal expects it: the rest is sent from the end that the broker says."""

from __future__ import annotations

from itertools import count

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.envelope import Cover, EnvelopeKey, encode_key
from shoal.protocol.shallow.same_offsets.fenced import MAX_RESTARTS, NOT_STORED, FencedPartition
from shoal.protocol.shallow.same_offsets.log_ends import LogEnd, LogEnds
from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN, CopyMisplaced, PartitionFailed
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import TopicPartition
from tests.protocol.shallow.same_offsets.target_log import TargetLog

PARTITION = TopicPartition("copy", 0)


def stored(offset: int) -> bytes:
    return encode_batch([NewRecord(7, b"k", b"%d" % offset)], base_offset=offset)


def plan_of(*offsets: int, start: int = 1) -> Plan:
    """One envelope of the source's batches at these offsets, and all from `start` on."""
    value = b"".join(stored(offset) for offset in offsets)
    key = EnvelopeKey(
        cluster="c",
        topic="t",
        partition=0,
        first_offset=offsets[0],
        last_offset=offsets[-1],
        batches=len(offsets),
        records=len(offsets),
        payload=len(value),
        payload_crc=crc32c(value),
        flow=1,
        serial=1,
        cover=Cover(start, offsets[-1] + 1, fill=False),
    )
    outer = encode_batch([NewRecord(0, encode_key(key), value)])
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    return plan


def send(fenced: FencedPartition, log: TargetLog) -> list[int]:
    """All, one after the other -> the broker's error codes."""
    codes = []
    while (sent := fenced.next_record_set()) is not None:
        codes.append(log.produce(b"".join(sent.buffers())))
        fenced.answered(codes[-1], -1)
    return codes


def log_with(*offsets: int) -> TargetLog:
    log = TargetLog(start=1, end=1)
    assert set(send(FencedPartition(PARTITION, plan_of(*offsets), LogEnds(), LogEnd(1, 1, 1)), log)) == {0}
    return log


def test_another_mirror_has_filled_the_gap_in_two_steps() -> None:
    """Only one filler is taken for a gap: the rest goes on behind both."""
    log, ends = log_with(1, 2), LogEnds()
    for offset in (3, 4):
        log.batches[offset] = encode_batch((), base_offset=offset, last_offset_delta=0)
    log.end = 5
    fenced = FencedPartition(PARTITION, plan_of(5, 6, start=3), ends, LogEnd(1, 3, 3), text=lambda _: log.text)
    assert send(fenced, log) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 0]
    assert fenced.outcome is not None
    assert fenced.outcome.error_code == 0
    assert list(log.batches) == [1, 2, 3, 4, 5, 6]
    assert ends.of(PARTITION) == LogEnd(1, 7, 7)


def test_what_was_lost_before_the_request_is_fetched_again() -> None:
    log, ends = log_with(1, 2, 3, 4), LogEnds()
    log.lose_tail(2)
    plan = plan_of(7, start=5)
    fenced = FencedPartition(PARTITION, plan, ends, LogEnd(1, 5, 5), text=lambda _: log.text)
    (sent,) = [fenced.next_record_set()]
    assert sent is not None
    found = fenced.answered(log.produce(b"".join(sent.buffers())), -1)
    assert [type(finding) for finding in found] == [PartitionFailed, CopyMisplaced]
    assert fenced.outcome == NOT_STORED


def test_an_end_that_never_stays_is_left_to_the_retry_of_the_mirror() -> None:
    fenced = FencedPartition(PARTITION, plan_of(7, 8), LogEnds(), LogEnd(1, 5, 5), text=lambda _: next(texts))
    texts = (f"expected end 5, the log ends at {4 + number % 2 * 2}" for number in count())
    answers = 0
    while fenced.next_record_set() is not None:
        fenced.answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        answers += 1
    assert answers == MAX_RESTARTS + 1
    assert fenced.outcome is not None
    assert fenced.outcome.error_code == TRY_AGAIN


def test_another_mirror_has_begun_the_copy_behind_this_ones_start() -> None:
    """Each has asked the source for its start at another time: the copy is not stopped for it."""
    log = TargetLog()

    def mirror(known: LogEnd, begin: int) -> FencedPartition:
        plan = plan_of(50, 51, start=0)
        return FencedPartition(PARTITION, plan, LogEnds(), known, text=lambda _: log.text, begin=begin)

    first, second = mirror(LogEnd(0, 0, 0), 30), mirror(LogEnd(0, 0, 0), 20)
    assert set(send(first, log)) == {0}
    assert send(second, log) == [ErrorCode.INVALID_RECORD]
    assert second.outcome is not None
    assert second.outcome.error_code == TRY_AGAIN
    again = mirror(LogEnd(log.start, log.end, log.end), 20)
    assert set(send(again, log)) == {0}
    assert list(log.batches) == [30, 50, 51]
