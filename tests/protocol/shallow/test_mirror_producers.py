"""Idempotent and transactional mirrors, against a model of Kafka's producer state: exactly once, in order, whatever fails."""

from collections.abc import Iterator
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.shallow.wrap import wrap_record_set
from tests.protocol.shallow.producers_world import Mirror, Shoal, StampedBroker
from tests.protocol.shallow.world import context, flat, plain, poll, some_batch

DAILY = (
    "ok",
    "ok",
    "ok",
    "error",
    "lost request",
    "lost answer",
    "shoal dies before",
    "shoal dies after",
    "broker dies",
)
RARE = (*DAILY, "map is lost", "map is saved", "map is old")


def envelope(offset: int, sizes: list[int]) -> tuple[NewRecord, list[NewRecord]]:
    """One outer record, and the records that it stands for."""
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


@given(worlds(), st.lists(st.sampled_from(DAILY), max_size=40), st.integers(1, 5), st.booleans())
def test_exactly_once_without_a_single_abort(
    world: tuple[list[list[list[NewRecord]]], list[NewRecord]], draws: list[str], in_flight: int, new: bool
) -> None:
    """Shoal, the broker and connections die at any point: a mirror notices no more than lost answers."""
    chunks, records = world
    broker = StampedBroker(new_transactions=new)
    mirror = Mirror(Shoal(broker, draws), chunks, in_flight)
    mirror.run()
    assert broker.visible() == records
    assert mirror.aborts == 0
    assert len([one for one in broker.log if one.record is not None]) == len(records), "nothing was aborted or repeated"


@given(worlds(), st.lists(st.sampled_from(RARE), max_size=60), st.integers(1, 5), st.booleans())
def test_exactly_once_with_a_lost_map(
    world: tuple[list[list[list[NewRecord]]], list[NewRecord]], draws: list[str], in_flight: int, new: bool
) -> None:
    chunks, records = world
    broker = StampedBroker(new_transactions=new)
    shoal = Shoal(broker, draws)
    mirror = Mirror(shoal, chunks, in_flight)
    mirror.run()
    assert broker.visible() == records
    assert shoal.map_was_lost or not mirror.aborts


@given(worlds(), st.lists(st.sampled_from(DAILY), max_size=40), st.integers(1, 5))
def test_an_idempotent_mirror_appends_nothing_twice(
    world: tuple[list[list[list[NewRecord]]], list[NewRecord]], draws: list[str], in_flight: int
) -> None:
    chunks, records = world
    broker = StampedBroker(transactional=False, new_transactions=False)
    mirror = Mirror(Shoal(broker, draws), chunks, in_flight)
    mirror.run()
    assert broker.visible() == records
    assert mirror.aborts == 0
