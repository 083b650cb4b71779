"""The fold, and a model of the whole produce side: a broker that fails at any point, a producer that retries."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import BatchHeader, NewRecord, encode_batch
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import BatchRefused, Outcome
from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet, halves
from shoal.protocol.shallow.unwrap.plan import OutgoingBatch, Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.schedule import Schedule
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from tests.protocol.shallow.strategies import record_sets
from tests.support.shallow.world import Broker, Seen, context, flat, plain, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

TARGET = TopicPartition("A.orders", 3)
NOT_LEADER, TOPIC_AUTHORIZATION_FAILED = 6, 29
LOG = some_batch(100, 4) + some_batch(104, 6) + some_batch(110, 5)
RECORDS = plain([seen.record for seen in poll(LOG)])
PLAIN = NewRecord(77, b"plain", b"record")


def mirrored(log: bytes = LOG, **changes: object) -> list[Seen]:
    result = wrap_record_set(log, 0, len(log), context(**changes))
    return poll(flat(result.parts) if result.parts else log)


def plan_of(outer: bytes) -> Plan:
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    return plan


def outer_of(*records: NewRecord) -> bytes:
    return encode_batch(records)


def next_batch(progress: PartitionProgress) -> OutgoingBatch | None:
    """The only batch of the next record set, after cutting what must be cut."""
    while progress.cut_due is not None:
        progress.cut(cut(progress.cut_due))
    record_set = progress.next_record_set()
    return record_set and only(record_set)


def only(record_set: OutgoingRecordSet) -> OutgoingBatch:
    (batch_range,) = record_set.ranges
    (batch,) = batch_range.batches
    return batch


def cut(batch: OutgoingBatch) -> list[OutgoingBatch] | RemoteProtocolError:
    try:
        return halves(batch)
    except RemoteProtocolError as error:
        return error


def run(progress: PartitionProgress, broker: Broker) -> Outcome:
    while (batch := next_batch(progress)) is not None:
        progress.answered(*broker.produce(batch))
    assert progress.outcome
    return progress.outcome


def begun(outer: bytes, deliveries: AppendedLog | None = None) -> PartitionProgress:
    return PartitionProgress(TARGET, plan_of(outer), deliveries or AppendedLog())


# The answer


def test_one_envelope_answers_its_last_record() -> None:
    broker = Broker(log=[PLAIN] * 50)
    assert run(begun(produced(mirrored())), broker) == Outcome(error_code=0, base_offset=64)
    assert broker.log[50:] == RECORDS


def test_equal_plain_records_on_both_sides_of_an_envelope_are_all_appended() -> None:
    broker = Broker()
    (envelope,) = mirrored()
    outer = outer_of(PLAIN, envelope.record, PLAIN)
    run(begun(outer), broker)
    assert broker.log == [PLAIN, *RECORDS, PLAIN]


def test_a_plain_row_answers_its_first_record() -> None:
    (seen,) = mirrored()
    broker = Broker(log=[PLAIN] * 50)
    assert run(begun(outer_of(PLAIN, PLAIN, seen.record)), broker).base_offset == 50
    assert broker.log[50:] == [PLAIN, PLAIN, *RECORDS]


def test_an_unknown_offset_stays_unknown() -> None:
    progress = begun(produced(mirrored()))
    for _ in range(3):
        assert next_batch(progress)
        progress.answered(0, -1)
    assert progress.outcome == Outcome(error_code=0, base_offset=-1)


def test_without_stamps_one_batch_is_in_flight() -> None:
    progress = begun(produced(mirrored()))
    assert next_batch(progress)
    assert next_batch(progress) is None
    assert progress.outcome is None


# Errors


def test_an_error_ends_the_partition_and_says_which_batch() -> None:
    progress = begun(produced(mirrored()))
    for answer in ((0, 50), (TOPIC_AUTHORIZATION_FAILED, -1)):
        assert next_batch(progress)
        progress.answered(*answer)
    assert next_batch(progress) is None
    outcome = progress.outcome
    assert outcome
    assert (outcome.error_code, outcome.base_offset) == (TOPIC_AUTHORIZATION_FAILED, -1)
    assert "source-cluster/orders-3 offsets 104..109, 6 records, zstd" in str(outcome.message)


def test_a_retry_appends_the_rest_and_answers_as_if_nothing_had_happened() -> None:
    outer, deliveries, broker = produced(mirrored()), AppendedLog(), Broker()
    first = begun(outer, deliveries)
    batch = next_batch(first)
    assert batch
    first.answered(*broker.produce(batch))
    assert next_batch(first)
    first.answered(NOT_LEADER, -1)
    broker.log.append(PLAIN)  # another producer
    assert run(begun(outer, deliveries), broker) == Outcome(error_code=0, base_offset=15)
    assert broker.log == [*RECORDS[:4], PLAIN, *RECORDS[4:]]


def test_a_lost_answer_costs_nothing() -> None:
    outer, deliveries, broker = produced(mirrored()), AppendedLog(), Broker()
    outcome = run(begun(outer, deliveries), broker)
    again = begun(outer, deliveries)
    assert next_batch(again) is None
    assert again.outcome == outcome
    assert broker.log == RECORDS


def test_a_second_fetch_of_the_same_records_is_no_retry() -> None:
    deliveries, broker = AppendedLog(), Broker()
    for serial in (1, 2):
        outer = produced(mirrored(serials=lambda serial=serial: serial))
        run(begun(outer, deliveries), broker)
    assert broker.log == RECORDS * 2


def test_equal_plain_records_of_another_request_are_no_retry() -> None:
    deliveries, broker = AppendedLog(), Broker()
    for serial in (1, 2):
        (seen,) = mirrored(serials=lambda serial=serial: serial)
        run(begun(outer_of(PLAIN, seen.record), deliveries), broker)
    assert broker.log == [PLAIN, *RECORDS] * 2


# Too large


BIG = encode_batch([NewRecord(i, b"%d" % i, b"x" * 100) for i in range(100)], base_offset=7)


def test_a_batch_that_is_too_large_goes_in_pieces() -> None:
    broker = Broker(max_message_bytes=1500)
    (seen,) = mirrored(BIG)
    assert run(begun(outer_of(seen.record, PLAIN)), broker) == Outcome(error_code=0, base_offset=99)
    assert broker.log == [*plain([item.record for item in poll(BIG)]), PLAIN]


@given(st.integers(300, 12_000), st.integers(300, 12_000), st.integers(0, 60))
def test_a_retry_goes_on_between_two_pieces(limit: int, later_limit: int, failing_at: int) -> None:
    outer, deliveries, broker = produced(mirrored(BIG)), AppendedLog(), Broker(max_message_bytes=limit)
    first = begun(outer, deliveries)
    for _ in range(failing_at):
        if (batch := next_batch(first)) is not None:
            first.answered(*broker.produce(batch))
    if next_batch(first) is not None:
        first.answered(NOT_LEADER, -1)
    broker.max_message_bytes = later_limit
    assert run(begun(outer, deliveries), broker) == Outcome(error_code=0, base_offset=99)
    assert broker.log == plain([item.record for item in poll(BIG)])


@pytest.mark.parametrize(("records", "code"), [([], 10), ([PLAIN], 18)])
def test_a_single_record_that_is_too_large_is_final(records: list[NewRecord], code: int) -> None:
    log = encode_batch([NewRecord(1, b"small", b""), NewRecord(2, b"large", b"x" * 500)], base_offset=7)
    (seen,) = mirrored(log)
    broker = Broker(max_message_bytes=300)
    outcome = run(begun(outer_of(*records, seen.record)), broker)
    assert outcome.error_code == code
    assert "a single record is too large" in str(outcome.message)


def test_a_batch_that_cannot_be_cut_is_refused_for_good() -> None:
    """The mirror would send the same bytes forever."""
    says_gzip = encode_batch([PLAIN, PLAIN], base_offset=7, attributes=Codec.GZIP)
    progress = begun(produced(mirrored(says_gzip)))
    assert next_batch(progress)
    progress.answered(10, -1)
    assert progress.cut_due is not None
    findings = progress.cut(cut(progress.cut_due))
    assert next_batch(progress) is None
    assert progress.outcome
    assert progress.outcome.error_code == 10
    message = str(progress.outcome.message)
    assert "over max.message.bytes of the target topic, and cannot be cut in pieces that fit" in message
    assert [finding.source.offsets for finding in findings if isinstance(finding, BatchRefused)] == [(7, 8)]


# Rounds


def test_partitions_go_side_by_side() -> None:
    deliveries = AppendedLog()
    short = PartitionProgress(TopicPartition("t", 0), plan_of(produced(mirrored(some_batch(0)))), deliveries)
    long = PartitionProgress(TopicPartition("t", 1), plan_of(produced(mirrored(LOG, serials=lambda: 5))), deliveries)
    schedule, sent = Schedule([short, long]), []
    while request := schedule.next_request():
        sent.append([partition.partition for partition in request.partitions])
        schedule.answered([(request, dict.fromkeys(request.partitions, (0, 10 * len(sent))))])
    assert sent == [[0, 1], [1], [1]]
    assert {target.partition: outcome.base_offset for target, outcome in schedule.outcomes().items()} == {0: 12, 1: 34}


# The model


@dataclass
class Faults:
    """What happens to each request to the broker, drawn by hypothesis; after the last draw nothing fails."""

    draws: list[str]
    sent: int = 0
    unknown: list[NewRecord] = field(default_factory=list)  # appended, and not acknowledged

    def next(self) -> str:
        self.sent += 1
        return self.draws.pop() if self.draws else "ok"


def send(progress: PartitionProgress, broker: Broker, faults: Faults) -> Outcome | None:
    """One attempt of the client; None: the connection breaks."""
    while (batch := next_batch(progress)) is not None:
        fault = faults.next()
        if fault == "lost request":
            return None
        if fault == "error":
            progress.answered(NOT_LEADER, -1)
            continue
        before = len(broker.log)
        answer = broker.produce(batch)
        if fault == "foreign":
            broker.log.append(PLAIN)
        if fault == "lost answer":
            faults.unknown += broker.log[before:]
            return None
        progress.answered(*answer)
    return None if faults.next() == "lost answer" else progress.outcome


FAULTS = st.sampled_from(["ok", "ok", "ok", "error", "lost request", "lost answer", "foreign"])


@given(
    record_sets(kinds=("dense", "dense", "transactional", "holes"), max_size=6),
    st.lists(FAULTS, max_size=30),
    st.integers(1, 4),
    st.sampled_from([1200, 1 << 19]),
    st.sampled_from([200, 400, 1 << 20]),
)
def test_nothing_known_is_appended_twice_and_nothing_is_lost(
    log: bytes, draws: list[str], per_batch: int, run_limit: int, max_message_bytes: int
) -> None:
    seen = mirrored(log, run_limit=run_limit)
    deliveries, faults, broker = AppendedLog(), Faults(draws), Broker(max_message_bytes=max_message_bytes)
    for at in range(0, len(seen), per_batch):
        chunk = seen[at : at + per_batch]
        outer = produced(chunk)
        plan = plan_record_set(outer, 0, len(outer))
        if isinstance(plan, BatchHeader):
            broker.log += plain([item.record for item in chunk])
            continue
        assert isinstance(plan, Plan)
        outcome = None
        while outcome is None or outcome.error_code == NOT_LEADER:
            outcome = send(PartitionProgress(TARGET, plan, deliveries), broker, faults)
        if outcome.error_code:
            return  # a single record is too large: the mirror's task dies
        check_answer(chunk, outcome.base_offset, broker, log)
    missing = subtract(broker.log, [item.record for item in poll(log)])
    assert sorted(map(repr, missing)) == sorted(map(repr, [*plain(faults.unknown), *foreign(broker.log, missing)]))


def subtract(log: list[NewRecord], expected: list[NewRecord]) -> list[NewRecord]:
    """The records of `log` other than `expected`, which it must have in this order."""
    rest, wanted = [], iter(plain(expected))
    want = next(wanted, None)
    for record in log:
        if record == want:
            want = next(wanted, None)
        else:
            rest.append(record)
    assert want is None, "a record is lost or out of order"
    return rest


def foreign(log: list[NewRecord], rest: list[NewRecord]) -> list[NewRecord]:
    return [record for record in rest if record == PLAIN]


def check_answer(chunk: list[Seen], base_offset: int, broker: Broker, log: bytes) -> None:
    """No group may skip: outer record i is reported at base_offset + i, which is at most where its last record is."""
    source = {item.offset: plain([item.record])[0] for item in poll(log)}
    for index, item in enumerate(chunk):
        reported = base_offset + index
        last = source[item.offset]
        assert reported < len(broker.log)
        assert last in broker.log[reported:], "an offset translation would skip a record"
