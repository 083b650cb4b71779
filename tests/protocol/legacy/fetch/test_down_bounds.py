"""Limits on the memory and time of a conversion."""

import tracemalloc
from collections.abc import Callable

import pytest

from shoal.protocol.legacy.fetch.down_conversion import CHUNK, DownConversion
from shoal.protocol.legacy.fetch.failure import FailureKind
from shoal.protocol.legacy.message import OVERHEAD, Message
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.record import Record, write_record
from shoal.protocol.records.recordset import entries
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import write_varint
from tests.support.batches import damaged
from tests.support.legacy.conversions import NOW, after, batch_of, converting, given_messages, numbers, pieces
from tests.support.legacy.logs import Log, as_magic, seen


def test_a_bomb_is_read_only_as_far_as_it_is_taken() -> None:
    """20 MB of records in a batch of about 30 kB."""
    payload = b"".join(write_record(Record(index, 0, None, bytes(10_000))) for index in range(2000))
    bomb = batch_of(payload, 2000, Codec.GZIP)
    assert len(bomb) < len(payload) // 500
    del payload
    tracemalloc.start()
    try:
        conversion = converting(bomb)
        for _ in range(5):
            assert conversion.piece()
        assert conversion.counts.plain_bytes < 12 * CHUNK
        assert conversion.working_bytes < 4 * CHUNK
        assert tracemalloc.get_traced_memory()[1] < 12 * CHUNK
    finally:
        tracemalloc.stop()


def test_a_field_larger_than_its_record_is_not_looked_for_behind_it() -> None:
    """The record has 16 bytes, its key would have 1 GiB; 20 MB follow."""
    body = b"\0\0\0" + write_varint(1 << 30) + bytes(8)
    bomb = batch_of(write_varint(len(body)) + body + bytes(20_000_000), 1, Codec.GZIP)
    tracemalloc.start()
    try:
        conversion = converting(bomb)
        assert pieces(conversion) == []
        assert conversion.failure is not None
        assert conversion.failure.kind is FailureKind.DAMAGE
        assert conversion.counts.plain_bytes <= CHUNK
        assert tracemalloc.get_traced_memory()[1] < 4 * CHUNK
    finally:
        tracemalloc.stop()


def test_a_large_record_of_a_compressed_batch_is_given_up_to_the_limit() -> None:
    batch = encode_batch([NewRecord(1, None, bytes(300_000))], codec=Codec.GZIP)
    assert len(given_messages(converting(batch, largest=301_000))) == 1
    conversion = converting(batch, largest=299_000)
    assert conversion.piece() is None
    assert conversion.failure is not None
    assert conversion.failure.kind is FailureKind.INEXPRESSIBLE
    plain = encode_batch([NewRecord(1, None, bytes(300_000))])
    assert len(given_messages(converting(plain, largest=1000))) == 1


@pytest.mark.parametrize("holes", [False, True])
def test_what_stands_before_is_gone_over_in_steps(holes: bool) -> None:
    records = [record._replace(offset_delta=2 * index if holes else None) for index, record in enumerate(numbers(8000))]
    last = 15_000 if holes else 7500
    log = Log()
    log.batch(records, codec=Codec.LZ4)
    conversion = converting(log.answer(0)[0], last, chunk=16 * 1024)
    found = pieces(conversion)
    assert found[:5] == [b""] * 5
    assert [message.offset for piece in found for message in seen(piece, 1)] == [
        message.offset for message in after(log.all, 1, last)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_the_frame_is_free_once_the_conversion_is_dropped(codec: Codec) -> None:
    frame = bytearray(encode_batch(numbers(5000), codec=codec))
    conversion = DownConversion(frame, 0, len(frame), magic=1, offset=0, keep_codec=False)
    piece = conversion.piece()
    assert piece
    with pytest.raises(BufferError):
        frame.clear()
    del conversion
    frame.clear()
    assert seen(piece, 1)


@pytest.mark.parametrize("end", [lambda _: None, lambda frame: damaged(frame, len(frame) - 1)])
def test_the_frame_is_free_once_there_is_nothing_more(end: Callable[[bytes], bytes | None]) -> None:
    whole = encode_batch(numbers(3))
    frame = bytearray(end(whole) or whole)
    conversion = DownConversion(frame, 0, len(frame), magic=1, offset=0)
    pieces(conversion)
    frame.clear()
    assert conversion.ended


def test_what_is_read_for_one_piece_is_bounded_where_little_comes_of_it() -> None:
    """Headers are left out."""
    log = Log()
    for _ in range(60):
        log.batch([NewRecord(1, None, b"v", ((b"h", bytes(30_000)),))], codec=Codec.GZIP)
    conversion = converting(log.answer(0)[0], chunk=16 * 1024)
    assert conversion.piece()
    assert conversion.counts.plain_bytes < 12 * 16 * 1024
    assert [message.offset for message in given_messages(conversion)][-1] == 59


def test_a_batch_that_does_not_fit_beside_another_is_not_cut_for_it() -> None:
    log = Log()
    for _ in range(3):
        log.batch(numbers(900), codec=Codec.GZIP)  # more than half a piece
    assert [len({*entries(piece, 0, len(piece))}) for piece in pieces(converting(log.answer(0)[0]))] == [1, 1, 1]


@pytest.mark.parametrize("keep_codec", [False, True])
def test_old_wrappers_that_are_converted_are_cut_too(keep_codec: bool) -> None:
    log = Log()
    log.old(1, Codec.GZIP, [Message(0, NOW, False, None, bytes(74))] * 50)
    conversion = converting(log.answer(0)[0], 0, 0, keep_codec=keep_codec)
    found = [seen(piece, 0) for piece in pieces(conversion, 1000)]
    assert [len(messages) for messages in found] == [10] * 5
    assert [message for messages in found for message in messages] == as_magic(log.all, 0)


def test_what_stands_before_in_an_old_wrapper_is_gone_over_in_steps_too() -> None:
    log = Log()
    log.old(1, Codec.GZIP, [Message(0, NOW, False, None, None)] * 10_000)
    conversion = converting(log.answer(0)[0], 9_990, 0)
    assert conversion.piece() == conversion.piece() == b""
    assert conversion.working_bytes >= 10_000 * OVERHEAD[1]
    assert [message.offset for message in given_messages(conversion, 0)] == [*range(9_990, 10_000)]
    assert conversion.working_bytes == 0
