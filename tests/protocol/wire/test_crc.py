import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.wire import crc
from shoal.protocol.wire.crc import combine, crc32c, patch, shift

blobs = st.binary(max_size=300)
tails = st.builds(lambda chunk, times: chunk * times, st.binary(max_size=70), st.integers(0, 4000))


def test_known_checksums() -> None:
    """RFC 3720, B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(blobs, tails)
def test_combine_is_the_checksum_of_the_whole(a: bytes, b: bytes) -> None:
    assert combine(crc32c(a), crc32c(b), len(b)) == crc32c(a + b)


@given(st.data(), tails)
def test_patch_is_a_recomputation(data: st.DataObject, tail: bytes) -> None:
    old = data.draw(blobs)
    new = data.draw(st.binary(min_size=len(old), max_size=len(old)))
    assert patch(crc32c(old + tail), old, new, len(tail)) == crc32c(new + tail)


@pytest.mark.parametrize("length", [0, 1, 0xFF, 0x100, 4095, 4096, 4097, 0xFFFF, 0x10000, 0x10001, 0xABCDEF, 0x1000000])
def test_shift_at_every_byte_of_the_length(length: int) -> None:
    a, zeros = b"shoal", bytes(length)
    assert shift(crc32c(a), length) == crc32c(a + zeros) ^ crc32c(zeros)


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 1 << 31), st.integers(0, (1 << 31) - 1))
def test_shifts_add_up_to_the_longest_length(value: int, one: int, other: int) -> None:
    assert shift(shift(value, one), other) == shift(value, one + other)


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF))
def test_shift_is_linear(a: int, b: int, length: int) -> None:
    assert shift(a, length) ^ shift(b, length) == shift(a ^ b, length)


def test_patching_keeps_damage_of_the_tail_visible() -> None:
    old, new, tail = b"old head", b"new head", bytes(5000)
    damaged = tail[:-1] + b"\1"
    assert patch(crc32c(old + tail), old, new, len(damaged)) != crc32c(new + damaged)


@pytest.mark.parametrize("length", [-1, 1 << 32])
def test_a_length_out_of_range_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        shift(1, length)


def test_heads_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        patch(1, b"a", b"ab", 3)


@given(st.lists(st.integers(0, 0xFFFFFFFF), max_size=50))
def test_tables_are_bounded(lengths: list[int]) -> None:
    for length in lengths:
        shift(1, length)
    digits = {byte << 8 * place for place in range(4) for byte in range(1, 256)}
    assert crc._tables.keys() <= digits
    assert {len(table) * table.itemsize for table in crc._tables.values()} <= {4096}
