import struct
from dataclasses import replace

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.envelope import (
    MAGIC,
    Cover,
    EnvelopeKey,
    decode_key,
    encode_key,
    murmur2,
    tag_headers,
    with_partition_nonce,
)
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError
from tests.protocol.shallow.strategies import envelope_keys
from tests.support import kafka_python
from tests.support.batches import damaged

KEY = EnvelopeKey(
    cluster="c",
    topic="t",
    partition=2,
    first_offset=10,
    last_offset=19,
    batches=2,
    records=10,
    payload=500,
    payload_crc=7,
    flow=1,
    serial=2,
)


def sealed(stem: bytes) -> bytes:
    return stem + struct.pack(">I", crc32c.crc32c(stem))


@given(envelope_keys())
def test_round_trip(key: EnvelopeKey) -> None:
    assert decode_key(encode_key(key)) == key
    assert decode_key(memoryview(encode_key(key))) == key


@given(st.binary(max_size=200))
def test_other_keys_are_not_ours(data: bytes) -> None:
    assert decode_key(data) is None
    assert decode_key(MAGIC + data) is None  # a look-alike: no checksum fits


@given(envelope_keys(), st.data())
def test_one_changed_byte_makes_it_user_data(key: EnvelopeKey, data: st.DataObject) -> None:
    encoded = encode_key(key)
    assert decode_key(damaged(encoded, data.draw(st.integers(0, len(encoded) - 1)))) is None


@given(st.integers(0, 255).filter(lambda version: version not in (1, 2, 3)), st.binary(max_size=100))
def test_an_envelope_of_a_newer_shoal_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="newer Shoal"):
        decode_key(sealed(MAGIC + bytes([version]) + body))


@given(st.binary(max_size=200))
def test_a_sealed_key_of_any_content_decodes_or_is_refused(body: bytes) -> None:
    try:
        key = decode_key(sealed(MAGIC + b"\1" + body))
    except RemoteProtocolError:
        return
    assert key is not None
    assert encode_key(key)[17:-4] == body


@pytest.mark.parametrize(
    "wrong",
    [{"batches": 0}, {"records": 1}, {"first_offset": 20}, {"first_offset": -1}, {"partition": -1}, {"payload": 100}],
)
def test_a_key_that_contradicts_itself_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_key(encode_key(replace(KEY, **wrong)))  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [1, 4, 5])
def test_a_key_of_the_wrong_length_is_refused(cut: int) -> None:
    stem = encode_key(KEY)[:-4]
    with pytest.raises(RemoteProtocolError):
        decode_key(sealed(stem[:-cut]))
    with pytest.raises(RemoteProtocolError):
        decode_key(sealed(stem + bytes(cut)))


# The partition nonce


@given(st.binary(max_size=60))
def test_murmur2_is_kafkas(data: bytes) -> None:
    assert murmur2(data) == kafka_python.murmur2(data) & 0xFFFFFFFF


@given(envelope_keys(), st.integers(50, 300))
def test_the_default_partitioner_finds_the_source_partition(key: EnvelopeKey, partitions: int) -> None:
    chosen = with_partition_nonce(key, partitions)
    assert (kafka_python.murmur2(encode_key(chosen)) & 0x7FFFFFFF) % partitions == key.partition
    assert replace(chosen, nonce=key.nonce) == key


def test_a_partition_that_does_not_exist_has_no_nonce() -> None:
    with pytest.raises(LocalProtocolError):
        with_partition_nonce(KEY, 2)


# Tags


def test_tags_become_headers() -> None:
    assert tag_headers({"site": "A", "team": ""}) == ((b"shoal.tag.site", b"A"), (b"shoal.tag.team", b""))


@pytest.mark.parametrize("tags", [{str(n): "" for n in range(17)}, {"long": "x" * 250}])
def test_tags_are_bounded(tags: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError):
        tag_headers(tags)


def test_a_client_cannot_choose_keys_of_equal_hash() -> None:
    """Dictionaries of such keys would take a time that grows with the square of their number."""
    alike = [replace(KEY, topic=f"t{number}") for number in range(500)]
    alike += [replace(KEY, first_offset=number * (2**61 - 1), last_offset=2**63 - 2) for number in range(4)]
    alike += [replace(KEY, nonce=number) for number in range(500)]
    alike += [replace(KEY, cover=Cover(number * (2**61 - 1), 2**63 - 1, fill=False)) for number in range(4)]
    assert len({hash(key) for key in alike}) == len({*alike})
