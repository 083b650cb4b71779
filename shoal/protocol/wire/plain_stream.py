"""Decompression in steps: the caller takes a batch's plain bytes as it needs them.

`compression.decompress` returns a whole payload within a limit. Here the total is not limited, since it is never held:
each step produces at most `most` bytes, so a decompression bomb costs only the time for the bytes that are taken. The
memory that a codec needs between steps is bounded and known in advance (`working_bytes`):

- gzip: a window of 32 KiB. Input is fed in pieces, since `decompressobj` copies unused input at every step.
- snappy has no streaming form: a block is decompressed whole, then returned in steps. Xerial blocks have 32 KiB. A
  batch that is a single raw block (librdkafka) needs its whole plain size, which its first bytes state, and which is at
  most 64/3 of its bytes (a copy of 64 bytes takes 3).
- lz4: two blocks, of at most 4 MiB.
- zstd: its window, at most 128 MiB (level 22); memory is touched only as output is produced.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import cramjam
import lz4.frame
import zstandard

from shoal.protocol.wire.compression import (
    LIBRARY_ERRORS,
    MAX_GZIP_MEMBERS,
    MAX_ZSTD_WINDOW,
    Codec,
    snappy_blocks,
    zstd_frames,
)
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["open_plain", "working_bytes"]

_INPUT: Final = 32 * 1024
_Steps = Iterator[bytes]


def open_plain(codec: Codec, data: Buffer, most: int) -> Iterator[bytes]:
    """The plain bytes of `data` in steps of 1 to `most` bytes.

    Raises RemoteProtocolError for damage, truncation or trailing bytes, at the step that meets them. `data` must not
    change, and is held, until the iterator is dropped.
    """
    try:
        yield from _METHODS[codec](memoryview(data), most)
    except LIBRARY_ERRORS as error:
        raise RemoteProtocolError(f"{codec.name.lower()} data cannot be read: {error}") from error


def working_bytes(codec: Codec, data: Buffer) -> int:
    """An estimate of the bytes that a stream of `data` holds between steps, from what `data` states; never raises."""
    try:
        return _WORKING[codec](memoryview(data))
    except (RemoteProtocolError, *LIBRARY_ERRORS):
        return 0  # the first step reports what is wrong


def _plain(data: memoryview, most: int) -> _Steps:
    for pos in range(0, len(data), most):
        yield bytes(data[pos : pos + most])


def _gunzip(data: memoryview, most: int) -> _Steps:
    pos = 0
    for _ in range(MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(wbits=31)
        rest: Buffer = b""
        while not member.eof:
            if not rest:
                rest = data[pos : pos + _INPUT]
                pos += len(rest)
                if not rest:
                    raise RemoteProtocolError("gzip data is truncated")
            if plain := member.decompress(rest, most):
                yield plain
            rest = member.unconsumed_tail
        pos -= len(member.unused_data)
        if pos == len(data):
            return
    raise RemoteProtocolError(f"more than {MAX_GZIP_MEMBERS} gzip members")


def _unsnappy(data: memoryview, most: int) -> _Steps:
    for block in snappy_blocks(data):
        size = _snappy_size(block)
        plain = bytes(cramjam.snappy.decompress_raw(block))
        if len(plain) != size:
            raise RemoteProtocolError("snappy block is shorter than it states")
        if size <= most:
            if size:
                yield plain
            continue
        for pos in range(0, size, most):
            yield plain[pos : pos + most]


def _snappy_size(block: memoryview) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size * 3 > len(block) * 64:
        raise RemoteProtocolError(f"snappy block of {len(block)} bytes states {size}")
    return size


def _unlz4(data: memoryview, most: int) -> _Steps:
    frame = lz4.frame.LZ4FrameDecompressor()
    pos = 0
    while not frame.eof:
        piece: Buffer = b""
        if frame.needs_input:
            piece = data[pos : pos + _INPUT]
            pos += len(piece)
            if not piece:
                raise RemoteProtocolError("lz4 frame is truncated")
        if plain := frame.decompress(piece, max_length=most):
            yield plain
    if pos < len(data) or frame.unused_data:
        raise RemoteProtocolError("bytes after the lz4 frame")


def _unzstd(data: memoryview, most: int) -> _Steps:
    zstd_frames(data)
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        while plain := reader.read(most):
            yield plain


def _largest_snappy_block(data: memoryview) -> int:
    """Bytes; blocks after damage are ignored."""
    largest = 0
    with suppress(RemoteProtocolError, *LIBRARY_ERRORS):
        for block in snappy_blocks(data):
            largest = max(largest, _snappy_size(block))
    return largest


def _lz4_blocks(data: memoryview) -> int:
    return 2 * int(lz4.frame.get_frame_info(data)["block_size"])


def _largest_zstd_window(data: memoryview) -> int:
    frames = (zstandard.get_frame_parameters(data[start:]) for start in zstd_frames(data))
    return max((int(frame.window_size) for frame in frames), default=0)


_METHODS: Final[Mapping[Codec, Callable[[memoryview, int], _Steps]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}

_WORKING: Final[Mapping[Codec, Callable[[memoryview], int]]] = {
    Codec.NONE: lambda data: 0,
    Codec.GZIP: lambda data: 32 * 1024 + _INPUT,
    Codec.SNAPPY: _largest_snappy_block,
    Codec.LZ4: _lz4_blocks,
    Codec.ZSTD: _largest_zstd_window,
}
