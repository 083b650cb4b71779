"""Many headers at once, compared with one header at a time."""

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
from shoal.protocol.records.producible import produce_all_again
from shoal.protocol.records.recordset import split
from shoal.protocol.wire.compression import Codec

BITS = (0, TRANSACTIONAL, DELETE_HORIZON, TRANSACTIONAL | DELETE_HORIZON)


def a_batch(size: int, bits: int = 0, producer: int = 7, sequence: int = 0) -> bytes:
    record = NewRecord(1_700_000_000_000 + size, b"k", bytes(size))
    stamps = {"producer_id": producer, "producer_epoch": producer % 3, "base_sequence": sequence}
    return encode_batch([record], base_offset=size, codec=Codec.NONE, attributes=bits, leader_epoch=5, **stamps)


batches = st.builds(
    a_batch,
    st.integers(0, 5_000),
    st.sampled_from(BITS),
    st.sampled_from([-1, 0, 7, (1 << 63) - 1]),
    st.integers(-1, (1 << 31) - 1),
)


@given(st.lists(batches, min_size=1, max_size=6))
@example([a_batch(size) for size in range(3_960, 4_060)])
@example([a_batch(size) for size in range(100)])
@example([a_batch(10, bits, sequence=bits) for bits in BITS])
@example([a_batch(10, TRANSACTIONAL, sequence=sequence) for sequence in range(3)])
def test_all_headers_at_once_are_the_same_as_one_by_one(some: list[bytes]) -> None:
    log = b"".join(some)
    spans = split(log, 0, len(log)).spans
    written = bytearray(log)
    produce_all_again(written, [span.start for span in spans], [read_stored(log, span.start) for span in spans])
    expected = [
        producible_header(log, span.start, span.end) + log[span.start + HEADER_SIZE : span.end] for span in spans
    ]
    assert bytes(written) == b"".join(expected)
