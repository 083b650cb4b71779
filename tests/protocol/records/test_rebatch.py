from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    NewRecord,
    encode_batch,
    read_batch_header,
    seal_batch,
)
from shoal.protocol.records.rebatch import MAX_RECORDS, split_batch
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.batches import consumed, damaged
from tests.support.strategies import batches, codecs, record_lists

TEN = [NewRecord(100 - index, b"k%d" % index, bytes(100), ((b"h", None),)) for index in range(10)]


def joined(pieces: list[bytes]) -> list[NewRecord]:
    return [record._replace(offset_delta=None) for piece in pieces for record in consumed(piece)]


@given(batches(with_broker_bits=False), st.integers(0, 3000))
def test_every_record_stays_exact_and_in_order(made: tuple[list[NewRecord], bytes], limit: int) -> None:
    records, batch = made
    pieces = split_batch(b"before" + batch + b"after", 6, 6 + len(batch), limit=limit)
    assert joined(pieces) == records
    assert len(pieces) >= min(len(records), 2)
    whole, at = read_batch_header(batch, 0, len(batch)), 0
    for piece in pieces:
        header = read_batch_header(piece, 0, len(piece))
        assert len(piece) <= limit or header.record_count == 1
        assert (header.codec, header.is_transactional) == (whole.codec, whole.is_transactional)
        assert (header.producer_id, header.producer_epoch) == (whole.producer_id, whole.producer_epoch)
        assert header.base_sequence == (whole.base_sequence + at if whole.producer_id >= 0 else -1)
        assert (header.base_offset, header.partition_leader_epoch) == (0, -1)
        at += header.record_count
        assert header.last_offset_delta == header.record_count - 1
        inside = consumed(piece)
        assert [record.offset_delta for record in inside] == list(range(len(inside)))
        assert header.max_timestamp == max(record.timestamp for record in inside)


@given(codecs, record_lists(min_size=2))
def test_a_generous_limit_still_cuts_in_two(codec: Codec, records: list[NewRecord]) -> None:
    batch = encode_batch(records, codec=codec)
    assert len(split_batch(batch, 0, len(batch), limit=1 << 30)) == 2


def test_halves_are_of_bytes_not_of_records() -> None:
    sizes = [50_000, 50_000, *[10] * 1000]
    batch = encode_batch([NewRecord(1, None, bytes(size)) for size in sizes])
    first, second = split_batch(batch, 0, len(batch), limit=110_000)
    assert (len(consumed(first)), len(consumed(second))) == (2, 1000)


def test_holes_are_closed() -> None:
    """Batches with gaps, as compaction leaves them, could not be produced."""
    batch = encode_batch([record._replace(offset_delta=3 * index) for index, record in enumerate(TEN)])
    assert joined(split_batch(batch, 0, len(batch), limit=500)) == TEN


def test_a_single_record_is_one_batch() -> None:
    batch = encode_batch(TEN[:1], base_offset=9, producer_id=4)
    (piece,) = split_batch(batch, 0, len(batch), limit=10)
    assert joined([piece]) == TEN[:1]


def test_a_giant_among_small_ones_stands_alone() -> None:
    records = [*TEN[:3], NewRecord(7, b"giant", bytes(5000)), *TEN[3:]]
    batch = encode_batch(records)
    pieces = split_batch(batch, 0, len(batch), limit=600)
    assert joined(pieces) == records
    assert [len(consumed(piece)) for piece in pieces if len(piece) > 600] == [1]


DENSE = encode_batch(TEN, codec=Codec.GZIP)
REFUSED: dict[str, Callable[[], bytes]] = {
    "damage": lambda: damaged(DENSE, 80),
    "a control batch": lambda: encode_batch(TEN, attributes=CONTROL),
    "log append time": lambda: encode_batch(TEN, attributes=LOG_APPEND_TIME),
    "no record": lambda: encode_batch([], last_offset_delta=4),
    "cut": lambda: DENSE[:-1],
    "followed": lambda: DENSE + b"\0",
    "too many records": lambda: _sealed(bytes([12, 0, 0, 0, 1, 1, 0]) * (MAX_RECORDS + 1), MAX_RECORDS + 1),
    "too few bytes": lambda: _sealed(bytes([12, 0, 0, 0, 1, 1, 0]), 2),
    "too many bytes": lambda: _sealed(bytes([12, 0, 0, 0, 1, 1, 0, 0]), 1),
    "a record beyond the end": lambda: _sealed(bytes([14, 0, 0, 0, 1, 1, 0]), 1),
    "a record too short": lambda: _sealed(bytes([10, 0, 0, 0, 1, 1]), 1),
    "fields beyond the record": lambda: _sealed(bytes([12, 0, 0, 0x80, 0x80, 1, 0, 12, 0, 0, 0, 1, 1, 0]), 2),
    "fields beyond the batch": lambda: _sealed(bytes([12, 0, *[0x80] * 5]), 1),
}


def _sealed(payload: bytes, count: int) -> bytes:
    return seal_batch(payload, codec=Codec.ZSTD, record_count=count, base_timestamp=0, max_timestamp=0)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    batch = REFUSED[name]()
    with pytest.raises(RemoteProtocolError):
        split_batch(batch, 0, len(batch), limit=100)


def test_a_bomb_is_refused() -> None:
    batch = encode_batch([NewRecord(1, None, bytes(1 << 20))] * 2, codec=Codec.ZSTD)
    with pytest.raises(RemoteProtocolError, match="more than 1000000 bytes"):
        split_batch(batch, 0, len(batch), limit=100, max_decompressed=1_000_000)
