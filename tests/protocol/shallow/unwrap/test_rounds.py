"""How parcels of several partitions share requests, and how large these get."""

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.unwrap.delivery import AppendedLog, Target
from shoal.protocol.shallow.unwrap.parcel import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.plan import Plan, plan_record_set
from shoal.protocol.shallow.unwrap.progress import SET_BYTES, PartitionProgress
from shoal.protocol.shallow.unwrap.rounds import REQUEST_BYTES, Schedule
from shoal.protocol.shallow.unwrap.sequence import Sequences
from shoal.protocol.shallow.wrap.wrap import wrap_record_set
from tests.support.shallow.world import context, flat, poll, produced, some_batch


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


def rounds_of(*logs: list[bytes], sets: bool = True, own_bytes: int = 0) -> Schedule:
    sequences, deliveries = Sequences(), AppendedLog()
    sequences.begin(3, 0)
    targets = [Target("t", at) for at in range(len(logs))]
    made = (
        PartitionProgress(target, plan_of(log), deliveries, sequence=sequences.of(target), sets=sets)
        for target, log in zip(targets, logs, strict=True)
    )
    return Schedule(made, own_bytes)


def drained(rounds: Schedule) -> list[dict[int, OutgoingRecordSet]]:
    """Every request, answered before the next."""
    requests = []
    while parcels := rounds.next_request():
        requests.append({target.partition: parcel for target, parcel in parcels.items()})
        for target in parcels:
            rounds.answered(target, 0, 0)
    return requests


def test_a_set_is_not_larger_than_a_segment_may_be() -> None:
    requests = drained(rounds_of(large(30, 100_000), own_bytes=100 << 20))
    assert all(request[0].size <= SET_BYTES for request in requests)
    assert len(requests) == 3


def test_a_request_is_not_larger_than_the_mirror_s_own() -> None:
    logs = [large(8, 100_000)] * 4
    for own_bytes in (0, 2 << 20):
        requests = drained(rounds_of(*logs, own_bytes=own_bytes))
        assert all(sum(one.size for one in request.values()) <= max(own_bytes, REQUEST_BYTES) for request in requests)
        assert sum(one.batches for request in requests for one in request.values()) == 32


def test_a_batch_that_is_larger_than_all_limits_goes_alone() -> None:
    requests = drained(rounds_of(large(2, 3 << 20), large(1, 10)))
    assert [[one.batches for one in request.values()] for request in requests] == [[1], [1], [1]]


def test_without_a_proof_every_request_has_one_batch_of_each_partition() -> None:
    requests = drained(rounds_of([some_batch(at, 1) for at in range(4)], [some_batch(0)], sets=False))
    assert [[one.batches for one in request.values()] for request in requests] == [[1, 1], [1], [1], [1]]


def test_bisection_finds_one_bad_batch_among_many_in_few_requests() -> None:
    for bad in (0, 1, 77, 198, 199):
        rounds = rounds_of([some_batch(at, 1) for at in range(200)])
        (target,) = rounds.partitions
        sent, taken = 0, 0
        while parcels := rounds.next_request():
            (parcel,) = parcels.values()
            sent += 1
            refused = any(piece.batch <= bad < piece.batch + len(piece.row) for piece in parcel.pieces)
            taken += 0 if refused else parcel.batches
            rounds.answered(target, 87 if refused else 0, -1 if refused else 0)
        assert taken == 199
        assert rounds.outcomes()[target].error_code == 87
        assert sent <= 10 + 9, "1 + log2(200), and one for the odd ones; behind it sets grow again, from one batch on"
        assert rounds.partitions[target].refused_set is None
