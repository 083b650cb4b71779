"""The produce side against a broker with Kafka's producer state, over connections that fail at any point.

A connection is a queue of requests. When it is lost, requests that the broker has not read may be processed later, in
order, between the requests of the next connection, or never. Answers may be errors from before or after the append. In
all cases the log has the sent records once, in order, and the answer is the offset of the right record.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import GapIgnored, Outcome, ProducerIdStale, StampsRefused
from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet, halves
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import SET_BYTES, PartitionProgress
from shoal.protocol.shallow.unwrap.replay import MAX_REPLAYED_IN_FLIGHT
from shoal.protocol.shallow.unwrap.sequences.own import MAX_IN_FLIGHT, Sequences
from shoal.protocol.wire.types import TopicPartition
from tests.support.shallow.partition import LAST_SEQUENCE, OK, Partition
from tests.support.shallow.world import Seen, context, flat, plain, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

TARGET = TopicPartition("A.orders", 3)
NOT_LEADER, TIMED_OUT, NOT_ENOUGH, AFTER_APPEND, SERVER_ERROR = 6, 7, 19, 20, -1

BEFORE = {"not leader": NOT_LEADER, "not enough": NOT_ENOUGH, "server error": SERVER_ERROR}
FAIL_OVER = {"another leads": 0, "one batch is lost": 1, "some are lost": 3, "many are lost": 100}
AFTER = {"not leader, appended": NOT_LEADER, "timed out": TIMED_OUT, "after append": AFTER_APPEND}


@dataclass
class World:
    """What happens next is drawn, from the end; when the draws are used up, nothing fails."""

    partition: Partition
    draws: list[str]
    late: list[deque[bytes]] = field(default_factory=list)  # requests on lost connections
    sequences: Sequences = field(default_factory=Sequences)
    deliveries: AppendedLog = field(default_factory=AppendedLog)
    most_in_flight: int = 0
    steps: int = 0
    set_bytes: int = SET_BYTES
    acknowledged: int = 0  # the end of the log at the last answer that was heard

    def __post_init__(self) -> None:
        self.sequences.begin(7, 0)

    def draw(self) -> str:
        self.steps += 1
        assert self.steps < 2000, "it comes to no end"
        return self.draws.pop() if self.draws else "ok"

    def process(self, record_set: bytes, how: str) -> tuple[int, int]:
        if how in BEFORE:
            return BEFORE[how], -1
        answer = self.partition.produce(record_set)
        return (AFTER[how], -1) if how in AFTER and not answer[0] else answer

    def process_late(self) -> None:
        for queue in self.late:
            if queue:
                self.partition.produce(queue.popleft())
                return


def attempt(world: World, plan: Plan, *, stamped: bool = True) -> Outcome | None:
    """One request of the mirror over a connection of its own; None: it is lost."""
    sequence = world.sequences.of(TARGET) if stamped else None
    progress = PartitionProgress(TARGET, plan, world.deliveries, sequence=sequence, sets=world.partition.takes_sets)
    progress._set_bytes = world.set_bytes
    unread, unheard, posted = deque[bytes](), deque[tuple[int, int, int]](), 0
    while True:
        while progress.cut_due is not None:
            progress.cut(halves(progress.cut_due))
        while record_set := progress.next_record_set():
            unread.append(b"".join(record_set.buffers()))
            posted += 1
        world.most_in_flight = max(world.most_in_flight, posted)
        if not posted:
            return progress.outcome
        step = world.draw()
        if step in FAIL_OVER:
            world.late.clear()
            world.partition.fail_over(FAIL_OVER[step], world.acknowledged)
            progress.abandon()
            return None
        if step == "stopped":
            world.late.clear()
            world.partition.restart()
            progress.abandon()
            return None
        if step == "lost":
            world.late.append(unread)
            progress.abandon()
            return None
        if step == "late":
            world.process_late()
        elif unread and step != "heard":
            unheard.append((*world.process(unread.popleft(), step), len(world.partition.log)))
            if step in ("unheard", *BEFORE, *AFTER):
                continue
        if unheard:
            posted -= 1
            error_code, base_offset, end = unheard.popleft()
            world.acknowledged = world.acknowledged if error_code else end
            progress.answered(error_code, base_offset)


def mirrored(log: bytes, **changes: object) -> list[Seen]:
    parts = wrap_record_set(log, 0, len(log), context(**changes)).parts
    assert parts is not None
    return poll(flat(parts))


def plan_of(seen: list[Seen]) -> Plan:
    outer = produced(seen)
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    return plan


def log_of(sizes: list[int]) -> bytes:
    offset, batches = 100, []
    for size in sizes:
        batches.append(some_batch(offset, size))
        offset += size
    return b"".join(batches)


def records_of(log: bytes) -> list[NewRecord]:
    return plain([seen.record for seen in poll(log)])


STEPS = st.sampled_from(
    ["ok", "ok", "ok", "unheard", "unheard", "heard", "lost", "stopped", "late", *BEFORE, *AFTER, *FAIL_OVER]
)
LOSSES = st.sampled_from(["ok", "unheard", "unheard", "lost", "stopped", *FAIL_OVER])
SIZES = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=3)


@settings(max_examples=400)
@given(st.lists(st.integers(5, 12), min_size=1, max_size=2), st.lists(LOSSES, min_size=12, max_size=30), st.booleans())
def test_what_is_in_doubt_is_resolved_whatever_the_broker_remembers(
    batches: list[int], draws: list[str], takes_sets: bool
) -> None:
    partition = Partition(takes_sets=takes_sets, segment_bytes=600)
    world, expected = World(partition, draws), list[NewRecord]()
    for number, count in enumerate(batches):
        log = log_of([2] * count)
        plan, outcome = plan_of(mirrored(log, serials=lambda number=number: number)), None
        while outcome is None or outcome.error_code:
            outcome = attempt(world, plan)
        expected += records_of(log)
        assert partition.log == expected


@settings(max_examples=400)
@given(
    SIZES,
    st.lists(STEPS, max_size=60),
    st.booleans(),
    st.sampled_from([400, 700, 1 << 20]),
    st.sampled_from([0, LAST_SEQUENCE - 30]),
    st.sampled_from([250, 500, SET_BYTES]),
)
def test_everything_is_appended_once_and_in_order(
    requests: list[list[int]],
    draws: list[str],
    takes_sets: bool,
    max_message_bytes: int,
    first_sequence: int,
    set_bytes: int,
) -> None:
    partition = Partition(takes_sets=takes_sets, max_message_bytes=max_message_bytes, segment_bytes=3000)
    world, expected = World(partition, draws, set_bytes=set_bytes), list[NewRecord]()
    sequence = world.sequences.of(TARGET)
    assert sequence
    sequence.next = first_sequence
    for number, sizes in enumerate(requests):
        log = log_of(sizes)
        plan, outcome = plan_of(mirrored(log, serials=lambda number=number: number)), None
        while outcome is None or outcome.error_code:
            outcome = attempt(world, plan)
        expected += records_of(log)
        assert partition.log == expected
        assert outcome.base_offset == len(expected) - 1
    for queue in world.late:
        for request in queue:
            partition.produce(request)
    assert partition.log == expected, "a late request was appended"
    assert world.most_in_flight <= MAX_REPLAYED_IN_FLIGHT


@settings(max_examples=400)
@given(SIZES, st.lists(STEPS, max_size=60), st.booleans(), st.integers(0, 6))
def test_a_mirror_that_gives_up_and_reads_again_loses_nothing(
    requests: list[list[int]], draws: list[str], takes_sets: bool, patience: int
) -> None:
    """What it sends then is other data for the broker: some of it is duplicated, as without Shoal, but in order."""
    partition = Partition(takes_sets=takes_sets)
    world, serial = World(partition, draws), 0
    for sizes in requests:
        log, outcome = log_of(sizes), None
        while outcome is None or outcome.error_code:
            plan = plan_of(mirrored(log, serials=lambda serial=serial: serial))
            for _ in range(patience + 1):
                outcome = attempt(world, plan)
                if outcome is not None and not outcome.error_code:
                    break
            else:
                serial += 1
        serial += 1
        assert partition.log[-len(records_of(log)) :] == records_of(log)
    length = len(partition.log)
    for queue in world.late:
        for request in queue:
            partition.produce(request)
    assert len(partition.log) == length, "a late request was appended behind newer data"


@settings(max_examples=200)
@given(SIZES, st.lists(STEPS, max_size=40), st.lists(st.booleans(), max_size=20))
def test_a_broker_that_forgets_costs_no_record(
    requests: list[list[int]], draws: list[str], forgets: list[bool]
) -> None:
    """Its producer state is gone: another unclean leader, an expired id. Duplicates may be; the end of the log is
    right.
    """
    partition = Partition()
    world = World(partition, draws)
    for number, sizes in enumerate(requests):
        log, outcome = log_of(sizes), None
        plan = plan_of(mirrored(log, serials=lambda number=number: number))
        while outcome is None or outcome.error_code:
            if forgets and forgets.pop():
                partition.producers.clear()
            outcome = attempt(world, plan)
        held = iter(partition.log)
        assert all(record in held for record in records_of(log)), "lost or out of order"


def drained(world: World, plan: Plan) -> tuple[Outcome, int]:
    """-> the outcome, and how many round trips it took, when answers come only after everything possible was sent."""
    progress = PartitionProgress(TARGET, plan, world.deliveries, sequence=world.sequences.of(TARGET))
    trips = 0
    while progress.outcome is None:
        record_sets: list[OutgoingRecordSet] = []
        while len(record_sets) < MAX_IN_FLIGHT and (record_set := progress.next_record_set()):
            record_sets.append(record_set)
        trips += 1
        for record_set in record_sets:
            progress.answered(*world.partition.produce(b"".join(record_set.buffers())))
    return progress.outcome, trips


def test_five_are_in_flight_after_the_first() -> None:
    world = World(Partition(), [])
    outcome, trips = drained(world, plan_of(mirrored(log_of([2] * 21))))
    assert outcome == Outcome(error_code=0, base_offset=41)
    assert trips == 1 + 4


def test_a_first_parcel_goes_alone() -> None:
    """A broker that does not know the id would accept the second although it refused the first."""
    world = World(Partition(), ["not leader"])
    plan = plan_of(mirrored(log_of([2, 2, 2])))
    outcome = attempt(world, plan)
    assert outcome
    assert outcome.error_code == NOT_LEADER
    assert not world.partition.log


def test_an_epoch_that_ends_asks_for_another_id() -> None:
    world = World(Partition(), [])
    sequence = world.sequences.of(TARGET)
    assert sequence
    sequence.epoch = 32767
    world.draws = ["lost"]
    assert attempt(world, plan_of(mirrored(log_of([2, 2])))) is None
    other = plan_of(mirrored(log_of([3, 3]), serials=lambda: 5))
    progress = PartitionProgress(TARGET, other, world.deliveries, sequence=sequence)
    record_set = progress.next_record_set()
    assert record_set
    assert record_set.stamp is None
    assert ProducerIdStale(TARGET, other.sender) in progress.answered(OK, 0)
    world.sequences.forget(TARGET)
    assert world.sequences.lacks_id([(TARGET, None)])


@pytest.mark.parametrize("code", [45, 59])
def test_a_broker_that_lost_track_is_followed_once(code: int) -> None:
    world = World(Partition(), [])
    plan = plan_of(mirrored(log_of([2, 2])))
    sequence = world.sequences.of(TARGET)
    progress = PartitionProgress(TARGET, plan, world.deliveries, sequence=sequence)
    stamps = []
    for _ in range(3):
        record_set = progress.next_record_set()
        assert record_set
        stamps.append(record_set.stamp)
        progress.answered(code, -1)
    assert stamps[:2] == [(7, 0, 0), (7, 1, 0)]
    assert stamps[2] is None, "without stamps no broker can lose track"
    assert progress.outcome
    assert progress.outcome.error_code == code  # its own business then


def test_a_client_that_may_not_use_ids_goes_on_without() -> None:
    world = World(Partition(), [])
    progress = PartitionProgress(
        TARGET, plan_of(mirrored(log_of([2]))), world.deliveries, sequence=world.sequences.of(TARGET)
    )
    assert progress.next_record_set()
    assert StampsRefused(TARGET) in progress.answered(31, -1)
    record_set = progress.next_record_set()
    assert record_set
    assert record_set.stamp is None
    progress.answered(*world.partition.produce(b"".join(record_set.buffers())))
    assert progress.outcome == Outcome(error_code=OK, base_offset=1)


def test_a_broker_that_keeps_no_order_is_found_out() -> None:
    world = World(Partition(), [])
    progress = PartitionProgress(
        TARGET, plan_of(mirrored(log_of([2, 2, 2]))), world.deliveries, sequence=world.sequences.of(TARGET)
    )
    assert progress.next_record_set()
    progress.answered(OK, 0)
    assert [progress.next_record_set() is not None for _ in range(2)] == [True, True]
    assert GapIgnored(TARGET) not in progress.answered(NOT_ENOUGH, -1)
    assert GapIgnored(TARGET) in progress.answered(OK, 2)
