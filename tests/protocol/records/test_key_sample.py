import random
import zlib
from itertools import pairwise

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import HEADER_SIZE, NewRecord, encode_batch
from shoal.protocol.records.key_sample import KeySampler, has_keys
from shoal.protocol.wire.compression import Codec, compress, decompress_start
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.strategies import codecs, headers

VALUE = random.Random(5).randbytes(200_000)


def looked_into(keys: list[bytes | None], codec: Codec, value: bytes = b"value") -> bool | None:
    batch = encode_batch([NewRecord(1_700_000_000_000 + at, key, value) for at, key in enumerate(keys)], codec=codec)
    return has_keys(codec, memoryview(batch)[HEADER_SIZE:])


records = st.builds(
    NewRecord,
    st.integers(0, 1 << 41),
    st.none() | st.binary(max_size=10),
    st.none() | st.binary(max_size=60),
    headers,
    offset_delta=st.none(),
)


@given(codecs, st.lists(records, min_size=1, max_size=8))
def test_the_first_records_of_small_batches_are_seen_whole(codec: Codec, inside: list[NewRecord]) -> None:
    seen = has_keys(codec, encode_batch(inside, codec=codec)[HEADER_SIZE:])
    headers_size = sum(len(name) + len(value or b"") for record in inside for name, value in record.headers)
    if headers_size < 2000:
        assert seen is any(record.key is not None for record in inside)


@pytest.mark.parametrize("codec", Codec)
def test_an_empty_key_is_a_key(codec: Codec) -> None:
    assert looked_into([b""], codec) is True
    assert looked_into([None, None, b"k"], codec) is True
    assert looked_into([None, None], codec) is False


@pytest.mark.parametrize("codec", Codec)
def test_a_record_longer_than_what_is_decompressed_still_tells(codec: Codec) -> None:
    assert looked_into([b"k", b"k"], codec, VALUE) is True
    assert looked_into([None, b"k"], codec, VALUE) is False  # the second record is not read


def test_the_ninth_record_is_out_of_sight() -> None:
    assert looked_into([None] * 8 + [b"k"], Codec.NONE) is False


def test_a_batch_without_records_tells_nothing() -> None:
    assert has_keys(Codec.NONE, b"") is None


@pytest.mark.parametrize("attributes", [5, 6, 7])
def test_an_unknown_codec_tells_nothing(attributes: int) -> None:
    assert has_keys(attributes, b"123456789") is None


@given(st.integers(-(1 << 15), (1 << 15) - 1), st.binary(max_size=100))
def test_rubbish_is_harmless(attributes: int, data: bytes) -> None:
    assert has_keys(attributes, data) in (True, False, None)


@given(codecs, st.data())
def test_damage_is_harmless(codec: Codec, data: st.DataObject) -> None:
    payload = bytearray(encode_batch([NewRecord(5, b"k", b"v" * 300)] * 3, codec=codec)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    assert has_keys(codec, payload[:cut]) in (True, False, None)


# The bytes that are decompressed


@given(codecs, st.builds(lambda chunk, times: chunk * times, st.binary(max_size=60), st.integers(0, 5000)))
def test_the_start_is_the_start(codec: Codec, plain: bytes) -> None:
    assert decompress_start(codec, compress(codec, plain), 4096) == plain[:4096]


@pytest.mark.parametrize("codec", Codec)
def test_a_bomb_gives_no_more_than_was_asked_for(codec: Codec) -> None:
    assert decompress_start(codec, compress(codec, bytes(60_000_000)), 1000) in (bytes(1000), b"")


def test_a_large_raw_snappy_block_is_left_alone() -> None:
    assert decompress_start(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(1_048_577))), 10) == b""
    assert decompress_start(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(1_048_576))), 10) == bytes(10)


def test_damage_at_the_start_shows() -> None:
    with pytest.raises(RemoteProtocolError, match="gzip"):
        decompress_start(Codec.GZIP, b"\x1f\x8b" + b"\xff" * 30, 10)


def test_what_gives_nothing_for_ever_ends() -> None:
    """Empty deflate blocks (RFC 1951 3.2.4): only the first few are read."""
    header, empty_block = zlib.compressobj(wbits=31).flush()[:10], b"\0\0\0\xff\xff"
    assert decompress_start(Codec.GZIP, header + empty_block * 1_000_000 + b"rubbish", 10) == b""


# The batches that are chosen


def picked(sampler: KeySampler, sizes: list[int]) -> list[int]:
    found, before = [], 0
    for size in sizes:
        found += [before + at for at in sampler.picks(size)]
        before += size
    return found


@given(st.integers(1, 50), st.lists(st.integers(0, 40), max_size=60), st.integers(0, 9))
def test_how_batches_come_together_changes_nothing(every: int, sizes: list[int], seed: int) -> None:
    one_by_one = picked(KeySampler(every, seed), [1] * sum(sizes))
    assert picked(KeySampler(every, seed), sizes) == one_by_one
    assert all(0 < after - before < 2 * every for before, after in pairwise(one_by_one))


def test_one_in_n() -> None:
    assert picked(KeySampler(1), [3, 0, 2]) == [0, 1, 2, 3, 4]
    assert abs(len(picked(KeySampler(100), [7] * 100_000)) - 7000) < 200
    assert picked(KeySampler(0), [1000, 1000]) == []


def test_a_pattern_of_the_traffic_does_not_hide() -> None:
    """Each response has ten batches of ten partitions: all are sampled, though only 1 in 10 batches is."""
    assert {at % 10 for at in picked(KeySampler(10), [10] * 200)} == set(range(10))
