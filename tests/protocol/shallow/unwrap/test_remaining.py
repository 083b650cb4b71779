"""Pieces of many batches behave as the batches one by one would."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch
from shoal.protocol.shallow.unwrap.remaining import BatchRange, Remaining
from shoal.protocol.wire.compression import Codec


class One(NamedTuple):
    item: int
    batch: int
    first: int
    sub: OutgoingBatch


def a_batch(size: int, records: int, name: str) -> OutgoingBatch:
    return OutgoingBatch((bytes(61), bytes(size)), records, Codec.NONE, name)


@st.composite
def plans(draw: st.DrawFn) -> list[list[OutgoingBatch]]:
    sizes = draw(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=3))
    return [[a_batch(size, 2, f"{item}/{at}") for at, size in enumerate(row)] for item, row in enumerate(sizes)]


def pieces_of(plan: list[list[OutgoingBatch]]) -> Remaining:
    return Remaining(BatchRange(item, 0, 0, BatchSlice.of(row)) for item, row in enumerate(plan))


def singles(ranges: Sequence[BatchRange]) -> list[One]:
    return [
        One(batch_range.item, batch_range.batch + at, batch_range.first, sub)
        for batch_range in ranges
        for at, sub in enumerate(batch_range.batches)
    ]


def listed(ahead: Remaining) -> list[One]:
    return [
        One(batch_range.item, batch_range.batch + at, batch_range.first, batch_range.batches[at])
        for batch_range, at in ahead.single()
    ]


def batches_of(plan: list[list[OutgoingBatch]]) -> list[One]:
    return [One(item, at, 0, sub) for item, row in enumerate(plan) for at, sub in enumerate(row)]


@given(plans(), st.data())
def test_taken_put_back_and_cut_they_are_the_batches_one_by_one(
    plan: list[list[OutgoingBatch]], data: st.DataObject
) -> None:
    ahead, model = pieces_of(plan), batches_of(plan)
    for _ in range(data.draw(st.integers(1, 6))):
        if not model:
            break
        at = data.draw(st.integers(0, len(model) - 1))
        assert ahead.batch(at) == model[at].sub
        if data.draw(st.booleans()):
            taken = ahead.peek(at + 1)
            assert singles(taken) == model[: at + 1]
            ahead.drop(at + 1)
            assert listed(ahead) == model[at + 1 :]
            back = data.draw(st.booleans())
            if back:
                ahead.put_back(taken)
            else:
                del model[: at + 1]
        elif model[at].sub.records > 1:
            whole = model[at]
            parts = [a_batch(3, 1, "a part"), a_batch(4, 1, "another")]
            ahead.replace(at, parts)
            model[at : at + 1] = [whole._replace(first=whole.first + i, sub=part) for i, part in enumerate(parts)]
        assert listed(ahead) == model
        assert bool(ahead) == bool(model)


@given(plans(), st.integers(0, 500), st.integers(1, 20))
def test_as_many_go_together_as_there_is_room_for(plan: list[list[OutgoingBatch]], room: int, most: int) -> None:
    sizes = list(accumulate(one.sub.size for one in batches_of(plan)))
    assert pieces_of(plan).fitting(room, most) == max(1, min(most, sum(size <= room for size in sizes)))


@given(plans(), st.integers(0, 6), st.integers(0, 6))
def test_a_part_of_a_row_is_a_row(plan: list[list[OutgoingBatch]], start: int, stop: int) -> None:
    row = BatchSlice.of(plan[0])
    assert list(row[start:stop]) == plan[0][start:stop]
    assert row[start:stop].size == sum(batch.size for batch in plan[0][start:stop])


def test_neighbours_of_one_row_are_joined() -> None:
    batches = [a_batch(10 + at, 2, f"0/{at}") for at in range(4)]
    row = BatchSlice.of(batches)
    both = row.window(0, 1).joined(row.window(1, 3))
    assert both is not None
    assert list(both) == batches[:3]
    assert row.window(0, 1).joined(row.window(2, 3)) is None
    assert row.window(1, 2).joined(row.window(0, 1)) is None
    assert row.window(0, 1).joined(BatchSlice.of(batches).window(1, 2)) is None
