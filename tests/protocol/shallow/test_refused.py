"""Batches that the target refuses permanently, among others: only these are missing, and the source side knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.refused import MAX_PARTITIONS, MAX_RANGES, Offsets, RefusedRanges, SourceRange, overlaps
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN, BatchRefused, Finding, Outcome
from shoal.protocol.shallow.unwrap.mirror_producers import MirrorProducers, Prepared
from shoal.protocol.shallow.unwrap.outgoing import halves
from shoal.protocol.shallow.unwrap.plan import OutgoingBatch, Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.sequences.own import Sequence
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.protocol.shallow.unwrap.test_exactly_once import STEPS, TARGET, World, attempt, mirrored, plan_of
from tests.support.shallow.partition import TOO_LATE, Partition
from tests.support.shallow.world import Seen, context, flat, plain, poll
from tests.support.shallow.wrapping import wrap_record_set

LATEST = 5_000
LATE = 9_000
NOT_LEADER = 6
ONE_RECORD = 140  # bytes that have room for one record of `log_of` and not for two


def batch(base_offset: int, *timestamps: int) -> bytes:
    values = (b"value-%d" % (base_offset + at) * 5 for at in count())
    records = [NewRecord(ms, b"k", value) for ms, value in zip(timestamps, values, strict=False)]
    return encode_batch(records, base_offset=base_offset)


def log_of(*late: bool, since: int = 100) -> list[bytes]:
    """Batches of two records; of some, the second is too late."""
    return [batch(since + 2 * at, 1_000 + at, LATE if is_late else 1_001 + at) for at, is_late in enumerate(late)]


def taken(*logs: list[bytes]) -> list[NewRecord]:
    """The part that a partition accepts."""
    batches = [plain([seen.record for seen in poll(one)]) for log in logs for one in log]
    return [record for records in batches if records[-1].timestamp <= LATEST for record in records]


def taken_singly(log: list[bytes]) -> list[NewRecord]:
    """The same with each record as a batch."""
    return [
        record for one in log for record in plain([seen.record for seen in poll(one)]) if record.timestamp <= LATEST
    ]


def offsets_of(log: list[bytes]) -> list[Offsets]:
    """Counts of refused batches."""
    batches = [poll(one) for one in log]
    return [Offsets(one[0].offset, one[-1].offset) for one in batches if one[-1].record.timestamp > LATEST]


@dataclass
class Side:
    """An unwrapping Shoal that survives all requests."""

    partition: Partition = field(default_factory=lambda: Partition(latest=LATEST))
    sequence: Sequence | None = field(default_factory=lambda: Sequence(producer_id=7, epoch=0))
    deliveries: AppendedLog = field(default_factory=AppendedLog)
    requests: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def refused(self) -> list[SourceRange]:
        return [finding.source for finding in self.findings if isinstance(finding, BatchRefused)]

    def produce(self, seen: list[Seen]) -> PartitionProgress:
        sets, plan = self.partition.takes_sets, plan_of(seen)
        progress = PartitionProgress(TARGET, plan, self.deliveries, sequence=self.sequence, sets=sets)
        while progress.outcome is None:
            while progress.cut_due is not None:
                self.findings += progress.cut(cut(progress))
            flying = []
            while (record_set := progress.next_record_set()) is not None:
                flying.append(flat(record_set.buffers()))
            self.requests += len(flying)
            for one in flying:
                self.findings += progress.answered(*self.partition.produce(one))
        return progress


def cut(progress: PartitionProgress) -> list[OutgoingBatch] | RemoteProtocolError:
    assert progress.cut_due is not None
    try:
        return halves(progress.cut_due)
    except RemoteProtocolError as error:
        return error


SIDES = {
    "stamped": lambda: Side(),
    "not stamped": lambda: Side(sequence=None),
    "sets": lambda: Side(Partition(latest=LATEST, takes_sets=True)),
}


@pytest.mark.parametrize("kind", SIDES)
def test_one_batch_in_the_middle_is_missing_and_nothing_else(kind: str) -> None:
    side, log = SIDES[kind](), log_of(*[False] * 7, True, *[False] * 8)
    progress = side.produce(mirrored(b"".join(log)))
    assert side.partition.log == taken(log)
    outcome = progress.outcome
    assert outcome
    assert outcome.error_code == TOO_LATE
    assert "source-cluster/orders-3 offsets 114..115, 2 records" in str(outcome.message)
    assert side.refused == [SourceRange("source-cluster", "orders", 3, Offsets(114, 115))]


@pytest.mark.parametrize("kind", SIDES)
def test_a_retry_of_what_is_decided_is_answered_the_same_and_appends_nothing(kind: str) -> None:
    """The answer to the mirror was lost. What was refused must not be acknowledged now."""
    side, log = SIDES[kind](), log_of(False, True, False)
    seen = mirrored(b"".join(log))
    outcome = side.produce(seen).outcome
    before = side.requests
    assert side.produce(seen).outcome == outcome
    assert side.requests == before
    assert side.partition.log == taken(log)


def test_what_comes_next_follows_the_sequence() -> None:
    side, log = Side(), log_of(False, False, True)
    side.produce(mirrored(b"".join(log)))
    more = log_of(*[False] * 6, since=200)
    assert side.produce(mirrored(b"".join(more), serials=lambda: 5)).outcome == Outcome(error_code=0, base_offset=15)
    assert side.partition.log == taken(log, more)


def test_refused_plain_records_do_not_keep_back_the_envelope_behind_them() -> None:
    side, log = Side(), log_of(False)
    (seen,) = mirrored(b"".join(log))
    late = Seen(99, NewRecord(LATE, b"late", b""))
    progress = side.produce([late, seen])
    assert progress.outcome
    assert progress.outcome.error_code == TOO_LATE
    assert side.partition.log == taken(log)
    assert side.refused == []


def test_many_refused_batches_cost_little_more_than_a_request_each() -> None:
    side, log = Side(Partition(latest=LATEST, takes_sets=True)), log_of(*[True] * 100)
    message = str(side.produce(mirrored(b"".join(log))).outcome)
    assert side.requests < 100 + 10
    assert "97 batches more" in message
    assert len(message) < 1_000


def test_behind_one_refused_batch_the_sets_grow_again() -> None:
    side = Side(Partition(latest=LATEST, takes_sets=True))
    side.produce(mirrored(b"".join(log_of(True, *[False] * 500))))
    assert side.requests < 30


def test_what_became_of_those_behind_it_must_be_known_before_the_error_is_final() -> None:
    """The leader moved meanwhile: the mirror has to send them again, and would not after a final error."""
    side, log = Side(), log_of(False, True, False, False)
    seen = mirrored(b"".join(log))
    progress = PartitionProgress(TARGET, plan_of(seen), side.deliveries, sequence=side.sequence)
    first = progress.next_record_set()
    assert first
    progress.answered(*side.partition.produce(flat(first.buffers())))
    flying = []
    while record_set := progress.next_record_set():
        flying.append(flat(record_set.buffers()))
    assert len(flying) == 3
    progress.answered(*side.partition.produce(flying[0]))
    progress.answered(NOT_LEADER, -1)
    progress.answered(NOT_LEADER, -1)
    assert progress.outcome
    assert progress.outcome.error_code == TRY_AGAIN
    outcome = side.produce(seen).outcome
    assert outcome
    assert outcome.error_code == TOO_LATE
    assert side.partition.log == taken(log)


# Too large


def test_of_a_batch_only_the_record_that_is_too_large_is_missing() -> None:
    records = [NewRecord(at, b"%d" % at, b"x" * (600 if at == 13 else 20)) for at in range(20)]
    side = Side(Partition(max_message_bytes=400))
    progress = side.produce(mirrored(encode_batch(records, base_offset=7)))
    assert side.partition.log == [*plain(records[:13]), *plain(records[14:])]
    assert progress.outcome
    assert progress.outcome.error_code == 10
    assert "max.message.bytes of the target topic" in str(progress.outcome.message)
    assert side.refused == [SourceRange("source-cluster", "orders", 3, Offsets(7, 26))]
    assert side.produce(mirrored(encode_batch(records, base_offset=7))).outcome


# Whatever happens meanwhile


REFUSALS = st.lists(st.sampled_from([False, False, True]), min_size=1, max_size=12)


@settings(max_examples=400)
@given(
    st.lists(REFUSALS, min_size=1, max_size=3),
    st.lists(STEPS, max_size=60),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1 << 20, ONE_RECORD]),
)
@example([[False, True, False, False]], ["unheard", "lost", "ok", "unheard", "unheard"], False, True, 1 << 20)
def test_all_others_are_appended_once_and_in_order(
    requests: list[list[bool]], draws: list[str], takes_sets: bool, stamped: bool, max_message_bytes: int
) -> None:
    """Where batches are cut, a late record is alone in a piece."""
    partition = Partition(takes_sets=takes_sets, latest=LATEST, max_message_bytes=max_message_bytes)
    steps = draws if stamped else [step for step in draws if step in ("ok", "not leader", "not enough")]
    world, expected, since = World(partition, steps), list[NewRecord](), 100
    for number, late in enumerate(requests):
        log = log_of(*late, since=since)
        since += 2 * len(log)
        plan, outcome = plan_of(mirrored(b"".join(log), serials=lambda number=number: number)), None
        while outcome is None or outcome.error_code not in (0, TOO_LATE):
            outcome = attempt(world, plan, stamped=stamped)
        assert outcome.error_code == (TOO_LATE if any(late) else 0)
        expected += taken(log) if max_message_bytes > ONE_RECORD else taken_singly(log)
        assert partition.log == expected
    for queue in world.late:
        for request in queue:
            partition.produce(request)
    assert partition.log == expected, "a late request was appended"


def test_a_mirror_with_stamps_of_its_own_ends_at_the_refused_batch() -> None:
    """No broker accepts anything after a gap in the sequence."""
    log = log_of(False, True, False)
    outer = encode_batch(
        [seen.record for seen in mirrored(b"".join(log))], producer_id=5, producer_epoch=0, base_sequence=0
    )
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    prepared = MirrorProducers(bytearray(8 * SLOT_SIZE)).prepare(TARGET, outer, 0, len(outer), plan)
    assert isinstance(prepared, Prepared)
    partition = Partition(latest=LATEST)
    progress, findings = PartitionProgress(TARGET, prepared.plan, prepared.deliveries), list[Finding]()
    while (record_set := progress.next_record_set()) is not None:
        findings += progress.answered(*partition.produce(flat(record_set.buffers())))
    assert progress.outcome
    assert progress.outcome.error_code == TOO_LATE
    assert partition.log == taken(log[:1])
    refused = [finding.source.offsets for finding in findings if isinstance(finding, BatchRefused)]
    assert refused == offsets_of(log)


# What is kept of it


def range_of(first: int, last: int, partition: int = 3) -> SourceRange:
    return SourceRange("source-cluster", "orders", partition, Offsets(first, last))


def test_ranges_that_meet_are_one() -> None:
    ranges = RefusedRanges()
    for first in range(0, 1_000, 10):
        ranges.add(range_of(first, first + 9))
    ranges.add(range_of(2_000, 2_001))
    assert ranges.of("source-cluster", "orders", 3) == (Offsets(0, 999), Offsets(2_000, 2_001))
    ranges.add(range_of(500, 3_000))
    assert ranges.of("source-cluster", "orders", 3) == (Offsets(0, 3_000),)


def test_nothing_that_was_refused_in_a_partition_is_forgotten() -> None:
    """One envelope may have more refused batches than are kept: the mirror must get the first as a plain record."""
    ranges = RefusedRanges()
    for at in (*range(0, 20 * MAX_RANGES, 10), 15):
        ranges.add(range_of(at, at))
    known = ranges.of("source-cluster", "orders", 3)
    assert len(known) == MAX_RANGES
    assert all(overlaps(known, at, at) for at in range(0, 20 * MAX_RANGES, 10))
    assert overlaps(known, 12, 15)
    assert list(known) == sorted(known)


def test_partitions_that_were_refused_long_ago_are_forgotten() -> None:
    ranges = RefusedRanges()
    ranges.add(range_of(1, 1))
    for partition in range(10, 10 + MAX_PARTITIONS):
        ranges.add(range_of(1, 1, partition))
    assert ranges.of("source-cluster", "orders", 3) == ()


@given(st.lists(st.booleans(), min_size=1, max_size=10), st.booleans())
def test_what_was_refused_stays_raw_and_nothing_else(late: list[bool], first_raw: bool) -> None:
    log = log_of(*late)
    source, refused = b"".join(log), offsets_of(log)
    wrapped = wrap_record_set(source, 0, len(source), context(refused=tuple(refused), first_raw=first_raw))
    seen = poll(flat(wrapped.parts) if wrapped.parts else source)
    inside = {offset for key in wrapped.envelopes for offset in range(key.first_offset, key.last_offset + 1)}
    raw = {one.offset for one in seen} - {key.last_offset for key in wrapped.envelopes}
    expected = {offset for one in refused for offset in range(one.first, one.last + 1)}
    if first_raw:
        expected |= {100, 101}
    assert raw == expected
    assert inside == {one.offset for one in poll(source)} - expected
    assert wrapped.raw.get(Reason.REFUSED, 0) == len(refused)
