"""Idempotent and transactional mirrors, against a model of Kafka's producer state: exactly once, in order, whatever
fails.
"""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.unwrap.mirror_producers import StampedDeliveries, restamp
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.sequences.mirror import Placed, SequenceMap
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE
from tests.protocol.shallow.unwrap.producers_world import LEADER_DIES, TARGET, Mirror, Shoal, StampedBroker
from tests.support.shallow.world import context, flat, plain, poll, some_batch
from tests.support.shallow.wrapping import wrap_record_set

DAILY = (
    "ok",
    "ok",
    "ok",
    "error",
    "lost request",
    "lost answer",
    "unheard",
    "shoal dies before",
    "shoal dies after",
    "broker dies",
    *LEADER_DIES,
)
RARE = (*DAILY, "map is lost", "map is saved", "map is old")


def envelope(offset: int, sizes: list[int]) -> tuple[NewRecord, list[NewRecord]]:
    """One outer record, and the records in it."""
    log, at = b"", offset
    for size in sizes:
        log += some_batch(at, size)
        at += size
    result = wrap_record_set(log, 0, len(log), context())
    assert result.parts
    (seen,) = poll(flat(result.parts))
    return seen.record, plain([one.record for one in poll(log)])


@st.composite
def outer_batches(draw: st.DrawFn, offsets: Iterator[int]) -> tuple[list[NewRecord], list[NewRecord]]:
    outer, inner = [], []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            record, stood_for = envelope(next(offsets), draw(st.lists(st.integers(1, 4), min_size=1, max_size=8)))
            outer.append(record)
            inner += stood_for
        else:
            one = NewRecord(5, b"plain", b"%d" % next(offsets))
            outer.append(one)
            inner.append(one)
    return outer, inner


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[list[list[NewRecord]]], list[NewRecord]]:
    """Chunks of outer batches, and all their records."""
    offsets, chunks, records = count(1000, 1000), [], []
    for _ in range(draw(st.integers(1, 4))):
        drawn = [draw(outer_batches(offsets)) for _ in range(draw(st.integers(1, 4)))]
        chunks.append([outer for outer, _ in drawn])
        records += [record for _, inner in drawn for record in inner]
    return chunks, records


@given(worlds(), st.lists(st.sampled_from(DAILY), max_size=40), st.integers(1, 5), st.booleans(), st.booleans())
def test_exactly_once_without_a_single_abort(
    world: tuple[list[list[list[NewRecord]]], list[NewRecord]], draws: list[str], in_flight: int, new: bool, sets: bool
) -> None:
    """Shoal, the broker and connections die at any point: a mirror notices no more than lost answers."""
    chunks, records = world
    broker = StampedBroker(new_transactions=new, takes_sets=sets)
    mirror = Mirror(Shoal(broker, draws), chunks, in_flight)
    mirror.run()
    assert broker.visible() == records
    assert mirror.aborts == 0
    assert len([one for one in broker.log if one.record is not None]) == len(records), "nothing was aborted or repeated"


@given(worlds(), st.lists(st.sampled_from(RARE), max_size=60), st.integers(1, 5), st.booleans(), st.booleans())
def test_exactly_once_with_a_lost_map(
    world: tuple[list[list[list[NewRecord]]], list[NewRecord]], draws: list[str], in_flight: int, new: bool, sets: bool
) -> None:
    chunks, records = world
    broker = StampedBroker(new_transactions=new, takes_sets=sets)
    shoal = Shoal(broker, draws)
    mirror = Mirror(shoal, chunks, in_flight)
    mirror.run()
    assert broker.visible() == records
    assert shoal.map_was_lost or not mirror.aborts


@given(worlds(), st.lists(st.sampled_from(DAILY), max_size=40), st.integers(1, 5), st.booleans())
def test_an_idempotent_mirror_appends_nothing_twice(
    world: tuple[list[list[list[NewRecord]]], list[NewRecord]], draws: list[str], in_flight: int, sets: bool
) -> None:
    chunks, records = world
    broker = StampedBroker(transactional=False, new_transactions=False, takes_sets=sets)
    mirror = Mirror(Shoal(broker, draws), chunks, in_flight)
    mirror.run()
    assert broker.visible() == records
    assert mirror.aborts == 0


@pytest.mark.parametrize(
    ("appended", "first", "second"),
    [(0, (0, 0), (0, 0)), (3, (0, 3), (0, 0)), (4, (1, 0), (0, 0)), (10, (2, 0), (0, 0)), (11, (2, 0), (1, 0))],
)
def test_what_is_appended_is_told_by_item(appended: int, first: tuple[int, int], second: tuple[int, int]) -> None:
    """An envelope of 4 and 6 records, and a plain record after it."""
    record, _ = envelope(100, [4, 6])
    outer = encode_batch([record, NewRecord(5, b"plain", b"")], producer_id=7, producer_epoch=0, base_sequence=0)
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    assert plan.stamp
    deliveries = StampedDeliveries(
        SequenceMap(bytearray(SLOT_SIZE)), plan.stamp, restamp(plan, plan.stamp, 50), Placed(50, appended, 9)
    )
    assert deliveries.recall(TARGET, 0)[:2] == first
    assert deliveries.recall(TARGET, 1)[:2] == second
