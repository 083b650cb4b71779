"""The four codecs of record batches, with bounded output.

Only this file and plain_stream.py call codec libraries. Batches are network input, so sizes stated in a stream are
checked before use, and no call produces more than `limit` + 1 bytes. Where a library has no real limit, the frame is
checked first:

- gzip: `zlib.decompressobj` has a limit. Members may be concatenated (RFC 1952 2.2), at most MAX_GZIP_MEMBERS.
- snappy: each raw block begins with its decompressed length; the sum is checked before anything is allocated. Kafka's
  clients write xerial framing (SnappyOutputStream: a header, then [int32 length, raw block]*), some write a single raw
  block. Shoal reads both and writes xerial.
- lz4: `LZ4FrameDecompressor.decompress(max_length=)` has a limit; `lz4.frame.decompress` would trust the stated size.
  Frames are written with independent blocks, since Kafka's Lz4BlockInputStream refuses linked ones, and without a
  content size.
- zstd: `decompress(max_output_size=)` ignores its limit when the frame states a size, and `stream_reader` ends silently
  on a truncated frame. So the block headers are walked first (RFC 8878 3.1.1: they show where the frame ends and
  whether it is whole), and a stream reader then returns at most limit + 1 bytes.

Trailing bytes after the last frame are an error: re-encoding would lose them.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

import cramjam
import lz4.frame
import zstandard

from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge

__all__ = [
    "LIBRARY_ERRORS",
    "MAX_GZIP_MEMBERS",
    "MAX_ZSTD_WINDOW",
    "Codec",
    "compress",
    "compress_quickly",
    "decompress",
    "decompress_start",
    "snappy_blocks",
    "stated_size",
    "zstd_frames",
]


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes (CompressionType.java)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Clients write one member per batch. Each further member costs a copy of the rest of the input: without a limit,
# 20-byte members would make the time quadratic.
MAX_GZIP_MEMBERS = 64

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, compatible with version 1
_XERIAL_BLOCK_SIZE = 32 * 1024  # SnappyOutputStream.DEFAULT_BLOCK_SIZE

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_FIRST_BYTE = _ZSTD_MAGIC & 0xFF
_ZSTD_SKIPPABLE = 0x184D2A50  # to 0x184D2A5F
MAX_ZSTD_WINDOW = 1 << 27  # the library's default; level 22 uses it. Memory is touched only as output is produced.
_ZSTD_LEVEL = 3  # Kafka's default (CompressionType.ZSTD)
_RLE_BLOCK, _RESERVED_BLOCK = 1, 3

# A zstd block has at most 128 KiB, an lz4 block of Kafka's clients 64 KiB, a xerial block 32 KiB; gzip produces output
# continuously.
_START_INPUT = 160 * 1024
_START_SNAPPY = 1024 * 1024  # decompressed bytes of a raw block, which can only be decompressed whole

_int32 = Struct(">i")
_uint32_le = Struct("<I")

LIBRARY_ERRORS = (
    zlib.error,
    cramjam.DecompressionError,
    zstandard.ZstdError,
    RuntimeError,  # lz4's only error
    ValueError,
    OverflowError,
    EOFError,
)


def decompress(codec: Codec, data: Buffer, limit: int) -> bytes:
    """The decompressed `data`.

    Raises TooLarge when it has more than `limit` bytes, RemoteProtocolError for damage, truncation or trailing bytes.
    """
    try:
        plain = _METHODS[codec].decompress(memoryview(data), limit)
    except LIBRARY_ERRORS as error:
        raise RemoteProtocolError(f"{codec.name.lower()} data cannot be read: {error}") from error
    if len(plain) > limit:
        raise _too_large(codec, limit)
    return plain


def decompress_start(codec: Codec, data: Buffer, limit: int) -> bytes:
    """The first decompressed bytes, at most `limit`, out of the first _START_INPUT compressed bytes.

    The result may be shorter, or empty where the codec needs more input. Time and memory are bounded for any `data`:
    one or two milliseconds. Raises RemoteProtocolError for damage in these bytes.
    """
    try:
        return _METHODS[codec].start(memoryview(data), limit)[:limit]
    except LIBRARY_ERRORS as error:
        raise RemoteProtocolError(f"{codec.name.lower()} data cannot be read: {error}") from error


def compress(codec: Codec, data: Buffer) -> bytes:
    """`data` compressed as Kafka's clients do it (framing, independent blocks), at the codec's default level."""
    return _METHODS[codec].compress(memoryview(data))


def compress_quickly(codec: Codec, data: Buffer) -> bytes:
    """Like `compress`, but favours time over size: gzip at its lowest level takes a third of the time."""
    return _gzip(memoryview(data), 1) if codec is Codec.GZIP else compress(codec, data)


def stated_size(codec: Codec, data: Buffer) -> int | None:
    """The decompressed size, in bytes, that `data` states, without decompressing; None when it states none.

    For information only, never for allocating: a hostile stream may state anything. gzip gives the ISIZE of its *last*
    member, modulo 2^32; snappy the sum of its block preambles; zstd the content size of its *first* frame, which
    Kafka's Java client leaves out; lz4 states none. Never raises.
    """
    try:
        return _METHODS[codec].stated_size(memoryview(data))
    except (RemoteProtocolError, *LIBRARY_ERRORS):
        return None


def _too_large(codec: Codec, limit: int) -> TooLarge:
    return TooLarge(f"{codec.name.lower()} data decompresses to more than {limit} bytes")


def _plain(data: memoryview, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(Codec.NONE, limit)
    return bytes(data)


def _gunzip(data: memoryview, limit: int) -> bytes:
    pieces, room = [], limit + 1
    for _ in range(MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(wbits=31)
        pieces.append(member.decompress(data, room))
        room -= len(pieces[-1])
        if room <= 0:
            raise _too_large(Codec.GZIP, limit)
        if not member.eof:
            raise RemoteProtocolError("gzip data is truncated")
        rest = len(member.unused_data)
        if not rest:
            return b"".join(pieces)
        data = data[len(data) - rest :]
    raise RemoteProtocolError(f"more than {MAX_GZIP_MEMBERS} gzip members")


def _gunzip_start(data: memoryview, limit: int) -> bytes:
    return zlib.decompressobj(wbits=31).decompress(data[:_START_INPUT], limit)


def _gzip(data: memoryview, level: int = zlib.Z_DEFAULT_COMPRESSION) -> bytes:
    deflate = zlib.compressobj(level, wbits=31)
    return deflate.compress(data) + deflate.flush()


def _gzip_stated_size(data: memoryview) -> int | None:
    return _uint32_le.unpack_from(data, len(data) - 4)[0] if len(data) >= 18 else None


def snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """The raw blocks of xerial framing, or all of `data` as a single raw block."""
    if data[:8] != _XERIAL_MAGIC:
        yield data  # empty data, too: the library refuses it, since it has no preamble
        return
    pos = 0
    while pos < len(data):
        if data[pos : pos + 8] == _XERIAL_MAGIC:  # streams may be concatenated (SnappyInputStream.hasNextChunk)
            pos += len(_XERIAL_HEADER)
            if pos > len(data):
                raise RemoteProtocolError("snappy header is truncated")
            continue
        if pos + 4 > len(data):
            raise RemoteProtocolError("snappy block length is truncated")
        start = pos + 4
        pos = start + _int32.unpack_from(data, pos)[0]
        if not start < pos <= len(data):
            raise RemoteProtocolError(f"snappy block of {pos - start} bytes, {len(data) - start} are left")
        yield data[start:pos]


def _unsnappy(data: memoryview, limit: int) -> bytes:
    blocks = list(snappy_blocks(data))
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > limit:
        raise _too_large(Codec.SNAPPY, limit)
    plain, pos = bytearray(sum(sizes)), 0
    view = memoryview(plain)
    for block, size in zip(blocks, sizes, strict=True):
        if cramjam.snappy.decompress_raw_into(block, view[pos : pos + size]) != size:
            raise RemoteProtocolError("snappy block is shorter than it states")
        pos += size
    return bytes(plain)


def _unsnappy_start(data: memoryview, limit: int) -> bytes:
    if data[:8] == _XERIAL_MAGIC:
        at = len(_XERIAL_HEADER) + 4
        data = data[at : at + max(_int32.unpack_from(data, at - 4)[0], 0)] if len(data) >= at else data[:0]
    fits = 0 < len(data) <= 2 * _START_SNAPPY and cramjam.snappy.decompress_raw_len(data) <= _START_SNAPPY
    return bytes(cramjam.snappy.decompress_raw(data)) if fits else b""


def _snappy(data: memoryview) -> bytes:
    framed = [_XERIAL_HEADER]
    for pos in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[pos : pos + _XERIAL_BLOCK_SIZE]))
        framed += (_int32.pack(len(block)), block)
    return b"".join(framed)


def _snappy_stated_size(data: memoryview) -> int | None:
    return sum(cramjam.snappy.decompress_raw_len(block) for block in snappy_blocks(data))


def _unlz4(data: memoryview, limit: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = frame.decompress(data, max_length=limit + 1)
    if len(plain) > limit:
        raise _too_large(Codec.LZ4, limit)
    if not frame.eof:
        raise RemoteProtocolError("lz4 frame is truncated")
    if frame.unused_data:
        raise RemoteProtocolError("bytes after the lz4 frame")
    return plain


def _unlz4_start(data: memoryview, limit: int) -> bytes:
    plain: bytes = lz4.frame.LZ4FrameDecompressor().decompress(data[:_START_INPUT], max_length=limit)
    return plain


def _lz4(data: memoryview) -> bytes:
    frame: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return frame


def _zstd_frame_end(data: memoryview, pos: int) -> int:
    """The end of the frame that starts at `pos` (RFC 8878 3.1.1, 3.1.2)."""
    magic = _uint32_le.unpack_from(data, pos)[0]
    if magic & ~0xF == _ZSTD_SKIPPABLE:
        return pos + 8 + int(_uint32_le.unpack_from(data, pos + 4)[0])
    if magic != _ZSTD_MAGIC:
        raise RemoteProtocolError(f"zstd frame magic is {magic:#x}")
    checksum = 4 if data[pos + 4] & 4 else 0
    pos += zstandard.frame_header_size(data[pos:])
    last = 0
    while not last:
        header = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _RESERVED_BLOCK:
            raise RemoteProtocolError("zstd block of the reserved type")
        pos += 3 + (1 if kind == _RLE_BLOCK else size)
    return pos + checksum


def zstd_frames(data: memoryview) -> list[int]:
    """The positions of the frames, without skippable ones.

    Raises RemoteProtocolError unless `data` is one or more whole frames.
    """
    starts, pos = [], 0
    try:
        while pos < len(data):
            if data[pos] == _ZSTD_FIRST_BYTE:
                starts.append(pos)
            pos = _zstd_frame_end(data, pos)
    except (IndexError, StructError) as error:
        raise RemoteProtocolError("zstd frame is truncated") from error
    if pos != len(data) or not pos:
        raise RemoteProtocolError("zstd frame is truncated")
    return starts


def _unzstd(data: memoryview, limit: int) -> bytes:
    zstd_frames(data)
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        return reader.read(limit + 1)


def _unzstd_start(data: memoryview, limit: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    with decompressor.stream_reader(data[:_START_INPUT], read_across_frames=True) as reader:
        return reader.read(limit)


def _zstd(data: memoryview) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)


def _zstd_stated_size(data: memoryview) -> int | None:
    size = zstandard.frame_content_size(data)
    return size if size >= 0 else None


class _Method(NamedTuple):
    decompress: Callable[[memoryview, int], bytes]  # may return limit + 1 bytes, never more
    compress: Callable[[memoryview], bytes]
    stated_size: Callable[[memoryview], int | None]
    start: Callable[[memoryview, int], bytes]


_METHODS = {
    Codec.NONE: _Method(_plain, bytes, len, lambda data, limit: bytes(data[:limit])),
    Codec.GZIP: _Method(_gunzip, _gzip, _gzip_stated_size, _gunzip_start),
    Codec.SNAPPY: _Method(_unsnappy, _snappy, _snappy_stated_size, _unsnappy_start),
    Codec.LZ4: _Method(_unlz4, _lz4, lambda _: None, _unlz4_start),
    Codec.ZSTD: _Method(_unzstd, _zstd, _zstd_stated_size, _unzstd_start),
}
