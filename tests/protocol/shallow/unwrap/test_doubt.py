"""Batches in doubt after a lost connection, when the broker answers differently than it would have at first."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN, GapIgnored, Outcome
from shoal.protocol.shallow.unwrap.outgoing import halves
from shoal.protocol.shallow.unwrap.progress import MAX_IN_DOUBT, PartitionProgress
from tests.protocol.shallow.unwrap.test_exactly_once import (
    TARGET,
    World,
    attempt,
    log_of,
    mirrored,
    plan_of,
    records_of,
)
from tests.support.shallow.partition import INVALID, TOO_LATE, Partition, stamp_of

if TYPE_CHECKING:
    from shoal.protocol.shallow.unwrap.plan import Plan


def begun(world: World, plan: Plan) -> PartitionProgress:
    sequence = world.sequences.of(TARGET)
    return PartitionProgress(TARGET, plan, world.deliveries, sequence=sequence, sets=world.partition.takes_sets)


def next_set(progress: PartitionProgress) -> bytes:
    record_set = progress.next_record_set()
    assert record_set
    return b"".join(record_set.buffers())


def test_a_late_set_does_not_fit_behind_a_part_of_one_that_was_refused() -> None:
    """It would be appended too early, and have the stamp of the rest of the refused set, which would be lost."""
    log = log_of([2] * 6 + [60] + [2] * 9)
    plan = plan_of(mirrored(log, run_limit=1 << 30))
    world = World(Partition(takes_sets=True, max_message_bytes=600), [])
    partition, late = world.partition, deque[bytes]()
    progress = begun(world, plan)
    for size in (250, 1100, 500):
        progress._set_bytes = size
        late.append(next_set(progress))
        if len(late) == 1:
            progress.answered(*partition.produce(late[0]))
    progress.abandon()
    progress = begun(world, plan)
    while progress.outcome is None:
        while progress.cut_due is not None:
            progress.cut(halves(progress.cut_due))
        answer = partition.produce(next_set(progress))
        progress.answered(*answer)
        while late and not answer[0]:
            partition.produce(late.popleft())
    assert partition.log == records_of(log)
    assert progress.outcome.base_offset == len(partition.log) - 1


def in_doubt(world: World, plan: Plan, appended: int) -> list[bytes]:
    """The first record set is acknowledged, five are in flight, and some of these are appended; -> the others."""
    progress = begun(world, plan)
    progress.answered(*world.partition.produce(next_set(progress)))
    flying = [next_set(progress) for _ in range(5)]
    for one in flying[:appended]:
        world.partition.produce(one)
    progress.abandon()
    return flying[appended:]


@pytest.mark.parametrize("appended", range(6))
def test_a_broker_stopped_in_an_orderly_way_knows_the_last_one_only(appended: int) -> None:
    log = log_of([2] * 8)
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    in_doubt(world, plan, appended)
    world.partition.restart()
    outcome = attempt(world, plan)
    assert outcome
    assert outcome.base_offset == 15
    assert world.partition.log == records_of(log)


@pytest.mark.parametrize("step", ["lost", "not leader"])
def test_what_was_passed_over_stays_in_doubt_with_what_is_behind_it(step: str) -> None:
    log = log_of([2] * 8)
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    in_doubt(world, plan, 4)
    world.partition.restart()
    world.draws = [step, "ok", "ok"]
    outcome = attempt(world, plan)
    assert outcome is None or outcome.error_code
    sequence = world.sequences.of(TARGET)
    assert sequence
    assert sequence.doubt
    assert [shape.batch for shape in sequence.doubt.shapes] == [1, 2, 3, 4, 5]
    outcome = attempt(world, plan)
    assert outcome
    assert outcome.base_offset == 15
    assert world.partition.log == records_of(log)


def test_nothing_is_passed_over_where_the_offsets_leave_no_room_for_it() -> None:
    """The broker has lost the id, and then accepted a late request as its first one."""
    log = log_of([2] * 8)
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    late = in_doubt(world, plan, 0)
    world.partition.producers.clear()
    world.partition.produce(late[3])
    outcome = attempt(world, plan)
    assert outcome
    assert outcome.error_code == 0
    whole = records_of(log)
    assert world.partition.log == [*whole[:2], *whole[8:12], *whole[2:]], "and what is behind it was under way"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("aged", range(1, 6))
@pytest.mark.parametrize("appended", range(6))
def test_what_has_become_too_old_meanwhile_brings_nothing_behind_it_twice(
    appended: int, aged: int, restarted: bool
) -> None:
    """`message.timestamp.before.max.ms`: the broker checks timestamps first, and refuses batches that it has.

    The rest is appended once.
    """
    log = log_of([2] * 8)
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    in_doubt(world, plan, appended)
    if restarted:
        world.partition.restart()
    world.partition.earliest = 1100 + 2 * (1 + aged)
    outcomes = [attempt(world, plan)]
    while outcomes[-1] is None or outcomes[-1].error_code == TRY_AGAIN:
        outcomes.append(attempt(world, plan))
        assert len(outcomes) < 5, "it comes to no end"
    assert outcomes[-1].error_code == TOO_LATE, "what is too old is the mirror's to judge, as without Shoal"
    whole, old = records_of(log), 1 + min(appended, aged)
    assert world.partition.log == [*whole[: 2 * old], *whole[2 * (1 + aged) :]]


def test_a_known_parcel_behind_a_refused_one_says_nothing_about_order() -> None:
    """The topic's limit was lowered in between: an appended batch is refused now, and later ones are known."""
    log = log_of([2, 2, 40, 2, 2, 2, 2, 2])
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    in_doubt(world, plan, 5)
    world.partition.max_message_bytes = 300
    progress = begun(world, plan)
    while progress.outcome is None:
        while progress.cut_due is not None:
            progress.cut(halves(progress.cut_due))
        flying = []
        while record_set := progress.next_record_set():
            flying.append(b"".join(record_set.buffers()))
        for one in flying:
            assert GapIgnored(TARGET) not in progress.answered(*world.partition.produce(one))


def test_what_stands_behind_a_forgotten_item_comes_again_behind_it() -> None:
    """Otherwise its record would be first, and the answer too high for it."""
    log = log_of([10, 10, 10])
    plan, world = plan_of(mirrored(log, run_limit=1000)), World(Partition(), ["not leader", "ok", "ok"])
    assert len(plan.items) == 3
    world.deliveries = AppendedLog(limit=1)
    outcome = attempt(world, plan, stamped=False)
    assert outcome
    assert outcome.error_code
    outcome = attempt(world, plan, stamped=False)
    whole = records_of(log)
    assert outcome == Outcome(error_code=0, base_offset=29)
    assert world.partition.log == [*whole[:20], *whole]


class Suspicious(Partition):
    """Recognises a batch, but not a set (the agent, if the log has other bytes: LogAppendTime, another codec)."""

    def _append(self, batches: list[bytes]) -> tuple[int, int]:
        stamped = stamp_of(batches[0])
        if len(batches) > 1 and stamped is not None and self._repeated(stamped):
            return INVALID, -1
        return super()._append(batches)


def test_sets_that_would_not_be_known_again_are_known_batch_by_batch() -> None:
    log = log_of([2] * 12)
    plan, world = plan_of(mirrored(log)), World(Suspicious(takes_sets=True), [], set_bytes=250)
    progress = begun(world, plan)
    progress._set_bytes = 250
    progress.answered(*world.partition.produce(next_set(progress)))
    for _ in range(3):
        world.partition.produce(next_set(progress))
    progress.abandon()
    outcome = attempt(world, plan)
    assert outcome == Outcome(error_code=0, base_offset=23)
    assert world.partition.log == records_of(log)


def sent_as_a_set(world: World, batches: int, *, behind: bool = True) -> Plan:
    """An envelope of `batches` batches is sent as a set, and the connection is lost; `behind`: after an acknowledged
    one.
    """
    if behind:
        outcome = attempt(world, plan_of(mirrored(log_of([2]), serials=lambda: 5)))
        assert outcome
        assert not outcome.error_code
    plan = plan_of(mirrored(log_of([2] * batches)))
    progress = begun(world, plan)
    world.partition.produce(next_set(progress))
    assert world.partition.sets == 1
    progress.abandon()
    return plan


@pytest.mark.parametrize("there", [0, 3, 12])
def test_the_first_set_of_a_process_is_no_exception(there: int) -> None:
    """There is no acknowledged offset of the partition yet."""
    world = World(Partition(takes_sets=True), [])
    plan = sent_as_a_set(world, 12, behind=False)
    world.partition.fail_over(12 - there, acknowledged=0)
    assert attempt(world, plan) == Outcome(error_code=0, base_offset=23)
    assert world.partition.log == records_of(log_of([2] * 12))


@pytest.mark.parametrize("remembers", ["all", "the last one"])
@pytest.mark.parametrize("takes_sets", [True, False])
@pytest.mark.parametrize("there", [0, 1, 4, 5, 6, 17, 39, 40])
def test_a_new_leader_that_has_a_part_of_a_set_gets_the_rest_of_it(
    there: int, takes_sets: bool, remembers: str
) -> None:
    world = World(Partition(takes_sets=True), [])
    plan = sent_as_a_set(world, 40)
    world.partition.fail_over(40 - there, acknowledged=2)
    if remembers != "all":
        world.partition.restart()
    world.partition.takes_sets = takes_sets
    outcome = attempt(world, plan)
    assert outcome == Outcome(error_code=0, base_offset=81)
    assert world.partition.log == [*records_of(log_of([2])), *records_of(log_of([2] * 40))]
    assert world.partition.sets == 1, "a set is never sent again as a set"


def test_a_late_copy_of_a_set_changes_nothing() -> None:
    """It arrives at any moment of the replay; the broker treats a known first batch as a duplicate of the whole set."""
    for moment in range(41):
        world = World(Partition(takes_sets=True), [])
        first = plan_of(mirrored(log_of([2]), serials=lambda: 5))
        attempt(world, first)
        plan = plan_of(mirrored(log_of([2] * 40)))
        progress = begun(world, plan)
        late = next_set(progress)
        progress.abandon()
        progress = begun(world, plan)
        while progress.outcome is None:
            if moment == 0:
                world.partition.produce(late)
            moment -= 1
            progress.answered(*world.partition.produce(next_set(progress)))
        assert progress.outcome == Outcome(error_code=0, base_offset=81)
        assert world.partition.log == [*records_of(log_of([2])), *records_of(log_of([2] * 40))]


def test_many_batches_in_doubt_take_few_round_trips() -> None:
    """Thousands in a row would take longer than a mirror waits on a distant broker, and never be resolved."""
    world = World(Partition(takes_sets=True), [])
    plan = sent_as_a_set(world, 1000)
    progress, trips = begun(world, plan), 0
    while progress.outcome is None:
        flying = list(iter(progress.next_record_set, None))
        trips += 1
        for record_set in flying:
            progress.answered(*world.partition.produce(b"".join(record_set.buffers())))
    assert progress.outcome == Outcome(error_code=0, base_offset=2001)
    assert len(world.partition.log) == 2002
    assert trips <= 1 + 1000 // 64 + 1


def test_no_more_are_in_doubt_than_can_be_sent_again_in_time() -> None:
    plan = plan_of(mirrored(log_of([1] * (MAX_IN_DOUBT + 100)), run_limit=1 << 30))
    world = World(Partition(takes_sets=True), [])
    progress = begun(world, plan)
    progress._set_bytes = 1 << 30
    record_set = progress.next_record_set()
    assert record_set
    assert record_set.batches == MAX_IN_DOUBT
    progress.answered(0, 0)
    progress._set_bytes = 5000
    assert sum(record_set.batches for record_set in iter(progress.next_record_set, None)) == 100
