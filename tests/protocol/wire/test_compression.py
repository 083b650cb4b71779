import gzip
import io
import json
import struct
import subprocess
import sys
import types
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.wire.compression import MAX_GZIP_MEMBERS, Codec, compress, decompress, stated_size
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support import kafka_python
from tests.support.strategies import codecs

PLAIN = b"".join(b'{"id": %d, "name": "shoal"}' % number for number in range(8000))  # several blocks of every codec
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
plains = st.builds(lambda chunk, times: chunk * times, st.binary(max_size=60), st.integers(0, 3000))
XERIAL_HEADER = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@given(codecs, plains, st.sampled_from([bytes, bytearray, lambda data: memoryview(bytearray(data))]))
def test_round_trip_within_the_exact_limit(codec: Codec, plain: bytes, container: type[bytes]) -> None:
    assert decompress(codec, container(compress(codec, container(plain))), len(plain)) == plain


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("plain", [b"x", PLAIN])
def test_one_byte_more_than_the_limit_is_refused(codec: Codec, plain: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="decompresses to more than"):
        decompress(codec, compress(codec, plain), len(plain) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_nothing_cut_off_is_taken_for_the_whole(codec: Codec) -> None:
    whole = compress(codec, PLAIN)
    boundary = range(len(whole) - 40, len(whole))
    for cut in [*range(40), *range(40, len(whole), 499), *boundary]:
        if codec is Codec.SNAPPY and cut == len(XERIAL_HEADER):
            continue  # an empty stream
        with pytest.raises(RemoteProtocolError):
            decompress(codec, whole[:cut], len(PLAIN))


def test_snappy_cut_between_blocks_is_a_shorter_stream() -> None:
    """The framing has no end mark, so only the record count detects it: see `read_records`."""
    blocks = [raw_snappy(b"first"), raw_snappy(b"second")]
    assert decompress(Codec.SNAPPY, xerial(*blocks)[: len(xerial(blocks[0]))], 100) == b"first"


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("trailing", [b"\0", b"garbage!", bytes(64)])
def test_trailing_bytes_are_refused(codec: Codec, trailing: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decompress(codec, compress(codec, PLAIN) + trailing, 1 << 30)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"\1", bytes(100), b"\xff" * 100, b"no codec's bytes, none at all"])
def test_other_bytes_are_refused(codec: Codec, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decompress(codec, data, 1 << 20)


def test_gzip_members_are_joined_up_to_a_limit() -> None:
    member = gzip.compress(b"shoal")
    assert decompress(Codec.GZIP, member * MAX_GZIP_MEMBERS, 1000) == b"shoal" * MAX_GZIP_MEMBERS
    with pytest.raises(RemoteProtocolError, match="members"):
        decompress(Codec.GZIP, member * (MAX_GZIP_MEMBERS + 1), 1000)


def test_snappy_is_read_raw_framed_and_concatenated() -> None:
    block = raw_snappy(PLAIN)
    assert decompress(Codec.SNAPPY, block, len(PLAIN)) == PLAIN
    assert decompress(Codec.SNAPPY, xerial(block, block) + xerial(block), 3 * len(PLAIN)) == PLAIN * 3


def test_zstd_frames_are_joined_and_skippable_ones_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"notes"
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(PLAIN)
    assert decompress(Codec.ZSTD, frame + skippable + frame, 2 * len(PLAIN)) == PLAIN * 2


def test_lz4_is_read_with_linked_blocks_and_written_without() -> None:
    linked = lz4.frame.compress(PLAIN, block_linked=True, store_size=True, content_checksum=True)
    assert decompress(Codec.LZ4, linked, len(PLAIN)) == PLAIN
    flags = compress(Codec.LZ4, PLAIN)[4]
    assert flags & 0b0010_0000, "blocks must be independent, or Lz4BlockInputStream refuses the frame"
    assert not flags & 0b0000_1000, "no content size"


@pytest.mark.parametrize(
    ("codec", "data", "stated"),
    [
        (Codec.NONE, b"shoal", 5),
        (Codec.GZIP, compress(Codec.GZIP, PLAIN), len(PLAIN)),
        (Codec.GZIP, gzip.compress(PLAIN) + gzip.compress(b"last"), 4),
        (Codec.GZIP, b"short", None),
        (Codec.SNAPPY, compress(Codec.SNAPPY, PLAIN), len(PLAIN)),
        (Codec.SNAPPY, raw_snappy(PLAIN), len(PLAIN)),
        (Codec.SNAPPY, XERIAL_HEADER + b"\0\0\0\x09\1", None),
        (Codec.SNAPPY, b"\xff", None),
        (Codec.LZ4, lz4.frame.compress(PLAIN), None),
        (Codec.ZSTD, compress(Codec.ZSTD, PLAIN), len(PLAIN)),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(PLAIN), None),
        (Codec.ZSTD, b"short", None),
    ],
)
def test_stated_size(codec: Codec, data: bytes, stated: int | None) -> None:
    assert stated_size(codec, data) == stated


# An independent reader and writer: kafka-python's. Its snappy framing is its own, only the raw blocks are ours.
RAW_SNAPPY = types.SimpleNamespace(
    compress=raw_snappy, decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data))
)
ORACLE = {
    Codec.GZIP: (kafka_python.codec.gzip_encode, kafka_python.codec.gzip_decode),
    Codec.SNAPPY: (kafka_python.codec.snappy_encode, kafka_python.codec.snappy_decode),
    Codec.LZ4: (kafka_python.codec.lz4_encode, kafka_python.codec.lz4_decode),
    Codec.ZSTD: (kafka_python.codec.zstd_encode, kafka_python.codec.zstd_decode),
}


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("plain", [b"x", PLAIN])
def test_kafka_python_agrees(codec: Codec, plain: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_python.codec, "snappy", RAW_SNAPPY)
    encode, decode = ORACLE[codec]
    assert decode(compress(codec, plain)) == plain
    assert decompress(codec, encode(plain), len(plain)) == plain


# Bombs. Each is small, would decompress to at least 64 MiB, and must be refused within a few MiB of memory.
LIMIT = 1 << 20
ZEROS = bytes(64 << 20)
RLE_BLOCK = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"  # 4 bytes that become 128 KiB
STREAMED_ZSTD_HEADER = b"\x28\xb5\x2f\xfd\x00\x88"  # no content size; a window of 128 MiB


def streamed(compressor: zstandard.ZstdCompressor) -> bytes:
    out = io.BytesIO()
    with compressor.stream_writer(out, closefd=False) as writer:
        writer.write(ZEROS)
    return out.getvalue()


def forged_lz4_size() -> bytes:
    """A frame whose stated content size is 2^40 (its header checksum byte, from xxh32, is taken from the library
    itself)."""
    context = lz4.frame.create_compression_context()
    header: bytes = lz4.frame.compress_begin(context, source_size=1 << 40, block_linked=False)
    body: bytes = lz4.frame.compress(b"shoal", block_linked=False)[7:]
    return header + body


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: gzip.compress(ZEROS, 1)),
    "gzip, many members": (Codec.GZIP, lambda: gzip.compress(ZEROS[: 1 << 20], 1) * 64),
    "snappy, forged size": (Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "snappy, forged size in a frame": (Codec.SNAPPY, lambda: xerial(b"\xff\xff\xff\xff\x0f" + bytes(100))),
    "snappy, many blocks": (Codec.SNAPPY, lambda: xerial(*[raw_snappy(ZEROS[: 1 << 16])] * 1024)),
    "lz4": (Codec.LZ4, lambda: lz4.frame.compress(ZEROS, block_linked=False)),
    "lz4, stated size": (Codec.LZ4, lambda: lz4.frame.compress(ZEROS, store_size=True)),
    "lz4, forged size": (Codec.LZ4, forged_lz4_size),
    "zstd, stated size": (Codec.ZSTD, lambda: zstandard.ZstdCompressor().compress(ZEROS)),
    "zstd, streamed": (Codec.ZSTD, lambda: streamed(zstandard.ZstdCompressor())),
    "zstd, many frames": (Codec.ZSTD, lambda: zstandard.ZstdCompressor().compress(ZEROS[: 1 << 20]) * 64),
    "zstd, repeated bytes": (Codec.ZSTD, lambda: STREAMED_ZSTD_HEADER + RLE_BLOCK * 10_000 + b"\1\0\0"),
    "zstd, forged size": (Codec.ZSTD, lambda: b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\1\0\0"),
}

MEASURE = """
import json, re, sys
from pathlib import Path
from shoal.protocol.wire.compression import Codec, decompress
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support import kafka_python

def peak_kib():  # not ru_maxrss, which starts at the parent's
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

for codec in list(Codec)[1:]:  # the libraries' own tables
    try:
        decompress(codec, bytes(100), 100)
    except RemoteProtocolError:
        pass
codec, data, limit = Codec(int(sys.argv[1])), sys.stdin.buffer.read(), int(sys.argv[2])
before = peak_kib()
try:
    outcome = len(decompress(codec, data, limit))
except RemoteProtocolError as error:
    outcome = str(error)
print(json.dumps([outcome, peak_kib() - before]))
"""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_memory(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()
    assert len(bomb) < 4 << 20
    finished = subprocess.run(
        [sys.executable, "-c", MEASURE, str(codec.value), str(LIMIT)], input=bomb, capture_output=True, check=True
    )
    outcome, grown_kib = json.loads(finished.stdout)
    assert isinstance(outcome, str), f"{outcome} bytes came out"
    assert grown_kib < 16 * 1024


def test_the_measure_would_see_a_bomb_go_off() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", MEASURE, str(Codec.GZIP.value), str(len(ZEROS))],
        input=gzip.compress(ZEROS, 1),
        capture_output=True,
        check=True,
    )
    outcome, grown_kib = json.loads(finished.stdout)
    assert outcome == len(ZEROS)
    assert grown_kib > 48 * 1024


def test_zlib_streams_without_a_gzip_header_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="gzip"):
        decompress(Codec.GZIP, zlib.compress(PLAIN), len(PLAIN))
