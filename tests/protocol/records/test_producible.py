"""Many headers at once, compared with one header at a time, and with a producer's own."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from shoal.protocol.records.batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    TRANSACTIONAL,
    NewRecord,
    encode_batch,
    producible_header,
    read_stored,
)
from shoal.protocol.records.producible import LAST_SEQUENCE, Columns, SmallBatches, sequences_of
from shoal.protocol.records.recordset import split
from shoal.protocol.wire.crc import crc32c

BITS = (0, TRANSACTIONAL, DELETE_HORIZON, TRANSACTIONAL | DELETE_HORIZON)
LATEST = (1 << 63) - 1


def stored(size: int, bits: int = 0, producer: int = 7, sequence: int = 0) -> bytes:
    stamps = {"producer_id": producer, "producer_epoch": producer % 3, "base_sequence": sequence}
    return batch(size, base_offset=size, attributes=bits, leader_epoch=5, **stamps)


def batch(size: int, **stamps: Any) -> bytes:
    return encode_batch([NewRecord(1_700_000_000_000 + at, b"k", bytes(size)) for at in range(1 + size % 3)], **stamps)


def small(log: bytes) -> SmallBatches:
    spans = split(log, 0, len(log)).spans
    columns = Columns.of([read_stored(log, span.start) for span in spans])
    return SmallBatches(memoryview(log), [0, *(span.end for span in spans)], columns)


batches = st.builds(
    stored,
    st.integers(0, 5_000),
    st.sampled_from(BITS),
    st.sampled_from([-1, 0, 7, 8, LATEST]),
    st.integers(-1, LAST_SEQUENCE),
)
logs = st.lists(batches, min_size=1, max_size=6)
OF_ALL_SIZES = [stored(size) for size in (*range(100), *range(3_930, 4_060))]
OF_ALL_BITS = [stored(10, bits, sequence=bits) for bits in BITS]
OF_TWO_PRODUCERS = [stored(10, TRANSACTIONAL, at % 2, sequence=at) for at in range(5)]


@given(logs)
@example(OF_ALL_SIZES)
@example(OF_ALL_SIZES[:100])
@example(OF_ALL_BITS)
@example(OF_TWO_PRODUCERS)
def test_all_at_once_are_the_same_as_one_by_one(some: list[bytes]) -> None:
    log = b"".join(some)
    expected = [producible_header(one, 0, len(one)) + one[HEADER_SIZE:] for one in some]
    assert bytes(small(log).plain()) == b"".join(expected)


@given(
    logs,
    st.tuples(st.integers(0, 5), st.integers(1, 6)),
    st.tuples(st.integers(0, LATEST), st.integers(0, 32767)),
    st.sampled_from([0, 1, 1 << 20, LAST_SEQUENCE - 3, LAST_SEQUENCE]),
    st.booleans(),
)
@example(OF_ALL_SIZES, (0, 230), (7, 0), 0, True)
@example(OF_ALL_SIZES, (3, 90), (7, 0), LAST_SEQUENCE - 50, False)
@example(OF_ALL_BITS, (1, 2), (7, 0), 5, False)
@example(OF_TWO_PRODUCERS, (0, 5), (7, 0), 5, True)
def test_stamped_ones_are_what_their_producer_would_have_made(
    some: list[bytes], window: tuple[int, int], producer: tuple[int, int], first: int, transactional: bool
) -> None:
    start = min(window[0], len(some) - 1)
    stop = min(start + window[1], len(some))
    sizes = [int.from_bytes(one[:8], "big") for one in some[start:stop]]  # the base offset
    sequences = sequences_of([1 + size % 3 for size in sizes], first)
    stamped = small(b"".join(some)).stamped(start, stop, sequences, *producer, transactional=transactional)
    stamps = {"producer_id": producer[0], "producer_epoch": producer[1]}
    bits = TRANSACTIONAL if transactional else 0
    made = [batch(size, base_sequence=at, attributes=bits, **stamps) for size, at in zip(sizes, sequences, strict=True)]
    assert bytes(stamped) == b"".join(made)


def test_sequences_go_on_from_batch_to_batch_and_wrap_to_0() -> None:
    assert sequences_of([2, 3, 1], LAST_SEQUENCE - 3) == [LAST_SEQUENCE - 3, LAST_SEQUENCE - 1, 1]
    assert sequences_of([2, 3, 1], 5) == [5, 7, 10]


def test_damage_stays_visible() -> None:
    one = stored(10)
    damaged = one[:-1] + bytes((one[-1] ^ 1,))
    for made in (small(damaged).plain(), small(damaged).stamped(0, 1, [3], 1, 2, transactional=False)):
        assert crc32c(made[21:]) != int.from_bytes(made[17:21], "big")
