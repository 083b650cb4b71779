"""What is in doubt after a lost connection, where the broker then does not answer as it would have done the first time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.answers import Outcome
from shoal.protocol.shallow.delivery import Deliveries
from shoal.protocol.shallow.parcel import halves
from shoal.protocol.shallow.progress import PartitionProgress
from tests.protocol.shallow.partition import INVALID, Partition, stamp_of
from tests.protocol.shallow.test_exactly_once import TARGET, World, attempt, log_of, mirrored, plan_of, records_of

if TYPE_CHECKING:
    from shoal.protocol.shallow.unwrap import Plan


def begun(world: World, plan: Plan) -> PartitionProgress:
    sequence = world.sequences.of(TARGET)
    return PartitionProgress(TARGET, plan, world.deliveries, sequence=sequence, sets=world.partition.takes_sets)


def next_set(progress: PartitionProgress) -> bytes:
    parcel = progress.next_parcel()
    assert parcel
    return b"".join(parcel.buffers())


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
    """The first parcel is acknowledged, five are in flight, and so many of them are appended; -> the others."""
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
    """The broker has lost the id, and then took a late request for the first of it."""
    log = log_of([2] * 8)
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    late = in_doubt(world, plan, 0)
    world.partition.producers.clear()
    world.partition.produce(late[3])
    outcome = attempt(world, plan)
    assert outcome
    assert outcome.error_code == 0
    whole = records_of(log)
    assert world.partition.log == [*whole[:2], *whole[8:10], *whole[2:]]


def test_a_known_parcel_behind_a_refused_one_says_nothing_about_order() -> None:
    """The topic's limit was lowered in between: what is appended is refused now, and what is behind it is known."""
    log = log_of([2, 2, 40, 2, 2, 2, 2, 2])
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    in_doubt(world, plan, 5)
    world.partition.max_message_bytes = 300
    progress = begun(world, plan)
    while progress.outcome is None:
        while progress.cut_due is not None:
            progress.cut(halves(progress.cut_due))
        flying = []
        while parcel := progress.next_parcel():
            flying.append(b"".join(parcel.buffers()))
        for one in flying:
            progress.answered(*world.partition.produce(one))
    assert not progress.gap_ignored


def test_what_stands_behind_a_forgotten_item_comes_again_behind_it() -> None:
    """Else its record would be in front, and the answer too high for it."""
    log = log_of([10, 10, 10])
    plan, world = plan_of(mirrored(log, run_limit=1000)), World(Partition(), ["not leader", "ok", "ok"])
    assert len(plan.items) == 3
    world.deliveries = Deliveries(limit=1)
    outcome = attempt(world, plan, stamped=False)
    assert outcome
    assert outcome.error_code
    outcome = attempt(world, plan, stamped=False)
    whole = records_of(log)
    assert outcome == Outcome(error_code=0, base_offset=29)
    assert world.partition.log == [*whole[:20], *whole]


class Suspicious(Partition):
    """Knows a batch again, but not a set (the agent, where the log has other bytes than came: LogAppendTime, another codec)."""

    def _append(self, batches: list[bytes]) -> tuple[int, int]:
        stamped = stamp_of(batches[0])
        if len(batches) > 1 and stamped is not None and self._repeated(stamped):
            return INVALID, -1
        return super()._append(batches)


def test_sets_that_are_not_known_again_come_twice_and_in_order() -> None:
    """Single batches of them must not be taken for the sets that had their stamps: the offsets would be wrong."""
    log = log_of([2] * 12)
    plan, world = plan_of(mirrored(log)), World(Suspicious(takes_sets=True), [], set_bytes=250)
    progress = begun(world, plan)
    progress._set_bytes = 250
    progress.answered(*world.partition.produce(next_set(progress)))
    for _ in range(3):
        world.partition.produce(next_set(progress))
    progress.abandon()
    outcome = attempt(world, plan)
    whole = records_of(log)
    assert outcome == Outcome(error_code=0, base_offset=12 + 23)
    assert world.partition.log == [*whole[:16], *whole[4:]]
