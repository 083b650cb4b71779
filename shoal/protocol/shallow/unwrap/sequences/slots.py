"""The sequence map as bytes in a buffer of fixed slots, which may be stored in a file.

A process may be killed at any instruction, also during a write. So a slot has two versions of its row, each with a
checksum and an increasing number, and the older one is overwritten. An incomplete version is never used: then the other
one counts, which is the previous state. Of two rows with one key the higher number counts.

    slot     2 versions of 256 bytes
    version  CRC-32C of the rest; number; key; epoch; 0; up to 5 outer batches; zeros
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.types import TopicPartition

__all__ = ["SLOT_SIZE", "Keep", "Lineage", "Outer", "SlotTable", "slot_key"]

Keep = Callable[[int, Buffer], None]
"""Gets each version: its position in the buffer, and its bytes."""

_KEY_SIZE = 16
_VERSION_SIZE = 256
SLOT_SIZE = 2 * _VERSION_SIZE
_LOOKED_AT = 64  # slots
_MAX_OUTERS = 5
_CRC = Struct(">I")
_ROW = Struct(
    ">"
    "Q"  # number: 0 is an empty version
    "16s"  # key
    "h"  # epoch
    "i"  # 0: earlier versions of Shoal wrote -1 before the first envelope, and let such batches pass
    "B"  # outer batches
)
_OUTER = Struct(
    ">"
    "i"  # base
    "i"  # records
    "i"  # first
    "i"  # inner
    "i"  # appended
    "q"  # baseOffset
    "I"  # crc
    "i"  # size
)


class Outer(NamedTuple):
    """An outer batch: its own sequence and records; the first inner sequence, the inner records, and how many of them
    are appended. `base_offset`: of the mirror's answer; -1: unknown. `crc` and `size` identify its bytes.
    """

    base: int
    records: int
    first: int
    inner: int
    appended: int = 0
    base_offset: int = -1
    crc: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """One producer id in one partition: its newest epoch, and the last outer batches."""

    epoch: int
    window: tuple[Outer, ...] = ()


def slot_key(producer_id: int, partition: TopicPartition) -> bytes:
    digest = blake2b(producer_id.to_bytes(8, "big", signed=True), digest_size=_KEY_SIZE)
    digest.update(b"n" + partition.topic.encode())
    digest.update(partition.partition.to_bytes(4, "big", signed=True))
    return digest.digest()


class _Row(NamedTuple):
    number: int
    key: bytes
    lineage: Lineage


class SlotTable:
    """`buffer` has a whole number of slots; each known key has one."""

    def __init__(self, buffer: bytearray | memoryview, keep: Keep | None = None) -> None:
        self._buffer = memoryview(buffer)
        self._keep = keep
        self.count = len(self._buffer) // SLOT_SIZE
        self._places: dict[bytes, tuple[int, int]] = {}  # slot, index of its newer version
        self._free = list(range(self.count))
        self._number = 0

    def load(self) -> list[tuple[bytes, Lineage]]:
        """All rows, the last written ones at the end. Call it once, before anything else."""
        found: dict[bytes, tuple[_Row, int, int]] = {}
        for slot in self._used():
            row, half = self._newer(slot)
            if row and (row.key not in found or row.number > found[row.key][0].number):
                found[row.key] = row, slot, half
        self._places = {key: (slot, half) for key, (_, slot, half) in found.items()}
        self._free = sorted(set(range(self.count)) - {slot for slot, _ in self._places.values()}, reverse=True)
        rows = sorted((row for row, _, _ in found.values()), key=lambda row: row.number)
        self._number = rows[-1].number if rows else 0
        return [(row.key, row.lineage) for row in rows]

    def _newer(self, slot: int) -> tuple[_Row | None, int]:
        first, second = (_read(self._version(slot, half)) for half in (0, 1))
        return (second, 1) if second and (first is None or second.number > first.number) else (first, 0)

    def _used(self) -> Iterator[int]:
        """Slots that may have a row: most of a new file is zeros."""
        for first in range(0, self.count, _LOOKED_AT):
            last = min(first + _LOOKED_AT, self.count)
            if bytes(self._buffer[first * SLOT_SIZE : last * SLOT_SIZE]).strip(b"\0"):
                yield from range(first, last)

    def write(self, key: bytes, lineage: Lineage) -> None:
        """Raises IndexError if no slot is free: `release` one before."""
        known = self._places.get(key)
        if known is None:
            slot = self._free.pop()
            known = slot, self._newer(slot)[1]
        slot, newer = known
        self._number += 1
        version = _encode(self._number, key, lineage)
        self._version(slot, 1 - newer)[:] = version
        if self._keep is not None:
            self._keep(_position(slot, 1 - newer), version)
        self._places[key] = slot, 1 - newer

    def release(self, key: bytes) -> None:
        """After a restart the row may be read again, until another one uses its slot."""
        self._free.append(self._places.pop(key)[0])

    def _version(self, slot: int, half: int) -> memoryview:
        start = _position(slot, half)
        return self._buffer[start : start + _VERSION_SIZE]


def _position(slot: int, half: int) -> int:
    return slot * SLOT_SIZE + half * _VERSION_SIZE


def _encode(number: int, key: bytes, lineage: Lineage) -> bytes:
    row = _ROW.pack(number, key, lineage.epoch, 0, len(lineage.window))
    row = (row + b"".join(_OUTER.pack(*outer) for outer in lineage.window)).ljust(_VERSION_SIZE - _CRC.size, b"\0")
    return _CRC.pack(crc32c(row)) + row


def _read(version: memoryview) -> _Row | None:
    number, key, epoch, _, outers = _ROW.unpack_from(version, _CRC.size)
    if not number or outers > _MAX_OUTERS or _CRC.unpack_from(version)[0] != crc32c(version[_CRC.size :]):
        return None
    start = _CRC.size + _ROW.size
    window = tuple(map(Outer._make, _OUTER.iter_unpack(version[start : start + outers * _OUTER.size])))
    return _Row(number, key, Lineage(epoch=epoch, window=window))
