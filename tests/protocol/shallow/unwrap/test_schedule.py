"""How record_sets of several partitions share requests, and how large these get."""

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import Finding, SetRefused
from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import SET_BYTES, PartitionProgress
from shoal.protocol.shallow.unwrap.schedule import REQUEST_BYTES, Schedule, SendableSet
from shoal.protocol.shallow.unwrap.sequences.own import Sequences
from shoal.protocol.wire.types import TopicPartition
from tests.support.shallow.world import context, flat, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set


def plan_of(batches: list[bytes], serial: int = 1) -> Plan:
    log = b"".join(batches)
    parts = wrap_record_set(log, 0, len(log), context(run_limit=1 << 30, serials=lambda: serial)).parts
    assert parts
    outer = produced(poll(flat(parts)))
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    return plan


def large(number: int, size: int) -> list[bytes]:
    return [encode_batch([NewRecord(1, None, bytes(size))], base_offset=at) for at in range(number)]


def schedule_of(*logs: list[bytes], sets: bool = True, own_bytes: int = 0) -> Schedule:
    sequences, deliveries = Sequences(), AppendedLog()
    sequences.begin(3, 0)
    targets = [TopicPartition("t", at) for at in range(len(logs))]
    made = (
        PartitionProgress(target, plan_of(log), deliveries, sequence=sequences.of(target), sets=sets)
        for target, log in zip(targets, logs, strict=True)
    )
    return Schedule(made, own_bytes=own_bytes)


def drained(schedule: Schedule) -> list[dict[int, SendableSet]]:
    """Every request, answered before the next."""
    requests = []
    while request := schedule.next_request():
        requests.append({partition.partition: record_set for partition, record_set in request.record_sets.items()})
        schedule.answered([(request, dict.fromkeys(request.partitions, (0, 0)))])
    return requests


def test_a_set_is_not_larger_than_a_segment_may_be() -> None:
    requests = drained(schedule_of(large(30, 100_000), own_bytes=100 << 20))
    assert all(request[0].size <= SET_BYTES for request in requests)
    assert len(requests) == 3


def test_a_request_is_not_larger_than_the_mirror_s_own() -> None:
    logs = [large(8, 100_000)] * 4
    for own_bytes in (0, 2 << 20):
        requests = drained(schedule_of(*logs, own_bytes=own_bytes))
        assert all(sum(one.size for one in request.values()) <= max(own_bytes, REQUEST_BYTES) for request in requests)
        assert sum(one.batches for request in requests for one in request.values()) == 32


def test_a_batch_that_is_larger_than_all_limits_goes_alone() -> None:
    requests = drained(schedule_of(large(2, 3 << 20), large(1, 10)))
    assert [[one.batches for one in request.values()] for request in requests] == [[1], [1], [1]]


def test_without_a_proof_every_request_has_one_batch_of_each_partition() -> None:
    requests = drained(schedule_of([some_batch(at, 1) for at in range(4)], [some_batch(0)], sets=False))
    assert [[one.batches for one in request.values()] for request in requests] == [[1, 1], [1], [1], [1]]


def test_bisection_finds_one_bad_batch_among_many_in_few_requests() -> None:
    for bad in (0, 1, 77, 198, 199):
        schedule, findings = schedule_of([some_batch(at, 1) for at in range(200)]), list[Finding]()
        sent, taken = 0, 0
        while request := schedule.next_request():
            ((partition, record_set),) = request.record_sets.items()
            sent += 1
            assert isinstance(record_set, OutgoingRecordSet)
            refused = any(
                batch_range.batch <= bad < batch_range.batch + len(batch_range.batches)
                for batch_range in record_set.ranges
            )
            taken += 0 if refused else record_set.batches
            findings += schedule.answered([(request, {partition: (87, -1) if refused else (0, 0)})])
        assert taken == 199
        assert schedule.outcomes()[partition].error_code == 87
        assert sent <= 10 + 9, "1 + log2(200), and one for the odd ones; behind it sets grow again, from one batch on"
        assert not any(isinstance(finding, SetRefused) for finding in findings)


class CountedProgress(PartitionProgress):
    """Counts how often a schedule looks for a cut."""

    looks = 0

    def __init__(self, number: int) -> None:
        self.partition = TopicPartition("t", number)

    def __getattribute__(self, name: str) -> object:
        if name == "cut_due":
            CountedProgress.looks += 1
            return None
        return object.__getattribute__(self, name)


def test_cuts_of_many_partitions_are_found_in_one_pass() -> None:
    """A request may have 70,000 partitions: a pass over all for each cut held the event loop for minutes."""
    schedule = Schedule([CountedProgress(number) for number in range(1000)])
    assert schedule.cuts_due() == []
    assert CountedProgress.looks == 1000
