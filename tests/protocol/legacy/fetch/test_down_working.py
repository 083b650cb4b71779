"""The memory that a conversion requests before using it."""

import random
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.legacy.fetch.down_conversion import CHUNK, DownConversion
from shoal.protocol.legacy.fetch.working import COPIES
from shoal.protocol.legacy.message import Message
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from tests.support.batches import raw_snappy_batch
from tests.support.legacy.conversions import NOW, after, answered, asked, converting, has_old, numbers
from tests.support.legacy.logs import Log, as_magic, logs, seen

MIB = 1024 * 1024
LITTLE = 512 * 1024


def asking(conversion: DownConversion, most: int = CHUNK, working: int = 0) -> tuple[list[bytes], list[int]]:
    """All pieces, and the sizes that were requested: each is granted for one piece."""
    found, wanted, limit = [], [], working
    while (piece := conversion.piece(most, limit)) is not None or conversion.wants:
        if piece is None:
            assert conversion.wants > limit
            wanted.append(limit := conversion.wants)
        else:
            found.append(piece)
            limit = working
    return found, wanted


@given(st.data(), logs(), st.sampled_from([0, 1]), st.integers(1, 3000), st.booleans(), st.integers(0, 100_000))
def test_asking_changes_nothing(
    data: st.DataObject, log: Log, magic: int, chunk: int, keep_codec: bool, working: int
) -> None:
    offset = asked(data, log)
    found, wanted = asking(answered(log, offset, magic, keep_codec=keep_codec, chunk=chunk), working=working)
    messages = [message for piece in found for message in seen(piece, magic)]
    if has_old(log):
        messages = after(messages, magic, offset)
    assert messages == after(log.committed, magic, offset)
    assert wanted or working or not messages


def test_a_raw_block_of_snappy_is_asked_for_before_it_is_opened() -> None:
    records = numbers(80_000)
    batch = raw_snappy_batch(records)
    plain = sum(len(record.value or b"") for record in records)
    conversion = converting(batch)
    tracemalloc.start()
    try:
        for _ in range(3):
            assert conversion.piece(CHUNK, LITTLE) is None
        assert plain < conversion.wants < plain + 2 * MIB
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    assert (conversion.ended, conversion.failure, conversion.counts.plain_bytes) == (False, None, 0)
    found, wanted = asking(conversion, working=conversion.wants)
    assert not wanted
    assert [record.value for piece in found for record in seen(piece, 1)] == [record.value for record in records]


def test_what_a_stream_holds_counts_until_it_is_read() -> None:
    conversion = converting(raw_snappy_batch(numbers(80_000)))
    assert conversion.working_bytes == 0
    conversion.piece()
    assert conversion.working_bytes > 7 * MIB
    while conversion.piece() is not None:
        pass
    assert conversion.working_bytes == 0


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)


@pytest.mark.parametrize("keep_codec", [False, True])
@pytest.mark.parametrize("content", [noise, bytes])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_large_record_takes_no_more_than_was_asked_for(
    codec: Codec, content: Callable[[int], bytes], keep_codec: bool
) -> None:
    size = 4 * MIB
    records = [*numbers(10), NewRecord(NOW, b"key", content(size)), *numbers(10)]
    conversion = converting(encode_batch(records, codec=codec), keep_codec=keep_codec)
    given_pieces, messages = [], []
    while (piece := conversion.piece(CHUNK, LITTLE)) is not None:
        given_pieces.append(piece)
    assert COPIES * size < conversion.wants < (COPIES + 1) * size
    tracemalloc.start()
    try:
        given_pieces.append(conversion.piece(CHUNK, conversion.wants) or b"")
        assert tracemalloc.get_traced_memory()[1] < COPIES * size
        print(codec, content, keep_codec, tracemalloc.get_traced_memory()[1] / size)
    finally:
        tracemalloc.stop()
    given_pieces += asking(conversion, working=LITTLE)[0]
    messages = [record.value for piece in given_pieces for record in seen(piece, 1)]
    assert messages == [record.value for record in records]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_an_old_wrapper_that_is_opened_is_tried_with_more_and_more(codec: Codec) -> None:
    log = Log()
    log.old(1, codec, [Message(0, NOW, False, None, bytes(100_000))] * 20)
    conversion = converting(log.answer(0)[0], 0, 0)
    found, wanted = asking(conversion, working=LITTLE)
    assert [record for piece in found for record in seen(piece, 0)] == as_magic(log.all, 0)
    assert wanted == sorted(wanted)
    assert 2 * MIB < max(wanted) < COPIES * 9 * MIB


def test_an_old_message_that_is_given_as_it_is_counts_with_its_copies() -> None:
    log = Log()
    log.old(1, Codec.NONE, [Message(0, NOW, False, None, bytes(MIB))])
    conversion = converting(log.answer(0)[0])
    assert conversion.piece(CHUNK, LITTLE) is None
    assert MIB < conversion.wants < 4 * MIB
    assert seen(conversion.piece(CHUNK, conversion.wants) or b"", 1) == log.all
