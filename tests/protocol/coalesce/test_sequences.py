"""Which batches cannot be retries."""

import pytest

from shoal.protocol.coalesce.sequences import SeenSequences
from shoal.protocol.records.batch import BatchHeader

T = ("orders", 0)
LAST = (1 << 31) - 1


def batch(base_sequence: int, records: int = 3, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, -1, 2, 0, 0, records - 1, 0, 0, producer, epoch, base_sequence, records)


def sent(*batches: BatchHeader, limit: int = 100) -> SeenSequences:
    sequences = SeenSequences(limit)
    for one in batches:
        sequences.saw(T, one)
    return sequences


@pytest.mark.parametrize(
    ("before", "one", "is_new"),
    [
        ([], batch(0), True),
        ([], batch(3), False),
        ([batch(0)], batch(3), True),
        ([batch(0)], batch(0), False),
        ([batch(0)], batch(6), False),
        ([batch(0), batch(3), batch(0)], batch(6), True),
        ([batch(5), batch(8)], batch(11), True),
        ([batch(0)], batch(0, producer=8), True),
        ([batch(0)], batch(0, epoch=1), True),
        ([batch(0)], batch(3, epoch=1), False),
        ([batch(0, epoch=2)], batch(0, epoch=1), False),
        ([batch(0, epoch=1), batch(3, epoch=0)], batch(3, epoch=1), True),
        ([batch(LAST - 2)], batch(0), True),
        ([batch(LAST - 1)], batch(1), True),
        ([batch(0), batch(3)], batch(3), False),
    ],
)
def test_only_what_follows_the_last_batch_seen_is_new(
    before: list[BatchHeader], one: BatchHeader, is_new: bool
) -> None:
    assert sent(*before).is_new(T, one) is is_new


def test_batches_without_a_producer_id_are_not_remembered() -> None:
    sequences = sent(batch(-1, producer=-1), batch(-1, producer=-1))
    assert sequences.is_new(T, batch(-1, producer=-1))
    assert len(sequences) == 0


def test_partitions_are_numbered_apart() -> None:
    assert sent(batch(0)).is_new(("orders", 1), batch(0))


def test_what_is_forgotten_travels_alone() -> None:
    sequences = sent(batch(0), batch(0, producer=8), batch(3), batch(0, producer=9), limit=2)
    assert len(sequences) == 2
    assert sequences.is_new(T, batch(6))
    assert not sequences.is_new(T, batch(3, producer=8))
