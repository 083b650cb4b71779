import gzip
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.compression import Codec
from shoal.protocol.legacy.down import CHUNK, DownConversion
from shoal.protocol.legacy.failure import FailureKind
from shoal.protocol.legacy.message import OVERHEAD, Message
from shoal.protocol.records.batch import CONTROL, LOG_APPEND_TIME, NewRecord, encode_batch, seal_batch
from shoal.protocol.records.record import Record, write_record
from shoal.protocol.records.recordset import entries
from tests.batches import damaged
from tests.fuzz.records import sealed
from tests.protocol.legacy.logs import ABORT, COMMIT, Log, as_magic, logs, seen

FRONT = b"before"
NOW = 1_700_000_000_000
chunks = st.integers(1, 20) | st.integers(20, 3000) | st.just(CHUNK)  # so that records are cut anywhere
magics = st.sampled_from([0, 1])


def converting(
    record_set: bytes,
    offset: int = 0,
    magic: int = 1,
    *,
    aborted: list[tuple[int, int]] | tuple[()] = (),
    **options: Any,
) -> DownConversion:
    """The set as it lies in a frame."""
    end = len(FRONT) + len(record_set)
    return DownConversion(
        FRONT + record_set + b"behind", len(FRONT), end, magic=magic, offset=offset, aborted=aborted, **options
    )


def answered(log: Log, offset: int, magic: int, *, keep_codec: bool, chunk: int = CHUNK) -> DownConversion:
    record_set, aborted = log.answer(offset)
    keep_codec = keep_codec and not has_zstd(log)
    return converting(record_set, offset, magic, aborted=aborted, keep_codec=keep_codec, chunk=chunk)


def has_zstd(log: Log) -> bool:
    return any(entry.data[16] == 2 and entry.data[22] & 7 == Codec.ZSTD for entry in log.entries)


def has_old(log: Log) -> bool:
    return any(entry.data[16] < 2 for entry in log.entries)


def asked(data: st.DataObject, log: Log) -> int:
    return data.draw(st.integers(max(log.entries[0].last_offset - 250, 0), log.end))


def pieces(conversion: DownConversion, most: int = CHUNK) -> list[bytes]:
    found = []
    while (piece := conversion.piece(most)) is not None:
        found.append(piece)
    return found


def given_messages(conversion: DownConversion, magic: int = 1) -> list[Message]:
    return [message for piece in pieces(conversion) for message in seen(piece, magic)]


def plain_size(messages: list[Message], magic: int) -> int:
    return sum(OVERHEAD[magic] + len(one.key or b"") + len(one.value or b"") for one in messages)


def after(messages: list[Message], magic: int, offset: int) -> list[Message]:
    return [one for one in as_magic(messages, magic) if one.offset >= offset]


def numbers(count: int, size: int = 100) -> list[NewRecord]:
    return [NewRecord(NOW + index, None, b"%d " % index * (size // 7)) for index in range(count)]


# Every message, no other


@given(st.data(), logs(), magics, chunks, st.booleans())
def test_every_committed_message_from_the_asked_one_on_and_no_other(
    data: st.DataObject, log: Log, magic: int, chunk: int, keep_codec: bool
) -> None:
    offset = asked(data, log)
    conversion = answered(log, offset, magic, keep_codec=keep_codec, chunk=chunk)
    found = [message for piece in pieces(conversion) for message in seen(piece, magic)]
    if has_old(log):  # a wrapper that goes as it is
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
    """KIP-31: they count from the wrapper's first message."""
    log = Log(1000)
    log.batch(numbers(8), codec=Codec.GZIP)
    (piece,) = pieces(converting(log.answer(0)[0], 1005, magic))
    inner = gzip.decompress(piece[OVERHEAD[magic] :])
    assert [entry[3] for entry in entries(inner, 0, len(inner))] == offsets


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
    """The broker then lists no transaction before it either."""
    log = Log()
    log.batch(numbers(2), producer=5)
    empty = encode_batch([], base_offset=2, base_timestamp=0, attributes=CONTROL, producer_id=5, last_offset_delta=0)
    conversion = converting(log.answer(0)[0] + empty, aborted=[(5, 0)])
    assert (pieces(conversion), conversion.next_offset, conversion.failure) == ([], 3, None)


# What cannot be given


def body(count: int = 3) -> bytes:
    return b"".join(write_record(Record(index, 0, None, b"v%d" % index)) for index in range(count))


def batch_of(payload: bytes, count: int = 3, codec: Codec = Codec.NONE, last: int | None = None) -> bytes:
    return seal_batch(
        payload,
        codec=codec,
        record_count=count,
        base_timestamp=1,
        max_timestamp=1,
        base_offset=10,
        last_offset_delta=last,
    )


def ordered(*deltas: int) -> bytes:
    return b"".join(write_record(Record(delta, 0, None, b"v")) for delta in deltas)


def with_codec(number: int, batch: bytes) -> bytes:
    return sealed(batch[:22] + bytes([batch[22] & ~7 | number]) + batch[23:])


WHOLE = batch_of(body())
NEGATIVE_KEY, NEGATIVE_VALUE = bytes.fromhex("0c000002030100"), bytes.fromhex("0c000002010300")  # length -2
FAILURES: dict[str, tuple[bytes, FailureKind, int]] = {
    "CRC": (damaged(WHOLE, len(WHOLE) - 1), FailureKind.DAMAGE, 0),
    "zstd": (encode_batch(numbers(3), base_offset=10, codec=Codec.ZSTD), FailureKind.CODEC, 0),
    "unknown codec": (with_codec(6, WHOLE), FailureKind.CODEC, 0),
    "a codec that it is not": (with_codec(Codec.GZIP, WHOLE), FailureKind.DAMAGE, 0),
    "too few records": (batch_of(body(2)), FailureKind.DAMAGE, 2),
    "too many records": (batch_of(body(4), last=3), FailureKind.DAMAGE, 3),
    "too few in a compressed one": (batch_of(body(2), codec=Codec.LZ4), FailureKind.DAMAGE, 2),
    "too many in a compressed one": (batch_of(body(4), codec=Codec.SNAPPY, last=3), FailureKind.DAMAGE, 3),
    "a record cut": (batch_of(body()[:-2]), FailureKind.DAMAGE, 2),
    "offsets descend": (batch_of(ordered(0, 2, 1)), FailureKind.DAMAGE, 1),
    "offsets stand": (batch_of(ordered(0, 0, 1)), FailureKind.DAMAGE, 1),
    "an offset behind the batch": (batch_of(ordered(0, 1, 3)), FailureKind.DAMAGE, 2),
    "a negative offset": (batch_of(ordered(-1, 0, 1)), FailureKind.DAMAGE, 0),
    "a negative key": (batch_of(body(1) + NEGATIVE_KEY, 2), FailureKind.DAMAGE, 1),
    "a negative value": (batch_of(body(1) + NEGATIVE_VALUE, 2), FailureKind.DAMAGE, 1),
    "a negative record": (batch_of(body(1) + b"\3" + bytes(20), 2), FailureKind.DAMAGE, 1),
    "fields behind the record": (batch_of(b"\x0c\0\0\0\1\x0a\0" + bytes(9), 1), FailureKind.DAMAGE, 0),
    "fields before its end": (batch_of(b"\x14\0\0\0\1\1\0" + bytes(4), 1), FailureKind.DAMAGE, 0),
    "a varint without end": (batch_of(b"\x2c\0\0" + b"\xff" * 20, 1), FailureKind.DAMAGE, 0),
    "a length without end": (batch_of(b"\xff" * 20, 1), FailureKind.DAMAGE, 0),
    "headers without end": (batch_of(b"\x10\0\0\0\1\1\xff\x7f", 1), FailureKind.DAMAGE, 0),
    "a header without a key": (batch_of(b"\x10\0\0\0\1\1\2\1\1"[:1] + b"\0\0\0\1\1\2\1\1", 1), FailureKind.DAMAGE, 0),
    "a record larger than all": (
        batch_of(b"\xfe\xff\xff\xff\x0f" + bytes(9), 1, Codec.GZIP),
        FailureKind.INEXPRESSIBLE,
        0,
    ),
    "offsets out of order": (WHOLE[:7] + b"\0" + WHOLE[8:], FailureKind.DAMAGE, 0),
    "the largest offset": (b"\x7f" + b"\xff" * 7 + WHOLE[8:], FailureKind.DAMAGE, 0),
    "a magic that is none": (WHOLE[:16] + b"\3" + WHOLE[17:], FailureKind.DAMAGE, 0),
    "a length that is none": (WHOLE[:8] + bytes(4) + WHOLE[12:], FailureKind.DAMAGE, 0),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_given_is_a_failure_behind_what_can(name: str) -> None:
    """Asked for again at the failure's offset, nothing is given and the failure is the same."""
    bad, kind, in_it = FAILURES[name]
    good = encode_batch(numbers(5))
    conversion = converting(good + bad)
    assert [one.offset for one in given_messages(conversion)] == [*range(5), *range(10, 10 + in_it)]
    failure = conversion.failure
    assert failure is not None
    assert (failure.kind, failure.offset) == (kind, 10 + in_it if in_it else 5)
    assert conversion.piece() is None
    assert conversion.left == 0
    if name == "offsets out of order":
        return  # alone, the batch is in order
    again = converting(bad, failure.offset)
    assert pieces(again) == []
    assert again.failure is not None
    assert (again.failure.kind, again.failure.offset) == (kind, failure.offset)


def test_a_failure_names_the_batch_and_the_reason() -> None:
    conversion = converting(FAILURES["zstd"][0], 12)
    assert conversion.piece() is None
    assert str(conversion.failure and conversion.failure.text) == (
        "entry at offset 10: zstd, which clients of Kafka before 2.1 cannot read"
    )


def test_a_damaged_marker_is_a_failure() -> None:
    marker = encode_batch([NewRecord(1, b"", b"")], base_offset=5, attributes=CONTROL, producer_id=9)
    conversion = converting(encode_batch(numbers(5)) + marker, aborted=[(9, 0)])
    assert len(given_messages(conversion)) == 5
    assert conversion.failure is not None


def test_old_entries_are_checked() -> None:
    log = Log()
    log.old(1, Codec.NONE, [Message(0, NOW, False, b"k", b"v")] * 2)
    record_set, _ = log.answer(0)
    for magic in (0, 1):
        conversion = converting(damaged(record_set, len(record_set) - 1), 0, magic)
        assert [one.offset for one in given_messages(conversion, magic)] == [0]
        assert conversion.failure is not None
        assert conversion.failure.offset == 1


# Bounds


def test_a_bomb_is_read_only_as_far_as_it_is_taken() -> None:
    """20 MB of records in a batch of some 30 kB."""
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
    assert [one.offset for piece in found for one in seen(piece, 1)] == [one.offset for one in after(log.all, 1, last)]


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
