import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.legacy.lz4_header import _xxh32, as_magic_0, as_standard
from shoal.protocol.wire.compression import Codec, compress
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.batches import damaged

# The first bytes of kafka-clients 3.9.1's MemoryRecords of magic 0 and 1 with Compression.lz4().
MAGIC_0_HEAD = bytes.fromhex("04224d186040 1a")
STANDARD_HEAD = bytes.fromhex("04224d186040 82")

plain = st.binary(max_size=300)
shapes = st.fixed_dictionaries({"store_size": st.booleans(), "content_checksum": st.booleans()})


@given(st.binary(max_size=31))
def test_checksum_is_that_of_the_library(data: bytes) -> None:
    """The library ends a frame with this checksum of its content."""
    frame = lz4.frame.compress(data, content_checksum=True)
    assert _xxh32(data).to_bytes(4, "little") == frame[-4:]


def test_header_is_the_one_java_writes() -> None:
    frame = compress(Codec.LZ4, b"x" * 100)
    assert frame[:7] == STANDARD_HEAD
    assert as_magic_0(frame) == MAGIC_0_HEAD + frame[7:]


@given(plain, shapes)
def test_there_and_back_is_the_same_frame(data: bytes, shape: dict[str, bool]) -> None:
    frame = lz4.frame.compress(data, **shape)
    assert as_standard(as_magic_0(frame)) == frame
    assert as_standard(frame) == frame


def test_header_may_have_a_size_and_a_dictionary() -> None:
    """Magic number, flags, block descriptor, 8 and 4 bytes, and then the checksum."""
    head = b"\x04\x22\x4d\x18\x69\x40" + bytes(range(12))
    assert as_magic_0(head + b"\0data") == head + bytes([_xxh32(head) >> 8 & 0xFF]) + b"data"
    assert as_standard(head + b"\0data") == head + bytes([_xxh32(head[4:]) >> 8 & 0xFF]) + b"data"


def test_library_refuses_what_old_clients_write() -> None:
    """Otherwise `as_standard` is not needed."""
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(as_magic_0(lz4.frame.compress(b"data")))


@given(plain, st.integers(1, 255))
def test_any_checksum_is_mended(data: bytes, flip: int) -> None:
    frame = lz4.frame.compress(data, store_size=False)
    assert as_standard(damaged(frame, 6, flip)) == frame


@pytest.mark.parametrize("frame", [b"", b"\x04\x22\x4d\x18\x60\x40", b"\x04\x22\x4d\x18\x68\x40" + bytes(8), bytes(20)])
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        as_standard(frame)
    with pytest.raises(RemoteProtocolError):
        as_magic_0(frame)
