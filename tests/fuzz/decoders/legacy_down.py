"""Targets: record sets for old clients, with arbitrary log contents; their requests, and the broker's answers."""

from collections.abc import Sequence
from itertools import product
from zlib import crc32

from shoal.protocol.legacy.fetch.down_conversion import DownConversion
from shoal.protocol.legacy.fetch.fetch import (
    LegacyFetch,
    Wanted,
    read_aborted,
    read_legacy_fetch,
    read_upstream_answer,
    write_upstream_fetch,
)
from shoal.protocol.legacy.message import CRC_AT, CRC_FROM, write_message
from shoal.protocol.legacy.reading import read_messages
from shoal.protocol.records.batch import CONTROL, TRANSACTIONAL, NewRecord, encode_batch
from shoal.protocol.records.recordset import entries
from shoal.protocol.schema.headers import read_request_header, write_request_header
from shoal.protocol.wire.compression import Codec, compress
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.plain_stream import open_plain, working_bytes
from shoal.protocol.wire.types import write_int32
from tests.fuzz.decoders.records import RECORDS, TEXT, batch_seeds, sealed
from tests.fuzz.target import Target, padded

__all__ = ["TARGETS"]

LIMIT = 1 << 20
_PIECES = 2000
_OPTIONS = 4
_MAGIC_AT = 16


def _sealed_set(data: bytes, *, old: bool = True) -> bytes:
    """With correct CRCs in whole entries (`old`: also magic 0 and 1), so that damage passes the check."""
    parts, at = [], 0
    try:
        for start, end, magic, _ in entries(data, 0, len(data)):
            entry = data[start:end]
            parts.append(sealed(entry) if magic == 2 else _sealed_old(entry) if old else entry)
            at = end
    except RemoteProtocolError:
        pass
    return b"".join(parts) + data[at:]


def _sealed_old(entry: bytes) -> bytes:
    return entry[:CRC_AT] + crc32(entry[CRC_FROM:]).to_bytes(4, "big") + entry[CRC_FROM:]


def _converting(data: bytes) -> DownConversion:
    magic, keep_codec, offset, chunk = data[:_OPTIONS] if len(data) >= _OPTIONS else bytes(_OPTIONS)
    buf, start, end = padded(_sealed_set(data[_OPTIONS:]))
    return DownConversion(
        buf,
        start,
        end,
        magic=magic & 1,
        offset=offset % 16,
        aborted=[(4, 5)],
        keep_codec=bool(keep_codec & 1),
        chunk=64 + 8 * chunk,
        largest=LIMIT,
    )


def _convert(data: bytes) -> None:
    """Never raises, and always terminates."""
    conversion = _converting(data)
    asked = conversion.next_offset
    try:
        for _ in range(_PIECES):
            before = conversion.next_offset, conversion.counts.plain_bytes, conversion.left
            if conversion.piece() is None:
                break
            assert (conversion.next_offset, conversion.counts.plain_bytes, conversion.left) != before
            assert before[0] <= conversion.next_offset
    except RemoteProtocolError as error:
        raise AssertionError("a conversion raised") from error
    assert asked <= conversion.given <= conversion.next_offset
    assert conversion.failure is None or conversion.left == 0


def _ask_for_memory(data: bytes) -> None:
    """A conversion without memory, which requests what it needs, has the same result and the same end."""
    one, other = _converting(data), _converting(data)
    pieces, pieces_of_other, allowed = list[bytes](), list[bytes](), 0
    for _ in range(_PIECES):
        piece = one.piece()
        if piece is None:
            break
        pieces.append(piece)
    else:
        return
    for _ in range(4 * _PIECES):
        piece = other.piece(working=allowed)
        if piece is not None:
            pieces_of_other.append(piece)
            allowed = 0
        elif other.wants:
            assert other.wants > allowed
            allowed = other.wants
        else:
            break
    assert other.ended
    assert (one.next_offset, one.given, one.failure, one.counts) == (
        other.next_offset,
        other.given,
        other.failure,
        other.counts,
    )
    if not any(data[1:2]):  # nothing is compressed
        assert b"".join(pieces) == b"".join(pieces_of_other)


def _read_back(data: bytes) -> None:
    """The result for batches of magic 2 is a complete set, in order, and later offsets follow. (Old entries pass
    unchanged.)"""
    data = _sealed_set(data, old=False)
    if data[_MAGIC_AT : _MAGIC_AT + 1] != b"\2":
        return
    last = -1
    conversion = DownConversion(data, 0, len(data), magic=1, offset=0, largest=LIMIT)
    try:
        while (piece := conversion.piece(4096)) is not None:
            for message in read_messages(piece, 0, len(piece), limit=4 * LIMIT):
                assert message.offset > last
                last = message.offset
    except RemoteProtocolError as error:
        raise AssertionError("what was given cannot be read") from error
    assert last < conversion.next_offset


def _stream(data: bytes) -> None:
    codec = Codec(sum(data[:1]) % len(Codec))
    assert working_bytes(codec, data[1:]) >= 0
    size = 0
    for step in open_plain(codec, data[1:], 4096):
        assert 0 < len(step) <= 4096
        size += len(step)
        if size > LIMIT:
            return


def _ask(data: bytes) -> None:
    read_legacy_fetch(data, read_request_header(data))


def _answer(data: bytes) -> None:
    for partition in read_upstream_answer(data).partitions:
        assert partition.start <= partition.end <= len(data)
        assert len(read_aborted(data, partition)) == partition.aborted_count


def _marked() -> bytes:
    marker = NewRecord(1, bytes(4), bytes(6))
    control = encode_batch([marker], base_offset=10, attributes=CONTROL | TRANSACTIONAL, producer_id=4)
    aborted = encode_batch(RECORDS, base_offset=7, attributes=TRANSACTIONAL, producer_id=4)
    return aborted + control + encode_batch(RECORDS, base_offset=11, codec=Codec.LZ4)


def _set_seeds() -> list[bytes]:
    old = b"".join(write_message(magic, 5 + magic, 1, 0, b"k", TEXT) for magic in (0, 1))
    inner = b"".join(write_message(1, index, 1, 0, None, TEXT[:20]) for index in range(9))
    old += b"".join(
        write_message(1, 16 + 9 * codec, 1, codec, None, compress(codec, inner))
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    )
    many = encode_batch([NewRecord(index, None, TEXT[:50]) for index in range(300)], codec=Codec.GZIP)
    return [_marked(), old + _marked(), many, *batch_seeds()]


def _convert_seeds() -> Sequence[bytes]:
    options = [bytes(each) for each in product((0, 1), (0, 1), (0, 8), (0, 200))]
    return [options[index % len(options)] + seed for index, seed in enumerate(_set_seeds() * 2)]


def _question_seeds() -> list[bytes]:
    asked = (Wanted("a", 0, 5, 100), Wanted("b", 1, 7, 100))
    newer = write_upstream_fetch(
        1, "c", LegacyFetch(max_wait_ms=1, min_bytes=1, max_bytes=1, partitions=asked), isolation_level=0
    )
    return [newer, *(_old_question(version) for version in range(4))]


def _old_question(version: int) -> bytes:
    limits = b"".join(map(write_int32, (-1, 500, 1, *((1000,) if version == 3 else ()))))
    topics = write_int32(1) + b"\0\1a" + write_int32(1) + write_int32(0) + bytes(8) + write_int32(100)
    body = write_request_header(1, version, 5, "c") + limits + topics
    return write_int32(len(body)) + body


def _answer_seeds() -> list[bytes]:
    aborted = write_int32(1) + bytes(15) + b"\4" + bytes(8)
    partition = write_int32(0) + bytes(2) + bytes(24) + aborted + write_int32(len(TEXT)) + TEXT
    body = write_int32(5) + bytes(10) + write_int32(1) + b"\0\1a" + write_int32(1) + partition
    return [write_int32(len(body)) + body]


def _stream_seeds() -> list[bytes]:
    return [bytes([codec]) + compress(codec, plain) for codec in Codec for plain in (b"x", TEXT, TEXT * 60)]


TARGETS = [
    Target("legacy.down", _convert, _convert_seeds),
    Target("legacy.down, read back", _read_back, _set_seeds),
    Target("legacy.down, asking for memory", _ask_for_memory, _convert_seeds),
    Target("legacy.fetch.read_legacy_fetch", _ask, _question_seeds),
    Target("legacy.fetch.read_upstream_answer", _answer, _answer_seeds),
    Target("plain_stream.open_plain", _stream, _stream_seeds),
]
