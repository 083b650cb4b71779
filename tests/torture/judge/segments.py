"""The producer ids of a partition's batches, from the log on a broker's disk."""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = Struct(">qi4xb4xhi8x8xq")  # base offset, length, magic, attributes, last offset delta, producer id
_UNCOUNTED = 12


class Batch(NamedTuple):
    base: int
    last: int
    producer_id: int


def batches(data: Path, topic: str, partition: int) -> list[Batch]:
    """Batches in the log directory of a broker; empty if it has no such partition."""
    found = []
    for path in sorted((data / f"{topic}-{partition}").glob("*.log")):
        content = path.read_bytes()
        at = 0
        while at + _HEADER.size <= len(content):
            base, length, magic, _, delta, producer_id = _HEADER.unpack_from(content, at)
            if length <= 0 or magic != 2:
                break
            found.append(Batch(base, base + delta, producer_id))
            at += _UNCOUNTED + length
    return found


def is_stamped(log: list[Batch], offset: int) -> bool:
    """The batch with this offset has a producer id: if the mirror is not idempotent, only Shoal's batches have one."""
    index = bisect_right(log, offset, key=lambda batch: batch.base) - 1
    return 0 <= index < len(log) and log[index].producer_id >= 0
