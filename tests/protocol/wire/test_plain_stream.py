import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.wire.compression import MAX_GZIP_MEMBERS, Codec, compress
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.plain_stream import open_plain, working_bytes
from tests.support.strategies import codecs

PLAIN = b"".join(b'{"id": %d, "name": "shoal"}' % number for number in range(20_000))  # several blocks of every codec
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
plains = st.builds(lambda chunk, times: chunk * times, st.binary(max_size=60), st.integers(0, 3000))
steps = st.integers(1, 50) | st.integers(50, 300_000)
MB = 1 << 20


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@given(codecs, plains, steps)
def test_all_of_it_in_steps_that_are_not_larger(codec: Codec, plain: bytes, most: int) -> None:
    found = list(open_plain(codec, bytearray(compress(codec, plain)), most))
    assert b"".join(found) == plain
    assert all(0 < len(step) <= most for step in found)


OTHER_FORMS: dict[str, tuple[Codec, bytes]] = {
    "gzip of several members": (
        Codec.GZIP,
        gzip.compress(PLAIN[:70_000]) + gzip.compress(b"") + gzip.compress(PLAIN[70_000:]),
    ),
    "gzip that does not shrink": (Codec.GZIP, gzip.compress(PLAIN, 0)),
    "raw snappy": (Codec.SNAPPY, raw_snappy(PLAIN)),
    "snappy streams after each other": (
        Codec.SNAPPY,
        compress(Codec.SNAPPY, PLAIN[:40_000]) + compress(Codec.SNAPPY, PLAIN[40_000:]),
    ),
    "lz4 of large blocks": (Codec.LZ4, lz4.frame.compress(PLAIN, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "lz4 with checksums and a size": (Codec.LZ4, lz4.frame.compress(PLAIN, content_checksum=True, block_checksum=True)),
    "zstd frames": (Codec.ZSTD, zstandard.compress(PLAIN[:50_000]) + zstandard.compress(PLAIN[50_000:])),
    "zstd without a size": (
        Codec.ZSTD,
        zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(PLAIN),
    ),
}


@pytest.mark.parametrize("name", OTHER_FORMS)
@pytest.mark.parametrize("most", [999, 128 * 1024, 10 * MB])
def test_forms_that_others_write(name: str, most: int) -> None:
    codec, packed = OTHER_FORMS[name]
    assert b"".join(open_plain(codec, packed, most)) == PLAIN


@pytest.mark.parametrize("codec", COMPRESSED)
def test_nothing_cut_off_is_taken_for_the_whole(codec: Codec) -> None:
    whole = compress(codec, PLAIN[:100_000])
    for cut in [*range(40), *range(40, len(whole), 499), *range(len(whole) - 20, len(whole))]:
        if codec is Codec.SNAPPY and cut == 16:
            continue  # the framing's header alone: an empty stream
        with pytest.raises(RemoteProtocolError):
            list(open_plain(codec, whole[:cut], 50_000))


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("trailing", [b"\0", b"garbage!", bytes(64), bytes(100_000)])
def test_trailing_bytes_are_refused(codec: Codec, trailing: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(open_plain(codec, compress(codec, PLAIN) + trailing, MB))


def test_trailing_bytes_behind_a_frame_that_fills_the_last_input() -> None:
    frame = compress(Codec.LZ4, Random(1).randbytes(32 * 1024 - 15))
    assert len(frame) == 32 * 1024
    with pytest.raises(RemoteProtocolError):
        list(open_plain(Codec.LZ4, frame + b"garbage!", MB))


def test_the_number_of_gzip_members_is_bounded() -> None:
    with pytest.raises(RemoteProtocolError, match="members"):
        list(open_plain(Codec.GZIP, gzip.compress(b"x") * (MAX_GZIP_MEMBERS + 1), MB))


def test_a_snappy_block_states_no_more_than_it_can_hold() -> None:
    for packed in (b"\xff\xff\xff\xff\x0f" + bytes(100), b"\xc8\x01" + raw_snappy(b"x")[1:]):
        with pytest.raises(RemoteProtocolError, match="states"):
            list(open_plain(Codec.SNAPPY, packed, MB))
    zeros = raw_snappy(bytes(MB))
    assert len(zeros) * 64 >= 3 * MB
    assert b"".join(open_plain(Codec.SNAPPY, zeros, 10_000)) == bytes(MB)


def _first(stream: Iterator[bytes], count: int) -> int:
    return sum(len(next(stream)) for _ in range(count))


BOMBS: dict[Codec, Callable[[], bytes]] = {
    Codec.GZIP: lambda: compress(Codec.GZIP, bytes(50 * MB)),
    Codec.LZ4: lambda: compress(Codec.LZ4, bytes(50 * MB)),
    Codec.ZSTD: lambda: zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50 * MB)),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_bomb_costs_what_is_taken_of_it(codec: Codec) -> None:
    bomb = BOMBS[codec]()
    tracemalloc.start()
    try:
        assert 0 < _first(open_plain(codec, bomb, 64 * 1024), 10) <= 640 * 1024
        assert tracemalloc.get_traced_memory()[1] < MB
    finally:
        tracemalloc.stop()


def test_working_bytes_are_those_of_the_stream() -> None:
    blocks = lz4.frame.compress(PLAIN * 10, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    assert working_bytes(Codec.NONE, PLAIN) == 0
    assert working_bytes(Codec.GZIP, compress(Codec.GZIP, PLAIN)) == 64 * 1024
    assert working_bytes(Codec.SNAPPY, raw_snappy(PLAIN)) == len(PLAIN)
    assert working_bytes(Codec.SNAPPY, compress(Codec.SNAPPY, PLAIN)) == 32 * 1024
    assert working_bytes(Codec.LZ4, compress(Codec.LZ4, PLAIN)) == 128 * 1024
    assert working_bytes(Codec.LZ4, blocks) == 8 * MB
    assert working_bytes(Codec.ZSTD, compress(Codec.ZSTD, PLAIN)) >= len(PLAIN)


def test_the_largest_of_many_parts_counts_and_one_in_front_of_damage_too() -> None:
    xerial = compress(Codec.SNAPPY, PLAIN)
    block = raw_snappy(PLAIN)
    assert working_bytes(Codec.SNAPPY, xerial + len(block).to_bytes(4, "big") + block + b"\x7f\xff\xff\xff") == len(
        PLAIN
    )
    small, large = (zstandard.ZstdCompressor(level=level, write_content_size=False) for level in (1, 19))
    streams = [small.compress(PLAIN), large.compress(PLAIN)]
    assert working_bytes(Codec.ZSTD, b"".join(streams)) == max(working_bytes(Codec.ZSTD, each) for each in streams)
    skipped = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"any"
    assert working_bytes(Codec.ZSTD, skipped + streams[1]) == working_bytes(Codec.ZSTD, streams[1])
    assert working_bytes(Codec.ZSTD, skipped) == 0


@given(codecs, st.binary(max_size=60))
def test_working_bytes_of_anything_are_a_number(codec: Codec, data: bytes) -> None:
    assert working_bytes(codec, data) >= 0
