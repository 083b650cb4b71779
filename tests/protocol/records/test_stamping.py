"""Many headers stamped at once, compared with one header at a time, and with a producer's own."""

from itertools import accumulate
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from shoal.protocol.records.batch import TRANSACTIONAL, NewRecord, encode_batch
from shoal.protocol.records.stamping import LAST_SEQUENCE, sequences_of, stamp_all
from shoal.protocol.wire.crc import crc32c

SIZES = st.lists(st.integers(0, 5_000), min_size=1, max_size=6)


def batch(size: int, **stamps: Any) -> bytes:
    return encode_batch([NewRecord(1_700_000_000_000 + at, b"k", bytes(size)) for at in range(1 + size % 3)], **stamps)


@given(
    SIZES,
    st.integers(0, (1 << 63) - 1),
    st.integers(0, 32767),
    st.sampled_from([0, 1, 1 << 20, LAST_SEQUENCE - 3, LAST_SEQUENCE]),
    st.booleans(),
)
@example(list(range(3_900, 4_100)), 7, 0, 0, True)
@example(list(range(100)), 7, 0, LAST_SEQUENCE - 50, False)
def test_all_at_once_are_what_their_producer_would_have_made(
    sizes: list[int], producer_id: int, epoch: int, first: int, transactional: bool
) -> None:
    some = [batch(size) for size in sizes]
    sequences = sequences_of([1 + size % 3 for size in sizes], first)
    stamped = bytearray(b"".join(some))
    bounds = list(accumulate(map(len, some), initial=0))
    stamp_all(stamped, bounds, sequences, producer_id, epoch, transactional=transactional)
    stamps = {"producer_id": producer_id, "producer_epoch": epoch, "attributes": TRANSACTIONAL if transactional else 0}
    made = [batch(size, base_sequence=at, **stamps) for size, at in zip(sizes, sequences, strict=True)]
    assert bytes(stamped) == b"".join(made)


def test_sequences_go_on_from_batch_to_batch_and_wrap_to_0() -> None:
    assert sequences_of([2, 3, 1], LAST_SEQUENCE - 3) == [LAST_SEQUENCE - 3, LAST_SEQUENCE - 1, 1]
    assert sequences_of([2, 3, 1], 5) == [5, 7, 10]


def test_damage_stays_visible() -> None:
    damaged = bytearray(batch(10))
    damaged[-1] ^= 1
    stamp_all(damaged, [0, len(damaged)], [3], 1, 2, transactional=False)
    assert crc32c(damaged[21:]) != int.from_bytes(damaged[17:21], "big")
