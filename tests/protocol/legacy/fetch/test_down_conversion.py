import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.legacy.fetch.down_conversion import CHUNK
from shoal.protocol.legacy.lz4_header import as_magic_0, as_standard
from shoal.protocol.legacy.message import OVERHEAD, Message
from shoal.protocol.records.batch import CONTROL, LOG_APPEND_TIME, NewRecord, encode_batch
from shoal.protocol.records.recordset import entries
from shoal.protocol.wire.compression import Codec, decompress
from tests.support.legacy.conversions import (
    NOW,
    after,
    answered,
    asked,
    converting,
    given_messages,
    has_old,
    numbers,
    pieces,
    plain_size,
)
from tests.support.legacy.logs import ABORT, COMMIT, Log, as_magic, logs, seen

chunks = st.integers(1, 20) | st.integers(20, 3000) | st.just(CHUNK)  # so that records are cut anywhere
magics = st.sampled_from([0, 1])


@given(st.data(), logs(), magics, chunks, st.booleans())
def test_every_committed_message_from_the_asked_one_on_and_no_other(
    data: st.DataObject, log: Log, magic: int, chunk: int, keep_codec: bool
) -> None:
    offset = asked(data, log)
    conversion = answered(log, offset, magic, keep_codec=keep_codec, chunk=chunk)
    found = [message for piece in pieces(conversion) for message in seen(piece, magic)]
    if has_old(log):  # an unchanged wrapper
        found = after(found, magic, offset)
    assert found == after(log.committed, magic, offset)
    assert (conversion.failure, conversion.left, conversion.next_offset) == (None, 0, max(offset, log.end))
    assert conversion.counts.messages == len(found) or has_old(log)
    assert conversion.resumes(found[-1].offset + 1 if found else offset)


@settings(max_examples=40)
@given(logs(), magics)
def test_aborted_messages_too_where_none_are_named_as_aborted(log: Log, magic: int) -> None:
    conversion = converting(log.answer(0)[0], 0, magic, keep_codec=False)
    assert given_messages(conversion, magic) == as_magic(log.all, magic)


@settings(max_examples=60)
@given(st.data(), logs(), magics, st.integers(1, 3000), st.booleans())
def test_dropped_anywhere_and_made_anew_it_gives_the_same(
    data: st.DataObject, log: Log, magic: int, most: int, keep_codec: bool
) -> None:
    offset = asked(data, log)
    conversion = answered(log, offset, magic, keep_codec=keep_codec)
    found: list[Message] = []
    while (piece := conversion.piece(most)) is not None:
        found += after(seen(piece, magic), magic, offset)
        if data.draw(st.booleans()):
            offset = data.draw(st.sampled_from([conversion.given, conversion.next_offset]))
            conversion = answered(log, offset, magic, keep_codec=keep_codec)
    assert found == after(log.committed, magic, found[0].offset if found else offset)


@settings(max_examples=40)
@given(logs(), magics, st.integers(1, 3000), st.booleans())
def test_a_piece_has_what_was_allowed_or_one_message(log: Log, magic: int, most: int, keep_codec: bool) -> None:
    for piece in pieces(answered(log, 0, magic, keep_codec=keep_codec), most):
        messages = seen(piece, magic)
        assert plain_size(messages, magic) <= most or len(messages) == 1 or has_old(log)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(("short", "count"), [(0, 3), (1, 2)])
def test_a_piece_is_filled_to_the_last_byte(codec: Codec, short: int, count: int) -> None:
    records = [NewRecord(NOW, b"key", bytes(100))] * 10
    log = Log()
    log.batch(records, codec=codec)
    piece = converting(log.answer(0)[0]).piece(3 * (OVERHEAD[1] + 103) - short)
    assert piece
    assert len(seen(piece, 1)) == count


@settings(max_examples=40)
@given(st.data(), logs(), magics)
def test_an_unfinished_entry_at_the_end_is_left_for_the_next_fetch(data: st.DataObject, log: Log, magic: int) -> None:
    record_set, aborted = log.answer(0)
    cut = data.draw(st.integers(0, len(record_set)))
    conversion = converting(record_set[:cut], 0, magic, aborted=aborted, keep_codec=False)
    found = given_messages(conversion, magic)
    assert conversion.failure is None
    assert found == [one for one in as_magic(log.committed, magic) if one.offset < conversion.next_offset]
    assert conversion.next_offset in {0, *(entry.last_offset + 1 for entry in log.entries)}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("chunk", [16 * 1024, CHUNK])
def test_a_batch_of_many_chunks(codec: Codec, chunk: int) -> None:
    log = Log(500)
    log.batch(numbers(3000), codec=codec)
    for offset in (0, 501, 3499):
        conversion = converting(log.answer(0)[0], offset, chunk=chunk, keep_codec=codec is not Codec.ZSTD)
        found = pieces(conversion)
        messages = [message for piece in found for message in seen(piece, 1)]
        assert messages == after(log.all, 1, offset)
        assert max(map(len, found)) <= chunk + 200
        assert len([piece for piece in found if piece]) >= plain_size(messages, 1) // chunk


def test_many_small_batches_share_a_piece() -> None:
    log = Log()
    for index in range(200):
        log.batch(numbers(2), codec=Codec(index % 4))
    assert len(pieces(converting(log.answer(0)[0]))) == 1


def test_a_record_larger_than_the_chunk_is_a_piece_alone() -> None:
    records = [NewRecord(1, b"k", bytes(size)) for size in (10, 500_000, 10)]
    for codec in (Codec.NONE, Codec.GZIP):
        log = Log()
        log.batch(records, codec=codec)
        conversion = converting(log.answer(0)[0])
        assert [[one.offset for one in seen(piece, 1)] for piece in pieces(conversion) if piece] == [[0], [1], [2]]


def test_headers_are_counted() -> None:
    log = Log()
    log.batch([NewRecord(1, None, b"v", ((b"a", b"1"), (b"b", None))), NewRecord(1, None, b"v"), *numbers(70)])
    log.batch([NewRecord(1, None, b"v", tuple((b"h%d" % index, None) for index in range(300)))])
    conversion = converting(log.answer(0)[0])
    assert len(given_messages(conversion)) == 73
    assert (conversion.counts.dropped_headers, conversion.counts.messages) == (302, 73)


def test_log_append_time_is_in_wrapper_and_messages() -> None:
    log = Log()
    log.batch(numbers(3), codec=Codec.GZIP, bits=LOG_APPEND_TIME)
    (piece,) = pieces(converting(log.answer(0)[0]))
    assert (piece[16:18], piece[18:26]) == (b"\1\x09", (NOW + 2).to_bytes(8, "big"))
    assert [(one.timestamp, one.log_append_time) for one in seen(piece, 1)] == [(NOW + 2, True)] * 3


@pytest.mark.parametrize(("magic", "offsets"), [(0, [1005, 1006, 1007]), (1, [0, 1, 2])])
def test_offsets_in_a_wrapper_are_relative_from_magic_1_on(magic: int, offsets: list[int]) -> None:
    """KIP-31: relative to the wrapper's first message."""
    log = Log(1000)
    log.batch(numbers(8), codec=Codec.GZIP)
    (piece,) = pieces(converting(log.answer(0)[0], 1005, magic))
    inner = gzip.decompress(piece[OVERHEAD[magic] :])
    assert [entry[3] for entry in entries(inner, 0, len(inner))] == offsets


def test_lz4_has_the_header_that_each_magic_had() -> None:
    """KAFKA-3160: our reader accepts both headers, old clients do not (tests/brokers/legacy/records/test_sets.py)."""
    log = Log()
    log.batch(numbers(8), codec=Codec.LZ4)
    old, new = (pieces(converting(log.answer(0)[0], 0, magic))[0][OVERHEAD[magic] :] for magic in (0, 1))
    assert decompress(Codec.LZ4, new, CHUNK)
    assert old == as_magic_0(old) != as_standard(old)


def test_what_was_left_out_is_behind_the_next_offset() -> None:
    log = Log()
    log.batch(numbers(3), producer=5)
    log.batch(numbers(2), producer=6, tail=4)
    log.marker(5, ABORT)
    log.marker(6, COMMIT)
    record_set, aborted = log.answer(0)
    conversion = converting(record_set, aborted=aborted)
    assert [one.offset for one in given_messages(conversion)] == [3, 4]
    assert (conversion.given, conversion.next_offset, conversion.counts.left_out) == (5, 11, 3)
    assert [conversion.resumes(offset) for offset in (4, 5, 8, 11, 12)] == [False, True, True, True, False]


def test_only_what_is_left_out() -> None:
    log = Log(7)
    log.marker(1, COMMIT)
    conversion = converting(log.answer(0)[0], 7)
    assert (conversion.piece(), conversion.next_offset, conversion.given, conversion.failure) == (None, 8, 7, None)


def test_a_marker_that_was_cleaned_away_ends_nothing() -> None:
    """The broker lists no transaction before it either."""
    log = Log()
    log.batch(numbers(2), producer=5)
    empty = encode_batch([], base_offset=2, base_timestamp=0, attributes=CONTROL, producer_id=5, last_offset_delta=0)
    conversion = converting(log.answer(0)[0] + empty, aborted=[(5, 0)])
    assert (pieces(conversion), conversion.next_offset, conversion.failure) == ([], 3, None)


def test_what_compaction_emptied_at_a_batchs_end_is_behind_the_next_offset() -> None:
    log = Log(3)
    log.batch(numbers(2), codec=Codec.GZIP, tail=4)
    conversion = converting(log.answer(0)[0], 4)
    assert [one.offset for one in given_messages(conversion)] == [4]
    assert (conversion.given, conversion.next_offset) == (5, 9)
