"""Reconciliation, with a correct broker, one that fails at any point, and some incorrect ones."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.envelope import decode_key, encode_key
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import EnvelopeAppended, Finding
from shoal.protocol.shallow.unwrap.plan import Plan, Refused
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.reconcile import Discrepancy, Mismatch, Reconciler, mismatch
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.types import TopicPartition
from tests.protocol.shallow.strategies import record_sets
from tests.support.shallow.partition import Partition
from tests.support.shallow.world import Seen, context, flat, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

TARGET = TopicPartition("A.orders", 3)
LOG = some_batch(100, 4) + some_batch(104, 6) + some_batch(110, 5)
PLAIN = NewRecord(77, b"plain", b"record")
NOT_LEADER = 6


def mirrored(log: bytes = LOG, **changes: object) -> list[Seen]:
    result = wrap_record_set(log, 0, len(log), context(**changes))
    return poll(flat(result.parts) if result.parts else log)


@dataclass(frozen=True)
class Reconciled:
    reconciled: int = 0
    without_offsets: int = 0
    discrepancies: tuple[Discrepancy, ...] = ()


@dataclass
class Side:
    """An unwrapping Shoal and one partition.

    `before`: what happens in the partition before each request, in order.
    """

    broker: Partition = field(default_factory=Partition)
    reconciler: Reconciler = field(default_factory=Reconciler)
    deliveries: AppendedLog = field(default_factory=AppendedLog)
    before: list[str] = field(default_factory=list)
    _seen: Reconciled = field(default_factory=Reconciled)

    def produce(self, *records: NewRecord) -> int | None:
        """The error code for the mirror; None: the connection was lost."""
        outer = produced([Seen(0, record) for record in records])
        plan = plan_record_set(outer, 0, len(outer))
        assert isinstance(plan, Plan)
        for item in plan.items:
            self._note(mismatch(item.headers, item.key) if item.key is not None else None)
        progress = PartitionProgress(TARGET, plan, self.deliveries)
        while (record_set := progress.next_record_set()) is not None:
            happens = self.before.pop(0) if self.before else ""
            if happens == "foreign":
                self.broker.log.append(PLAIN)
            if happens == "error":
                self._take(progress.answered(NOT_LEADER, -1))
                continue
            if happens == "gone":
                self.broker.log.clear()
            answer = self.broker.produce(flat(record_set.buffers()))
            if happens == "lost":
                progress.abandon()
                return None
            self._take(progress.answered(answer[0], -1 if happens == "silent" else answer[1]))
        assert progress.outcome
        return progress.outcome.error_code

    def _take(self, findings: list[Finding]) -> None:
        for finding in findings:
            if not isinstance(finding, EnvelopeAppended):
                continue
            if not finding.has_offsets:
                self._seen = replace(self._seen, without_offsets=self._seen.without_offsets + 1)
                continue
            discrepancy = self.reconciler.appended(finding)
            if discrepancy is None:
                self._seen = replace(self._seen, reconciled=self._seen.reconciled + 1)
            self._note(discrepancy)

    def _note(self, discrepancy: Discrepancy | None) -> None:
        if discrepancy is not None:
            self._seen = replace(self._seen, discrepancies=(*self._seen.discrepancies, discrepancy))

    def seen(self) -> Reconciled:
        """Since the last time."""
        seen, self._seen = self._seen, Reconciled()
        return seen


def kinds(seen: Reconciled) -> dict[Mismatch, int]:
    return dict(Counter(discrepancy.kind for discrepancy in seen.discrepancies))


# What reconciles


def test_each_envelope_is_booked_once_it_is_appended() -> None:
    side = Side()
    (envelope,) = mirrored()
    assert side.produce(PLAIN, envelope.record, PLAIN) == 0
    assert side.seen() == Reconciled(reconciled=1)
    assert side.seen() == Reconciled()


@given(
    record_sets(kinds=("dense", "dense", "transactional", "holes"), max_size=6),
    st.lists(st.sampled_from(["", "", "error", "lost", "silent"]), max_size=20),
    st.sampled_from([1200, 1 << 19]),
)
def test_whatever_fails_nothing_is_called_a_mismatch(log: bytes, draws: list[str], run_limit: int) -> None:
    """And every envelope is counted."""
    side = Side(before=list(draws))
    wrapped = wrap_record_set(log, 0, len(log), context(run_limit=run_limit))
    envelopes = list(wrapped.envelopes)
    for polled in poll(flat(wrapped.parts or [])):
        if polled.record.key is not None and decode_key(bytes(polled.record.key)):
            while side.produce(polled.record) != 0:
                pass
    seen = side.seen()
    assert not seen.discrepancies
    assert seen.reconciled + seen.without_offsets == len(envelopes)
    if not {"error", "lost", "silent"} & set(draws):
        assert seen.reconciled == len(envelopes)


def test_a_retry_of_what_is_appended_is_booked_once() -> None:
    side, (envelope,) = Side(), mirrored()
    assert side.produce(envelope.record) == 0
    assert side.produce(envelope.record) == 0
    assert side.seen() == Reconciled(reconciled=1)


# What does not


def test_other_records_inside_an_envelope_are_told_with_all_offsets() -> None:
    side, (envelope,) = Side(before=["", "foreign"]), mirrored()
    assert side.produce(envelope.record) == 0
    seen = side.seen()
    assert (seen.reconciled, kinds(seen)) == (0, {Mismatch.BETWEEN: 1})
    ((kind, text),) = seen.discrepancies
    assert kind == Mismatch.BETWEEN
    assert text == "source-cluster/orders-3 offsets 100..114 (15 records) has the offsets 0..15 at the target"


def test_other_records_between_envelopes_are_none_of_ours() -> None:
    side = Side(before=["foreign"] * 3)
    for log in (some_batch(100, 4), some_batch(104, 6), some_batch(110, 5)):
        assert side.produce(mirrored(log)[0].record) == 0
    assert side.seen() == Reconciled(reconciled=3)


def test_a_log_that_went_back_is_told() -> None:
    """Acknowledged records were lost at the target: an unclean election, or the topic was recreated."""
    side = Side(broker=Partition(log=[PLAIN] * 7))
    first, second = (mirrored(log)[0].record for log in (LOG, some_batch(115, 20)))
    assert side.produce(first) == 0
    side.before = ["gone"]
    assert side.produce(second) == 0
    seen = side.seen()
    assert (seen.reconciled, kinds(seen)) == (1, {Mismatch.BACK: 1})
    assert (
        "offsets 115..134 (20 records) has the offsets 0..19 at the target, which had come to 22"
        in seen.discrepancies[0].text
    )
    assert side.produce(mirrored(some_batch(140))[0].record) == 0
    assert side.seen().reconciled == 1


def test_fewer_offsets_than_records_are_told() -> None:
    side, (envelope,) = Side(before=["", "gone"], broker=Partition(log=[PLAIN] * 7)), mirrored()
    assert side.produce(envelope.record) == 0
    assert kinds(side.seen()) == {Mismatch.FEWER: 1}


# Facts


def without_a_batch(envelope: Seen) -> NewRecord:
    """A tool in between drops the last batch, and makes a new key, so that everything looks right."""
    record = envelope.record
    assert record.key is not None
    assert record.value is not None
    value, key = bytes(record.value), decode_key(bytes(record.key))
    assert key is not None
    last = split(value, 0, len(value)).spans[-1]
    left = value[: last.start]
    changed = replace(
        key, batches=2, records=10, last_offset=109, payload=len(left), payload_crc=crc32c(left)
    )  # fmt: skip
    return record._replace(key=encode_key(changed), value=left)


def test_a_batch_that_was_taken_out_on_the_way_shows() -> None:
    side, (envelope,) = Side(), mirrored()
    assert side.produce(without_a_batch(envelope)) == 0
    seen = side.seen()
    assert kinds(seen) == {Mismatch.FACTS: 1}
    assert (
        "orders-3 offsets 100..109: 3 batches are stated, 2 are there; 15 records are stated"
        in seen.discrepancies[0].text
    )
    assert seen.reconciled == 1  # of what was left of it


@pytest.mark.parametrize("drop", [0, 1])
def test_a_clumsy_one_is_refused(drop: int) -> None:
    (envelope,) = mirrored()
    value = bytes(envelope.record.value or b"")
    spans = split(value, 0, len(value)).spans
    left = value[: spans[drop].start] + value[spans[drop].end :]
    outer = produced([Seen(0, envelope.record._replace(value=left))])
    assert isinstance(plan_record_set(outer, 0, len(outer)), Refused)


def test_headers_in_another_order_or_with_others_agree_too() -> None:
    side, (envelope,) = Side(), mirrored()
    assert side.produce(envelope.record._replace(headers=((b"trace", b"1"), *reversed(envelope.record.headers)))) == 0
    assert side.seen() == Reconciled(reconciled=1)


def test_an_envelope_without_facts_is_no_mismatch() -> None:
    """A transform of the mirror took the headers away, or another Shoal writes none."""
    side, (envelope,) = Side(), mirrored()
    assert side.produce(envelope.record._replace(headers=())) == 0
    assert side.seen() == Reconciled(reconciled=1)
