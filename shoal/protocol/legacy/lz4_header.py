"""LZ4 frames of messages of magic 0 (KAFKA-3160).

An LZ4 frame begins with a magic number, a descriptor, and one checksum byte of the descriptor. Kafka's first writer
included the magic number in that checksum, and its first reader required it, so clients of 0.8.2 and 0.9 neither write
nor read standard frames. Kafka kept the mistake for magic 0 and dropped it in magic 1 (KafkaLZ4BlockOutputStream.java).
A broker that reads magic 0 ignores this byte, since a message has its own CRC: so does `as_standard`.
"""

from struct import Struct
from typing import Final

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["as_magic_0", "as_standard"]

_FRAME_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS_AT: Final = 4
_DESCRIPTOR_BYTES: Final = 2  # flags, block descriptor
_CONTENT_SIZE, _CONTENT_SIZE_BYTES = 0x08, 8
_DICTIONARY, _DICTIONARY_BYTES = 0x01, 4

_PRIME_1, _PRIME_2, _PRIME_3 = 2654435761, 2246822519, 3266489917
_PRIME_4, _PRIME_5 = 668265263, 374761393
_UINT32 = 0xFFFFFFFF
_LANES = Struct("<4I")
_LANE = Struct("<I")


def as_magic_0(frame: Buffer) -> bytes:
    """The standard `frame` with the header checksum for old clients. Raises RemoteProtocolError unless it is an LZ4
    frame."""
    return _with_checksum(frame, covered_from=0)


def as_standard(frame: Buffer) -> bytes:
    """The frame of a magic 0 message as a standard frame, for any header checksum. Raises RemoteProtocolError for other
    data."""
    return _with_checksum(frame, covered_from=_FLAGS_AT)


def _with_checksum(frame: Buffer, covered_from: int) -> bytes:
    at = _checksum_at(frame)
    checksum = _xxh32(bytes(frame[covered_from:at])) >> 8 & 0xFF
    return b"".join((frame[:at], bytes((checksum,)), memoryview(frame)[at + 1 :]))


def _checksum_at(frame: Buffer) -> int:
    at = _FLAGS_AT + _DESCRIPTOR_BYTES
    if len(frame) <= at or frame[:_FLAGS_AT] != _FRAME_MAGIC:
        raise RemoteProtocolError(f"{len(frame)} bytes are not an lz4 frame")
    flags = frame[_FLAGS_AT]
    at += _CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE else 0
    at += _DICTIONARY_BYTES if flags & _DICTIONARY else 0
    if len(frame) <= at:
        raise RemoteProtocolError("lz4 frame header is truncated")
    return at


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32
    return (value << bits | value >> 32 - bits) & _UINT32


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0, for less than 32 bytes (xxHash specification): a header has at most 18."""
    value, striped = _PRIME_5, 0
    if len(data) >= _LANES.size:
        seeds = (_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1)
        lanes = zip(seeds, _LANES.unpack_from(data), (1, 7, 12, 18), strict=True)
        value = sum(_rotated(_rotated(seed + word * _PRIME_2, 13) * _PRIME_1, turn) for seed, word, turn in lanes)
        striped = _LANES.size
    value += len(data)
    for at in range(striped, len(data) - 3, _LANE.size):
        value = _rotated(value + _LANE.unpack_from(data, at)[0] * _PRIME_3, 17) * _PRIME_4
    for byte in data[len(data) // 4 * 4 :]:
        value = _rotated(value + byte * _PRIME_5, 11) * _PRIME_1
    return _avalanche(value & _UINT32)


def _avalanche(value: int) -> int:
    value = (value ^ value >> 15) * _PRIME_2 & _UINT32
    value = (value ^ value >> 13) * _PRIME_3 & _UINT32
    return value ^ value >> 16
