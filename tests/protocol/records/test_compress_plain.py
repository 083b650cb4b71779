import pytest
from hypothesis import given

from shoal.protocol.records.batch import CONTROL, NewRecord, encode_batch, read_batch_header
from shoal.protocol.records.rebatch import compress_plain
from shoal.protocol.wire.compression import Codec
from tests.support.batches import consumed, damaged
from tests.support.shallow.world import flat, some_batch
from tests.support.strategies import record_lists

BATCH = some_batch(0, 20, Codec.NONE, producer_id=5, producer_epoch=1, base_sequence=7)
HEADER = read_batch_header(BATCH, 0, len(BATCH))
REAL_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_the_records_and_stamps_stay(codec: Codec) -> None:
    smaller = compress_plain(HEADER, b"frame" + BATCH, 5, 5 + len(BATCH), codec)
    assert smaller is not None
    batch = flat(smaller)
    assert len(batch) < len(BATCH)
    assert consumed(batch) == consumed(BATCH)
    old, new = read_batch_header(BATCH, 0, len(BATCH)), read_batch_header(batch, 0, len(batch))
    assert new.codec is codec
    assert new._replace(attributes=0, batch_length=0, crc=0) == old._replace(attributes=0, batch_length=0, crc=0)


@given(record_lists())
def test_any_batch_becomes_smaller_or_stays(records: list[NewRecord]) -> None:
    batch = encode_batch(records)
    smaller = compress_plain(read_batch_header(batch, 0, len(batch)), batch, 0, len(batch), Codec.ZSTD)
    if smaller is not None:
        assert len(flat(smaller)) < len(batch)
        assert consumed(flat(smaller)) == consumed(batch)


@pytest.mark.parametrize(
    "record_set",
    [
        BATCH[:-1],
        BATCH + b"rubbish",
        BATCH + BATCH,
        damaged(BATCH, len(BATCH) - 3),
        some_batch(0, 20, Codec.LZ4),
        encode_batch([NewRecord(5, b"\0" * 40, b"\0" * 60)], attributes=CONTROL),
        encode_batch([NewRecord(5, b"k", b"v")]),
    ],
)
def test_the_rest_stays_as_it_is(record_set: bytes) -> None:
    header = read_batch_header(record_set, 0, max(len(record_set), len(BATCH)))
    assert compress_plain(header, record_set, 0, len(record_set), Codec.ZSTD) is None


def test_nothing_is_done_where_nothing_is_asked() -> None:
    assert compress_plain(HEADER, BATCH, 0, len(BATCH), Codec.NONE) is None
